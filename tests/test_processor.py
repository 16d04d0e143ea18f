"""The span processor: what it sees, what it leaves alone, and what becomes of the spans."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import Counter
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from otel_error_hygiene import (
    ConfigurationError,
    ErrorHygieneSpanProcessor,
    Settings,
    conversation,
    report_error,
    tool_call,
)
from tests.conftest import Rig


def tool(name: str = "look", call_id: str = "c1", conversation_id: str | None = None) -> dict[str, str]:
    """Return the GenAI attributes of a tool call's span."""
    values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": call_id}
    return values | ({} if conversation_id is None else {"gen_ai.conversation.id": conversation_id})


def look() -> None:
    """Fail as the tool does."""
    raise KeyError("no such thing")


def fail_in_span(rig: Rig, **what: str) -> None:
    """Let a plain span fail."""
    with (
        contextlib.suppress(KeyError),
        rig.tracer.start_as_current_span(f"execute_tool {what.get('name', 'look')}", attributes=tool(**what)),
    ):
        look()


def exported(rig: Rig) -> dict[str, ReadableSpan]:
    """Deliver all, and return what the exporter got, by name; a name twice is an error."""
    assert rig.provider.force_flush()
    spans = rig.exporter.get_finished_spans()
    found = {span.name: span for span in spans}
    assert len(spans) == len(found), [span.name for span in spans]
    return found


@pytest.mark.parametrize("exporter", ["otlp", 7, object()])
def test_what_is_no_exporter_is_refused(exporter: Any) -> None:
    """A constructor raises on bad input, and says what would be right."""
    with pytest.raises(ConfigurationError, match=r'"exporter" is .*; it must be a SpanExporter'):
        ErrorHygieneSpanProcessor(exporter)


def test_a_span_whose_start_it_never_saw_is_told_and_recorded(rig: Rig) -> None:
    """Added while the agent runs, or behind somebody's queue: the conversation's id on the span is enough."""
    elsewhere = TracerProvider(shutdown_on_exit=False).get_tracer("elsewhere")
    span = elsewhere.start_span("execute_tool look", attributes=tool(conversation_id="a"))
    span.record_exception(KeyError("no such thing"))
    span.end()
    assert isinstance(span, ReadableSpan)
    rig.processor.on_end(span)

    (summary,) = rig.processor.conversation("a").pending
    assert "[error] look: not_found." == str(summary)[:24]
    assert str(summary) == (exported(rig)["execute_tool look"].attributes or {})["error_hygiene.line"]


def test_a_span_with_neither_conversation_nor_start_is_recorded_and_counted_as_unrouted(rig: Rig) -> None:
    """It goes to nobody rather than to somebody else, and is not dropped silently."""
    with conversation("a") as errors:
        pass
    fail_in_span(rig)
    stats = rig.processor.stats()
    assert ("", 1, 1, 1) == (errors.render(), stats.seen, stats.recorded, stats.unrouted)
    assert "error_hygiene.line" in (exported(rig)["execute_tool look"].attributes or {})


def test_copies_of_one_exception_on_parents_make_no_line(rig: Rig) -> None:
    """The SDK records one exception on every span that it passes; only the tool's says something to the agent."""

    def agent() -> None:
        with (
            rig.tracer.start_as_current_span("invoke_agent main", attributes={"gen_ai.operation.name": "invoke_agent"}),
            rig.tracer.start_as_current_span("chain step"),
            rig.tracer.start_as_current_span("execute_tool look", attributes=tool()),
        ):
            look()

    with conversation("a") as errors:
        with pytest.raises(KeyError):
            agent()
        assert ["look"] == [each.tool for each in errors.pending]
    assert 1 == rig.processor.stats().seen
    spans = exported(rig)
    assert {"invoke_agent main", "chain step", "execute_tool look"} == set(spans)
    for name, span in spans.items():
        assert (True, name == "execute_tool look") == (
            (span.attributes or {}).get("error_hygiene.kept"),
            "error_hygiene.line" in (span.attributes or {}),
        )


@pytest.mark.parametrize("kind", ["langgraph.errors.GraphInterrupt", "langgraph.errors.ParentCommand"])
def test_control_flow_is_no_failure(rig: Rig, kind: str) -> None:
    """A graph that pauses, or hands over, raises for it; the tool did not fail, whatever the span's status."""
    with conversation("a") as errors:
        span = rig.tracer.start_span("execute_tool look", attributes=tool())
        span.add_event("exception", {"exception.type": kind, "exception.message": "(Interrupt(),)"})
        span.set_status(Status(StatusCode.ERROR, kind))
        span.end()
        assert "" == errors.render()
    assert 0 == rig.processor.stats().seen


def test_a_cancelled_plain_span_tells_nothing_and_clears_nothing(rig: Rig) -> None:
    """The SDK records no BaseException and leaves the status UNSET: that must not look like a success."""
    with conversation("a") as errors:
        fail_in_span(rig)
        before = errors.render()

        async def slow() -> None:
            with rig.tracer.start_as_current_span("execute_tool slow", attributes=tool("slow", "c2")):
                await asyncio.sleep(60)

        async def main() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(slow(), 0.01)

        asyncio.run(main())
        assert f"{before} (1 turn ago)" == errors.render()
    assert 1 == rig.processor.stats().seen


