"""For the tests of the command line: agents that fail, a backend that answers, and a command that is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from typer.testing import CliRunner

import otel_error_hygiene as hygiene
from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings
from otel_error_hygiene.cli.app import app
from otel_error_hygiene.forensics.outbox import Outbox


class Backend:
    """An OTLP/HTTP receiver that keeps what it accepts; ``status`` is its answer, 400 for spans named ``poison``."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self.poison = "execute_tool poison"
        self.spans: dict[str, Any] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                spans = [s for rs in request.resource_spans for ss in rs.scope_spans for s in ss.spans]
                refused = any(span.name == outer.poison for span in spans)
                status = 400 if refused and outer.status == 200 else outer.status
                if status == 200:
                    outer.spans |= {span.span_id.hex(): span for span in spans}
                self.send_response(status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if status != 200:
                    self.wfile.write(b"no room \x1b[31mfor this")

            def log_message(self, *args: object) -> None:
                del args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def backend_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Yield a receiver to which the environment points; for a fixture."""
    made = Backend()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    yield made
    made.close()


class Agent:
    """A process's telemetry: a provider with our processor, and tools that fail."""

    def __init__(self, store: Path, *, exports: bool = False) -> None:
        # A back-off so long that only what a test asks for is ever sent.
        settings = Settings(store_path=store, retry_initial_millis=60_000, exit_timeout_millis=0)
        self.processor = ErrorHygieneSpanProcessor(OTLPSpanExporter() if exports else None, settings=settings)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)

    def fail(self, tool: str = "search", message: str = "no such host") -> hygiene.ErrorSummary:
        """Let a tool fail with a chain of two, and return what the agent got."""
        with hygiene.conversation("chat-1") as errors:
            try:
                with hygiene.tool_call(tool, arguments={"q": "x"}, tracer_provider=self.provider):
                    raise_chained(message)
            except RuntimeError:
                pass  # an agent goes on
            return errors.pending[-1]

    def succeed(self, tool: str = "search") -> None:
        """Let a tool succeed, once the model has seen what is pending."""
        with hygiene.conversation("chat-1") as errors:
            errors.render()
            with hygiene.tool_call(tool, arguments={"q": "y"}, tracer_provider=self.provider):
                pass

    def die(self) -> None:
        """End as a process does: its files are for whoever adopts them."""
        self.provider.shutdown()
        courier = self.processor._courier
        if courier is not None and courier._thread is not None:
            courier._thread.join(10)  # a dead process sends nothing: what was under way ends before the test goes on


def connect(message: str) -> None:
    """Fail to connect."""
    raise ConnectionError(message)


def raise_chained(message: str) -> None:
    """Raise an error with a note, from another one."""
    try:
        connect(message)
    except ConnectionError as error:
        outer = RuntimeError("the search failed")
        outer.add_note("seen by the test")
        raise outer from error


def agents_over(store: Path) -> Iterator[Callable[..., Agent]]:
    """Yield a maker of agents over one store, and end them; for a fixture."""
    made: list[Agent] = []

    def make(*, exports: bool = False) -> Agent:
        made.append(Agent(store, exports=exports))
        return made[-1]

    yield make
    for each in made:
        each.die()


class Ran:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def text(self) -> str:
        """Stdout, the breaks of lines undone."""
        return " ".join(self.out.split())

    @property
    def json(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.out)


def run(*args: object, answer: str | None = None, columns: int = 200) -> Ran:
    """Run a command in this process."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=answer, env={"COLUMNS": str(columns)})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def bytes_of(store: Path) -> bytes:
    """Return all that stands in a store's files."""
    return b"".join(path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file())


def same_refs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give out record ids 000000aa00000001, 000000aa00000002 and so on, as two processes might."""
    ids = iter(range(0xAA_0000_0001, 0xAA_0000_0009))
    monkeypatch.setattr(Outbox, "new_id", lambda _: next(ids))


def python(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a Python of its own, with warnings as errors."""
    root = str(Path(__file__).parent.parent)
    env = os.environ | {"PYTHONPATH": root, "PYTHONWARNINGS": "error", "COLUMNS": "120"} | variables
    return subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True, timeout=60, check=False)
