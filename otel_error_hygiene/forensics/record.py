"""The compact record: plain values, made on the tool's thread; span and OTLP bytes are made of it later.

Strings keep what they are, lone surrogates included; they are made encodable when a span is made of
the record, because protobuf would refuse the whole batch for one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from ..model import ErrorSummary, ExceptionNode, ToolCall

Plain = dict[str, Any]
VERSION: Final = 1


def dumps(plain: Plain) -> bytes:
    """Encode a record. Never raises for values that JSON lacks: bytes and strangers are written as text."""
    return json.dumps(plain, separators=(",", ":"), default=_stranger).encode("ascii")


def loads(payload: bytes) -> Plain:
    """Decode a record."""
    plain: Plain = json.loads(payload)
    return plain


def _stranger(value: Any) -> Any:
    if isinstance(value, (ErrorSummary, ExceptionNode, ToolCall)):
        return value.__dict__
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return repr(value)[:1000]


def of_span(span: ReadableSpan, resource: int, attributes: Plain, description: str | None, events: list[Any]) -> Plain:
    """Return a span as plain values.

    Args:
        span: The ended span.
        resource: Number of its resource in the outbox.
        attributes: Its attributes, masked.
        description: Its status description, masked.
        events: Its events as ``[name, time_ns, attributes]``, masked.
    """
    context, parent, scope = span.context, span.parent, span.instrumentation_scope
    plain: Plain = {
        "name": span.name,
        "trace": context.trace_id,
        "id": context.span_id,
        "flags": int(context.trace_flags),
        "parent": None if parent is None else [parent.trace_id, parent.span_id, parent.is_remote],
        "kind": span.kind.value,
        "start": span.start_time,
        "end": span.end_time,
        "status": span.status.status_code.value,
        "description": description,
        "attributes": attributes,
        "events": events,
        "res": resource,
        "scope": None if scope is None else [scope.name, scope.version, scope.schema_url, dict(scope.attributes or {})],
    }
    if context.trace_state:
        plain["state"] = context.trace_state.to_header()
    if span.links:
        plain["links"] = [
            [link.context.trace_id, link.context.span_id, link.context.is_remote, dict(link.attributes or {})]
            for link in span.links
        ]
    return plain


def encodable(value: Any) -> Any:
    """Return a value that protobuf can encode: lone surrogates as their escapes, sequences as tuples."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, (list, tuple)):
        return tuple(encodable(item) for item in value)
    if isinstance(value, Mapping):
        return {encodable(key): encodable(item) for key, item in value.items()}
    return value


def to_span(
    plain: Plain,
    resource: Resource,
    *,
    attributes: Plain,
    events: list[Any],
    links: list[Any],
    status: tuple[int, str | None],
) -> ReadableSpan:
    """Make a span of plain values.

    Args:
        plain: What ``of_span`` gave.
        resource: The resource that its number stands for.
        attributes: Attributes to export.
        events: Events to export, as ``[name, time_ns, attributes]``.
        links: Links to export, as ``[trace_id, span_id, is_remote, attributes]``.
        status: Status code and description.
    """
    trace_id, parent, scope = plain["trace"], plain["parent"], plain["scope"]
    code = StatusCode(status[0])
    return ReadableSpan(
        name=encodable(plain["name"]),
        context=SpanContext(
            trace_id,
            plain["id"],
            is_remote=False,
            trace_flags=TraceFlags(plain["flags"]),
            trace_state=TraceState.from_header([plain["state"]]) if "state" in plain else TraceState(),
        ),
        parent=None if parent is None else SpanContext(parent[0], parent[1], is_remote=parent[2]),
        resource=resource,
        attributes=encodable(attributes),
        events=[Event(name, attributes=encodable(values), timestamp=at) for name, at, values in events],
        links=[
            Link(SpanContext(trace, span, is_remote=remote), attributes=encodable(values))
            for trace, span, remote, values in links
        ],
        kind=SpanKind(plain["kind"]),
        instrumentation_scope=None if scope is None else InstrumentationScope(*(encodable(part) for part in scope)),
        status=Status(code, encodable(status[1]) if code is StatusCode.ERROR and status[1] else None),
        start_time=plain["start"],
        end_time=plain["end"],
    )
