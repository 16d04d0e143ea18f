"""What the tests of the forensics run: a processor over a real exporter, failing tools, agents in other processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings, Stats
from tests.otlp_server import GrpcReceiver, HttpReceiver, Receiver

SEARCH = "execute_tool search"
"""Name of the span of a failed ``search``."""


def exporter_to(receiver: Receiver, **more: Any) -> SpanExporter:
    """Return the stock exporter for a receiver."""
    if isinstance(receiver, GrpcReceiver):
        return GrpcExporter(endpoint=receiver.endpoint, insecure=True, **more)
    assert isinstance(receiver, HttpReceiver)
    return HttpExporter(endpoint=receiver.endpoint, **more)


class Agent:
    """One process's telemetry: provider, processor, tracer."""

    def __init__(self, exporter: SpanExporter | None, settings: Settings) -> None:
        self.processor = ErrorHygieneSpanProcessor(exporter, settings=settings)
        self.provider = TracerProvider(
            resource=Resource({"service.name": "forensics", "service.instance.id": "é1"}), shutdown_on_exit=False
        )
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("tests.forensics")

    def fail(self, tool: str = "search", message: str = "connection refused", **attributes: Any) -> None:
        """Fail a tool in a trace of its own."""
        with (
            contextlib.suppress(ConnectionError),
            self.tracer.start_as_current_span(
                f"execute_tool {tool}",
                attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, **attributes},
            ),
        ):
            raise ConnectionError(message)

    def stats(self) -> Stats:
        """Return the stats, after a look at what the documentation promises of them."""
        found = self.processor.stats()
        assert found.seen == found.recorded + sum(found.lost.values())
        assert found.recorded == found.pending + found.delivered + found.quarantined + found.expired
        return found


@contextlib.contextmanager
def agent(exporter: SpanExporter | None, settings: Settings) -> Iterator[Agent]:
    """Give an agent, and shut it down."""
    made = Agent(exporter, settings)
    try:
        yield made
    finally:
        made.provider.shutdown()


def eventually(condition: Callable[[], bool], timeout_seconds: float = 10.0) -> bool:
    """Wait until a condition holds."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Child:
    """A Python program in a process of its own; it prints lines, and ends or is killed.

    At exit urllib3 cannot close what it opens (its finalizers ran before): the one warning that is not an error here.
    """

    def __init__(self, source: str, *args: str, **environment: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", source, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, "PYTHONPATH": root, **environment},
        )

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def say(self, line: str) -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> str:
        """End it by SIGKILL, and return what it had printed."""
        self.process.send_signal(signal.SIGKILL)
        return self.wait()[0]

    def wait(self, timeout_seconds: float = 30.0) -> tuple[str, str]:
        """Wait for its end, and return what it printed to both streams since the last line that was read."""
        process = self.process
        assert process.stdout is not None
        assert process.stderr is not None
        watchdog = threading.Timer(timeout_seconds, process.kill)
        watchdog.start()
        try:
            return process.stdout.read(), process.stderr.read()
        finally:
            process.wait()
            watchdog.cancel()
            for stream in (process.stdin, process.stdout, process.stderr):
                assert stream is not None
                stream.close()


def slow(settings: Settings) -> Settings:
    """Give settings whose back-off is a minute, so that only what is meant to try does."""
    return settings.model_copy(update={"retry_initial_millis": 60_000, "retry_max_millis": 60_000})
