"""Each failure reaches its own conversation, wherever its span starts and ends; what cannot be routed is counted."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import random
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode

from otel_error_hygiene import conversation
from otel_error_hygiene.context import ContextBuffer, Conversations, bound_buffer
from otel_error_hygiene.context import buffer as buffer_module
from otel_error_hygiene.context import scope as scope_module
from tests.conftest import Rig

TOOL = {"gen_ai.operation.name": "execute_tool"}


def start_tool(rig: Rig, tool: str, **attributes: Any) -> Span:
    """Start a tool call's span."""
    values = {key.replace("__", "."): value for key, value in attributes.items()}
    return rig.tracer.start_span(f"execute_tool {tool}", attributes={**TOOL, "gen_ai.tool.name": tool, **values})


def end_failed(span: Span, text: str = "down") -> None:
    """End a span with an exception."""
    span.record_exception(ConnectionError(text))
    span.set_status(StatusCode.ERROR)
    span.end()


def told(rig: Rig, conversation_id: str) -> list[str]:
    """Return the tools whose failures a conversation was told of."""
    return sorted(summary.tool for summary in rig.processor.conversation(conversation_id).pending)


@pytest.fixture(autouse=True)
def _nothing_bound() -> Iterator[None]:
    token = bound_buffer.set(None)
    yield
    bound_buffer.reset(token)


def test_a_span_belongs_to_what_was_bound_when_it_started(rig: Rig) -> None:
    """Its end may come later, below another conversation or none, and on another thread."""
    with conversation("a"):
        spans = [start_tool(rig, f"a{n}") for n in range(3)]
    end_failed(spans[0])
    with conversation("b"):
        end_failed(spans[1])
    thread = threading.Thread(target=end_failed, args=(spans[2],))
    thread.start()
    thread.join()
    assert (["a0", "a1", "a2"], []) == (told(rig, "a"), told(rig, "b"))
    assert 0 == rig.processor.stats().unrouted


@pytest.mark.parametrize("key", ["gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id"])
@pytest.mark.parametrize("late", [False, True])
def test_a_span_names_its_conversation(rig: Rig, key: str, *, late: bool) -> None:
    """Under each convention's key, at its start or only at its end."""
    span = start_tool(rig, "t") if late else start_tool(rig, "t", **{key: "c"})
    span.set_attribute(key, "c")
    end_failed(span)
    assert ["t"] == told(rig, "c")


def test_what_is_bound_outweighs_what_the_span_says(rig: Rig) -> None:
    """The user's word goes before the instrumentation's."""
    with conversation("bound"):
        span = start_tool(rig, "t", session__id="other")
    end_failed(span)
    assert (["t"], []) == (told(rig, "bound"), told(rig, "other"))


def test_a_span_without_either_belongs_to_its_trace(rig: Rig) -> None:
    """Whatever told the trace's conversation: a binding, an id at a start, an id at an end."""
    with conversation("bound"), rig.tracer.start_as_current_span("agent") as agent:
        context = trace.set_span_in_context(agent)
    end_failed(rig.tracer.start_span("execute_tool t1", context, attributes={**TOOL, "gen_ai.tool.name": "t1"}))
    with rig.tracer.start_as_current_span("agent", attributes={"session.id": "named"}):
        end_failed(start_tool(rig, "t2"))
    with rig.tracer.start_as_current_span("agent"):
        first = start_tool(rig, "t3")
        first.set_attribute("session.id", "late")
        end_failed(first)
        end_failed(start_tool(rig, "t4"))
    assert (["t1"], ["t2"], ["t3", "t4"]) == (told(rig, "bound"), told(rig, "named"), told(rig, "late"))


@pytest.mark.parametrize("late", [False, True])
def test_two_conversations_in_one_trace_never_cross(rig: Rig, *, late: bool) -> None:
    """What has neither a binding nor an id of its own then goes to nobody, and is counted."""
    with rig.tracer.start_as_current_span("server"):
        for name in ("a", "b"):
            if late:
                span = start_tool(rig, name)
                span.set_attribute("session.id", name)
                end_failed(span)
            else:
                with conversation(name):
                    end_failed(start_tool(rig, name))
        end_failed(start_tool(rig, "whose"))
    assert (["a"], ["b"]) == (told(rig, "a"), told(rig, "b"))
    stats = rig.processor.stats()
    assert (3, 3, 1) == (stats.seen, stats.recorded, stats.unrouted)


def test_what_cannot_be_routed_is_recorded_and_counted(rig: Rig) -> None:
    """Nobody is told, nothing is lost."""
    end_failed(start_tool(rig, "t"))
    stats = rig.processor.stats()
    assert (1, 1, 1, {}) == (stats.seen, stats.recorded, stats.unrouted, stats.lost)


