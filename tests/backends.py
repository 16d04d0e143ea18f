"""The real Jaeger as a test fixture: start it, read back what arrived, end it."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "tools" / "backends" / "build"
JAEGER_CONFIG = ROOT / "collector-config" / "jaeger.yaml"

# A span, an event, a link or a resource in OTLP's JSON encoding.
Json = dict[str, Any]

# A proxy from the environment must not stand between a test and its own loopback server.
_OPENER = build_opener(ProxyHandler({}))


def find_jaeger() -> Path | None:
    """Return the Jaeger that `tools/backends/build` made, or None when it is not built."""
    answer = subprocess.run([BUILD, "--path"], capture_output=True, text=True, timeout=30, check=False)
    return Path(answer.stdout.strip()) if answer.returncode == 0 else None


@pytest.fixture(scope="session")
def jaeger_binary() -> Path:
    """Return the built Jaeger; without one, skip, or fail when HYGIENE_BACKENDS=required."""
    binary = find_jaeger()
    if binary is not None:
        return binary
    what_to_do = f"Jaeger is not built; build it with: {BUILD.relative_to(ROOT)}"
    if os.environ.get("HYGIENE_BACKENDS") == "required":
        pytest.fail(what_to_do)
    pytest.skip(what_to_do)


def attributes(holder: Json) -> dict[str, Any]:
    """Turn the key-value list of a span, event, link or resource into a dict of Python values."""
    return _dict(holder.get("attributes", []))


def _dict(pairs: list[Json]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in pairs}


def _value(value: Json) -> Any:
    for kind, content in value.items():  # one at most
        return _READERS[kind](content) if kind in _READERS else content
    return None


# What JSON has no type for is written as a string: 64-bit integers, NaN and the infinities, bytes.
_READERS: dict[str, Callable[[Any], Any]] = {
    "intValue": int,
    "doubleValue": float,
    "bytesValue": base64.b64decode,
    "arrayValue": lambda array: [_value(item) for item in array.get("values", [])],
    "kvlistValue": lambda pairs: _dict(pairs.get("values", [])),
}


@dataclass(frozen=True)
class Ports:
    """The loopback ports of one Jaeger; known before it runs, so that a test can start it late."""

    otlp_http: int
    otlp_grpc: int
    query_http: int
    query_grpc: int
    health: int

    @classmethod
    def free(cls) -> Self:
        """Choose five ports that are free now.

        They lie below the range from which systems take ports for outgoing connections (32768 and up on Linux,
        49152 and up on macOS). From that range, an exporter that keeps trying a port where nobody listens yet
        can be given that very port as its own, and then talks to itself.
        """
        chosen: list[int] = []
        for port in random.SystemRandom().sample(range(20_000, 30_000), 200):
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            chosen.append(port)
            if len(chosen) == 5:
                return cls(*chosen)
        raise AssertionError("of 200 ports between 20000 and 30000 fewer than five are free")

    def environment(self) -> dict[str, str]:
        """Return the variables by which collector-config/jaeger.yaml takes its endpoints."""
        return {
            "JAEGER_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{self.otlp_http}",
            "JAEGER_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{self.otlp_grpc}",
            "JAEGER_QUERY_HTTP_ENDPOINT": f"127.0.0.1:{self.query_http}",
            "JAEGER_QUERY_GRPC_ENDPOINT": f"127.0.0.1:{self.query_grpc}",
            "JAEGER_HEALTH_ENDPOINT": f"127.0.0.1:{self.health}",
        }


class Jaeger:
    """A running Jaeger with memory storage. Made by `start`, ended by `stop` or the end of `with`."""

    def __init__(self, process: subprocess.Popen[bytes], watchdog: subprocess.Popen[bytes], ports: Ports) -> None:
        self.ports = ports
        self.otlp_http_endpoint = f"http://127.0.0.1:{ports.otlp_http}"
        self.otlp_grpc_endpoint = f"http://127.0.0.1:{ports.otlp_grpc}"
        self.query_url = f"http://127.0.0.1:{ports.query_http}"
        self._process = process
        self._watchdog = watchdog

    @classmethod
    def start(cls, binary: Path, config: Path, log_file: Path, ports: Ports | None = None) -> Self:
        """Start Jaeger and wait until it is ready.

        Args:
            binary: what `find_jaeger` returned.
            config: a config that takes its endpoints as collector-config/jaeger.yaml does.
            log_file: Jaeger's output is appended to it.
            ports: where to listen, for instance those of an earlier run; None takes free ones.

        Raises:
            AssertionError: it ended, or was not ready within 30 seconds; with the end of its log.
        """
        ports = ports or Ports.free()
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                [binary, "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | ports.environment(),
                start_new_session=True,
            )
        jaeger = cls(process, _watch(process.pid), ports)
        try:
            jaeger._wait_until_ready(log_file)
        except BaseException:
            jaeger.stop()
            raise
        return jaeger

    def trace(self, trace_id_hex: str, timeout_seconds: float = 10, at_least_spans: int = 1) -> list[Json]:
        """Return the spans of one trace as they were stored, duplicates included.

        Args:
            trace_id_hex: 32 hexadecimal digits.
            timeout_seconds: how long to ask again until there are enough spans.
            at_least_spans: 0 asks once and takes what is there, possibly nothing.

        Returns:
            Spans in OTLP's JSON encoding, each with its "resource" and its "scope" added.

        Raises:
            AssertionError: there were fewer; with what the last answer was.
        """
        # raw_traces: without it the query side drops identical spans and moves times to correct clock skew.
        return self._poll(f"/api/v3/traces/{trace_id_hex}", {"raw_traces": "true"}, timeout_seconds, at_least_spans)

    def search(
        self,
        service: str,
        operation: str | None = None,
        timeout_seconds: float = 10,
        at_least_spans: int = 1,
    ) -> list[Json]:
        """Return all spans, of up to 1000 traces of the last hour, of traces in which a service took part.

        Args:
            service: the `service.name` of at least one span of the trace.
            operation: the name of a span of that service; None means any.
            timeout_seconds: as in `trace`.
            at_least_spans: as in `trace`.

        Raises:
            AssertionError: as in `trace`.
        """
        now = datetime.now(UTC)
        query = {
            "query.service_name": service,
            "query.operation_name": operation or "",
            "query.start_time_min": (now - timedelta(hours=1)).isoformat(),
            "query.start_time_max": (now + timedelta(hours=1)).isoformat(),
            "query.num_traces": "1000",
            "query.raw_traces": "true",
        }
        return self._poll("/api/v3/traces", query, timeout_seconds, at_least_spans)

    def trace_ids(self, service: str, tags: Mapping[str, str]) -> set[str]:
        """Return the ids of the traces which the UI's search box finds by attribute values.

        It asks the UI's own endpoint, since /api/v3 over HTTP cannot search by attributes. Attributes of spans,
        events, scopes and resources count; the UI's `error=true` finds nothing in this version's memory storage.
        """
        query = urlencode({"service": service, "tags": json.dumps(dict(tags)), "limit": "1000"})
        status, body = self._get(f"{self.query_url}/api/traces?{query}")
        assert status == 200, f"Jaeger answered {status}: {body[:500]}"
        return {trace["traceID"] for trace in json.loads(body)["data"]}

    def stop(self) -> None:
        """End Jaeger if it still runs; its traces are gone then."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._watchdog.stdin is not None and not self._watchdog.stdin.closed:
            self._watchdog.communicate(b"ended\n", timeout=5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait_until_ready(self, log_file: Path, timeout_seconds: float = 30) -> None:
        deadline = time.monotonic() + timeout_seconds
        last = "nothing"
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                status, last = self._get(f"http://127.0.0.1:{self.ports.health}/status")
                if status == 200:
                    return
            except OSError as error:
                last = str(error)
            time.sleep(0.05)
        ended = self._process.poll()
        state = f"ended with status {ended}" if ended is not None else "is not ready"
        log = log_file.read_text(errors="replace")[-2000:]
        raise AssertionError(f"Jaeger {state}; health said last: {last}; its log ends:\n{log}")

    def _poll(self, path: str, query: Mapping[str, str], timeout_seconds: float, at_least_spans: int) -> list[Json]:
        url = f"{self.query_url}{path}?{urlencode(query)}"
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                status, body = self._get(url)
            except OSError as error:
                raise AssertionError(f"Jaeger cannot be reached at {url}: {error}") from error
            # 404 is Jaeger's word for "no such trace", also in a search.
            assert status in (200, 404), f"Jaeger answered {status} to {url}: {body[:500]}"
            spans = _flat(json.loads(body)["result"]) if status == 200 else []
            if len(spans) >= at_least_spans:
                return spans
            if time.monotonic() >= deadline:
                seen = [span["name"] for span in spans]
                raise AssertionError(
                    f"after {timeout_seconds} s Jaeger has {len(spans)} spans, not {at_least_spans}: {seen}"
                )
            time.sleep(0.05)

    @staticmethod
    def _get(url: str) -> tuple[int, str]:
        try:
            with _OPENER.open(url, timeout=5) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


def _flat(traces_data: Json) -> list[Json]:
    return [
        span | {"resource": group.get("resource", {}), "scope": scoped.get("scope", {})}
        for group in traces_data.get("resourceSpans", [])
        for scoped in group.get("scopeSpans", [])
        for span in scoped.get("spans", [])
    ]


def _watch(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that kills `pid` once we are gone without having said "ended".

    We hold the only writing end of its standard input, and the kernel closes that even when pytest is killed.
    Linux's PR_SET_PDEATHSIG would need a preexec function, which is unsafe beside threads (grpc has some), and
    macOS lacks it.
    """
    sh = shutil.which("sh")
    assert sh is not None, "the harness needs a POSIX shell"
    return subprocess.Popen(
        [sh, "-c", 'read -r _ || kill -9 "$1"', "watchdog", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
