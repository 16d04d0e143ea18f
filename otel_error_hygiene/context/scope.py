"""Which conversation does a span belong to? Remembered when it starts; contextvars are gone when it ends.

In order: what the user had bound when the span started; the conversation id on the span; either of these of the
nearest open span above it; what the rest of its trace belongs to; and last, for a span that names its agent, the
conversation that has the agent's name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

from opentelemetry.sdk.trace import ReadableSpan

from .._sdk import span_attributes
from ..conventions import conversation_of
from .buffer import ContextBuffer

bound_buffer: ContextVar[ContextBuffer | None] = ContextVar("otel_error_hygiene_conversation", default=None)
"""The buffer that ``with conversation(...)`` bound for the code below it."""

_MAX_CONVERSATIONS = 10_000
_MAX_OPEN_SPANS = 100_000
_MAX_TRACES = 5000
"""Of each of two generations."""
_MAX_UNASKED = 1000


class Conversations:
    """The buffers of one processor, and the routes to them. Bounded; the longest unused go first.

    Plain dictionary operations are atomic in CPython, so only what evicts takes the lock.
    """

    def __init__(self, **limits: Any) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._buffers: OrderedDict[str, ContextBuffer] = OrderedDict()
        # An evicted buffer that somebody still holds or has bound stays the one of its conversation.
        self._living: WeakValueDictionary[str, ContextBuffer] = WeakValueDictionary()
        self._unasked: OrderedDict[str, ContextBuffer] = OrderedDict()
        """Agent's name -> what would be its conversation, for which nobody has asked."""
        self.open: dict[int, ContextBuffer] = {}
        """Span id -> what was bound when the span started, until it ends."""
        self._traces: dict[int, ContextBuffer | None] = {}
        self._older: dict[int, ContextBuffer | None] = {}

    def buffer(self, conversation: str) -> ContextBuffer:
        """Return the buffer of a conversation, made at first use."""
        with self._lock:
            found = self._buffers.get(conversation)
            if found is None:
                found = self._living.get(conversation)
                if found is None:
                    found = self._unasked.pop(conversation, None) or ContextBuffer(conversation, **self._limits)
                    self._living[conversation] = found
                self._buffers[conversation] = found
                if len(self._buffers) > _MAX_CONVERSATIONS:
                    self._buffers.popitem(last=False)
            else:
                self._buffers.move_to_end(conversation)
            return found

    @property
    def any(self) -> bool:
        """Whether there is any conversation at all."""
        return bool(self._buffers or self._unasked)

    def knows(self, conversation: str) -> bool:
        """Tell whether a conversation has a buffer."""
        return conversation in self._living

    def of_trace(self, trace_id: int) -> ContextBuffer | None:
        """Return the buffer of the conversation that a trace belongs to, or None."""
        return self._traces[trace_id] if trace_id in self._traces else self._older.get(trace_id)

    def of_agent(self, agent: str, *, make: bool = False) -> ContextBuffer | None:
        """Return the conversation that has an agent's name, the default of what names nothing but its agent.

        Args:
            agent: The agent's name.
            make: Make one that waits until somebody asks for it; False: None where there is none.
        """
        found = self._living.get(agent) or self._unasked.get(agent)
        if found is None and make:
            with self._lock:
                found = self._unasked.setdefault(agent, ContextBuffer(agent, **self._limits))
                if len(self._unasked) > _MAX_UNASKED:
                    self._unasked.popitem(last=False)
        return found

    def asked_for(self, buffer: ContextBuffer) -> bool:
        """Tell whether anybody has asked for a buffer: else nobody is told what stands in it."""
        return buffer.conversation not in self._unasked

    def adopt(self, other: Conversations) -> None:
        """Take over the buffers of another registry, for what was bound before this one was there."""
        with other._lock:
            buffers = dict(other._buffers)
        with self._lock:
            for conversation, buffer in buffers.items():
                self._living[conversation] = self._buffers.setdefault(conversation, buffer)

    def opened(self, trace_id: int, span_id: int, buffer: ContextBuffer) -> None:
        """Remember, at a span's start, what is bound."""
        opened = self.open
        opened[span_id] = buffer
        if self._traces.setdefault(trace_id, buffer) is not buffer or trace_id in self._older:
            self._remember(trace_id, buffer)
        if len(opened) > _MAX_OPEN_SPANS or len(self._traces) > _MAX_TRACES:
            self._evict()

    def named(self, trace_id: int, attributes: Mapping[str, Any]) -> None:
        """Remember, at a span's start, the conversation that its attributes name, where nothing is bound."""
        conversation = conversation_of(attributes)
        if conversation is not None:
            self._remember(trace_id, self.buffer(conversation))

    def closed(self, span_id: int) -> ContextBuffer | None:
        """Return and forget what was bound at a span's start."""
        return self.open.pop(span_id, None)

    def route(
        self,
        trace_id: int,
        bound: ContextBuffer | None,
        attributes: Mapping[str, Any],
        above: Iterable[ReadableSpan] = (),
    ) -> ContextBuffer | None:
        """Return the buffer of a span, or None when nobody knows its conversation.

        Args:
            trace_id: Its trace.
            bound: What was bound when it started.
            attributes: What it says itself.
            above: The open spans above it, the nearest first.
        """
        if bound is not None:
            return bound
        conversation = conversation_of(attributes)
        if conversation is None:
            for span in above:
                bound = self.open.get(span.context.span_id)
                if bound is not None:
                    return bound
                conversation = conversation_of(span_attributes(span))
                if conversation is not None:
                    break
            else:
                return self.of_trace(trace_id)
        buffer = self.buffer(conversation)
        if self._traces.get(trace_id, self) is not buffer:  # many tell it at the end only
            self._remember(trace_id, buffer)
        return buffer

    def _remember(self, trace_id: int, buffer: ContextBuffer) -> None:
        known = [traces[trace_id] for traces in (self._traces, self._older) if trace_id in traces]
        # Two conversations in one trace: what has neither binding nor id goes to nobody, rather than to the wrong.
        shared = any(before is None or before.conversation != buffer.conversation for before in known)
        self._traces[trace_id] = None if shared else buffer
        if len(self._traces) > _MAX_TRACES:
            self._evict()

    def _evict(self) -> None:
        with self._lock:
            if len(self._traces) > _MAX_TRACES:
                # Two generations: what was not asked for in a whole one goes, and nobody pays for keeping an order.
                self._older, self._traces = self._traces, {}
            # A tenth at once: taking the first of a dictionary again and again walks over all that went before.
            if len(self.open) > _MAX_OPEN_SPANS:
                for span_id in list(self.open)[: _MAX_OPEN_SPANS // 10]:
                    self.open.pop(span_id, None)
