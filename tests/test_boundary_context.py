"""The tool boundary and whatever runs beside it: consumers of a stream, tasks, threads, a shared object."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Generator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_error_hygiene import conversation, tool_call
from tests.conftest import Rig


def look(*, fails: bool) -> int:
    """Give 7, or raise."""
    if fails:
        raise KeyError("no such thing")
    return 7


def exported(rig: Rig) -> list[ReadableSpan]:
    """Deliver all, and return what the exporter got."""
    assert rig.provider.force_flush()
    return list(rig.exporter.get_finished_spans())


def test_what_a_consumer_does_between_two_items_is_not_inside_the_tool(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """A generator runs in its consumer's context; spans of the consumer must not become the tool's children."""

    @tool_call("stream", tracer_provider=rig.provider)
    def stream() -> Generator[int, None, None]:
        for number in range(3):
            with rig.tracer.start_as_current_span(f"step {number}"):
                pass
            yield number

    with rig.tracer.start_as_current_span("agent") as agent:
        for number in stream():
            assert agent is trace.get_current_span()
            with rig.tracer.start_as_current_span(f"consume {number}"):
                pass
        left = stream()
        next(left)
        contextvars.copy_context().run(left.close)  # as the garbage collector may, on any thread
        assert agent is trace.get_current_span()

    spans = {span.name: span for span in exported(rig)}
    parents = {name: span.parent.span_id for name, span in spans.items() if span.parent}
    agent_id = agent.get_span_context().span_id
    assert {agent_id} == {parents[name] for name in ("consume 0", "consume 1", "consume 2", "execute_tool stream")}
    assert agent_id not in {parents[name] for name in ("step 0", "step 1", "step 2")}
    assert [] == caplog.records


def test_an_async_stream_that_is_cancelled_midway_is_neither_failure_nor_success(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The user stopped the agent: nothing is told, nothing cleared, and the tool's clean-up has run."""
    cleaned: list[str] = []

    @tool_call("stream", tracer_provider=rig.provider)
    async def stream() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(60)
            yield 2
        finally:
            cleaned.append("yes")

    async def consume() -> None:
        async for _ in stream():
            pass

    async def main() -> None:
        task = asyncio.create_task(consume())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with conversation("a") as errors:
        asyncio.run(main())
        assert "" == errors.render()
    assert ["yes"] == cleaned
    assert 0 == rig.processor.stats().seen
    assert [] == caplog.records


def test_tasks_that_run_at_once_have_their_own_nesting(rig: Rig) -> None:
    """Each failure is its own conversation's, and inner calls belong to the outer call of their own task."""

    async def agent(name: str) -> str:
        with conversation(name) as errors, contextlib.suppress(KeyError):
            async with tool_call(f"outer-{name}", tracer_provider=rig.provider) as outer:
                await asyncio.sleep(0.001)
                with contextlib.suppress(ValueError):
                    async with tool_call(f"inner-{name}", tracer_provider=rig.provider):
                        await asyncio.sleep(0.001)
                        raise ValueError(name)
                assert outer.span is trace.get_current_span()
                await asyncio.sleep(0.001)
                raise KeyError(name)
        return errors.render()

    async def main() -> list[str]:
        return await asyncio.gather(*(agent(f"n{number}") for number in range(20)))

    for number, rendered in enumerate(asyncio.run(main())):
        tools = [line.split(":")[0] for line in rendered.splitlines()]
        assert [f"[error] inner-n{number}", f"[error] outer-n{number}"] == tools
    assert 40 == rig.processor.stats().seen


def test_threads_and_tasks_may_share_one_boundary_object(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A boundary kept in a module variable is entered by whoever comes; each exit ends the entrant's own call."""
    shared = tool_call("look", tracer_provider=rig.provider)
    entered, leave = threading.Barrier(3), threading.Barrier(3)

    def work(name: str, *, fails: bool) -> None:
        with contextlib.suppress(KeyError), shared as handle:
            handle.span.set_attribute("who", name)
            entered.wait(10)
            with shared as again:
                again.span.set_attribute("who", f"{name} again")
            leave.wait(10)
            look(fails=fails)

    threads = [threading.Thread(target=work, args=(f"t{n}",), kwargs={"fails": n == 1}) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    outcome = {(span.attributes or {})["who"]: span.status.status_code for span in exported(rig)}
    bad = {name for name, status in outcome.items() if status is StatusCode.ERROR}
    assert (6, {"t1"}) == (len(outcome), bad)
    assert [] == caplog.records


def test_a_task_inherits_the_nesting_of_whoever_made_it(rig: Rig) -> None:
    """A tool that fans out: one exception through a child task's call and the parent's call is one failure."""

    async def part() -> None:
        async with tool_call("part", tracer_provider=rig.provider):
            await asyncio.sleep(0)
            raise KeyError("part")

    async def main() -> None:
        async with tool_call("whole", tracer_provider=rig.provider):
            pending: Awaitable[None] = asyncio.create_task(part())
            await pending

    with conversation("a") as errors:
        with pytest.raises(KeyError):
            asyncio.run(main())
        assert ["part"] == [each.tool for each in errors.pending]
    assert 1 == rig.processor.stats().seen
