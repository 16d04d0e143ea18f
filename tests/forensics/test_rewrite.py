"""From a record to the exported span: nothing of the user's is lost, and what the tool's thread left out is added."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from otel_error_hygiene.forensics import record
from otel_error_hygiene.forensics.rewrite import exported_span

EMPTY = Resource.get_empty()
PROVIDER = TracerProvider(shutdown_on_exit=False)


def rich_span() -> ReadableSpan:
    """Return a span that has everything a span can have."""
    parent = SpanContext(0xA, 0xB, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("k", "v")]))
    link = Link(SpanContext(0xC, 0xD, is_remote=True), {"why": "because"})
    from opentelemetry import trace

    tracer = PROVIDER.get_tracer("scope", "1.2", "https://schema", {"scope": "attribute"})
    span = tracer.start_span(
        "execute_tool search",
        context=trace.set_span_in_context(trace.NonRecordingSpan(parent)),
        kind=SpanKind.CLIENT,
        attributes={"s": "text", "i": 1, "f": 0.5, "b": True, "list": ("a", "b"), "numbers": [1, 2]},
        links=[link],
    )
    span.add_event("event", {"detail": "x"}, timestamp=12345)
    span.set_status(StatusCode.ERROR, "went wrong")
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


def plain_of(span: ReadableSpan, **more: Any) -> record.Plain:
    """Return the record of a span that is no failure, through the bytes that are stored."""
    description = span.status.description
    events = [[e.name, e.timestamp, dict(e.attributes or {})] for e in span.events]
    plain = record.of_span(span, 0, dict(span.attributes or {}), description, events)
    return record.loads(record.dumps({"v": 1, "at": 99, "span": plain, **more}))


def failure(**more: Any) -> record.Plain:
    """Return the failure part of a record."""
    summary = {
        "error_class": "connectivity",
        "bucket": "retryable",
        "recoverable": "yes",
        "attempt": 2,
        "ref": "0badcafe",
    }
    return {
        "at": 50,
        "call": {"tool": "search", "call_id": None, "arguments": '{"q": 1}'},
        "summary": summary,
        "line": "[error] search: connectivity. Retrying with same parameters. ref=0badcafe",
        "fingerprint": "f00d",
        "conversation": "c1",
        "type": "ConnectionError",
        "message": "refused",
        "stacktrace": "Traceback: the recorded text",
        "exception": None,
        "escaped": True,
        "told_at": 60,
        **more,
    }


def test_a_span_comes_back_as_it_was() -> None:
    """Ids, parent, state, kind, times, attributes, events, links, status and scope, through the stored bytes."""
    span = rich_span()
    found = exported_span(plain_of(span), span.resource)
    before, after = encode_spans([span]), encode_spans([found])
    [old], [new] = (each.resource_spans[0].scope_spans[0].spans for each in (before, after))
    kept = next(pair for pair in new.attributes if pair.key == "error_hygiene.kept")
    assert kept.value.bool_value
    new.attributes.remove(kept)
    assert old == new
    assert before.resource_spans[0].scope_spans[0].scope == after.resource_spans[0].scope_spans[0].scope
    assert before.resource_spans[0].resource == after.resource_spans[0].resource
    assert "k=v" == found.get_span_context().trace_state.to_header()  # type: ignore[union-attr]


def test_a_failure_gets_what_its_span_lacks() -> None:
    """No exception event, no `error.type`, status unset: all three are added, and the agent's line beside them."""
    span = PROVIDER.get_tracer("t").start_span("execute_tool search")
    span.end()
    assert isinstance(span, ReadableSpan)
    found = exported_span(plain_of(span, failure=failure()), EMPTY)
    attributes = dict(found.attributes or {})
    assert "ConnectionError" == attributes["error.type"]
    assert '{"q": 1}' == attributes["gen_ai.tool.call.arguments"]
    assert {
        "error_hygiene.line": failure()["line"],
        "error_hygiene.class": "connectivity",
        "error_hygiene.bucket": "retryable",
        "error_hygiene.recoverable": "yes",
        "error_hygiene.attempt": 2,
        "error_hygiene.fingerprint": "f00d",
        "error_hygiene.ref": "0badcafe",
        "error_hygiene.kept": True,
    }.items() <= attributes.items()
    assert (StatusCode.ERROR, "ConnectionError: refused") == (found.status.status_code, found.status.description)
    exception, told = found.events
    assert ("exception", 50, "error_hygiene.told", 60) == (
        exception.name,
        exception.timestamp,
        told.name,
        told.timestamp,
    )
    assert {
        "exception.type": "ConnectionError",
        "exception.message": "refused",
        "exception.escaped": "True",
        "exception.stacktrace": "Traceback: the recorded text",
    } == dict(exception.attributes or {})
    assert failure()["line"] == dict(told.attributes or {})["error_hygiene.line"]


