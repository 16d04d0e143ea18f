"""For tests, ours and those of users: make our own faults loud, keep a test's store to itself, replay captured spans.

# conftest.py
from otel_error_hygiene.testing import strict_hygiene
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from . import _guard
from .errors import ConfigurationError

E = TypeVar("E", bound=Enum)


@pytest.fixture
def strict_hygiene(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Re-raise a fault inside our hooks, which production counts and keeps from the agent."""
    monkeypatch.setattr(_guard, "reraise", True)
    before = _guard.faults()
    yield
    assert before == _guard.faults(), "a fault inside otel_error_hygiene was counted during this test"


def spans_from_otlp_json(document: Mapping[str, Any]) -> list[ReadableSpan]:
    """Read captured spans back, to replay them through a processor's ``on_end``.

    Args:
        document: A parsed OTLP/JSON document: ``{"resourceSpans": [...]}``, as a collector's file exporter or a
            backend's API gives it; ids in hex, enums as numbers or names.

    Returns:
        Ended spans in the order of the document, with resource, scope, attributes, events, links and status. Their
        parents are not marked as remote: the document does not tell.

    Raises:
        ConfigurationError: ``document`` has no ``resourceSpans``, or a span without ids.
    """
    resource_spans = document.get("resourceSpans")
    if not isinstance(resource_spans, list):
        raise ConfigurationError('"document" has no list "resourceSpans"; it must be a parsed OTLP/JSON document')
    found: list[ReadableSpan] = []
    for resource_span in resource_spans:
        resource = Resource(_attributes(resource_span.get("resource", {}).get("attributes", ())))
        for scope_span in resource_span.get("scopeSpans", ()):
            told = scope_span.get("scope", {})
            scope = InstrumentationScope(told.get("name", ""), told.get("version"), scope_span.get("schemaUrl"))
            found += [_span(span, resource, scope) for span in scope_span.get("spans", ())]
    return found


def _span(span: Mapping[str, Any], resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    context = _context(span, "traceId", "spanId")
    parent = span.get("parentSpanId")
    status = span.get("status", {})
    code = _enum(StatusCode, status.get("code", 0), "STATUS_CODE_")
    # OTLP counts the kinds from 1, the SDK from 0; 0 is "unspecified", which is internal.
    kind = span.get("kind", 1)
    return ReadableSpan(
        name=span.get("name", ""),
        context=context,
        parent=SpanContext(context.trace_id, int(parent, 16), is_remote=False) if parent else None,
        resource=resource,
        attributes=_attributes(span.get("attributes", ())),
        events=[
            Event(event["name"], _attributes(event.get("attributes", ())), int(event.get("timeUnixNano", 0)))
            for event in span.get("events", ())
        ],
        links=[
            Link(_context(link, "traceId", "spanId"), _attributes(link.get("attributes", ())))
            for link in span.get("links", ())
        ],
        kind=SpanKind(max(kind - 1, 0)) if isinstance(kind, int) else _enum(SpanKind, kind, "SPAN_KIND_"),
        instrumentation_scope=scope,
        status=Status(code, (status.get("message") or None) if code is StatusCode.ERROR else None),
        start_time=int(span.get("startTimeUnixNano", 0)),
        end_time=int(span.get("endTimeUnixNano", 0)),
    )


def _context(told: Mapping[str, Any], trace_key: str, span_key: str) -> SpanContext:
    try:
        trace_id, span_id = int(told[trace_key], 16), int(told[span_key], 16)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f'a span has no "{trace_key}" and "{span_key}" in hex: {error}') from error
    state = TraceState.from_header([told["traceState"]]) if told.get("traceState") else TraceState()
    return SpanContext(
        trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED), trace_state=state
    )


def _enum(kind: type[E], value: Any, prefix: str) -> E:
    return kind[value.removeprefix(prefix)] if isinstance(value, str) else kind(value)


def _attributes(pairs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _value(pair.get("value", {})) for pair in pairs}


def _value(told: Mapping[str, Any]) -> Any:
    for kind, value in told.items():
        if kind == "intValue":
            return int(value)
        if kind == "arrayValue":
            return tuple(_value(item) for item in value.get("values", ()))
        if kind == "kvlistValue":
            return _attributes(value.get("values", ()))
        if kind == "bytesValue":
            return base64.b64decode(value)
        return value
    return None
