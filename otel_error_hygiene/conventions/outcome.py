"""How a tool call ended. The status alone does not tell: see the rules in the docstring of ``outcome_of``."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import Event
from opentelemetry.trace import StatusCode

from .. import semconv
from ..model import Outcome
from ._table import Convention

CANCELLED_TYPES = frozenset({
    "asyncio.exceptions.CancelledError", "asyncio.CancelledError", "CancelledError",
    "concurrent.futures._base.CancelledError", "concurrent.futures.CancelledError",
    "KeyboardInterrupt", "SystemExit", "GeneratorExit",
})  # fmt: skip
CONTROL_FLOW_TYPES = frozenset({
    # LangGraph raises these to pause or to hand over; the tool did not fail.
    "langgraph.errors.GraphInterrupt", "langgraph.errors.NodeInterrupt",
    "langgraph.errors.ParentCommand", "langgraph.errors.GraphBubbleUp",
})  # fmt: skip


class Evidence(NamedTuple):
    """How a span says it ended."""

    outcome: Outcome
    event: Event | None = None
    """The last exception event, which stands for the failure."""


_SUCCESS = Evidence(Outcome.SUCCESS)
_CANCELLED = Evidence(Outcome.CANCELLED)


def is_cancellation(error: BaseException) -> bool:
    """Tell a cancellation or an exit of the program from a failure.

    Exits (``SystemExit``, ``KeyboardInterrupt``, ``GeneratorExit``) and every other exception that is not an
    ``Exception`` count, groups when nothing in them is one.
    """
    if isinstance(error, BaseExceptionGroup):
        return not isinstance(error, Exception) and error.split(Exception)[0] is None
    return not isinstance(error, Exception) or isinstance(
        error, (asyncio.CancelledError, concurrent.futures.CancelledError)
    )


def outcome_of(
    convention: Convention,
    attributes: Mapping[str, Any],
    events: Sequence[Event],
    status: StatusCode,
    live: BaseException | None,
) -> Evidence:
    """Decide how a tool call ended.

    An exception event outweighs status OK, except control flow and cancellation; ERROR with no event is a failure;
    ``error.type`` or a convention's own flag is a failure; prose about errors is not. A span that says nothing while
    a cancellation passes through it is cancelled.

    Args:
        convention: The convention of the span.
        attributes: Its attributes.
        events: Its events.
        status: Its status code.
        live: The exception that is passing through the span's end, when that is certain; else None.
    """
    event = next((e for e in reversed(events) if e.name == semconv.EXCEPTION_EVENT), None) if events else None
    if event is not None:
        kind = str((event.attributes or {}).get(semconv.EXCEPTION_TYPE, ""))
        if kind in CANCELLED_TYPES:
            return _CANCELLED
        if kind in CONTROL_FLOW_TYPES:
            return _SUCCESS
        return Evidence(Outcome.FAILURE, event)
    error_type = attributes.get(semconv.ERROR_TYPE)
    if error_type in CANCELLED_TYPES or (live is not None and is_cancellation(live)):
        return _CANCELLED
    if status is StatusCode.ERROR or error_type:
        return Evidence(Outcome.FAILURE)
    if any(attributes.get(key) == value for key, value in convention.failure_flags):
        return Evidence(Outcome.FAILURE)
    return _SUCCESS
