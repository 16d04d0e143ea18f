"""The tool boundary in every form: with, async with, and a decorator on every kind of function."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_error_hygiene import conversation, recall, tool_call
from tests.conftest import Rig

NOT_FOUND = r"^\[error\] look: not_found\. Try broader search or different category\. ref=[0-9a-f]{8}$"


class Tool:
    """The same tool in every form; it gives a number, or raises KeyError."""

    def __init__(self, rig: Rig) -> None:
        self.provider = rig.provider

    def call(self) -> tool_call:
        """Make a boundary on the rig's provider."""
        return tool_call("look", call_id="c1", tracer_provider=self.provider)

    def with_block(self, *, fails: bool) -> int:
        """A plain with."""
        with self.call():
            return look(fails=fails)

    def async_with_block(self, *, fails: bool) -> int:
        """An async with."""

        async def main() -> int:
            async with self.call():
                await asyncio.sleep(0)
                return look(fails=fails)

        return asyncio.run(main())

    def decorated(self, *, fails: bool) -> int:
        """A function."""
        return self.call()(look)(fails=fails)

    def decorated_coroutine(self, *, fails: bool) -> int:
        """A coroutine function."""

        @self.call()
        async def aio(*, fails: bool) -> int:
            await asyncio.sleep(0)
            return look(fails=fails)

        return asyncio.run(aio(fails=fails))

    def decorated_generator(self, *, fails: bool) -> int:
        """A generator function; the failure comes after the first item."""

        @self.call()
        def numbers(*, fails: bool) -> Iterator[int]:
            yield 3
            yield look(fails=fails)

        return list(numbers(fails=fails))[-1]

    def decorated_async_generator(self, *, fails: bool) -> int:
        """An async generator function; the failure comes after the first item."""

        @self.call()
        async def numbers(*, fails: bool) -> AsyncIterator[int]:
            yield 3
            await asyncio.sleep(0)
            yield look(fails=fails)

        async def main() -> int:
            return [number async for number in numbers(fails=fails)][-1]

        return asyncio.run(main())


def look(*, fails: bool) -> int:
    """Give 7, or raise."""
    if fails:
        raise KeyError("no such thing")
    return 7


FORMS: list[Callable[..., int]] = [
    Tool.with_block,
    Tool.async_with_block,
    Tool.decorated,
    Tool.decorated_coroutine,
    Tool.decorated_generator,
    Tool.decorated_async_generator,
]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


def exported(rig: Rig) -> list[ReadableSpan]:
    """Deliver all, and return what the exporter got."""
    assert rig.provider.force_flush()
    return list(rig.exporter.get_finished_spans())


@forms
def test_a_failure_is_one_line_and_one_failed_span(rig: Rig, form: Callable[..., int]) -> None:
    """And the exception comes out, in every form."""
    with conversation("a") as errors:
        with pytest.raises(KeyError, match="no such thing"):
            form(Tool(rig), fails=True)
        rendered = errors.render()

    assert re.match(NOT_FOUND, rendered)
    (span,) = exported(rig)
    assert ("execute_tool look", StatusCode.ERROR) == (span.name, span.status.status_code)
    values = span.attributes or {}
    assert ("execute_tool", "look", "c1") == (
        values["gen_ai.operation.name"],
        values["gen_ai.tool.name"],
        values["gen_ai.tool.call.id"],
    )
    assert rendered == values["error_hygiene.line"]
    (event,) = [each for each in span.events if each.name == "exception"]
    assert ", in look\n" in str((event.attributes or {})["exception.stacktrace"])


@forms
def test_a_success_gives_its_value_and_says_nothing(rig: Rig, form: Callable[..., int]) -> None:
    """Its span is healthy and goes the stock way."""
    with conversation("a") as errors:
        assert 7 == form(Tool(rig), fails=False)
        assert "" == errors.render()

    (span,) = exported(rig)
    assert ("execute_tool look", StatusCode.UNSET) == (span.name, span.status.status_code)
    assert "error_hygiene.kept" not in (span.attributes or {})


@forms
def test_the_context_is_left_as_it_was(rig: Rig, form: Callable[..., int]) -> None:
    """After a failure and after a success there is no current span."""
    for fails in (True, False):
        with contextlib.suppress(KeyError):
            form(Tool(rig), fails=fails)
        assert trace.INVALID_SPAN is trace.get_current_span()


