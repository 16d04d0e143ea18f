"""The ways that spans take out of the process: no exporter, any exporter, the stock way, a bounded exit, faults."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings, conversation, recall, tool_call
from otel_error_hygiene.machine import look as look_module
from otel_error_hygiene.machine import observer
from tests.conftest import Rig

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1"}


def look() -> None:
    """Fail as the tool does."""
    raise KeyError("no such thing")


def test_without_an_exporter_the_store_and_the_buffers_work(settings: Settings) -> None:
    """For users whose own pipeline exports: nobody acknowledges, so ``deliver`` has nothing to claim."""
    ours = ErrorHygieneSpanProcessor(None, settings=settings)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ours)
    assert ours.deliver(0)
    with conversation("a") as errors, contextlib.suppress(KeyError), tool_call("look", tracer_provider=provider):
        look()
    (summary,) = errors.pending
    record = recall(summary.ref or "")
    assert record is not None
    assert ("pending", "KeyError", "a") == (record.state, record.exception_type, record.conversation)
    assert (True, False) == (ours.force_flush(), ours.deliver(0))
    provider.shutdown()


class Vendor(SpanExporter):
    """As a vendor's: refuses, then raises, then takes; keeps what it was given."""

    def __init__(self) -> None:
        self.answers: list[SpanExportResult | Exception] = []
        self.taken: list[ReadableSpan] = []
        self.calls = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Answer as was asked for, else take."""
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else SpanExportResult.SUCCESS
        if isinstance(answer, Exception):
            raise answer
        if answer is SpanExportResult.SUCCESS:
            self.taken += spans
        return answer

    def shutdown(self) -> None:
        """Nothing."""


def test_any_exporter_works_and_is_asked_again_until_it_takes(settings: Settings) -> None:
    """Its SUCCESS counts as acknowledged; a refusal keeps the failure, and the agent hears nothing of it."""
    vendor = Vendor()
    vendor.answers = [SpanExportResult.FAILURE, SpanExportResult.FAILURE]
    ours = ErrorHygieneSpanProcessor(vendor, settings=settings)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ours)
    with contextlib.suppress(KeyError), tool_call("look", tracer_provider=provider):
        look()
    assert ours.deliver(5000)
    assert ["execute_tool look"] == [span.name for span in vendor.taken]
    stats = ours.stats()
    assert (1, 0, 2) == (stats.delivered, stats.pending, stats.retried)
    provider.shutdown()


def test_healthy_spans_go_the_stock_way(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batched as OTEL_BSP_* says, exported without our help, and nothing is written to the store."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    vendor = Vendor()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ErrorHygieneSpanProcessor(vendor, settings=settings))
    for number in range(6):
        with tool_call(f"t{number}", tracer_provider=provider):
            pass
    deadline = time.monotonic() + 5
    while len(vendor.taken) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [f"execute_tool t{number}" for number in range(6)] == [span.name for span in vendor.taken]
    assert vendor.calls >= 3
    assert not settings.store_path.exists()
    provider.shutdown()


@pytest.mark.parametrize("fails", [True, False])
def test_the_exit_is_bounded_though_the_exporter_hangs(settings: Settings, fails: bool) -> None:
    """The stock processor would wait 30 seconds for healthy spans alone."""
    hang = threading.Event()

    class Hangs(Vendor):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            hang.wait(20)
            return super().export(spans)

    settings = settings.model_copy(update={"exit_timeout_millis": 300})
    provider = TracerProvider(shutdown_on_exit=False)
    ours = ErrorHygieneSpanProcessor(Hangs(), settings=settings)
    provider.add_span_processor(ours)
    with contextlib.suppress(KeyError), tool_call("look", tracer_provider=provider):
        if fails:
            look()
    began = time.monotonic()
    assert not ours.force_flush(100)
    flushed = time.monotonic()
    provider.shutdown()
    ended = time.monotonic()
    hang.set()
    assert flushed - began < 1
    assert ended - flushed < 1.5


def broken(*_: Any, **__: Any) -> Any:
    """Stand where something of ours stood, and fail."""
    raise RuntimeError("ours")


HOOKS: dict[str, tuple[Callable[[Rig], Any], str, str]] = {
    "recognise": (lambda _: observer, "recognise_span", "on_end"),
    "outcome": (lambda _: observer, "outcome_of", "on_end"),
    "capture": (lambda _: look_module, "capture", "on_end"),
    "route": (lambda rig: rig.processor.conversations, "route", "on_end"),
    "split": (lambda rig: rig.processor.splitter, "split", "on_end"),
    "bound": (lambda rig: rig.processor.conversations, "opened", "on_start"),
}


@pytest.mark.faults
@pytest.mark.parametrize("place", HOOKS)
def test_a_fault_in_a_hook_never_reaches_the_agent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """The tool's own exception comes out; the fault is counted and logged once; the span is exported still."""
    holder, name, hook = HOOKS[place]
    before = rig.processor.stats().internal_errors
    monkeypatch.setattr(holder(rig), name, broken)
    with conversation("a"):
        for _ in range(3):
            with pytest.raises(KeyError), rig.tracer.start_as_current_span("execute_tool look", attributes=TOOL):
                look()
            with rig.tracer.start_as_current_span("healthy"):
                pass
    monkeypatch.undo()

    assert before + 3 <= rig.processor.stats().internal_errors
    said = [record.getMessage() for record in caplog.records if record.name == "otel_error_hygiene"]
    assert [f"internal fault in {hook}, the agent is not affected"] == said
    assert rig.provider.force_flush()
    names = [span.name for span in rig.exporter.get_finished_spans()]
    assert (3, 3) == (names.count("execute_tool look"), names.count("healthy"))
    stats = rig.processor.stats()
    assert stats.seen == stats.recorded + sum(stats.lost.values())
    assert stats.recorded == stats.delivered


@pytest.mark.faults
def test_an_exporter_that_raises_is_asked_again_and_the_agent_hears_nothing(settings: Settings) -> None:
    """A vendor's client may do anything; the failure waits in the store until it is taken."""
    vendor = Vendor()
    vendor.answers = [OSError("no route")]
    ours = ErrorHygieneSpanProcessor(vendor, settings=settings)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ours)
    with pytest.raises(KeyError), tool_call("look", tracer_provider=provider):
        look()
    assert ours.deliver(5000)
    assert ["execute_tool look"] == [span.name for span in vendor.taken]
    stats = ours.stats()
    assert (1, 0) == (stats.delivered, stats.quarantined)
    provider.shutdown()
