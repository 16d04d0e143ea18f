"""Wrap a function of any kind, so that each call of it, or each run of its generator, is inside a boundary.

A generator's body runs in the context of whoever asks for its next item. So a boundary around one is left at
every ``yield`` and entered again afterwards: a consumer's own spans are not the tool's. Everything else that
passes between the two, values sent, exceptions thrown, the close, goes through as if nobody stood there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Handle(Protocol):
    """What a wrapper needs of a running call."""

    def result(self, value: Any) -> Any:
        """Take the call's result."""

    def suspend(self) -> None:
        """Leave the call's context."""

    def resume(self) -> None:
        """Enter it again."""


Open = Callable[[tuple[Any, ...], dict[str, Any]], AbstractContextManager[Handle]]
"""Open a boundary for one call, given its positional and its named arguments."""


def wrap(function: F, open_call: Open) -> F:
    """Wrap a function, a coroutine function or a generator function of either kind."""
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, open_call)
    elif inspect.isasyncgenfunction(function):
        wrapper = _async_generator(function, open_call)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, open_call)
    else:
        wrapper = _function(function, open_call)
    return cast(F, functools.wraps(function)(wrapper))


def _function(function: Callable[..., Any], open_call: Open) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with open_call(args, kwargs) as handle:
            return handle.result(function(*args, **kwargs))

    return wrapped


def _coroutine(function: Callable[..., Any], open_call: Open) -> Callable[..., Any]:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        with open_call(args, kwargs) as handle:
            return handle.result(await function(*args, **kwargs))

    return wrapped


def _generator(function: Callable[..., Any], open_call: Open) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with open_call(args, kwargs) as handle:
            inner = function(*args, **kwargs)
            step = functools.partial(next, inner)
            while True:
                try:
                    item = step()
                except StopIteration as done:
                    return done.value
                handle.suspend()
                try:
                    sent = yield item
                except GeneratorExit:
                    handle.resume()
                    inner.close()
                    raise
                except BaseException as error:
                    handle.resume()
                    step = functools.partial(inner.throw, error)
                else:
                    handle.resume()
                    step = functools.partial(inner.send, sent)

    return wrapped


def _async_generator(function: Callable[..., Any], open_call: Open) -> Callable[..., Any]:
    async def wrapped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with open_call(args, kwargs) as handle:
            inner = function(*args, **kwargs)
            step = functools.partial(anext, inner)
            while True:
                try:
                    item = await step()
                except StopAsyncIteration:
                    return
                handle.suspend()
                try:
                    sent = yield item
                except GeneratorExit:
                    handle.resume()
                    await inner.aclose()
                    raise
                except BaseException as error:
                    handle.resume()
                    step = functools.partial(inner.athrow, error)
                else:
                    handle.resume()
                    step = functools.partial(inner.asend, sent)

    return wrapped
