"""The end of a process: bounded, and nothing recorded is lost."""

from __future__ import annotations

import time

import pytest

from otel_error_hygiene import Settings
from tests.forensics.agents import SEARCH, Agent, agent, exporter_to
from tests.forensics.children import child, pending_in
from tests.otlp_server import (
    HttpReceiver,
    free_port,
    hang,
)


@pytest.mark.parametrize("backend", ["down", "hangs"])
def test_shutdown_is_bounded_and_loses_nothing(settings: Settings, http: HttpReceiver, backend: str) -> None:
    """With a dead collector it ends in time; the record waits in the store for the next process."""
    http.default = hang
    if backend == "down":
        http.stop()
    made = Agent(exporter_to(http), settings.model_copy(update={"exit_timeout_millis": 400}))
    made.fail()
    made.tracer.start_span("healthy").end()
    started = time.monotonic()
    made.provider.shutdown()
    assert time.monotonic() - started < 1.5
    assert (1, 1) == (made.stats().seen, made.stats().pending)
    if backend == "hangs":
        http.stop()
    with HttpReceiver(http.port) as receiver, agent(exporter_to(receiver), settings) as following:
        assert following.processor.deliver(5000)
        assert SEARCH in receiver.names()  # the healthy one's own exporter may still be trying
    assert 1 == made.stats().delivered
    http._released.set()
    http.start()  # for the fixture, which stops it


def test_a_late_failure_after_shutdown_is_counted_and_nothing_breaks(http: HttpReceiver, settings: Settings) -> None:
    """A tool that ends after the provider: its failure is seen, and lost under "closed"."""
    made = Agent(exporter_to(http), settings)
    made.fail("in_time")
    span = made.tracer.start_span(SEARCH, attributes={"gen_ai.operation.name": "execute_tool"})
    made.provider.shutdown()
    span.record_exception(ConnectionError("late"))
    span.end()
    assert (2, 1, 1) == (made.stats().seen, made.stats().delivered, made.stats().lost["closed"])
    assert made.processor.deliver(1000)


def test_a_process_that_ends_by_itself_is_not_held_by_a_dead_collector(settings: Settings) -> None:
    """Real interpreter exit, `atexit` and all: in time, nothing on stderr, and the next process delivers."""
    port = free_port()
    receiver = HttpReceiver(port)
    started = time.monotonic()
    ended = child(settings, receiver.endpoint, "one", "two", OTEL_ERROR_HYGIENE_EXIT_TIMEOUT_MILLIS="300")
    failed_at = time.monotonic()
    _, errors = ended.wait()
    assert 0 == ended.process.returncode
    assert time.monotonic() - failed_at < 2.5, (failed_at - started, errors)
    assert "" == errors
    with receiver, agent(exporter_to(receiver), settings) as made:
        assert made.processor.deliver(5000)
        assert ["execute_tool one", "execute_tool two"] == receiver.names()


def test_a_process_that_ends_by_itself_delivers_at_exit(settings: Settings, http: HttpReceiver) -> None:
    """With a backend that answers, exit leaves nothing behind: the failure that came just before it arrives."""
    ended = child(settings, http.endpoint, "last")
    assert ("", "") == ended.wait()
    assert ["execute_tool last"] == http.names()
    assert 0 == pending_in(settings.store_path)