def test_lines_that_made_room_are_counted_and_their_records_stay(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every loss is counted, that of a line too (P7); nested agents share the count."""
    monkeypatch.setattr(buffer_module, "_MAX_ENTRIES", 2)

    def agent(name: str) -> AbstractContextManager[Span]:
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        return rig.tracer.start_as_current_span(f"invoke_agent {name}", attributes=attributes)

    with conversation("a") as errors, agent("parent"):
        for tool in ("t1", "t2", "t3"):
            end_failed(start_tool(rig, tool))
        with agent("child"):
            for tool in ("t4", "t5", "t6"):
                end_failed(start_tool(rig, tool))
    assert ["t2", "t3"] == [summary.tool for summary in errors.pending]
    assert ["t5", "t6"] == [summary.tool for summary in errors.scope("child").pending]
    stats = rig.processor.stats()
    assert (6, 6, 2, {}) == (stats.seen, stats.recorded, stats.displaced, stats.lost)


def test_pool_threads_without_copied_context_route_by_the_id_on_the_span(rig: Rig) -> None:
    """Their spans are roots of traces of their own; without an id they are counted as unrouted."""
    with conversation("a"), ThreadPoolExecutor(4) as pool:
        for n in range(20):
            pool.submit(lambda n=n: end_failed(start_tool(rig, f"named{n}", session__id="a")))  # type: ignore[misc]
            pool.submit(lambda n=n: end_failed(start_tool(rig, f"lost{n}")))  # type: ignore[misc]
    assert sorted(f"named{n}" for n in range(20)) == told(rig, "a")
    assert 20 == rig.processor.stats().unrouted


def test_pool_threads_with_copied_context_route_by_what_was_bound(rig: Rig) -> None:
    """Two conversations share a pool, and none gets the other's."""
    with ThreadPoolExecutor(4) as pool:
        for name in ("a", "b"):
            with conversation(name):
                for n in range(20):
                    context = contextvars.copy_context()
                    pool.submit(context.run, lambda t=f"{name}{n}": end_failed(start_tool(rig, t)))
    for name in ("a", "b"):
        assert sorted(f"{name}{n}" for n in range(20)) == told(rig, name)


def test_fifty_tasks_of_two_conversations_do_not_cross(rig: Rig) -> None:
    """``gather`` interleaves them; each task binds its own, and some calls succeed."""

    async def call(name: str, n: int) -> None:
        with conversation(name):
            await asyncio.sleep(0)
            span = start_tool(rig, f"{name}{n}")
            await asyncio.sleep(0.001 * random.random())
            end_failed(span)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(call(name, n) for n in range(25) for name in ("a", "b")))

    asyncio.run(main())
    for name in ("a", "b"):
        assert sorted(f"{name}{n}" for n in range(25)) == told(rig, name)


def test_a_success_of_one_conversation_resolves_nothing_of_another(rig: Rig) -> None:
    """Only its own failures are behind it."""
    for name in ("a", "b"):
        with conversation(name):
            end_failed(start_tool(rig, f"fails in {name}"))
    with conversation("a"):
        start_tool(rig, "works").end()
    assert ([], ["fails in b"]) == (told(rig, "a"), told(rig, "b"))


def test_spans_that_never_end_stay_bounded() -> None:
    """Of open spans the newest 100 000 are remembered; finding room for one more stays cheap."""
    conversations = Conversations()
    buffer = conversations.buffer("c")
    tracemalloc.start()
    try:
        for number in range(100_000):
            conversations.opened(1, number, buffer)
        gc.collect()
        full = tracemalloc.get_traced_memory()[0]
        for number in range(100_000, 300_000):
            conversations.opened(1, number, buffer)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < full * 2  # a dictionary grows by doubling
    finally:
        tracemalloc.stop()
    assert 90_000 <= len(conversations.open) <= 100_000
    assert conversations.closed(299_999) is conversations.buffer("c")
    assert conversations.closed(0) is None
    start = time.perf_counter()
    for number in range(300_000, 400_000):
        conversations.opened(1, number, buffer)
    assert time.perf_counter() - start < 2  # 20 us each; measured 0.4


def test_traces_and_conversations_that_never_close_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest unused go first."""
    monkeypatch.setattr(scope_module, "_MAX_CONVERSATIONS", 100)
    monkeypatch.setattr(scope_module, "_MAX_TRACES", 50)
    conversations = Conversations()
    steady = conversations.buffer("steady")
    for number in range(1000):
        conversations.named(number, {"session.id": str(number)})
        assert steady is conversations.buffer("steady")
    assert 100 == len(conversations._buffers)
    assert 2 * 51 >= len(conversations._traces) + len(conversations._older)  # two generations
    assert conversations.of_trace(0) is None
    assert conversations.buffer("999") is conversations.of_trace(999)
    gc.collect()
    assert 200 >= len(conversations._living)


def test_an_evicted_conversation_that_is_in_use_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bound and what the id leads to are one buffer, however many others came between."""
    monkeypatch.setattr(scope_module, "_MAX_CONVERSATIONS", 10)
    conversations = Conversations()
    held = conversations.buffer("held")
    for number in range(100):
        conversations.buffer(str(number))
    assert held is conversations.buffer("held")


def test_threads_open_and_close_spans_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread fails while another makes room, and no span gets another's buffer."""
    monkeypatch.setattr(scope_module, "_MAX_OPEN_SPANS", 100)
    conversations = Conversations()
    faults: list[object] = []

    def work(thread: int) -> None:
        buffer = conversations.buffer(str(thread))
        try:
            for number in range(5000):
                span_id = thread * 100_000 + number
                conversations.opened(thread, span_id, buffer)
                if number % 3 and conversations.closed(span_id) not in (buffer, None):
                    faults.append(span_id)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(work, n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == faults
    assert len(conversations.open) <= 108


def test_buffers_bound_before_a_processor_was_there_are_taken_over() -> None:
    """A conversation keeps its lines when telemetry starts late."""
    before, after = Conversations(), Conversations()
    buffer = before.buffer("c")
    after.adopt(before)
    assert buffer is after.buffer("c")
    assert isinstance(buffer, ContextBuffer)
