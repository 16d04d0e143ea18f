"""Dispatch: what is at fault is found, and nothing else waits for it."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_error_hygiene import Settings
from otel_error_hygiene.forensics.segment import SegmentReader
from otel_error_hygiene.forensics.store import Writer, writers
from tests.forensics.agents import SEARCH, agent, eventually, exporter_to, slow
from tests.otlp_server import (
    Behaviour,
    GrpcReceiver,
    HttpReceiver,
    Receiver,
    ok,
    refusing,
    rejecting,
    status,
)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refusing("poison"), "poison is not welcome"),
        (refusing("poison", 413, "too large"), "too large"),
        (rejecting("poison", "span name is not allowed"), "span name is not allowed"),
    ],
    ids=["400", "413", "partial success"],
)
def test_one_poison_span_among_fifty_is_found(
    http: HttpReceiver, settings: Settings, answer: Behaviour, words: str
) -> None:
    """It is quarantined with the server's own words, and the fifty are delivered: by halving, not one by one."""
    http.default = status(503)
    with agent(exporter_to(http), slow(settings)) as made:
        for number in range(50):
            made.fail(f"tool{number:02}")
            if number == 25:
                made.fail("poison")
        http.default = answer
        assert not made.processor.deliver(10_000)
        assert (50, 1, 0) == (made.stats().delivered, made.stats().quarantined, made.stats().pending)
        [writer] = writers(settings.store_path)
        [reason] = writer.reasons().values()
        assert words in reason
        assert [f"execute_tool tool{number:02}" for number in range(50)] == http.names()
        assert len(http.requests) < 30


def test_a_poison_span_over_grpc_is_found(settings: Settings) -> None:
    """INVALID_ARGUMENT says that the content is at fault."""
    with GrpcReceiver() as receiver, agent(exporter_to(receiver), slow(settings)) as made:
        receiver.default = refusing("poison")
        for tool in ("one", "poison", "two"):
            made.fail(tool)
        assert not made.processor.deliver(5000)
        assert (2, 1) == (made.stats().delivered, made.stats().quarantined)


def test_a_server_that_stumbles_over_one_span_does_not_hold_up_the_others(
    http: HttpReceiver, settings: Settings
) -> None:
    """HTTP 500 for one span of forty: the rest is delivered at once; the one is quarantined when it happened thrice."""
    http.default = refusing("poison", 500, "panic: nil pointer")
    with agent(exporter_to(http), settings) as made:
        for number in range(40):
            made.fail("poison" if number == 7 else f"tool{number:02}")
        assert eventually(lambda: made.stats().delivered == 39)
        assert 0 == made.stats().quarantined
        # Alone it proves nothing, the server may be down; beside others that pass it does.
        for more in range(1, 5):
            made.fail(f"more{more}")
            assert eventually(lambda: made.stats().delivered >= 39 + more)  # noqa: B023  (waited for in this turn)
        assert (43, 1) == (made.stats().delivered, made.stats().quarantined)


def test_a_server_that_stumbles_over_everything_gets_few_requests_and_keeps_everything(
    http: HttpReceiver, settings: Settings
) -> None:
    """HTTP 500 to all: three requests a pass, nothing is quarantined, all arrives when it is well."""
    http.default = status(503)
    with agent(exporter_to(http), slow(settings)) as made:
        for number in range(20):
            made.fail(f"tool{number:02}")
        time.sleep(0.2)
        http.default = status(500)
        before = len(http.requests)
        assert not made.processor.deliver(300)
        assert len(http.requests) - before <= 3
        assert (20, 0) == (made.stats().pending, made.stats().quarantined)
        http.default = ok
        assert made.processor.deliver(5000)


def test_lone_surrogates_are_delivered(receiver: Receiver, settings: Settings) -> None:
    """One of them costs the stock exporter the whole batch (facts, 1.9): in any text."""
    bad = "caf\udce9 \ud800"
    with agent(exporter_to(receiver), settings) as made:
        with (
            contextlib.suppress(ValueError),
            made.tracer.start_as_current_span(
                f"execute_tool {bad}", attributes={"gen_ai.operation.name": "execute_tool", "note": bad, "list": [bad]}
            ) as open_span,
        ):
            open_span.add_event(f"event {bad}", {"detail": bad})
            raise ValueError(bad)
        made.fail("whole")
        assert made.processor.deliver(5000)
        assert 2 == made.stats().delivered
    escaped = "caf\\udce9 \\ud800"
    span = receiver.one(f"execute_tool {escaped}")
    assert (escaped, [escaped]) == (span.attributes["note"], span.attributes["list"])
    assert f"event {escaped}" in dict(span.events)
    assert escaped in dict(span.events)["exception"]["exception.message"]
    assert escaped in span.status[1]


def test_a_damaged_record_is_quarantined_and_the_others_are_delivered(settings: Settings, http: HttpReceiver) -> None:
    """A flipped bit on the disk costs that record, with a word about why."""
    http.default = status(503)
    with agent(exporter_to(http), slow(settings)) as made:
        for tool in ("one", "two", "three"):
            made.fail(tool)
        assert not made.processor.deliver(500)  # and nothing is under way when the bit flips
        assert made.processor.folder is not None
        path = made.processor.folder / "00000001.seg"
        with SegmentReader(path) as reader:
            header = reader.headers()[2]
        with path.open("r+b") as file:
            file.seek(header.offset + 40)
            file.write(b"\xff\xfe\xfd")
        http.default = ok
        assert not made.processor.deliver(5000)
        assert (2, 1) == (made.stats().delivered, made.stats().quarantined)
        assert ["the record is damaged"] == list(Writer(made.processor.folder).reasons().values())


class Vendor(InMemorySpanExporter):
    """A vendor's exporter that fails in its own ways, and never likes to be called twice at once."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)
        self.inside = 0
        self.most = 0

    def export(self, spans: Any) -> SpanExportResult:
        """Take one's time, and fail if it is one's turn."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.002)
        self.inside -= 1
        if self.errors:
            raise self.errors.pop(0)
        return super().export(spans)


@pytest.mark.parametrize(
    "error", [ConnectionError("reset"), TimeoutError(), RuntimeError("not now"), OSError(5, "I/O")]
)
def test_an_exporter_that_raises_is_tried_again(settings: Settings, error: Exception) -> None:
    """An error of its connection says nothing about the spans: nothing is quarantined for it."""
    exporter = Vendor(*[error] * 5)
    with agent(exporter, settings) as made:
        made.fail()
        assert eventually(lambda: made.stats().delivered == 1)
        assert [SEARCH] == [span.name for span in exporter.get_finished_spans()]


def test_an_exporter_is_never_called_twice_at_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specification of `Export`; the courier and the batch processor of healthy spans take turns."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    exporter = Vendor()
    with agent(exporter, settings) as made:
        for number in range(100):
            made.tracer.start_span(f"healthy{number}").end()
            made.fail(f"tool{number}")
        assert made.processor.force_flush(10_000)
        assert 1 == exporter.most
        assert 200 == len(exporter.get_finished_spans())
