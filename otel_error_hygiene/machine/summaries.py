"""The summary of a captured failure: the noun of which the agent's line is made."""

from __future__ import annotations

from datetime import datetime

from ..conventions.control import CANCELLED_TYPES
from ..model import Classification, ErrorSummary, ExceptionNode
from ..redact import sanitize, sanitize_name
from ..summary import summary_of
from .texts import advice_in


def summary_of_node(  # noqa: PLR0913  (one noun's fields)
    node: ExceptionNode,
    classification: Classification,
    *,
    tool: str,
    attempt: int = 1,
    escalated: bool = False,
    impact: str | None = None,
    timestamp: datetime,
    trace_id: str | None = None,
    span_id: str | None = None,
    ref: str | None = None,
) -> ErrorSummary:
    """Summarize a captured failure; every text is made safe for the context here."""
    return summary_of(
        classification,
        tool=sanitize_name(tool),
        error=sanitize_name(_root(node).type.rpartition(".")[2], 80),
        attempt=attempt,
        escalated=escalated,
        hint=advice_in(node),
        impact=None if impact is None else sanitize(impact, 200),
        timestamp=timestamp,
        trace_id=trace_id,
        span_id=span_id,
        ref=ref,
    )


def _root(node: ExceptionNode) -> ExceptionNode:
    # A time-out of asyncio is caused by the cancellation that it made: that says nothing.
    while node.cause is not None and node.cause.type not in CANCELLED_TYPES:
        node = node.cause
    return node
