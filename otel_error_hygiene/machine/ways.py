"""The ways of a span: the outbox for traces in which a tool call failed, the stock way for all others."""

from __future__ import annotations

import threading
from collections import OrderedDict

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from ..forensics.courier import Courier
from ..forensics.outbox import Outbox
from ..model import ExceptionNode
from ..settings import Settings
from .counts import Counts
from .splitter import Split, Splitter

_MAX_FAILED_TRACES = 10_000


class Ways:
    """Which traces failed, and what of them goes through the outbox.

    Args:
        outbox: The store.
        settings: Bounds of what is kept.
    """

    def __init__(self, outbox: Outbox, settings: Settings) -> None:
        self._outbox = outbox
        self._settings = settings
        self._lock = threading.Lock()
        self.failed: OrderedDict[int, None] = OrderedDict()
        """Traces with a failed tool call; the longest unused go."""
        self.courier: Courier | None = None
        self.closed = False
        self.renew()

    def renew(self) -> None:
        """Begin to count anew."""
        self.counts = Counts()
        self.splitter = Splitter(self._outbox, self._settings, self.counts)

    def sampled(self, span: ReadableSpan) -> bool:
        """Tell whether a span is to be exported at all."""
        return bool(span.context.trace_flags.sampled)

    def exports(self, span: ReadableSpan) -> bool:
        """Tell whether a span's way to the backend is the outbox, now that it stands there."""
        return self.courier is not None and self.sampled(span) and not self.closed

    def mark_failed(self, trace_id: int) -> None:
        """Remember that a trace holds a failed tool call."""
        with self._lock:
            self.failed[trace_id] = None
            if len(self.failed) > _MAX_FAILED_TRACES:
                self.failed.popitem(last=False)

    def keep_if_failed(self, span: ReadableSpan, ref: str | None = None, node: ExceptionNode | None = None) -> bool:
        """Keep a span that ends in a trace with a failed tool call; True when it went into the outbox.

        Args:
            span: The span.
            ref: The record of the failure that it repeats.
            node: What it knows of that failure.
        """
        if not self.failed or span.context.trace_id not in self.failed or not self.exports(span):
            return False
        kept = self.splitter.keep(span, ref=ref, node=node)
        self.wake()
        return kept

    def recorded(self, span: ReadableSpan, split: Split) -> bool:
        """Send a failure's record on its way; True when its span needs no other."""
        self.send(split, span.context.trace_id, span.resource, exports=self.exports(span))
        return self.exports(span)

    def send(self, split: Split, trace_id: int, resource: Resource, *, exports: bool = True) -> None:
        """Send a record on its way: from the store, or from memory where the store refused it."""
        if split.durable:
            self.mark_failed(trace_id)
        elif self.courier is not None and split.plain is not None and exports:
            self.courier.try_from_memory(split.plain, resource)
        self.wake()

    def wake(self) -> None:
        """Let the courier look at what is new."""
        if self.courier is not None:
            self.courier.wake()
