"""install(): what it makes of a process's variables and of the provider that is there. Each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_error_hygiene import ConfigurationError, install
from otel_error_hygiene.errors import HygieneError
from tests.backends import ROOT

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}  # nobody listens on the discard port
PRELUDE = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import otel_error_hygiene as hygiene

memory = InMemorySpanExporter()

class Wrapper(SpanProcessor):
    def __init__(self, inner):
        self._inner = inner
    def on_start(self, span, parent_context=None):
        self._inner.on_start(span, parent_context)
    def on_end(self, span):
        self._inner.on_end(span)

class Counting(SpanProcessor):
    def __init__(self):
        self.ended = 0

def provide(*processors):
    provider = TracerProvider()
    for processor in processors:
        provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)

def kind(processor):
    exporter = processor._exporter
    return None if exporter is None else f"{type(exporter).__module__}.{type(exporter).__qualname__}"

def count():
    return len(trace.get_tracer_provider()._active_span_processor._span_processors)

def say(*what):
    print(json.dumps(what))
"""
HTTP = "opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter"
GRPC = "opentelemetry.exporter.otlp.proto.grpc.trace_exporter.OTLPSpanExporter"


def run(code: str, store: Path, **variables: str) -> list[Any]:
    """Run code in a new process, whose only OTEL_* variables are the given ones; return what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    own = {
        "PYTHONPATH": str(ROOT),
        "OTEL_ERROR_HYGIENE_STORE_PATH": str(store),
        "OTEL_ERROR_HYGIENE_EXIT_TIMEOUT_MILLIS": "100",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(code)],
        cwd=store.parent,
        env=kept | own | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    said = json.loads(done.stdout)
    assert isinstance(said, list)
    return said


FAIL_ONCE = """
with hygiene.conversation("a") as errors:
    try:
        with hygiene.tool_call("look"):
            raise KeyError("x")
    except KeyError:
        line = errors.render()
