"""The courier: at least once, marked delivered on proof alone, and never in the agent's way."""

from __future__ import annotations

import threading
import time
from email.utils import formatdate
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings
from tests.forensics.agents import SEARCH, agent, eventually, exporter_to, slow
from tests.otlp_server import (
    Behaviour,
    GrpcReceiver,
    HttpReceiver,
    Receiver,
    body,
    free_port,
    hang,
    hang_up,
    ok,
    refusing,
    status,
    warning,
)


def test_a_failure_is_delivered_in_the_background(receiver: Receiver, settings: Settings) -> None:
    """Nobody asks for it: it arrives, and is counted as delivered."""
    with agent(exporter_to(receiver), settings) as made:
        made.fail()
        assert eventually(lambda: made.stats().delivered == 1)
    assert [SEARCH] == receiver.names()


@pytest.mark.parametrize("protocol", [HttpReceiver, GrpcReceiver])
def test_an_outage_costs_nothing(settings: Settings, protocol: type[Receiver]) -> None:
    """Down while ten tools fail, then up: all ten arrive, in the background."""
    port = free_port()
    with agent(exporter_to(protocol(port)), settings) as made:
        for number in range(10):
            made.fail(f"tool{number}")
        assert not made.processor.deliver(300)
        assert (10, 0) == (made.stats().pending, made.stats().delivered)
        with protocol(port) as receiver:
            assert eventually(lambda: made.stats().delivered == 10, 20)
            assert [f"execute_tool tool{number}" for number in range(10)] == receiver.names()


@pytest.mark.parametrize(
    "answer",
    [
        status(302, headers={"Location": "/elsewhere"}),
        status(401, "who are you"),
        status(403),
        status(404),
        status(429),
        status(500),
        status(503),
        hang_up,
        body(b"<!DOCTYPE html><html>log in</html>", "text/html; charset=utf-8"),
        body(b"\n<html>a page without a type</html>", ""),
    ],
    ids=["302", "401", "403", "404", "429", "500", "503", "hang up", "html", "untyped html"],
)
def test_what_is_no_proof_is_tried_again(http: HttpReceiver, settings: Settings, answer: Behaviour) -> None:
    """None of these says that an OTLP receiver took the spans (RFC 9110; OTLP/HTTP response), so nothing is marked."""
    http.default = answer
    with agent(exporter_to(http), settings) as made:
        made.fail()
        assert http.wait_for(lambda: len(http.requests) >= 3)
        assert (1, 0, 0) == (made.stats().pending, made.stats().delivered, made.stats().quarantined)
        assert made.stats().retried >= 2
        http.default = ok
        assert eventually(lambda: made.stats().delivered == 1)


@pytest.mark.parametrize(
    "answer",
    [
        ok,
        status(202),
        body(b"", "application/x-protobuf"),
        body(b"{}", "application/json"),
        body(b'{"partialSuccess": {"rejectedSpans": "0"}, "unknown": 1}', "application/json"),
        body(b"ok", "text/plain"),
        warning("deprecated attribute names"),
    ],
    ids=["200", "202", "empty", "json", "json without rejections", "text", "warning"],
)
def test_what_is_proof_is_taken(http: HttpReceiver, settings: Settings, answer: Behaviour) -> None:
    """2xx with no rejected spans is acceptance (OTLP: partial success with 0 rejected and a message is a warning)."""
    http.default = answer
    with agent(exporter_to(http), settings) as made:
        made.fail()
        assert made.processor.deliver(5000)
        assert (1, 0) == (made.stats().delivered, made.stats().retried)


@pytest.mark.parametrize("seconds", ["number", "date"])
def test_retry_after_is_obeyed_in_the_background(http: HttpReceiver, settings: Settings, seconds: str) -> None:
    """RFC 9110 section 10.2.3, both forms: no request before that, whatever our own back-off, and whoever wakes us."""
    value = "2" if seconds == "number" else formatdate(time.time() + 2.9, usegmt=True)
    http.script.append(status(503, headers={"Retry-After": value}))
    with agent(exporter_to(http), settings) as made:
        made.fail()
        assert http.wait_for(lambda: len(http.requests) == 1)
        made.fail("another")
        assert eventually(lambda: made.stats().delivered == 2)
    assert http.times[1] - http.times[0] > 1.7


