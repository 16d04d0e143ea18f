"""The span processor: full trace to the backend, one line to the agent.

Used in place of ``BatchSpanProcessor(exporter)``. Spans of healthy traces go the stock way, at stock
cost; a failed tool call, what resolves it, and what ends after it in its trace go through the outbox.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from weakref import ref

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter

from .._guard import fault, faults
from .._sdk import span_attributes
from ..context import ContextBuffer, Conversations, Rules, bound_buffer
from ..conventions import NAME_HINT, own, unmarked, unnamed
from ..errors import ConfigurationError
from ..forensics.courier import Courier
from ..forensics.outbox import Outbox
from ..forensics.proof import Sender, sender_for
from ..forensics.segment import State
from ..forensics.store import LOCAL, WAITING, sweep
from ..model import ErrorSummary, Stats, ToolCall
from ..settings import Settings
from .current import follow_forks, made_current, no_longer_current
from .healthy import HealthyPath
from .lineage import MAX_OPEN
from .observer import Observer
from .reports import Reports
from .splitter import Split, Splitter
from .ways import Ways


class ErrorHygieneSpanProcessor(SpanProcessor):
    """Split the failures of tool calls: the whole record to the backend, one line to the agent.

    Args:
        exporter: Where spans go. OTLP over HTTP and gRPC are asked for proof; of any other exporter SUCCESS counts as
            acknowledged, unproven. None: keep the local store and the buffers and export nothing, for users whose own
            pipeline exports.
        settings: Settings; None reads ``OTEL_ERROR_HYGIENE_*``.

    Raises:
        ConfigurationError: ``exporter`` is no span exporter.
        pydantic.ValidationError: A setting is unusable.
    """

    def __init__(self, exporter: SpanExporter | None = None, *, settings: Settings | None = None) -> None:
        if exporter is not None and not callable(getattr(exporter, "export", None)):
            raise ConfigurationError(
                f'"exporter" is {exporter!r}; it must be a SpanExporter such as OTLPSpanExporter(), or None'
            )
        self.settings = settings if settings is not None else Settings()
        self._exporter = exporter
        sender: Sender | None = None if exporter is None else sender_for(exporter)
        self._outbox = Outbox(
            self.settings.store_path,
            LOCAL if sender is None else sender.destination,
            "kept here, exported by nobody" if sender is None else sender.label,
            max_bytes=self.settings.store_max_bytes,
            fsync=self.settings.fsync,
            # Where no courier sweeps, the outbox expires its own.
            retention_seconds=self.settings.retention_seconds if sender is None else None,
        )
        self._ways = Ways(self._outbox, self.settings)
        self.conversations = Conversations(rules=Rules.of(self.settings))
        self.reports = Reports()
        self._observer = Observer(self.conversations, self.reports, self._ways, self.settings)
        # The same dictionaries, one attribute away: every span asks them.
        self._open = self.conversations.open
        self._lineage = self._observer.lineage
        self._living = self._lineage.open
        self._reports_open = self.reports.open
        self._failed = self._ways.failed
        self._shut_down = False
        self._healthy: HealthyPath | None = None
        self._courier: Courier | None = None
        if exporter is not None and sender is not None:
            self._healthy = HealthyPath(exporter)
            self._courier = self._ways.courier = Courier(
                self._outbox, sender, self.settings, lambda count: self._ways.counts.loss("store_removed", count)
            )
            self._courier.start()
        else:
            sweep(self.settings.store_path, time.time() - self.settings.retention_seconds)
        follow_forks(self)
        made_current(self)

    # --- the hooks ----------------------------------------------------------------------------

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Remember which conversation is bound."""
        try:
            context = span.context
            living = self._living
            living[context.span_id] = ref(span)
            if len(living) > MAX_OPEN:
                self._lineage.make_room()
            buffer = bound_buffer.get()
            if buffer is not None:
                self.conversations.opened(context.trace_id, context.span_id, buffer)
            elif not unnamed(attributes := span_attributes(span)):
                self.conversations.named(context.trace_id, attributes)
        except Exception as error:
            fault("on_start", error)

    def on_end(self, span: ReadableSpan) -> None:
        """Recognise, and split or resolve; whatever is not kept goes the stock way."""
        kept = False
        try:
            span_id = span.context.span_id
            self._living.pop(span_id, None)
            attributes = span_attributes(span)
            # What most spans of a process are: nothing that we know, and nobody waits for them.
            if (
                self._open
                or self._reports_open
                or self._failed
                or not unmarked(attributes)
                or own.readers
                or NAME_HINT in span.name
            ):
                kept = self._observer.ended(span, span_id, attributes)
        except Exception as error:
            fault("on_end", error)
        finally:
            if not kept and self._healthy is not None:
                self._healthy.on_end(span)

    # --- what users call ----------------------------------------------------------------------

    def conversation(self, conversation_id: str) -> ContextBuffer:
        """Return the context buffer of a conversation, made at first use."""
        return self.conversations.buffer(str(conversation_id))

    def stats(self) -> Stats:
        """Return what became of the failures of this process, right as soon as a tool's span has ended."""
        counts = self._ways.counts
        counts.loss("store_removed", self._outbox.removed())
        states = self._outbox.states()
        lost = counts.lost + Counter({"discarded": states[State.DISCARDED]})
        pending, delivered = states[State.PENDING], states[State.DELIVERED] + states[State.PURGED]
        quarantined, expired = states[State.QUARANTINED], states[State.EXPIRED]
        recorded = pending + delivered + quarantined + expired
        return Stats(
            # Not the count of what began: a failure that another thread is recording is neither recorded nor lost yet.
            seen=recorded + lost.total(),
            recorded=recorded,
            pending=pending,
            delivered=delivered,
            quarantined=quarantined,
            expired=expired,
            unrouted=counts.unrouted,
            displaced=counts.displaced,
            lost=dict(lost),
            truncated=counts.truncated,
            retried=0 if self._courier is None else self._courier.retried,
            internal_errors=faults(),
        )

    def deliver(self, timeout_millis: float) -> bool:
        """Deliver what waits, at once, whatever the back-off says.

        Args:
            timeout_millis: How long it may take; a server's Retry-After is waited for only within it.

        Returns:
            True only when everything recorded for this destination has been acknowledged: nothing is pending, nothing
            quarantined. Without an exporter nobody acknowledges, so it is True only when nothing was recorded.
        """
        try:
            if self._courier is None:
                return WAITING.isdisjoint(self._outbox.states())
            return self._courier.deliver(max(timeout_millis, 0) / 1000)
        except Exception as error:
            fault("deliver", error)
            return False

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Export all that ended so far.

        Returns:
            True only when, within the time, every healthy span was taken by the exporter and every failure was
            acknowledged. Without an exporter there is nothing to flush: True.
        """
        if self._courier is None or self._healthy is None:
            return True
        deadline = time.monotonic() + timeout_millis / 1000
        delivered = self.deliver(timeout_millis)
        flushed = self._healthy.force_flush(max(deadline - time.monotonic(), 0.0))
        return delivered and flushed

    def shutdown(self) -> None:
        """Deliver what the exit's time allows; the rest stays in the store, and healthy spans may go."""
        if self._shut_down:
            return
        self._shut_down = self._ways.closed = True
        deadline = time.monotonic() + self.settings.exit_timeout_millis / 1000
        try:
            if self._courier is not None and self._healthy is not None:
                self._courier.stop(max(deadline - time.monotonic(), 0.0))
                self._healthy.shutdown(max(deadline - time.monotonic(), 0.0))
            self._outbox.close()
        except Exception as error:
            fault("shutdown", error)
        no_longer_current(self)

    def after_fork(self) -> None:
        """In a forked child: its own files, threads and counts."""
        self._outbox.after_fork()
        self._ways.renew()
        if self._courier is not None:
            self._courier.after_fork()
            self._courier.start()

    # --- for the boundary ---------------------------------------------------------------------

    def buffer_of(self, span: object, bound: ContextBuffer | None) -> ContextBuffer | None:
        """Return the buffer that a failure of, or below, an open span concerns."""
        return self._observer.buffer_of(span, bound) if isinstance(span, ReadableSpan) else bound

    def told_inside(self, span_id: int, call: ToolCall) -> ErrorSummary | None:
        """Return what was told of a call by a span inside of its open one, or None."""
        return self._observer.told_inside(span_id, call)

    @property
    def folder(self) -> Path | None:
        """This process's own folder of the store; None before its first record."""
        return self._outbox.folder

    def recorded_outside(self, split: Split, resource: Resource) -> None:
        """Take a record that a boundary made: deliver it."""
        if split.plain is not None:
            self._ways.send(split, split.plain["span"]["trace"], resource)

    @property
    def splitter(self) -> Splitter:
        """Splits one failure two ways."""
        return self._ways.splitter
