"""How a tool call ended. The status alone does not tell: see the rules in the docstring of ``outcome_of``."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import Event
from opentelemetry.trace import StatusCode

from .. import semconv
from .._sdk import mapping_of
from ..model import Outcome
from ._table import Convention

CANCELLED_TYPES = frozenset({
    "asyncio.exceptions.CancelledError", "asyncio.CancelledError", "CancelledError",
    "concurrent.futures._base.CancelledError", "concurrent.futures.CancelledError", "trio.Cancelled",
    "KeyboardInterrupt", "SystemExit", "GeneratorExit",
})  # fmt: skip
CONTROL_FLOW: Mapping[Any, Outcome] = {
    # LangGraph raises these to pause for a human, neither success nor failure, and to hand over, which is done.
    "langgraph.errors.GraphBubbleUp": Outcome.CANCELLED,
    "langgraph.errors.GraphInterrupt": Outcome.CANCELLED,
    "langgraph.errors.NodeInterrupt": Outcome.CANCELLED,
    "langgraph.errors.ParentCommand": Outcome.SUCCESS,
}


class Evidence(NamedTuple):
    """How a span says it ended."""

    outcome: Outcome
    event: Event | None = None
    """The last exception event, which stands for the failure."""


_SUCCESS = Evidence(Outcome.SUCCESS)
_CANCELLED = Evidence(Outcome.CANCELLED)
_FAILURE = Evidence(Outcome.FAILURE)


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
    ``error.type`` or a flag of the convention is a failure; prose about errors is not. Control flow is known by the
    type's whole name, in the event, in ``error.type`` and, of a live exception, anywhere in its MRO: a look-alike is
    none. A span that says nothing while a cancellation passes through it is cancelled.

    Args:
        convention: The convention of the span.
        attributes: Its attributes.
        events: Its events.
        status: Its status code.
        live: The exception that is passing through the span's end, when that is certain; else None.
    """
    event = next((e for e in reversed(events) if e.name == semconv.EXCEPTION_EVENT), None) if events else None
    kind = (
        attributes.get(semconv.ERROR_TYPE)
        if event is None
        else mapping_of(event.attributes).get(semconv.EXCEPTION_TYPE)
    )
    if kind in CANCELLED_TYPES or (live is not None and is_cancellation(live)):
        return _CANCELLED
    if kind is not None or live is not None:
        steered = CONTROL_FLOW.get(kind) or _control_flow(live)
        if steered is not None:
            return Evidence(steered)
    if event is not None:
        return Evidence(Outcome.FAILURE, event)
    if status is StatusCode.ERROR or kind:
        return _FAILURE
    for key, value in convention.failure_flags:
        if attributes.get(key) == value:
            return _FAILURE
    return _SUCCESS


def _control_flow(live: BaseException | None) -> Outcome | None:
    try:
        for base in () if live is None else type(live).__mro__:
            steered = CONTROL_FLOW.get(f"{base.__module__}.{base.__qualname__}")
            if steered is not None:
                return steered
    except Exception:  # a metaclass may do anything
        return None
    return None
