"""Captured spans read back are the spans that were exported."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from otel_error_hygiene.errors import ConfigurationError
from otel_error_hygiene.testing import spans_from_otlp_json


def document(**span: Any) -> dict[str, Any]:
    """Return an OTLP document with one span."""
    ids = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331"}
    scope_spans = [{"scope": {"name": "lib", "version": "1.2"}, "schemaUrl": "u", "spans": [ids | span]}]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}


def test_every_part_of_a_span_is_read() -> None:
    """Ids, times, kind, status, attributes of every type, events, links, resource and scope."""
    values = {
        "text": {"stringValue": "a"}, "flag": {"boolValue": True}, "number": {"intValue": "7"},
        "ratio": {"doubleValue": 0.5}, "bytes": {"bytesValue": "AQI="}, "nothing": {},
        "list": {"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "b"}]}},
        "map": {"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": False}}]}},
    }  # fmt: skip
    (span,) = spans_from_otlp_json(
        document(
            parentSpanId="00f067aa0ba902b7",
            name="execute_tool x",
            kind=3,
            startTimeUnixNano="10",
            endTimeUnixNano=20,
            status={"code": 2, "message": "why"},
            attributes=[{"key": key, "value": value} for key, value in values.items()],
            events=[
                {"name": "exception", "timeUnixNano": "15", "attributes": [{"key": "e", "value": {"intValue": 1}}]}
            ],
            links=[{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7"}],
        )
    )
    assert (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331) == (span.context.trace_id, span.context.span_id)
    assert span.parent is not None
    assert 0x00F067AA0BA902B7 == span.parent.span_id
    assert ("execute_tool x", SpanKind.CLIENT, 10, 20) == (span.name, span.kind, span.start_time, span.end_time)
    assert (StatusCode.ERROR, "why") == (span.status.status_code, span.status.description)
    assert {
        "text": "a", "flag": True, "number": 7, "ratio": 0.5, "bytes": b"\x01\x02", "nothing": None,
        "list": (1, "b"), "map": {"k": False},
    } == dict(span.attributes or {})  # fmt: skip
    assert [("exception", 15, {"e": 1})] == [(e.name, e.timestamp, dict(e.attributes or {})) for e in span.events]
    assert [0x00F067AA0BA902B7] == [link.context.span_id for link in span.links]
    assert "shop" == span.resource.attributes["service.name"]
    assert span.instrumentation_scope is not None
    assert ("lib", "1.2", "u") == (
        span.instrumentation_scope.name,
        span.instrumentation_scope.version,
        span.instrumentation_scope.schema_url,
    )


def test_enums_may_be_names() -> None:
    """As protobuf's own JSON writes them."""
    (span,) = spans_from_otlp_json(document(kind="SPAN_KIND_SERVER", status={"code": "STATUS_CODE_OK"}))
    assert (SpanKind.SERVER, StatusCode.OK) == (span.kind, span.status.status_code)


def test_an_empty_span_has_defaults() -> None:
    """Protobuf leaves out what is zero."""
    (span,) = spans_from_otlp_json(document())
    assert (SpanKind.INTERNAL, StatusCode.UNSET, None, ()) == (
        span.kind, span.status.status_code, span.parent, tuple(span.events),
    )  # fmt: skip


@pytest.mark.parametrize("wrong", [{}, {"resourceSpans": None}, document(spanId="not hex"), document(traceId=None)])
def test_what_is_no_document_is_refused(wrong: dict[str, Any]) -> None:
    """It says what is missing."""
    with pytest.raises(ConfigurationError, match=r"resourceSpans|traceId"):
        spans_from_otlp_json(wrong)
