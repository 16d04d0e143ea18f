"""Look at a span: its attributes, whether it says anything at all, and whether a live exception is its own.

``sys.exc_info()`` in ``on_end`` also shows an exception that somebody further out is handling, so it is
trusted only when it agrees with what the span says (measured: facts of the SDK, "who records what").
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import StatusCode

from .. import semconv
from .._sdk import mapping_of, span_attributes
from ..capture import Limits, capture, holds_stack, qualified_name, safe_str
from ..conventions import Evidence, results_are_fine, untroubled
from ..model import ToolCall
from .nouns import node_of_event, node_of_span, node_of_text
from .splitter import Failed

_LONG = 64
_ERROR = StatusCode.ERROR


def live_exception(span: ReadableSpan) -> BaseException | None:
    """Return the live exception of a span that is ending on this thread, or None when that is not certain."""
    error = sys.exc_info()[1]
    if error is None:
        return None
    event = next((e for e in reversed(span.events) if e.name == semconv.EXCEPTION_EVENT), None)
    if event is not None:
        return error if _is_of_event(error, event) else None
    if span.status.status_code is StatusCode.ERROR:
        return error if _is_of_status(error, span) else None
    if not isinstance(error, Exception) and _passes_through_use_span(error):
        return error
    return None


def _is_of_event(error: BaseException, event: Event) -> bool:
    values = mapping_of(event.attributes)
    kind = values.get(semconv.EXCEPTION_TYPE)
    if kind not in (qualified_name(type(error)), type(error).__name__):
        return False
    message = values.get(semconv.EXCEPTION_MESSAGE)
    if message is None:  # some leave content out
        return True
    told, own = str(message), safe_str(error)
    return told == own or (len(told) >= _LONG and own.startswith(told))


def _is_of_status(error: BaseException, span: ReadableSpan) -> bool:
    kind, name, text = qualified_name(type(error)), type(error).__name__, safe_str(error)
    error_type = span_attributes(span).get(semconv.ERROR_TYPE)
    if error_type is not None:
        return error_type in (kind, name)
    description = span.status.description
    return description is not None and description in (text, f"{name}: {text}", f"{kind}: {text}", name)


def _passes_through_use_span(error: BaseException) -> bool:
    # use_span() records no BaseException; the traceback of one that passes through it begins in its frame.
    traceback = error.__traceback__
    return traceback is not None and traceback.tb_frame.f_code.co_name == "use_span"


def says_nothing(span: ReadableSpan, attributes: Mapping[str, Any]) -> bool:
    """Tell, for the price of a few look-ups, that nothing about a span hints at anything but success."""
    events = getattr(span, "_events", None)
    if events is None or len(events) or not untroubled(attributes):
        return False
    if span.status.status_code is _ERROR or sys.exc_info()[1] is not None:
        return False
    return results_are_fine(attributes)


def ended_badly(span: ReadableSpan) -> bool:
    """Tell whether a span that is no tool call says that it failed."""
    return span.status.status_code is _ERROR or any(event.name == semconv.EXCEPTION_EVENT for event in span.events)


def stack_was_cut(event: Event) -> bool:
    """Tell whether the SDK's limits cut an event's stack text: one of its last lines names the exception."""
    values = mapping_of(event.attributes)
    name = str(values.get(semconv.EXCEPTION_TYPE, "")).rpartition(".")[2]
    tail = str(values.get(semconv.EXCEPTION_STACKTRACE, ""))[-1000 - len(str(values.get(semconv.EXCEPTION_MESSAGE))) :]
    return f"\n{name}" not in tail and f".{name}" not in tail and f"| {name}" not in tail


def failed_of_span(
    span: ReadableSpan, call: ToolCall, evidence: Evidence, live: BaseException | None, limits: Limits
) -> Failed:
    """Return what a span tells of its failure, from the best source that it has."""
    event = evidence.event
    truncated, stack = False, ""
    if live is not None:
        # With an event the stack stands there, unless the SDK's limits cut it.
        node, truncated = capture(
            live, limits if event is None or stack_was_cut(event) else limits._replace(max_frames=0)
        )
    elif event is not None:
        node = node_of_event(event)
    elif evidence.told is not None:
        node = node_of_text(evidence.told.type, evidence.told.message, call.tool)
    else:
        description = span.status.description or ""
        node = node_of_span(span_attributes(span), description, call.tool)
        stack = description if holds_stack(description) else ""
    return Failed(call, node, stack, live is not None, truncated)
