"""Proof, by the real exporters of the installed release: what was acknowledged has arrived, whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from grpc import Compression as GrpcCompression
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_error_hygiene import Settings
from otel_error_hygiene.forensics.answer import Answer, Verdict, of_http
from otel_error_hygiene.forensics.proof import sender_for
from tests.forensics.agents import agent, exporter_to
from tests.otlp_server import GrpcReceiver, HttpReceiver, Receiver, Reply, refusing, rejecting, status


@pytest.fixture
def spans() -> list[ReadableSpan]:
    """Give ended spans of a real SDK."""
    provider = TracerProvider(resource=Resource({"service.name": "proof"}), shutdown_on_exit=False)
    made = [provider.get_tracer("tests.proof").start_span(name, attributes={"n": 1}) for name in ("one", "two")]
    for span in made:
        span.end()
    return [span for span in made if isinstance(span, ReadableSpan)]


@pytest.fixture(params=["http", "http gzip", "http deflate", "grpc", "grpc gzip"])
def way(request: pytest.FixtureRequest) -> Iterator[tuple[Receiver, SpanExporter]]:
    """Give a receiver and the stock exporter to it, each protocol and compression."""
    protocol, _, compression = request.param.partition(" ")
    with GrpcReceiver() if protocol == "grpc" else HttpReceiver() as receiver:
        more: dict[str, Any] = {"headers": {"x-token": "t0k3n"}}
        if compression:
            more["compression"] = GrpcCompression.Gzip if protocol == "grpc" else Compression(compression)
        exporter = exporter_to(receiver, **more)
        yield receiver, exporter
        exporter.shutdown()


def test_acknowledged_spans_have_arrived_whole(way: tuple[Receiver, SpanExporter], spans: list[ReadableSpan]) -> None:
    """With the exporter's own endpoint, headers and compression; proven, not said."""
    receiver, exporter = way
    sender = sender_for(exporter)
    assert sender.proven
    assert Verdict.ACCEPTED is sender.send(spans, 5.0).verdict
    for span in spans:
        assert span.context is not None
        arrived = receiver.one(span.name)
        assert (span.context.trace_id, span.context.span_id) == (arrived.trace_id, arrived.span_id)
        assert ({"n": 1}, "proof") == (arrived.attributes, arrived.resource["service.name"])
        assert (span.start_time, span.end_time) == (arrived.start, arrived.end)
    assert "t0k3n" == receiver.headers[0]["x-token"]


def test_a_failed_trace_arrives_whole(way: tuple[Receiver, SpanExporter], settings: Settings) -> None:
    """Through the whole way, from a tool's exception to the receiver: exception, line and class."""
    receiver, exporter = way
    with agent(exporter, settings) as made:
        made.fail("search", "connection refused by peer")
        assert made.processor.deliver(5000)
    span = receiver.one("execute_tool search")
    stack = dict(span.events)["exception"]["exception.stacktrace"]
    assert "ConnectionError: connection refused by peer" in stack
    assert "raise ConnectionError(message)" in stack
    assert "connectivity" == span.attributes["error_hygiene.class"]
    assert str(span.attributes["error_hygiene.line"]).startswith("[error] search: connectivity.")
    assert "ConnectionError" == span.attributes["error.type"]
    assert ("forensics", "é1") == (span.resource["service.name"], span.resource["service.instance.id"])
    assert (2, "tests.forensics") == (span.status[0], span.scope)


@pytest.mark.parametrize(
    ("behaviour", "verdict"),
    [
        (status(400, "bad"), Verdict.REFUSED),
        (rejecting("two", "no twos"), Verdict.REFUSED),
        (refusing("two"), Verdict.REFUSED),
        (status(401), Verdict.LATER),
        (status(500), Verdict.LATER),
        (status(503), Verdict.LATER),
    ],
    ids=["400", "partial success", "poison", "401", "500", "503"],
)
def test_both_protocols_judge_alike(
    way: tuple[Receiver, SpanExporter], spans: list[ReadableSpan], behaviour: Any, verdict: Verdict
) -> None:
    """What HTTP says by a status code gRPC says by its own; partial success is the same message in both."""
    receiver, exporter = way
    receiver.default = behaviour
    assert verdict is sender_for(exporter).send(spans, 5.0).verdict