def test_a_decorated_function_is_still_of_its_kind(rig: Rig) -> None:
    """Frameworks ask ``inspect`` how to call a tool, and read its name, doc and parameters."""

    async def coroutine(a: int) -> None:
        """Doc."""

    async def async_generator(a: int) -> AsyncIterator[int]:
        yield a

    def generator(a: int) -> Iterator[int]:
        yield a

    def function(a: int) -> None:
        """Doc."""

    kinds: list[tuple[Callable[..., Any], Callable[[Any], bool]]] = [
        (coroutine, inspect.iscoroutinefunction),
        (async_generator, inspect.isasyncgenfunction),
        (generator, inspect.isgeneratorfunction),
    ]
    for plain, is_kind in kinds:
        assert is_kind(tool_call("t", tracer_provider=rig.provider)(plain))
    wrapped = tool_call("t", tracer_provider=rig.provider)(function)
    assert ("function", "Doc.") == (wrapped.__name__, wrapped.__doc__)
    assert inspect.signature(function) == inspect.signature(wrapped)


def test_the_function_s_own_arguments_tell_calls_apart(rig: Rig) -> None:
    """A call that repeats a failed one and succeeds resolves that one; what else failed since the turn stays."""
    missing = {"Oslo", "Rome"}

    @tool_call("look", tracer_provider=rig.provider)
    def look_at(city: str, *, depth: int = 1) -> str:
        if city in missing:
            raise KeyError(f"no {city} at {depth}")
        return city

    with conversation("a") as errors:
        errors.turn()
        for city in sorted(missing):
            with pytest.raises(KeyError):
                look_at(city)
        assert 2 == len(errors.pending)
        missing.remove("Oslo")
        assert "Oslo" == look_at(city="Oslo")
        (rome,) = errors.pending
        assert rome.span_id is not None
        record = recall(rome.ref or "")
        assert record is not None
        assert '{"city":"Rome"}' == record.call.arguments


def test_wrong_arguments_are_the_function_s_own_error(rig: Rig) -> None:
    """What the model got wrong raises as it would without us, and is told."""

    @tool_call("look", tracer_provider=rig.provider)
    def look_at(city: str) -> str:
        return city

    with conversation("a") as errors:
        with pytest.raises(TypeError, match="town"):
            look_at(town="Bonn")  # type: ignore[call-arg]
        assert ["bad_request"] == [each.error_class for each in errors.pending]


def test_a_streaming_tool_gets_what_its_consumer_sends_and_throws(rig: Rig) -> None:
    """As if no boundary stood between: values, exceptions, the return value, the close."""
    seen: list[Any] = []

    @tool_call("stream", tracer_provider=rig.provider)
    def stream() -> Generator[int, str, str]:
        try:
            seen.append((yield 1))
            try:
                yield 2
            except ValueError:
                seen.append("thrown")
            yield 3
        finally:
            seen.append("closed")
        return "done"

    running = stream()
    assert 1 == next(running)
    assert 2 == running.send("sent")
    assert 3 == running.throw(ValueError())
    with pytest.raises(StopIteration) as end:
        next(running)
    assert "done" == end.value.value
    assert ["sent", "thrown", "closed"] == seen

    seen.clear()
    running = stream()
    next(running)
    running.close()
    assert ["closed"] == seen
    assert 0 == rig.processor.stats().seen


def test_an_async_streaming_tool_gets_what_its_consumer_sends_and_throws(rig: Rig) -> None:
    """A tool that asks its consumer questions must get the answers, and its clean-up must run at the close."""
    seen: list[Any] = []

    @tool_call("stream", tracer_provider=rig.provider)
    async def stream() -> AsyncGenerator[int, str]:
        try:
            seen.append((yield 1))
            try:
                yield 2
            except ValueError:
                seen.append("thrown")
            yield 3
        finally:
            await asyncio.sleep(0)
            seen.append("closed")

    async def main() -> None:
        running = stream()
        assert 1 == await anext(running)
        assert 2 == await running.asend("sent")
        assert 3 == await running.athrow(ValueError())
        await running.aclose()
        assert ["sent", "thrown", "closed"] == seen

    asyncio.run(main())
    assert 0 == rig.processor.stats().seen
