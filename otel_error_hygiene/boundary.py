"""The tool boundary for hand-written loops.

It holds the live exception, so it hands it over whole; and it works without any telemetry: then
there is a line and a prune, and no record.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, TypeVar

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider

from . import semconv
from ._guard import fault
from .capture import capture, format_node, qualified_name
from .context import bound_buffer
from .conventions import canonical, digest
from .conventions.control import is_cancellation
from .conventions.result import failure_in
from .errors import ConfigurationError
from .forensics.segment import RecordKind
from .machine.current import Handover, Machine, handovers, machine
from .machine.splitter import Failed, Report
from .model import ErrorSummary, ExceptionNode, RecordedException, ToolCall
from .recording import failed_of, limits_of, others_listen, record, text_of, tracer_of
from .redact import mask, sanitize_name
from .wrapping import wrap

F = TypeVar("F", bound=Callable[..., Any])

_innermost: ContextVar[ToolCallHandle | None] = ContextVar("otel_error_hygiene_tool_call", default=None)


class ToolCallHandle:
    """One running tool call."""

    def __init__(self, call: tool_call) -> None:
        self._call = call
        self._machine: Machine = machine()
        self._buffer = bound_buffer.get()
        self.ended: bool = False
        outer = _innermost.get()
        # One that ended in another context, as a generator's may, still stands there.
        self.outer: ToolCallHandle | None = None if outer is None or outer.ended else outer
        """The open call around this one, in the same context."""
        self.told: tuple[int, int, int] | None = None
        """Which exception a call inside this one has told: its id, its class's, the instruction that raised it."""
        self._handover = Handover(None)
        self._start_ns = time.time_ns()
        self._tracer_provider = call.tracer_provider or trace.get_tracer_provider()
        self._span: Span = trace.INVALID_SPAN
        try:
            self._span = self._start(call)
        except Exception as failure:
            fault("tool_call.start", failure)
        self.resume()

    def _start(self, call: tool_call) -> Span:
        self._handover.arguments = canonical(call.arguments)
        attributes: dict[str, Any] = {
            semconv.GEN_AI_OPERATION_NAME: semconv.EXECUTE_TOOL,
            semconv.GEN_AI_TOOL_NAME: call.name,
        }
        if call.call_id is not None:
            attributes[semconv.GEN_AI_TOOL_CALL_ID] = call.call_id
        if call.bound is None and self._handover.arguments is not None:
            attributes[semconv.GEN_AI_TOOL_CALL_ARGUMENTS] = mask(self._handover.arguments)
        if call.bound is not None:
            self._handover.arguments = canonical(call.bound)
        return tracer_of(self._tracer_provider).start_span(f"{semconv.EXECUTE_TOOL} {call.name}", attributes=attributes)

    def resume(self) -> None:
        """Make the call's span the current one, here; for generators, which run in the contexts of their consumers."""
        self._context_token = context_api.attach(trace.set_span_in_context(self._span))
        self._innermost_token: Token[ToolCallHandle | None] = _innermost.set(self)

    def suspend(self) -> None:
        """Undo ``resume``, so that what a consumer does between two items is not inside the call."""
        with contextlib.suppress(ValueError):  # a ``with`` block in a generator may be left in another context
            _innermost.reset(self._innermost_token)
        context_api.detach(self._context_token)

    @property
    def span(self) -> Span:
        """The span of this call."""
        return self._span

    @property
    def summary(self) -> ErrorSummary | None:
        """What the agent is told of this call's failure, once it failed; None for a success."""
        return self._handover.summary

    def fail(self, error: BaseException | RecordedException | Mapping[str, Any] | str) -> ErrorSummary | None:
        """Say that the call failed without raising. It is recorded, and its line told, at once.

        Args:
            error: An exception, a recorded one, a result that says so, or text.

        Returns:
            The summary; None when this call was already told.
        """
        if self._handover.summary is not None:
            return self._handover.summary
        try:
            self._fail(error)
        except Exception as failure:
            fault("tool_call.fail", failure)
        return self._handover.summary

    def result(self, value: Any) -> Any:
        """Give the call's result; a result that says it is a failure is one (see ``conventions.result``).

        Returns:
            The value, unchanged.
        """
        try:
            failure = failure_in(value)
        except Exception as error:  # a mapping may do anything
            fault("tool_call.result", error)
            failure = None
        if failure is not None:
            self.fail(failure)
        return value

    def _fail(self, error: BaseException | RecordedException | Mapping[str, Any] | str) -> None:
        if isinstance(error, Mapping):
            error = failure_in(error) or RecordedException(type=semconv.MCP_TOOL_ERROR, message=str(dict(error))[:2000])
        elif isinstance(error, str):
            error = RecordedException(type=semconv.MCP_TOOL_ERROR, message=error)
        self._set_error(
            error.type if isinstance(error, RecordedException) else qualified_name(type(error)), str(text_of(error))
        )
        call = self._tool_call()
        told = self._machine.told_inside(self._span.get_span_context().span_id, call)
        if told is not None:  # by an instrumentation's span of this very call
            self._handover.summary = told
            return
        failed = failed_of(call, error, self._machine, escaped=False)
        buffer = self._machine.buffer_of(self._span, self._buffer)
        split = record(self._machine, failed, self._span, buffer, kind=RecordKind.REPORT)
        self._handover.summary = split.summary
        if split.durable and split.plain is not None:
            self._handover.report = Report(split.record_id, split.plain, split.summary)

    def _tool_call(self) -> ToolCall:
        call = self._call
        return ToolCall.model_construct(
            tool=call.name, call_id=call.call_id, arguments=self._handover.arguments, agent=None, conversation=None
        )

    def _set_error(self, error_type: str, description: str) -> None:
        if self._span.is_recording():
            self._span.set_attribute(semconv.ERROR_TYPE, error_type)
            self._span.set_status(Status(StatusCode.ERROR, mask(description[:1000])))

    def end(self, error: BaseException | None) -> None:
        """End the call; for the context manager."""
        handover = self._handover
        cancelled = error is not None and is_cancellation(error)
        try:
            if error is not None:
                handover.error = error
                if not cancelled:
                    self._note(error)
        finally:
            # Told already, and the loss of its record counted: there is nothing that the span's end could complete.
            handover.repeats |= handover.summary is not None and handover.report is None
            self._end_span()
            if not handover.handled:
                self._without_hooks(error, cancelled=cancelled)

    def _note(self, error: BaseException) -> None:
        """Capture what leaves the call, and write it on the span."""
        handover = self._handover
        handover.escaped = True
        mark = _mark(error)
        handover.repeats = handover.report is None and self.told == mark
        if self.outer is not None:
            self.outer.told = mark
        if handover.repeats:
            self._set_error(qualified_name(type(error)), "")
            return
        node, _ = handover.captured = capture(error, limits_of(self._machine))
        self._set_error(node.type, f"{node.type}: {node.message}")
        if self._span.is_recording() and others_listen(self._tracer_provider):
            _record_event(self._span, node)

    def _end_span(self) -> None:
        self.suspend()
        self.ended, self.outer = True, None
        span_id = self._span.get_span_context().span_id
        handovers[span_id] = self._handover
        try:
            self._span.end()
        finally:
            handovers.pop(span_id, None)

    def _without_hooks(self, error: BaseException | None, *, cancelled: bool) -> None:
        """Tell and resolve where no processor of ours saw the span: no telemetry, or not sampled."""
        handover = self._handover
        if self._buffer is not None:
            self._buffer.tool_called(self._start_ns)
        if cancelled or handover.repeats or handover.report is not None:
            return
        if error is None and handover.summary is None:
            if self._buffer is not None:
                call = self._call
                self._buffer.resolve(sanitize_name(call.name), digest(handover.arguments), call.call_id, self._start_ns)
        elif error is not None and handover.summary is None:
            node, truncated = handover.captured or capture(error, limits_of(self._machine))
            failed = Failed(self._tool_call(), node, "", escaped=True, truncated=truncated)
            handover.summary = record(
                self._machine, failed, self._span, self._buffer, kind=RecordKind.FAILURE, lost="unsampled"
            ).summary