def fields_of(exporter: SpanExporter) -> list[tuple[Any, str]]:
    """Return where an exporter keeps its connection, in the release that is installed."""
    client = getattr(exporter, "_client", None)
    if isinstance(exporter, GrpcExporter):
        return [(exporter, "_client"), (exporter, "_timeout"), (exporter, "_headers"), (exporter, "_endpoint")]
    if client is None:
        names = ("_session", "_endpoint", "_timeout", "_certificate_file", "_client_cert", "_compression", "_headers")
        return [(exporter, name) for name in names]
    return [(exporter, "_client")] + [(client, name) for name in ("_transport", "_endpoint", "_headers", "_timeout")]


@pytest.mark.parametrize("number", range(7))
def test_an_unknown_layout_falls_back_to_export(
    number: int,
    receiver: Receiver,
    spans: list[ReadableSpan],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any of the private fields is gone: the public `export` is used, its word counts, and it is said once."""
    exporter = exporter_to(receiver)
    exported: list[list[ReadableSpan]] = []

    def export(self: SpanExporter, batch: list[ReadableSpan]) -> SpanExportResult:
        del self
        exported.append(batch)
        return SpanExportResult.SUCCESS

    export.__module__ = type(exporter).export.__module__
    fields = fields_of(exporter)
    holder, field = fields[number % len(fields)]
    with monkeypatch.context() as patched:
        patched.setattr(type(exporter), "export", export)
        patched.delattr(holder, field)
        senders = [sender_for(exporter) for _ in range(2)]
        assert [False, False] == [sender.proven for sender in senders]
        assert Verdict.ACCEPTED is senders[0].send(spans, 5.0).verdict
    exporter.shutdown()
    assert [spans] == exported
    assert 1 == sum("unknown layout" in each.message for each in caplog.records)


def test_a_layout_that_changes_its_calls_falls_back_at_the_first_call(
    receiver: Receiver, spans: list[ReadableSpan], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fields are there and take other parameters: a TypeError of ours is no outage that is tried for ever."""
    exporter = exporter_to(receiver)
    sender = sender_for(exporter)
    if isinstance(exporter, GrpcExporter):
        monkeypatch.setattr(exporter._client, "Export", lambda request: pytest.fail(f"not called so: {request}"))
        monkeypatch.setattr(GrpcExporter, "_export", lambda *_: SpanExportResult.SUCCESS)
    else:
        monkeypatch.setattr(sender, "_post", lambda body: pytest.fail(f"not called so: {body!r}"))
    for _ in range(2):
        assert Verdict.ACCEPTED is sender.send(spans, 5.0).verdict
        assert not sender.proven
    assert 1 == sum("unknown layout" in each.message for each in caplog.records)
    exporter.shutdown()


@pytest.mark.parametrize("method", ["_export", "export"])
def test_a_subclass_that_sends_in_its_own_way_is_asked_itself(
    receiver: Receiver, spans: list[ReadableSpan], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """To go around an override would be wrong (it may sign, split or filter); nothing is unknown about it."""
    stock = type(exporter := exporter_to(receiver))
    exporter.shutdown()
    method = method if hasattr(stock, method) else "export"  # the private one is not in every release
    calls: list[str] = []
    original = getattr(stock, method)

    def own(self: Any, *arguments: Any) -> Any:
        calls.append("own")
        return original(self, *arguments)

    made = type("Own", (stock,), {method: own})(endpoint=receiver.endpoint)  # type: ignore[attr-defined]
    sender = sender_for(made)
    assert not sender.proven
    assert Verdict.ACCEPTED is sender.send(spans, 5.0).verdict
    assert ["own"] == calls
    assert ["one", "two"] == receiver.names()
    assert [] == caplog.records
    made.shutdown()


def test_a_subclass_that_only_chooses_is_as_good_as_the_stock_one(
    receiver: Receiver, spans: list[ReadableSpan]
) -> None:
    """A constructor of its own changes where to and with what, which stands in the fields."""
    stock = type(exporter := exporter_to(receiver))
    exporter.shutdown()

    class Chosen(stock):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(endpoint=receiver.endpoint)  # type: ignore[attr-defined]

    made = Chosen()
    sender = sender_for(made)
    assert sender.proven
    assert Verdict.ACCEPTED is sender.send(spans, 5.0).verdict
    made.shutdown()


def test_the_time_of_a_send_is_kept(way: tuple[Receiver, SpanExporter], spans: list[ReadableSpan]) -> None:
    """A backend that hangs is left after the time given, though the exporter's own is ten seconds."""
    receiver, exporter = way
    receiver.default = lambda _: Reply(hang=True)
    started = time.monotonic()
    assert Verdict.LATER is sender_for(exporter).send(spans, 0.4).verdict
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),  # RFC 9110 section 10.2.3
        (" 7 ", 7.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        ("9" * 400, 86400.0),
        (None, None),
    ],
    ids=["seconds", "spaces", "past", "negative", "fraction", "words", "odd digit", "huge", "none"],
)
def test_retry_after_is_read_by_the_rfc(value: str | None, seconds: float | None) -> None:
    """Delay-seconds are digits only; a date in the past means now; nonsense means nothing, and no server says never."""
    headers = {} if value is None else {"retry-after": value}
    assert seconds == of_http(503, headers, b"").retry_after_seconds


