"""The harness against the real Jaeger: what the stock SDK sends comes back whole."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tests.backends import JAEGER_CONFIG, ROOT, Jaeger, Ports, attributes

pytestmark = pytest.mark.backend

FAILED = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


@pytest.fixture(scope="module")
def jaeger(jaeger_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """Run one Jaeger for the tests that only need some Jaeger."""
    log_file = tmp_path_factory.mktemp("jaeger") / "jaeger.log"
    with Jaeger.start(jaeger_binary, JAEGER_CONFIG, log_file) as running:
        yield running


def over_http(jaeger: Jaeger) -> SpanExporter:
    """Make the stock exporter that posts protobuf."""
    return HttpSpanExporter(endpoint=f"{jaeger.otlp_http_endpoint}/v1/traces")


def over_grpc(jaeger: Jaeger) -> SpanExporter:
    """Make the stock exporter that speaks gRPC."""
    return GrpcSpanExporter(endpoint=jaeger.otlp_grpc_endpoint)


def ended_span(service: str) -> ReadableSpan:
    """Make a failed tool call that has an event, a link, a status and every type of attribute."""
    tracer = TracerProvider(resource=Resource({"service.name": service})).get_tracer("agent", "1.2")
    span = tracer.start_span("execute_tool search", kind=SpanKind.CLIENT, links=[Link(FAILED, {"n": 1})])
    span.set_attributes({"s": "ü", "i": 2**53 + 1, "f": 1.0, "b": False, "l": ["a", "b"], "empty": ""})
    span.add_event("exception", {"exception.type": "ValueError", "exception.stacktrace": "a\n  b\n"})
    span.set_status(Status(StatusCode.ERROR, "no such city"))
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


def send(exporter: SpanExporter, span: ReadableSpan) -> str:
    """Export one span and return its trace id as Jaeger spells it."""
    assert exporter.export([span]) is SpanExportResult.SUCCESS
    exporter.shutdown()
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


@pytest.mark.parametrize("transport", [over_http, over_grpc])
def test_a_span_comes_back_with_its_events_links_and_status(
    jaeger: Jaeger, transport: Callable[[Jaeger], SpanExporter]
) -> None:
    """Over both transports, and at once: the answer to the export means that the span is stored."""
    sent = ended_span("whole")
    (span,) = jaeger.trace(send(transport(jaeger), sent), timeout_seconds=0)

    assert sent.context is not None
    assert f"{sent.context.span_id:016x}" == span["spanId"]
    assert "execute_tool search" == span["name"]
    assert (str(sent.start_time), str(sent.end_time)) == (
        span["startTimeUnixNano"],
        span["endTimeUnixNano"],
    )
    assert {"code": 2, "message": "no such city"} == span["status"]
    assert "whole" == attributes(span["resource"])["service.name"]
    assert ("agent", "1.2") == (span["scope"]["name"], span["scope"]["version"])
    assert {"s": "ü", "i": 2**53 + 1, "f": 1.0, "b": False, "l": ["a", "b"], "empty": ""} == attributes(span)

    (event,) = span["events"]
    assert "exception" == event["name"]
    assert {"exception.type": "ValueError", "exception.stacktrace": "a\n  b\n"} == attributes(event)

    (link,) = span["links"]
    assert (f"{0xABC:032x}", f"{0xDEF:016x}") == (link["traceId"], link["spanId"])
    assert {"n": 1} == attributes(link)


def test_a_span_that_was_sent_twice_comes_back_twice(jaeger: Jaeger) -> None:
    """Or a test of at-least-once delivery could not see a duplicate: Jaeger's default view hides it."""
    sent = ended_span("twice")
    send(over_http(jaeger), sent)
    trace_id = send(over_http(jaeger), sent)

    assert 2 == len(jaeger.trace(trace_id, timeout_seconds=0))