class tool_call:  # noqa: N801  (used like a function: a context manager and a decorator)
    """The tool boundary: one call of a tool, as context manager (sync and async) and decorator.

    Opens the span ``execute_tool {name}`` by the GenAI conventions and hands a live exception to capture. The exception
    is re-raised untouched. ``SystemExit``, ``KeyboardInterrupt``, ``GeneratorExit`` and ``CancelledError`` are
    cancellations: no line, nothing cleared.

    Args:
        name: The tool's name as the model knows it.
        call_id: The id that the model gave to the call.
        arguments: The call's arguments, a mapping; they are written on the span, secrets masked. A decorator takes the
            function's own arguments where none are given, and writes them only on a failure's record.
        tracer_provider: None uses the global one.

    Raises:
        ConfigurationError: ``name`` is no text, or ``arguments`` no mapping.
    """

    def __init__(
        self,
        name: str,
        *,
        call_id: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        _check(name, arguments)
        self.name = name
        self.call_id = call_id
        self.arguments = arguments
        self.bound: Mapping[str, Any] | None = None
        self.tracer_provider = tracer_provider
        self._handles: list[ToolCallHandle] = []

    def __enter__(self) -> ToolCallHandle:
        handle = ToolCallHandle(self)
        self._handles.append(handle)
        return handle

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        handle = self._running()
        try:
            handle.end(error)
        except Exception as failure:
            fault("tool_call", failure)

    def _running(self) -> ToolCallHandle:
        """Take out the handle to end: this context's own, for threads and tasks may share the object."""
        handle = _innermost.get()
        while handle is not None and handle not in self._handles:
            handle = handle.outer
        if handle is None:  # entered in another context
            return self._handles.pop()
        self._handles.remove(handle)
        return handle

    async def __aenter__(self) -> ToolCallHandle:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, tb)

    def _for(self, signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tool_call:
        call = tool_call(
            self.name, call_id=self.call_id, arguments=self.arguments, tracer_provider=self.tracer_provider
        )
        if self.arguments is None and signature is not None:
            with contextlib.suppress(TypeError):  # wrong arguments: the call itself will say so
                bound = signature.bind(*args, **kwargs).arguments
                call.bound = {name: value for name, value in bound.items() if name not in ("self", "cls")}
        return call

    def __call__(self, function: F) -> F:
        """Wrap a function, a coroutine function or a generator function of either kind."""
        try:
            signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            signature = None
        return wrap(function, functools.partial(self._for, signature))


def _check(name: object, arguments: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f'"name" is {name!r}; it must be the name of the tool')
    if arguments is not None and not isinstance(arguments, Mapping):
        raise ConfigurationError(
            f'"arguments" is a {type(arguments).__name__}; it must be a mapping such as {{"city": "Paris"}}, or None'
        )


def _record_event(span: Span, node: ExceptionNode) -> None:
    """Write the event for the processors of others; our own record holds the frames, and needs no text."""
    span.add_event(
        semconv.EXCEPTION_EVENT,
        {
            semconv.EXCEPTION_TYPE: node.type,
            semconv.EXCEPTION_MESSAGE: node.message,
            semconv.EXCEPTION_STACKTRACE: format_node(node),
            semconv.EXCEPTION_ESCAPED: "True",
        },
    )


def _mark(error: BaseException) -> tuple[int, int, int]:
    """Identify an exception while it passes outward, without touching it or holding it alive.

    An id alone may be used again by a later exception; the raising instruction tells them apart, for a second raise
    from the same place would have gone through the same inner call again.
    """
    traceback_ = error.__traceback__
    while traceback_ is not None and traceback_.tb_next is not None:
        traceback_ = traceback_.tb_next
    return (
        id(error),
        id(type(error)),
        -1 if traceback_ is None else hash((traceback_.tb_frame.f_code, traceback_.tb_lasti)),
    )
