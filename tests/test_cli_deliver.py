"""`deliver` sends what is pending, whoever recorded it, and is honest about the rest."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import otel_error_hygiene as hygiene
from tests.cli_rig import Agent, Backend, agents_over, backend_for, python, run


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Give a receiver to which the environment points."""
    yield from backend_for(monkeypatch)


@pytest.fixture
def agent_of(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Make agents over the test's store."""
    yield from agents_over(tmp_path / "store")


KILLED = """
import os, signal
import otel_error_hygiene as hygiene
hygiene.install()
with hygiene.conversation("chat-9") as errors:
    try:
        with hygiene.tool_call("lookup", arguments={"q": 1}):
            raise TimeoutError("the far end said nothing")
    except TimeoutError:
        print(errors.pending[0].span_id, errors.render(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_deliver_sends_what_a_killed_process_left(backend: Backend) -> None:
    """SIGKILL right after the failure, then `deliver` in another process: the backend has the span and the line."""
    backend.status = 503
    killed = python("-c", KILLED)
    assert -signal.SIGKILL == killed.returncode
    span_id, line = killed.stdout.strip().split(" ", 1)
    backend.status = 200
    ran = python("-m", "otel_error_hygiene.cli", "deliver", "--timeout", "20")
    assert (0, "") == (ran.returncode, ran.stderr)
    assert f"Delivered 1 failed tool call to {backend.url}/v1/traces." in ran.stdout
    (span,) = backend.spans.values()
    assert span_id == span.span_id.hex()
    values = {each.key: each.value.string_value for each in span.attributes}
    assert line == values["error_hygiene.line"]
    assert "delivered" == run("list", "--json").json["failures"][0]["state"]


def test_deliver_also_sends_what_a_living_process_has_pending(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """The process that recorded it sees that it was delivered, and does not send it again."""
    agent = agent_of(exports=True)
    backend.status = 503
    summary = agent.fail()
    assert not agent.processor.deliver(100)
    backend.status = 200
    document = run("deliver", "--json").json
    assert {"failures": 1, "other_spans": 0} == document["delivered"]
    assert document["complete"]
    assert document["proven"]
    assert [summary.span_id] == list(backend.spans)
    assert (0, 1) == (agent.processor.stats().pending, agent.processor.stats().delivered)


def test_deliver_says_what_is_still_pending_and_why(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """A backend that is not ready leaves exit code 1, its words, and the record where it was."""
    backend.status, backend.headers = 503, {"Retry-After": "120"}
    agent = agent_of(exports=True)
    agent.fail()
    agent.die()
    ran = run("deliver", "--timeout", "0.5")
    assert 1 == ran.code
    assert "Still pending: 1 failed tool call." in ran.text
    assert r"HTTP 503 no room \x1b[31mfor this (it asks to wait 120 s: see --timeout)" in ran.text
    assert "pending" == run("list", "--json").json["failures"][0]["state"]
    document = run("deliver", "--timeout", "0.5", "--json")
    assert 1 == document.code
    assert (False, 120.0) == (document.json["complete"], document.json["retry_after_seconds"])


def test_deliver_waits_for_a_retry_after_within_its_time(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """The server asks for a second, and is asked again after it."""
    backend.status, backend.headers = 503, {"Retry-After": "1"}
    agent = agent_of(exports=True)
    agent.fail()
    agent.die()
    timer = threading.Timer(0.5, setattr, (backend, "status", 200))
    timer.start()
    assert 0 == run("deliver", "--timeout", "20").code
    timer.join()
    assert 1 == len(backend.spans)


def test_deliver_without_an_endpoint_says_which_variable_to_set(agent_of: Callable[..., Agent]) -> None:
    """Nothing is guessed: no endpoint is a matter of configuration, exit code 2."""
    agent_of().fail()
    ran = run("deliver", "--json")
    assert (2, "") == (ran.code, ran.out)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in ran.err


def test_deliver_names_an_unusable_configuration(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A protocol that OTLP does not have, or another exporter that was asked for, is named with its value."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon")
    ran = run("deliver")
    assert (2, True) == (ran.code, "'carrier-pigeon'" in ran.err)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    ran = run("deliver")
    assert (2, True) == (ran.code, "OTEL_TRACES_EXPORTER is 'console'" in ran.err)
    assert {} == backend.spans


def test_deliver_says_what_is_pending_for_others(
    agent_of: Callable[..., Agent], backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes to somebody else's backend: other destinations are named, other headers are another destination."""
    backend.status = 503
    agent_of().fail()
    agent = agent_of(exports=True)
    agent.fail()
    agent.die()
    backend.status = 200
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=other")
    ran = run("deliver")
    assert 0 == ran.code
    assert f"Nothing was pending for {backend.url}/v1/traces." in ran.text
    assert "1 failed tool call: kept here, exported by nobody" in ran.text
    assert f"1 failed tool call: {backend.url}/v1/traces (the same endpoint with other headers" in ran.text
    assert {} == backend.spans
    assert [("local", 1), 1] == [
        (each["destination_id"], each["pending"]) if each["destination_id"] == "local" else each["pending"]
        for each in reversed(run("deliver", "--json").json["elsewhere"])
    ]


def test_deliver_leaves_a_report_to_its_open_span(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """A failure whose span is still open in a living process waits for its end, and the command says so."""
    agent = agent_of(exports=True)
    backend.status = 503
    tracer = agent.provider.get_tracer("tests")
    with tracer.start_as_current_span("execute_tool pay", attributes={"gen_ai.operation.name": "execute_tool"}) as span:
        hygiene.report_error(ValueError("no funds"), tool="pay")
        backend.status = 200
        ran = run("deliver", "--timeout", "1")
        assert 1 == ran.code
        assert "1 failed tool call of a live process: sent when the span ends, or the process." in ran.text
        assert {} == backend.spans
    assert 0 == run("deliver").code
    assert [f"{span.get_span_context().span_id:016x}"] == list(backend.spans)


def test_deliver_waits_for_another_courier_at_work(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """What another process is sending right now is not sent beside it; the outcome is awaited."""
    agent = agent_of(exports=True)
    backend.status = 503
    agent.fail()
    agent.die()
    backend.status = 200
    (owner,) = agent.processor.settings.store_path.rglob("owner.lock")
    hold = f"import fcntl\nheld = open({str(owner.with_name('courier.lock'))!r}, 'a')\nfcntl.flock(held, 2)\n"
    with subprocess.Popen(
        [sys.executable, "-c", hold + "import sys\nprint('held', flush=True)\nsys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert "held\n" == holder.stdout.readline()
        assert 1 == run("deliver", "--timeout", "0.5").code
        assert {} == backend.spans
        timer = threading.Timer(0.5, holder.stdin.close)
        timer.start()
        assert 0 == run("deliver", "--timeout", "20").code
        timer.join()
    assert 1 == len(backend.spans)
