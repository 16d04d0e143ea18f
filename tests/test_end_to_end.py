"""The main job against the real Jaeger: a tool fails, Jaeger has everything, the agent has one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents import tools
from tests.backends import JAEGER_CONFIG, ROOT, Jaeger, Json, Ports, attributes

pytestmark = pytest.mark.backend

RAISING_LINE = 'raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")'
"""As it stands in tests/agents/tools.py."""
RECOVERED = "[recovered] Previous tool errors resolved. Proceeding with task."


@pytest.fixture(scope="module")
def jaeger(jaeger_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """Run one Jaeger for the tests whose backend is up from the beginning."""
    log_file = tmp_path_factory.mktemp("jaeger") / "jaeger.log"
    with Jaeger.start(jaeger_binary, JAEGER_CONFIG, log_file) as running:
        yield running


@dataclass(frozen=True)
class Run:
    """What an agent process said, and how it ended."""

    returncode: int
    said: list[Json]
    stderr: str

    def told(self, key: str) -> list[Any]:
        """Return the values under one key, in the order in which they were said."""
        return [line[key] for line in self.said if key in line]


@dataclass(frozen=True)
class Host:
    """A machine on which agents run: one store, one endpoint."""

    store: Path
    ports: Ports
    protocol: str = "http/protobuf"

    def environment(self, service: str) -> dict[str, str]:
        """Return a process's environment; nothing of OTEL_* comes from ours."""
        port = self.ports.otlp_grpc if self.protocol == "grpc" else self.ports.otlp_http
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        return kept | {
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
            "OTEL_SERVICE_NAME": service,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": self.protocol,
            "OTEL_ERROR_HYGIENE_STORE_PATH": str(self.store),
        }

    def run(self, service: str, *command: str) -> Run:
        """Run ``python -m <command>`` to its end."""
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=self.environment(service),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Run(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr)

    def deliver(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run ``otel-error-hygiene deliver``, as a person does once the backend is up."""
        return subprocess.run(
            [sys.executable, "-m", "otel_error_hygiene.cli", "deliver", *options],
            cwd=ROOT,
            env=self.environment("someone-else"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def named(spans: list[Json], name: str) -> Json:
    """Return the one span of a name; more than one is a duplicate."""
    (span,) = [span for span in spans if span["name"] == name]
    return span


def event(span: Json, name: str) -> Json:
    """Return the one event of a name."""
    events: list[Json] = span["events"]
    (found,) = [each for each in events if each["name"] == name]
    return found


def check_whole_failure(span: Json, line: str) -> None:
    """Hold the failing span of tests.agents.tools.get_forecast against what an engineer needs."""
    values = attributes(span)
    assert 2 == span["status"]["code"]  # ERROR
    assert "tests.agents.tools.ForecastError" == values["error.type"]
    assert line == values["error_hygiene.line"]
    assert "connectivity" == values["error_hygiene.class"]
    assert "retryable" == values["error_hygiene.bucket"]
    assert "YES" == values["error_hygiene.recoverable"]
    assert 1 == values["error_hygiene.attempt"]
    assert re.fullmatch("[0-9a-f]{16}", values["error_hygiene.fingerprint"])
    assert line.endswith(f" ref={values['error_hygiene.ref']}")
    assert True is values["error_hygiene.kept"]
    assert "error_hygiene.unfinished" not in values

    exception = attributes(event(span, "exception"))
    assert "tests.agents.tools.ForecastError" == exception["exception.type"]
    assert "no forecast for the city" == exception["exception.message"]
    check_whole_stack(exception["exception.stacktrace"])

    told = event(span, "error_hygiene.told")
    assert {"error_hygiene.line": line} == attributes(told)
    assert int(span["startTimeUnixNano"]) <= int(told["timeUnixNano"])


def check_whole_stack(stack: str) -> None:
    """Hold a stack text against the chain that the tool raised: both exceptions, every frame, the raising line."""
    cause, link, effect = stack.partition("\nThe above exception was the direct cause of the following exception:\n\n")
    assert link
    frames = re.findall(r'^  File "(.+)", line (\d+), in (\w+)$', cause, re.MULTILINE)
    assert tools.__file__ == frames[-1][0]
    assert "connect_to_station" == frames[-1][2]
    source = Path(tools.__file__).read_text(encoding="utf-8").splitlines()
    assert source[int(frames[-1][1]) - 1].strip().startswith(RAISING_LINE)
    assert RAISING_LINE in cause
    assert re.search(r"^ConnectionRefusedError: \[Errno \d+\] Connection refused$", cause, re.MULTILINE)
    assert re.search(r"^tests\.agents\.tools\.ForecastError: no forecast for the city$", effect, re.MULTILINE)
    functions = re.findall(r'^  File ".+", line \d+, in (\w+)$', effect, re.MULTILINE)
    assert 1 == functions.count("get_forecast")
    # A run of one function over and over: Python elides it, frames written one by one do not.
    assert _frames_of(effect, "ask_service") == tools.FRAMES_ABOVE + 1
    assert _frames_of(cause, "ask_station") == tools.FRAMES_BELOW + 1


def _frames_of(stack: str, function: str) -> int:
    elided = re.search(rf"in {function}\n(?:    .*\n)+  \[Previous line repeated (\d+) more times\]", stack)
    return len(re.findall(rf", in {function}$", stack, re.MULTILINE)) + (int(elided[1]) if elided else 0)


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_jaeger_has_the_whole_failure_and_the_agent_one_line(jaeger: Jaeger, tmp_path: Path, protocol: str) -> None:
    """The end-to-end promise over both transports, after the prune, with no span twice."""
    service = f"agent-{protocol.partition('/')[0]}"
    run = Host(tmp_path, jaeger.ports, protocol).run(service, "tests.agents.loop", "--deliver-millis", "10000")
    assert (0, "") == (run.returncode, run.stderr)
    assert [True] == run.told("delivered")
    line, after = run.told("prompt")
    assert re.fullmatch(r"\[error\] get_forecast: connectivity\. Retrying with same parameters\. ref=[0-9a-f]{8}", line)
    assert RECOVERED == after  # pruned: nothing of the error is left

    (trace_id,) = run.told("trace")
    spans = jaeger.trace(trace_id, at_least_spans=3)
    assert {span["spanId"]: 1 for span in spans} == Counter(span["spanId"] for span in spans)
    assert {service} == {attributes(span["resource"])["service.name"] for span in spans}
    root = named(spans, "invoke_agent travel")
    failed, recovering = named(spans, "execute_tool get_forecast"), named(spans, "execute_tool get_average")
    assert 3 == len(spans)
    assert {root["spanId"]} == {failed["parentSpanId"], recovering["parentSpanId"]}

    check_whole_failure(failed, line)
    values = attributes(failed)
    assert ("execute_tool", "get_forecast", "call-1") == tuple(
        values[f"gen_ai.{key}"] for key in ("operation.name", "tool.name", "tool.call.id")
    )
    assert {"city": "Oslo"} == json.loads(values["gen_ai.tool.call.arguments"])
    assert "trip-7" == values["error_hygiene.conversation"]

    (link,) = recovering["links"]
    assert (trace_id, failed["spanId"]) == (link["traceId"], link["spanId"])
    assert "cleared" == attributes(link)["error_hygiene.link"]
    assert 2 != recovering.get("status", {}).get("code")
    assert {True} == {attributes(span).get("error_hygiene.kept") for span in spans}

    for tags in ({"error_hygiene.line": line}, {"error_hygiene.class": "connectivity"}, {"error_hygiene.kept": "true"}):
        assert {trace_id} == jaeger.trace_ids(service, tags)
    assert set() == jaeger.trace_ids(service, {"error_hygiene.class": "auth"})


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_spans_of_the_plain_api_are_enough(jaeger: Jaeger, tmp_path: Path, protocol: str) -> None:
    """No boundary of ours: start_as_current_span with the GenAI attributes, and a conversation id on the span."""
    run = Host(tmp_path, jaeger.ports, protocol).run("plain", "tests.agents.plain")
    assert (0, "") == (run.returncode, run.stderr)
    (said,) = run.said
    assert said["delivered"]
    empty, line, both, after = said["prompts"]
    aged, second = both.split("\n")
    assert ("", f"{line} (1 turn ago)", RECOVERED) == (empty, aged, after)
    assert re.fullmatch(
        r"\[error\] read_notes: not_found\. Try broader search or different category\..* ref=[0-9a-f]{8}", second
    )

    spans = jaeger.trace(said["trace"], at_least_spans=4)
    assert {span["spanId"]: 1 for span in spans} == Counter(span["spanId"] for span in spans)
    failed, missing = named(spans, "execute_tool get_forecast"), named(spans, "execute_tool read_notes")
    check_whole_failure(failed, line)
    assert second == attributes(missing)["error_hygiene.line"]
    assert "FileNotFoundError" == attributes(missing)["error.type"]
    assert {failed["spanId"], missing["spanId"]} == {
        link["spanId"] for link in named(spans, "execute_tool get_average")["links"]
    }


def check_delivered_late(jaeger: Jaeger, run: Run) -> Json:
    """Hold what Jaeger got after the agent was gone against what the agent said; return the failing span."""
    (trace_id,) = run.told("trace")
    spans = jaeger.trace(trace_id, at_least_spans=1)
    failed = named(spans, "execute_tool get_forecast")
    check_whole_failure(failed, run.told("prompt")[0])
    return failed


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_killed_agent_s_failure_is_delivered_by_another_process(
    jaeger_binary: Path, tmp_path: Path, protocol: str
) -> None:
    """SIGKILL right after the failure, before any backend is there; ``deliver`` brings it, once."""
    host = Host(tmp_path / "store", Ports.free(), protocol)
    run = host.run("killed", "tests.agents.loop", "--then-die")
    assert -signal.SIGKILL == run.returncode
    assert 1 == len(run.told("prompt"))

    before = host.deliver("--timeout", "1")
    assert 1 == before.returncode, before.stderr  # still pending: nobody is there to acknowledge it

    with Jaeger.start(jaeger_binary, JAEGER_CONFIG, tmp_path / "jaeger.log", host.ports) as jaeger:
        first = host.deliver()
        assert 0 == first.returncode, first.stderr
        failed = check_delivered_late(jaeger, run)
        assert "killed" == attributes(failed["resource"])["service.name"]

        again = host.deliver()
        assert 0 == again.returncode, again.stderr
        assert 1 == len(jaeger.trace(run.told("trace")[0]))


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_backend_that_is_down_for_the_whole_run_gets_it_from_the_next_process(
    jaeger_binary: Path, tmp_path: Path, protocol: str
) -> None:
    """The agent ends within its exit time; a later, healthy agent of the same host brings the failure."""
    host = Host(tmp_path / "store", Ports.free(), protocol)
    run = host.run("early", "tests.agents.loop")
    assert 0 == run.returncode
    assert [False] == run.told("delivered")
    (stats,) = run.told("stats")
    assert (1, 1, 1, 0) == tuple(stats[key] for key in ("seen", "recorded", "pending", "delivered"))

    with Jaeger.start(jaeger_binary, JAEGER_CONFIG, tmp_path / "jaeger.log", host.ports) as jaeger:
        later = host.run("late", "tests.agents.loop", "--healthy", "--deliver-millis", "10000")
        assert (0, [True]) == (later.returncode, later.told("delivered")), later.stderr
        failed = check_delivered_late(jaeger, run)
        assert "early" == attributes(failed["resource"])["service.name"]

        spans = jaeger.trace(run.told("trace")[0], at_least_spans=3)
        (link,) = named(spans, "execute_tool get_average")["links"]
        assert failed["spanId"] == link["spanId"]
        assert 3 == len(spans)