def test_a_search_finds_a_trace_by_service_and_by_attribute(jaeger: Jaeger) -> None:
    """By service over /api/v3, and by attribute values as a person does it in the search box."""
    trace_id = send(over_http(jaeger), ended_span("searched"))

    assert [trace_id] == [span["traceId"] for span in jaeger.search("searched")]
    assert [] == jaeger.search("searched", operation="another", at_least_spans=0)
    assert {trace_id} == jaeger.trace_ids("searched", {"s": "ü", "exception.type": "ValueError"})
    assert set() == jaeger.trace_ids("searched", {"s": "u"})


def test_a_missing_trace_is_an_assertion_error_that_says_what_was_seen(jaeger: Jaeger) -> None:
    """A failing test must say what Jaeger had instead; asking for no span at all raises nothing."""
    trace_id = send(over_http(jaeger), ended_span("lonely"))

    with pytest.raises(AssertionError, match=r"has 1 spans, not 2: \['execute_tool search'\]"):
        jaeger.trace(trace_id, timeout_seconds=0.1, at_least_spans=2)
    assert [] == jaeger.trace("f" * 32, at_least_spans=0)


def test_jaeger_starts_late_and_again_on_ports_chosen_before(jaeger_binary: Path, tmp_path: Path) -> None:
    """As a backend does that is down at first, and again later."""
    ports = Ports.free()
    for _ in range(2):
        with Jaeger.start(jaeger_binary, JAEGER_CONFIG, tmp_path / "jaeger.log", ports) as jaeger:
            assert f"http://127.0.0.1:{ports.otlp_http}" == jaeger.otlp_http_endpoint
            assert [] == jaeger.search("whole", at_least_spans=0)
            trace_id = send(over_http(jaeger), ended_span("whole"))
            assert 1 == len(jaeger.trace(trace_id))


def test_jaeger_dies_with_a_test_run_that_was_killed(jaeger_binary: Path, tmp_path: Path) -> None:
    """No SIGKILL of pytest may leave a server behind."""
    code = (
        "import sys, time; from pathlib import Path; from tests.backends import Jaeger, JAEGER_CONFIG\n"
        "jaeger = Jaeger.start(Path(sys.argv[1]), JAEGER_CONFIG, Path(sys.argv[2]))\n"
        "print(jaeger.ports.query_http, flush=True); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", code, str(jaeger_binary), str(tmp_path / "jaeger.log")]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        port = int(run.stdout.readline())
        assert listens(port)
        run.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 5
    while listens(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not listens(port)


def listens(port: int) -> bool:
    """Say whether anybody takes connections there; a pid would not do, it may stay on as a zombie."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_jaeger_that_cannot_start_is_an_assertion_error_with_its_log(jaeger_binary: Path, tmp_path: Path) -> None:
    """The reason is in Jaeger's own output, so the error shows it."""
    with pytest.raises(AssertionError, match=r"(?s)ended with status 1.*nowhere\.yaml"):
        Jaeger.start(jaeger_binary, tmp_path / "nowhere.yaml", tmp_path / "jaeger.log")


def test_jaeger_accepts_the_config_that_we_ship(jaeger_binary: Path) -> None:
    """With its defaults, as a user starts it."""
    answer = subprocess.run(
        [jaeger_binary, "validate", "--config", JAEGER_CONFIG],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert 0 == answer.returncode, answer.stderr


def test_attributes_become_python_values_again() -> None:
    """OTLP's JSON writes 64-bit integers, NaN and bytes as strings, and nests lists and maps."""
    pairs = {
        "i": {"intValue": "-9007199254740993"},
        "f": {"doubleValue": "-Infinity"},
        "y": {"bytesValue": "AGE="},
        "m": {"kvlistValue": {"values": [{"key": "l", "value": {"arrayValue": {}}}]}},
        "none": {},
    }
    span = {"attributes": [{"key": key, "value": value} for key, value in pairs.items()]}

    expected = {"i": -(2**53) - 1, "f": float("-inf"), "y": b"\x00a", "m": {"l": []}, "none": None}
    assert expected == attributes(span)
    assert {} == attributes({"name": "a span without attributes"})