def test_what_the_span_says_itself_stands() -> None:
    """Its own `error.type`, description, arguments and exception event are not overwritten or doubled."""
    span = PROVIDER.get_tracer("t").start_span(
        "execute_tool search", attributes={"error.type": "E1", "gen_ai.tool.call.arguments": "own"}
    )
    span.record_exception(ValueError("own message"))
    span.set_status(StatusCode.ERROR, "own words")
    span.end()
    assert isinstance(span, ReadableSpan)
    found = exported_span(plain_of(span, failure=failure()), EMPTY)
    assert ("E1", "own") == tuple((found.attributes or {})[k] for k in ("error.type", "gen_ai.tool.call.arguments"))
    assert "own words" == found.status.description
    assert ["exception", "error_hygiene.told"] == [event.name for event in found.events]
    assert "own message" == dict(found.events[0].attributes or {})["exception.message"]


def test_a_stack_that_the_sdk_cut_is_restored() -> None:
    """An attribute limit takes the recorded stack's end, where the raising frame is; the captured frames mend it."""
    provider = TracerProvider(span_limits=SpanLimits(max_attribute_length=80), shutdown_on_exit=False)
    span = provider.get_tracer("t").start_span("execute_tool search")
    span.record_exception(ConnectionError("refused" * 20))
    span.end()
    assert isinstance(span, ReadableSpan)
    frame = {"filename": "/app/tool.py", "lineno": 7, "function": "call"}
    node = {"type": "ConnectionError", "message": "refused", "frames": [frame]}
    found = exported_span(plain_of(span, failure=failure(stacktrace="", exception=node)), EMPTY)
    stack = str(dict(found.events[0].attributes or {})["exception.stacktrace"])
    assert '"/app/tool.py", line 7, in call' in stack
    assert stack.rstrip().endswith("ConnectionError: refused")


def test_who_was_not_told_has_no_event_of_it() -> None:
    """An unrouted failure says nothing about an agent."""
    span = rich_span()
    found = exported_span(plain_of(span, failure=failure(told_at=None, conversation=None)), EMPTY)
    assert "error_hygiene.told" not in [event.name for event in found.events]
    assert "error_hygiene.conversation" not in (found.attributes or {})


def test_a_recovery_links_to_what_it_cleared() -> None:
    """Beside the span's own links; the ref only where there is one."""
    span = rich_span()
    found = exported_span(plain_of(span, cleared=[[1, 2, "0badcafe"], [3, 4, None]]), EMPTY)
    assert [(0xC, 0xD), (1, 2), (3, 4)] == [(each.context.trace_id, each.context.span_id) for each in found.links]
    assert {"error_hygiene.ref": "0badcafe"}.items() <= dict(found.links[1].attributes or {}).items()
    assert "error_hygiene.ref" not in (found.links[2].attributes or {})


def test_an_unfinished_span_ends_when_it_was_last_seen() -> None:
    """Without an end a backend would reckon its length from 1970."""
    plain = plain_of(rich_span(), failure=failure())
    plain["span"]["end"] = None
    found = exported_span(plain, EMPTY, finished=False)
    assert 99 == found.end_time
    assert (found.attributes or {})["error_hygiene.unfinished"]


TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(["\udcff", "a\ud800b", "\0", "é"])
VALUE = (
    TEXT | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans() | st.lists(TEXT, max_size=3)
)


@given(name=TEXT, attributes=st.dictionaries(TEXT, VALUE, max_size=4), message=TEXT)
def test_whatever_the_text_the_batch_can_be_encoded(name: str, attributes: dict[str, Any], message: str) -> None:
    """One lone surrogate costs the stock exporter the batch: here each text is made encodable, wherever it stands."""
    plain = plain_of(rich_span(), failure=failure(message=message, line=message, type=name or "E"))
    plain["span"] |= {
        "name": name,
        "attributes": attributes,
        "description": message,
        "events": [[name, 1, attributes]],
        "links": [[1, 2, False, attributes]],
        "scope": [name, message, message, attributes],
    }
    stored = record.loads(record.dumps(plain))
    resource = Resource(record.encodable({"service.name": name}))
    encoded = encode_spans([exported_span(stored, resource)]).SerializeToString()
    assert encoded


class _Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class _Text(str):
    __slots__ = ()


def test_a_record_is_made_of_any_value_and_read_without_any_class() -> None:
    """Strangers, subclasses, cycles of depth and odd keys are written as plain values; a file never names a class."""
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    values: dict[Any, Any] = {
        "odd": _Odd(),
        "text": _Text("t"),
        "kind": SpanKind.CLIENT,
        1: {2, 3},
        "b": b"x",
        "deep": deep,
    }
    stored = record.loads(record.dumps(values))
    assert ("<_Odd>", "t", b"x") == (stored["odd"], stored["text"], stored["b"])
    assert str is type(stored["text"])
    with pytest.raises(pickle.UnpicklingError, match="plain values only"):
        record.loads(pickle.dumps(SpanKind.CLIENT))