"""


@pytest.mark.parametrize(
    ("variables", "exporter"),
    [
        ({}, None),
        (ENDPOINT, HTTP),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, HTTP),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, HTTP),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, GRPC),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            GRPC,
        ),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "console"}, None),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "console,otlp"}, HTTP),
    ],
    ids=["nothing", "endpoint", "traces_endpoint", "http", "grpc", "traces_grpc", "none", "console", "both"],
)
def test_auto_takes_the_exporter_that_the_variables_describe(
    tmp_path: Path, variables: dict[str, str], exporter: str | None
) -> None:
    """And a provider is made, whose failures are told and kept whether or not they are exported."""
    code = f"""
    processor = hygiene.install()
    {textwrap.indent(FAIL_ONCE, "    ").strip()}
    say(kind(processor), count(), type(trace.get_tracer_provider()) is TracerProvider, line, processor.stats().recorded)
    """
    told, processors, made, line, recorded = run(code, tmp_path / "store", **variables)
    assert (exporter, 1, True, 1) == (told, processors, made, recorded)
    assert line.startswith("[error] look: not_found. ")
    assert " ref=" in line


@pytest.mark.parametrize(
    "processor",
    [
        "BatchSpanProcessor(memory)",
        "SimpleSpanProcessor(memory)",
        "Wrapper(BatchSpanProcessor(memory))",
        "Wrapper(Wrapper(SimpleSpanProcessor(memory)))",
    ],
)
def test_auto_exports_nothing_where_somebody_exports_already(tmp_path: Path, processor: str) -> None:
    """No span reaches the backend twice; the other pipeline gets each span once."""
    code = f"""
    provide({processor})
    processor = hygiene.install()
    {textwrap.indent(FAIL_ONCE, "    ").strip()}
    inner = trace.get_tracer_provider()._active_span_processor._span_processors[0]
    while isinstance(inner, Wrapper):
        inner = inner._inner
    inner.force_flush()
    say(kind(processor), count(), len(memory.get_finished_spans()), processor.stats().recorded)
    """
    assert [None, 2, 1, 1] == run(code, tmp_path / "store", **ENDPOINT)


def test_auto_exports_beside_a_processor_that_exports_nothing(tmp_path: Path) -> None:
    """One that only counts, or copies baggage, is no pipeline."""
    code = """
    provide(Counting())
    say(kind(hygiene.install()), count())
    """
    assert [HTTP, 2] == run(code, tmp_path / "store", **ENDPOINT)


def test_installing_twice_installs_once(tmp_path: Path) -> None:
    """Also with other arguments, and beside a processor that the constructor made."""
    code = """
    first = hygiene.install()
    second = hygiene.install(None)
    say(first is second, count())
    """
    assert [True, 1] == run(code, tmp_path / "store", **ENDPOINT)
    code = """
    made = hygiene.ErrorHygieneSpanProcessor(memory)
    provide(made)
    say(hygiene.install() is made, count())
    """
    assert [True, 1] == run(code, tmp_path / "store", **ENDPOINT)


def test_none_keeps_everything_local(tmp_path: Path) -> None:
    """Though an endpoint is configured; recall works from the store."""
    code = f"""
    processor = hygiene.install(None)
    {textwrap.indent(FAIL_ONCE, "    ").strip()}
    record = hygiene.recall(line[-8:])
    say(kind(processor), record.exception_type, processor.deliver(0), processor.force_flush())
    """
    assert [None, "KeyError", False, True] == run(code, tmp_path / "store", **ENDPOINT)


def test_an_exporter_of_one_s_own_gets_the_spans(tmp_path: Path) -> None:
    """Healthy ones and failed ones, each once."""
    code = f"""
    processor = hygiene.install(memory)
    {textwrap.indent(FAIL_ONCE, "    ").strip()}
    with hygiene.tool_call("fine"):
        pass
    flushed = processor.force_flush()
    say(flushed, sorted(span.name for span in memory.get_finished_spans()))
    """
    assert [True, ["execute_tool fine", "execute_tool look"]] == run(code, tmp_path / "store")


def test_an_unknown_protocol_is_refused_by_name(tmp_path: Path) -> None:
    """A mistake in the deployment is heard at the start, not when the first failure is not delivered."""
    code = """
    try:
        hygiene.install()
    except hygiene.ConfigurationError as error:
        say(str(error))
    """
    (said,) = run(code, tmp_path / "store", **ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL="carrier-pigeon")
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is 'carrier-pigeon'; it must be 'http/protobuf' or 'grpc'" == said


@pytest.mark.parametrize("exporter", ["otlp", 7, object()])
def test_what_is_no_exporter_is_refused_before_anything_is_installed(exporter: Any) -> None:
    """The text says what would be right; it is a ValueError and one of ours."""
    before = trace.get_tracer_provider()
    with pytest.raises(ConfigurationError, match='"exporter" is') as caught:
        install(exporter)
    assert isinstance(caught.value, HygieneError)
    assert isinstance(caught.value, ValueError)
    assert before is trace.get_tracer_provider()
    assert not isinstance(before, TracerProvider)


def test_a_provider_that_takes_no_processors_is_refused(tmp_path: Path) -> None:
    """Somebody else's implementation of the API: the text names it."""
    code = """
    trace.set_tracer_provider(trace.NoOpTracerProvider())
    try:
        hygiene.install()
    except hygiene.ConfigurationError as error:
        say(str(error))
    """
    (said,) = run(code, tmp_path / "store")
    assert "NoOpTracerProvider, which takes no span processors" in said


def test_an_endpoint_where_nobody_listens_delays_the_exit_no_longer_than_the_setting(tmp_path: Path) -> None:
    """The stock pipeline would hold a process with healthy spans for up to 30 seconds."""
    code = f"""
    import logging, time
    logging.disable()  # the stock exporter says that nobody listens
    processor = hygiene.install()
    {textwrap.indent(FAIL_ONCE, "    ").strip()}
    for _ in range(100):
        with hygiene.tool_call("fine"):
            pass
    began = time.monotonic()
    trace.get_tracer_provider().shutdown()
    say(time.monotonic() - began)
    """
    (seconds,) = run(code, tmp_path / "store", **ENDPOINT)
    assert seconds < 2