def test_a_date_in_the_future_is_waited_for() -> None:
    """The other form of Retry-After."""
    answer = of_http(503, {"retry-after": formatdate(time.time() + 100, usegmt=True)}, b"")
    assert answer.retry_after_seconds is not None
    assert 97 < answer.retry_after_seconds <= 100


def test_a_body_of_json_is_read_as_json() -> None:
    """OTLP/JSON: rejected spans are told in camel case, 64-bit numbers as strings (protobuf's JSON mapping)."""
    body = b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "quota of tenant | used up"}}'
    for content_type in ("application/json", "application/json; charset=utf-8", ""):
        answer = of_http(200, {"content-type": content_type}, body)
        assert (Verdict.REFUSED, "2 spans rejected: quota of tenant | used up") == (answer.verdict, answer.words)
    for odd in (b"[]", b"null", b'"ok"', b"{", b"[" * 100_000, b'{"partialSuccess": 3}'):
        assert Answer(Verdict.ACCEPTED) == of_http(200, {"content-type": "application/json"}, odd)


def test_words_are_one_line_bounded_and_without_secrets() -> None:
    """They are logged, stored and shown: what a server echoes of a request's headers is hidden."""
    answer = of_http(400, {}, b"bad\n\n  Authorization: Bearer abcdef0123456789abcdef " + b"x" * 9000)
    assert answer.words.startswith("HTTP 400 bad Authorization: ")
    assert "abcdef0123456789" not in answer.words
    assert len(answer.words) <= 300


def test_the_destination_is_the_endpoint_and_the_headers_and_the_label_has_no_credentials(http: HttpReceiver) -> None:
    """Folders of one destination are one whatever the exporter's version; a password is never written down."""
    exporter = exporter_to(http)
    named = type(exporter)(endpoint="http://user:hunter2@127.0.0.1:1/v1/traces")  # type: ignore[call-arg]
    assert sender_for(exporter).destination == sender_for(exporter_to(http)).destination
    assert sender_for(exporter).destination != sender_for(exporter_to(http, headers={"x-tenant": "b"})).destination
    assert sender_for(exporter_to(http, headers={"X-Tenant": "b"})).destination == (
        sender_for(exporter_to(http, headers={"x-tenant": "b"})).destination
    )
    assert "hunter2" not in sender_for(named).label
    for each in (exporter, named):
        each.shutdown()
