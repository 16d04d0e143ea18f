"""Tell the agent what to do next: hint, brief and summary of a classified failure, in words of our own tables only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from .model import Classification, ErrorClass, ErrorSummary, Recoverable

_MAX_BRIEF_CHARS: Final = 80

HINTS: Final[Mapping[ErrorClass, str]] = {
    ErrorClass.CONNECTIVITY: "Retrying with same parameters.",
    ErrorClass.BAD_REQUEST: "Check parameter format.",
    ErrorClass.AUTH: "Escalate to human — credentials needed.",
    ErrorClass.NOT_FOUND: "Try broader search or different category.",
    ErrorClass.RATE_LIMIT: "Wait and retry.",
    ErrorClass.UPSTREAM: "Fallback to alternative data source.",
    ErrorClass.UNKNOWN: "Log for investigation; continue with available data.",
}
HINT_WAIT: Final = "Wait %d seconds and retry."
HINT_UNANSWERED: Final = "May have been applied; check before repeating."

OVERRULED: Final[Mapping[tuple[ErrorClass, Recoverable], str]] = {
    # Where repeating the call unchanged, as the template says, would be false advice.
    (ErrorClass.CONNECTIVITY, Recoverable.MAYBE): "Check the address and the connection, then retry.",
    (ErrorClass.CONNECTIVITY, Recoverable.NO): "Cannot connect as configured; escalate to human.",
    (ErrorClass.RATE_LIMIT, Recoverable.NO): "Quota is used up; escalate to human.",
}
BRIEFS: Final[Mapping[ErrorClass, str]] = {
    ErrorClass.CONNECTIVITY: "connection failed or timed out",
    ErrorClass.BAD_REQUEST: "request not accepted as sent",
    ErrorClass.AUTH: "access refused",
    ErrorClass.NOT_FOUND: "nothing found there",
    ErrorClass.RATE_LIMIT: "too many requests",
    ErrorClass.UPSTREAM: "service failed",
    ErrorClass.UNKNOWN: "failed for an unclassified reason",
}
BRIEF_UNANSWERED: Final = "sent, but not answered"
BRIEFS_OVERRULED: Final[Mapping[tuple[ErrorClass, Recoverable], str]] = {
    (ErrorClass.CONNECTIVITY, Recoverable.NO): "no connection possible as configured",
    (ErrorClass.RATE_LIMIT, Recoverable.NO): "quota used up",
}


def _whole_seconds(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def hint_of(classification: Classification) -> str:
    """Return what the agent should do next.

    The template of the class, with the seconds to wait where they are known (rounded up, at least 1); replaced only
    where its advice would be false: after a request that may have been applied, and where repeating cannot help.
    """
    if classification.unanswered:
        return HINT_UNANSWERED
    overruled = OVERRULED.get((classification.error_class, classification.recoverable))
    if overruled is not None:
        return overruled
    if classification.error_class is ErrorClass.RATE_LIMIT and classification.retry_after_seconds is not None:
        return HINT_WAIT % _whole_seconds(classification.retry_after_seconds)
    return HINTS[classification.error_class]


def brief_of(classification: Classification) -> str:
    """Return what went wrong in our own words and numbers, at most 80 characters."""
    if classification.unanswered:
        brief = BRIEF_UNANSWERED
    else:
        key = (classification.error_class, classification.recoverable)
        brief = BRIEFS_OVERRULED.get(key) or BRIEFS[classification.error_class]
    if classification.http_status is not None:
        brief += f", HTTP {classification.http_status}"
    if classification.retry_after_seconds is not None:
        brief += f", wait {_whole_seconds(classification.retry_after_seconds)} s"
    return brief[:_MAX_BRIEF_CHARS]


def summary_of(  # noqa: PLR0913  (one keyword for each field that is not the classification's)
    classification: Classification,
    *,
    tool: str,
    error: str,
    attempt: int,
    impact: str | None,
    timestamp: datetime,
    trace_id: str | None = None,
    span_id: str | None = None,
    ref: str | None = None,
    escalated: bool = False,
    hint: str | None = None,
) -> ErrorSummary:
    """Make the summary of one failure; ``tool``, ``error`` and ``impact`` must have passed the context policy.

    Args:
        classification: What the evidence says.
        tool: Name of the tool.
        error: Class name of the root cause, or the code that stands for it.
        attempt: 1 for the first such failure, N for the Nth identical one without a success or an escalation between.
        impact: What the failure means, in the caller's words, or None.
        timestamp: When the failure was seen, UTC.
        trace_id: 32 hex digits, or None without a span.
        span_id: 16 hex digits, or None without a span.
        ref: 8 hex digits that ``recall`` takes, or None when the record is not durable.
        escalated: It failed the same way too often: the line says to stop.
        hint: What to do, in the words of the tool's own author; None takes it from our table.
    """
    return ErrorSummary.made(
        {
            "tool": tool,
            "error_class": classification.error_class,
            "bucket": classification.bucket,
            "recoverable": classification.recoverable,
            "hint": hint or hint_of(classification),
            "retry_after_seconds": classification.retry_after_seconds,
            "error": error,
            "message": brief_of(classification),
            "impact": impact,
            "attempt": attempt,
            "escalated": escalated,
            "timestamp": timestamp,
            "http_status": classification.http_status,
            "trace_id": trace_id,
            "span_id": span_id,
            "ref": ref,
        }
    )