@pytest.mark.parametrize(
    ("attributes", "status", "told"),
    [
        ({"error.type": "timeout"}, StatusCode.UNSET, "[error] look: connectivity. "),
        ({}, StatusCode.ERROR, "[error] look: unknown. "),
        ({}, StatusCode.OK, ""),
    ],
    ids=["error_type_attr", "openai_agents_default", "ok"],
)
def test_a_span_without_an_event_is_judged_by_its_own_words(
    rig: Rig, attributes: dict[str, str], status: StatusCode, told: str
) -> None:
    """No exception reaches the processor; it neither crashes nor guesses."""
    with conversation("a") as errors:
        span = rig.tracer.start_span("execute_tool look", attributes=tool() | attributes)
        span.set_status(
            Status(status, "An error occurred while running the tool." if status is StatusCode.ERROR else None)
        )
        span.end()
        assert told == errors.render()[: len(told)]
        assert bool(told) == bool(errors.pending)


def test_two_processors_on_one_provider_do_not_double_the_line(settings: Settings) -> None:
    """A second one, for a second backend: one failure is one line, and the next one is x2."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporters = InMemorySpanExporter(), InMemorySpanExporter()
    for exporter in exporters:
        provider.add_span_processor(ErrorHygieneSpanProcessor(exporter, settings=settings))
    tails = []
    with conversation("a") as errors:
        for _ in range(2):
            with contextlib.suppress(KeyError), tool_call("look", tracer_provider=provider) as call:
                look()
            (line,) = errors.render().splitlines()
            assert line == str(call.summary)
            tails.append(line.partition("category.")[2])
    provider.force_flush()
    try:
        assert re.fullmatch(" ref=[0-9a-f]{8}", tails[0])
        assert re.fullmatch(" x2 ref=[0-9a-f]{8}", tails[1])
        for exporter in exporters:
            assert 2 == len(exporter.get_finished_spans())
    finally:
        provider.shutdown()


def test_spans_of_a_failed_trace_that_end_later_reach_the_exporter_once_and_are_kept(rig: Rig) -> None:
    """Those that end after the failure go through the outbox with it; another trace goes the stock way."""
    with rig.tracer.start_as_current_span("agent"):
        with rig.tracer.start_as_current_span("before"):
            pass
        fail_in_span(rig)
        with rig.tracer.start_as_current_span("after"):
            pass
    with rig.tracer.start_as_current_span("another trace"):
        pass
    spans = exported(rig)
    kept = {name for name, span in spans.items() if (span.attributes or {}).get("error_hygiene.kept")}
    assert {"agent", "before", "execute_tool look", "after", "another trace"} == set(spans)
    assert {"agent", "execute_tool look", "after"} <= kept
    assert "another trace" not in kept


def test_the_success_that_resolves_a_failure_links_to_it(rig: Rig) -> None:
    """Also from another trace; a success that resolves nothing has no link."""
    with conversation("a"):
        fail_in_span(rig)
        for name in ("fine", "later"):
            with rig.tracer.start_as_current_span(f"execute_tool {name}", attributes=tool(name, name)):
                pass
    spans = exported(rig)
    (link,) = spans["execute_tool fine"].links
    failed = spans["execute_tool look"].context
    assert (failed.trace_id, failed.span_id) == (link.context.trace_id, link.context.span_id)
    assert () == tuple(spans["execute_tool later"].links)


def test_a_failure_after_the_shutdown_is_told_and_counted_as_lost(rig: Rig) -> None:
    """An agent that goes on beyond its telemetry: there is no store any more, so no reference."""
    with conversation("a") as errors:
        rig.processor.shutdown()
        fail_in_span(rig)
        assert "[error] look: not_found. Try broader search or different category." == errors.render()
    stats = rig.processor.stats()
    assert (1, 0, {"closed": 1}) == (stats.seen, stats.recorded, stats.lost)


def test_the_counts_add_up_whatever_fails_in_however_many_threads(rig: Rig) -> None:
    """Every kind of failure, success and cancellation at once; each failure reaches the exporter once."""
    rounds, threads = 40, 4

    def work(worker: int) -> None:
        for number in range(rounds):
            call_id = f"{worker}-{number}"
            with conversation(f"w{worker}") as errors:
                fail_in_span(rig, call_id=call_id)
                with contextlib.suppress(KeyError), tool_call("raises", tracer_provider=rig.provider):
                    look()
                with tool_call("says", tracer_provider=rig.provider) as call:
                    call.result({"error": "403 Forbidden"})
                report_error(KeyError("reported"), tool="reports", call_id=call_id)
                with contextlib.suppress(asyncio.CancelledError), tool_call("stops", tracer_provider=rig.provider):
                    raise asyncio.CancelledError
                assert 4 == len(errors.pending)
                errors.turn()
                with tool_call("fine", tracer_provider=rig.provider):
                    pass
                assert () == errors.pending

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    raised: list[Any] = []
    threading.excepthook, before = raised.append, threading.excepthook
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    finally:
        threading.excepthook = before
    assert [] == raised

    total = 4 * rounds * threads
    stats = rig.processor.stats()
    assert (total, total, {}, 0) == (stats.seen, stats.recorded, stats.lost, stats.unrouted)
    assert stats.recorded == stats.pending + stats.delivered + stats.quarantined + stats.expired
    assert rig.provider.force_flush()
    stats = rig.processor.stats()
    assert (total, 0) == (stats.delivered, stats.pending)
    spans = rig.exporter.get_finished_spans()
    assert {1} == set(Counter(span.context.span_id for span in spans).values())
    assert total == sum("error_hygiene.line" in (span.attributes or {}) for span in spans)
    assert 6 * rounds * threads == len(spans)
