"""The stock way of healthy spans: honest results, kept deadlines."""

from __future__ import annotations

import time

import pytest

from otel_error_hygiene import Settings
from tests.forensics.agents import agent, exporter_to
from tests.otlp_server import (
    HttpReceiver,
    hang,
    ok,
    status,
)


def test_force_flush_is_honest_about_healthy_spans(http: HttpReceiver, settings: Settings) -> None:
    """False when the exporter did not take them, also when it was asked before the flush; True for what comes after."""
    with agent(exporter_to(http, timeout=1), settings) as made:
        made.tracer.start_span("healthy").end()
        assert made.processor.force_flush(5000)
        http.default = status(400)
        made.tracer.start_span("refused").end()
        assert not made.processor.force_flush(5000)
        http.default = ok
        made.tracer.start_span("healthy again").end()
        assert made.processor.force_flush(5000)
    assert ["healthy", "healthy again"] == http.names()


def test_force_flush_tells_of_spans_that_were_refused_before_it(
    http: HttpReceiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch processor exports by itself; what it lost since the last flush is told by the next one."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    http.default = status(400)
    with agent(exporter_to(http), settings) as made:
        made.tracer.start_span("refused").end()
        assert http.wait_for(lambda: len(http.requests) == 1)
        time.sleep(0.1)
        assert not made.processor.force_flush(5000)
        assert made.processor.force_flush(5000)


def test_force_flush_keeps_its_deadline(http: HttpReceiver, settings: Settings) -> None:
    """The SDK's own ignores it (facts, 1.7)."""
    http.default = hang
    with agent(exporter_to(http, timeout=3), settings) as made:
        made.tracer.start_span("healthy").end()
        made.fail()
        started = time.monotonic()
        assert not made.processor.force_flush(400)
        assert time.monotonic() - started < 1.5
