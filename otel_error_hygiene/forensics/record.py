"""The compact record: plain values, made on the tool's thread; span and OTLP bytes are made of it later.

Strings keep what they are, lone surrogates included; they are made encodable when a span is made of
the record, because protobuf would refuse the whole batch for one of them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from .._sdk import mapping_of

Plain = dict[str, Any]
VERSION: Final = 1
_MAX_DEPTH: Final = 100
_PLAIN_TYPES: Final = frozenset({str, int, float, bool, type(None), bytes})


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return a value that needs no class to be read again: containers rebuilt, strangers and subclasses made plain."""
    if type(value) in _PLAIN_TYPES:
        return value
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, (list, tuple)):
        return [plain_value(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    try:
        return repr(value)[:1000]
    except Exception:  # a stranger's own fault
        return f"<{type(value).__name__}>"


class _StrangerMet(Exception):
    """A value needs a class to be read again."""


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        # Asked only for what is not of a built-in type, subclasses of str and int included.
        raise _StrangerMet(type(obj))


def dumps(plain: Plain) -> bytes:
    """Encode a record: pickle of plain values, six times as fast as JSON (measured: docs/decisions.md).

    Never raises for a value: strangers and subclasses are written as plain ones, so reading never needs a class.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(plain)
    except (_StrangerMet, pickle.PicklingError, RecursionError):
        return pickle.dumps(plain_value(plain), pickle.HIGHEST_PROTOCOL)
    return buffer.getvalue()


class _Plain(pickle.Unpickler):
    """Reads plain values only: no class and no function is ever looked up, so nothing of a file is ever run."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"a record holds plain values only, not {module_name}.{global_name}")


def loads(payload: bytes) -> Plain:
    """Decode a record.

    Raises:
        pickle.UnpicklingError: It is damaged, or holds something that is not plain.
    """
    plain: Plain = _Plain(io.BytesIO(payload)).load()
    return plain


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
    values: Plain = {
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
        "scope": None
        if scope is None
        else [scope.name, scope.version, scope.schema_url, dict(mapping_of(scope.attributes))],
    }
    if context.trace_state:
        values["state"] = context.trace_state.to_header()
    if span.links:
        values["links"] = [
            [link.context.trace_id, link.context.span_id, link.context.is_remote, dict(mapping_of(link.attributes))]
            for link in span.links
        ]
    return values


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
    end_time: int | None = None,
) -> ReadableSpan:
    """Make a span of plain values.

    Args:
        plain: What ``of_span`` gave.
        resource: The resource that its number stands for.
        attributes: Attributes to export.
        events: Events to export, as ``[name, time_ns, attributes]``.
        links: Links to export, as ``[trace_id, span_id, is_remote, attributes]``.
        status: Status code and description.
        end_time: Nanoseconds since the epoch, for a span that has no end; None: its own.
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
        events=[Event(encodable(name), attributes=encodable(values), timestamp=at) for name, at, values in events],
        links=[
            Link(SpanContext(trace, span, is_remote=remote), attributes=encodable(values))
            for trace, span, remote, values in links
        ],
        kind=SpanKind(plain["kind"]),
        instrumentation_scope=None if scope is None else InstrumentationScope(*(encodable(part) for part in scope)),
        status=Status(code, encodable(status[1]) if code is StatusCode.ERROR and status[1] else None),
        start_time=plain["start"],
        end_time=plain["end"] if end_time is None else end_time,
    )
