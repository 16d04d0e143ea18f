"""From a compact record to the span that is exported: what the tool's thread left out is added here."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from .. import semconv
from ..capture import format_node
from ..model import ExceptionNode
from ..redact import mask
from .record import Plain, to_span


def exported_span(plain: Plain, resource: Resource, *, finished: bool = True) -> ReadableSpan:
    """Make the span that stands for a record.

    A failure gets the exception event when it has none (or its stack back when the SDK's limits cut it), the event
    that says what the agent was told and when, ``error.type``, status ERROR and ``error_hygiene.*``. A success that
    resolved failures gets a link to each of them.

    Args:
        plain: The record, as ``record.loads`` gives it.
        resource: The resource of its span.
        finished: False when the record was written before its span ended, and no end will come.
    """
    span: Plain = plain["span"]
    attributes: Plain = dict(span["attributes"])
    events: list[Any] = list(span["events"])
    links: list[Any] = list(span.get("links", ()))
    status = (span["status"], span["description"])
    attributes[semconv.KEPT] = True
    if not finished:
        attributes[semconv.UNFINISHED] = True
    failure = plain.get("failure")
    if failure is not None:
        attributes.update(_failure_attributes(failure))
        attributes.setdefault(semconv.ERROR_TYPE, failure["type"])
        if failure["call"]["arguments"] is not None:
            attributes.setdefault(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, failure["call"]["arguments"])
        if status[0] != StatusCode.ERROR.value:
            status = (StatusCode.ERROR.value, f"{failure['type']}: {failure['message']}"[:1000])
        _complete_events(events, failure)
    for trace_id, span_id, ref in plain.get("cleared", ()):
        values = {semconv.LINK_KIND: "cleared"} | ({semconv.REF: ref} if ref else {})
        links.append([trace_id, span_id, False, values])
    # Without an end the backend would reckon from 1970: it was last seen when the record was written.
    end = None if span["end"] else plain["at"]
    return to_span(span, resource, attributes=attributes, events=events, links=links, status=status, end_time=end)


def stack_of(failure: Plain) -> str:
    """Return the stack text of a failure: as recorded, or written from its captured frames."""
    if failure["stacktrace"]:
        return str(failure["stacktrace"])
    node = failure["exception"]
    if node is None:
        return ""
    return mask(format_node(ExceptionNode.model_validate(node)))


def _failure_attributes(failure: Plain) -> Plain:
    summary = failure["summary"]
    attributes = {
        semconv.LINE: failure["line"],
        semconv.CLASS: summary["error_class"],
        semconv.BUCKET: summary["bucket"],
        semconv.RECOVERABLE: summary["recoverable"],
        semconv.ATTEMPT: summary["attempt"],
        semconv.FINGERPRINT: failure["fingerprint"],
        semconv.REF: summary["ref"],
        semconv.CONVERSATION: failure["conversation"],
    }
    return {key: value for key, value in attributes.items() if value is not None}


def _complete_events(events: list[Any], failure: Plain) -> None:
    index = next((i for i in reversed(range(len(events))) if events[i][0] == semconv.EXCEPTION_EVENT), None)
    if index is None:
        values = {
            semconv.EXCEPTION_TYPE: failure["type"],
            semconv.EXCEPTION_MESSAGE: failure["message"],
            semconv.EXCEPTION_ESCAPED: "True" if failure["escaped"] else "False",
        }
        stack = stack_of(failure)
        if stack:
            values[semconv.EXCEPTION_STACKTRACE] = stack
        events.append([semconv.EXCEPTION_EVENT, failure["at"], values])
    elif failure["exception"] is not None and failure["exception"]["frames"]:
        # Frames beside an event are there only because the event's own stack was cut.
        name, at, values = events[index]
        events[index] = [name, at, {**values, semconv.EXCEPTION_STACKTRACE: stack_of({**failure, "stacktrace": ""})}]
    if failure["told_at"] is not None:
        events.append([semconv.TOLD_EVENT, failure["told_at"], {semconv.LINE: failure["line"]}])