def test_retry_after_holds_over_the_periodic_adoption(
    http: HttpReceiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look for what dead processes left is no reason to ask a server that said when to come again."""
    monkeypatch.setattr("otel_error_hygiene.forensics.courier._ADOPT_EVERY_SECONDS", 0.1)
    http.default = status(503, retry_seconds=60)
    with agent(exporter_to(http), settings) as made:
        made.fail()
        assert http.wait_for(lambda: len(http.requests) == 1)
        time.sleep(0.6)
        assert 1 == len(http.requests)
        http.default = ok
        assert made.processor.deliver(2000)


def test_a_retry_after_of_zero_is_no_invitation_to_a_storm(http: HttpReceiver, settings: Settings) -> None:
    """Whoever asks for no wait gets our own back-off: growing, not one request after another."""
    http.default = status(503, retry_seconds=0)
    quick = settings.model_copy(update={"retry_initial_millis": 200, "retry_max_millis": 1000})
    with agent(exporter_to(http), quick) as made:
        made.fail()
        made.processor.deliver(700)
        assert len(http.requests) <= 6


def test_retry_info_of_grpc_is_obeyed(settings: Settings) -> None:
    """In the details of the status, where the OTLP specification puts it."""
    with GrpcReceiver() as receiver, agent(exporter_to(receiver), settings) as made:
        receiver.script.append(status(503, "later", retry_seconds=1.5))
        made.fail()
        assert eventually(lambda: made.stats().delivered == 1)
        assert receiver.times[1] - receiver.times[0] > 1.4


def test_deliver_ignores_the_back_off(http: HttpReceiver, settings: Settings) -> None:
    """It tries at once, though the next try of the courier's own is a minute away."""
    http.script.append(status(503))
    with agent(exporter_to(http), slow(settings)) as made:
        made.fail()
        assert http.wait_for(lambda: len(http.requests) == 1)
        time.sleep(0.1)
        started = time.monotonic()
        assert made.processor.deliver(5000)
        assert time.monotonic() - started < 2


def test_deliver_waits_for_retry_after_only_within_its_time(http: HttpReceiver, settings: Settings) -> None:
    """A server's half a minute does not fit into two seconds: False at once; its one second does: True."""
    with agent(exporter_to(http), slow(settings)) as made:
        http.default = status(503, retry_seconds=30)
        made.fail()
        started = time.monotonic()
        assert not made.processor.deliver(2000)
        assert time.monotonic() - started < 1
        http.script.append(status(503, retry_seconds=1))
        http.default = ok
        started = time.monotonic()
        assert not made.processor.deliver(500)
        # The script is used up by that try; the next one is accepted.
        assert made.processor.deliver(5000)
        assert time.monotonic() - started < 5


def test_deliver_returns_in_time_when_the_backend_accepts_and_hangs(receiver: Receiver, settings: Settings) -> None:
    """The caller is let go at its time, whatever the connection does; nothing is lost."""
    receiver.default = hang
    with agent(exporter_to(receiver), settings) as made:
        made.fail()
        started = time.monotonic()
        assert not made.processor.deliver(500)
        assert 0.4 < time.monotonic() - started < 1.5
        assert 1 == made.stats().pending


def test_deliver_is_false_while_something_is_quarantined(http: HttpReceiver, settings: Settings) -> None:
    """True means that the backend has everything; what waits for a human is not there."""
    http.default = refusing("poison")
    with agent(exporter_to(http), settings) as made:
        assert made.processor.deliver(1000)
        made.fail("poison")
        made.fail()
        assert not made.processor.deliver(5000)
        assert (1, 1) == (made.stats().quarantined, made.stats().delivered)


def test_the_courier_traces_nothing_of_its_own(settings: Settings) -> None:
    """An instrumented HTTP client must not make spans of our deliveries: suppression is set on the courier's thread."""
    from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value

    seen: list[object] = []

    class Looking(InMemorySpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            """Look at the context."""
            seen.append(get_value(_SUPPRESS_INSTRUMENTATION_KEY))
            return super().export(spans)

    provider = TracerProvider(shutdown_on_exit=False)
    processor = ErrorHygieneSpanProcessor(Looking(), settings=settings)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("tests")
    span = tracer.start_span(SEARCH, attributes={"gen_ai.operation.name": "execute_tool"})
    span.record_exception(ConnectionError("refused"))
    span.end()
    assert processor.deliver(5000)
    provider.shutdown()
    assert [True] == seen


def test_where_no_thread_can_start_deliver_does_the_work_itself(
    http: HttpReceiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 starts no threads while it shuts down: the caller's own thread delivers, within the time."""
    with agent(exporter_to(http), settings) as made:
        courier = made.processor._courier
        assert courier is not None
        courier.stop(0)
        assert courier._thread is not None
        courier._thread.join(5)
        courier._halted.clear()

        real = threading.Thread.start

        def cannot(thread: threading.Thread) -> None:
            if thread.name.startswith("otel-error-hygiene"):
                raise RuntimeError("can't create new thread at interpreter shutdown")
            real(thread)

        made.fail()
        with monkeypatch.context() as patched:
            patched.setattr("threading.Thread.start", cannot)
            assert made.processor.deliver(3000)
            http.default = hang
            made.fail("second")
            started = time.monotonic()
            assert not made.processor.deliver(300)
            assert time.monotonic() - started < 1.5
