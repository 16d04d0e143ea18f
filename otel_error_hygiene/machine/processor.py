"""The span processor: full trace to the backend, one line to the agent.

Used in place of ``BatchSpanProcessor(exporter)``. Spans of healthy traces go the stock way, at stock
cost; a failed tool call, what resolves it, and what ends after it in its trace go through the outbox.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter

from .._guard import fault, faults
from .._sdk import span_attributes
from ..capture import Limits, capture
from ..context import ContextBuffer, Conversations, bound_buffer
from ..conventions import (
    NAME_HINT,
    Convention,
    Evidence,
    Kind,
    call_of,
    digest,
    outcome_of,
    own,
    recognise_span,
    unmarked,
    unnamed,
    with_conversation,
)
from ..errors import ConfigurationError
from ..forensics.courier import Courier
from ..forensics.outbox import Outbox
from ..forensics.proof import Sender, sender_for
from ..forensics.segment import State
from ..forensics.store import LOCAL, WAITING, sweep
from ..model import Outcome, Stats, ToolCall
from ..redact import sanitize_name
from ..settings import Settings
from .counts import Counts
from .current import Handover, follow_forks, handovers, made_current, no_longer_current
from .healthy import HealthyPath
from .look import live_exception, says_nothing, stack_was_cut
from .nouns import node_of_event, node_of_text
from .reports import Reports
from .splitter import Failed, Report, Split, Splitter

_MAX_FAILED_TRACES = 10_000


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
        self._counts = Counts()
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
        self.splitter = Splitter(self._outbox, self.settings, self._counts)
        self.conversations = Conversations(
            max_lines=self.settings.max_lines,
            max_chars=self.settings.max_chars,
            recovered_note=self.settings.recovered_note,
        )
        self.reports = Reports()
        # The same dictionaries, one attribute away: every span asks them.
        self._open = self.conversations.open
        self._reports_open = self.reports.open
        self._failed: OrderedDict[int, None] = OrderedDict()
        self._failed_lock = threading.Lock()
        self._limits = Limits(self.settings.max_frames, self.settings.max_exceptions, self.settings.max_message_chars)
        self._shut_down = False
        self._healthy: HealthyPath | None = None
        self._courier: Courier | None = None
        if exporter is not None and sender is not None:
            self._healthy = HealthyPath(exporter)
            self._courier = Courier(
                self._outbox, sender, self.settings, lambda count: self._counts.loss("store_removed", count)
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
            buffer = bound_buffer.get()
            if buffer is not None:
                context = span.context
                self.conversations.opened(context.trace_id, context.span_id, buffer)
            elif not unnamed(attributes := span_attributes(span)):
                self.conversations.named(span.context.trace_id, attributes)
        except Exception as error:
            fault("on_start", error)

    def on_end(self, span: ReadableSpan) -> None:
        """Recognise, and split or resolve; whatever is not kept goes the stock way."""
        kept = False
        try:
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
                kept = self._observe(span, attributes)
        except Exception as error:
            fault("on_end", error)
        finally:
            if not kept and self._healthy is not None:
                self._healthy.on_end(span)

    def _observe(self, span: ReadableSpan, attributes: Mapping[str, Any]) -> bool:
        """Return True when the span went into the outbox."""
        context = span.context
        span_id = context.span_id
        bound = self._open.pop(span_id, None) if self._open else None
        report = self.reports.take(span_id) if self._reports_open else None
        found = recognise_span(span, attributes)
        if found is not None and found[0] is Kind.TOOL:
            handed = handovers.get(span_id) if handovers else None
            if found[1].given is not None:
                attributes = with_conversation(attributes, found[1])
            elif handed is None and report is None and says_nothing(span, attributes):
                buffer = bound
                if buffer is None and self.conversations.any:
                    buffer = self.conversations.route(context.trace_id, None, attributes)
                if buffer is None or buffer.quiet:
                    return bool(self._failed) and self._keep_if_failed(span)
            return self._tool_ended(span, found[1], attributes, bound, handed, report)
        if report is not None:
            return self._complete(span, report, None)
        if found is not None and found[0] is Kind.MODEL:
            buffer = self.conversations.route(context.trace_id, bound, attributes)
            if buffer is not None:
                buffer.model_called(span.start_time or 0)
        return bool(self._failed) and self._keep_if_failed(span)

    def _tool_ended(
        self,
        span: ReadableSpan,
        convention: Convention,
        attributes: Mapping[str, Any],
        bound: ContextBuffer | None,
        handed: Handover | None,
        report: Report | None,
    ) -> bool:
        context = span.context
        buffer = self.conversations.route(context.trace_id, bound, attributes)
        if buffer is not None:
            # However it ends: a call after a rendering passes a turn.
            buffer.tool_called(span.start_time or 0)
        if handed is not None:
            handed.handled = True
            report = handed.report or report
            if handed.repeats:
                return self._keep_if_failed(span)
        live = live_exception(span) if handed is None else handed.error
        status = span.status
        evidence = outcome_of(convention, attributes, span.events, status.status_code, live, status.description)
        if report is None and evidence.outcome is Outcome.CANCELLED:
            return self._keep_if_failed(span)
        if report is None and evidence.outcome is Outcome.SUCCESS:
            return self._succeeded(span, convention, attributes, handed, buffer)
        call = call_of(convention, span.name, attributes, span.events)
        if handed is not None and handed.arguments is not None:
            call = call.model_copy(update={"arguments": handed.arguments})
        if handed is not None and handed.captured is not None:
            node, truncated = handed.captured
            failed = Failed(call, node, "", handed.escaped, truncated)
        else:
            failed = self._failed_of(span, call, evidence, live)
        if report is not None:
            if handed is not None:
                handed.summary = report.summary
            return self._complete(span, report, failed)
        return self._fail(span, failed, handed, buffer)

    def _succeeded(
        self,
        span: ReadableSpan,
        convention: Convention,
        attributes: Mapping[str, Any],
        handed: Handover | None,
        buffer: ContextBuffer | None,
    ) -> bool:
        if buffer is not None and not buffer.quiet:
            call = call_of(convention, span.name, attributes, span.events)
            arguments = call.arguments if handed is None or handed.arguments is None else handed.arguments
            cleared = buffer.resolve(sanitize_name(call.tool), digest(arguments), call.call_id, span.start_time or 0)
            if cleared and not self._shut_down and self._sampled(span):
                kept = self.splitter.keep(span, cleared)
                self._wake()
                return kept and self._exports(span)
        return self._keep_if_failed(span)

    def _fail(self, span: ReadableSpan, failed: Failed, handed: Handover | None, buffer: ContextBuffer | None) -> bool:
        trace_id, call = span.context.trace_id, failed.call
        if handed is None:
            told = self.reports.other_side(trace_id, call.tool, call.call_id, failed.node, by_report=False)
            if told is not None:
                return self._keep_if_failed(span)
        self._counts.failure(truncated=failed.truncated)
        lost = "closed" if self._shut_down else None if self._sampled(span) else "unsampled"
        try:
            split = self.splitter.split(failed, span, span.resource, buffer, lost=lost, end_ns=span.end_time)
        except BaseException:  # an interrupt, too, must not unbalance the counts
            self._counts.loss("internal")
            raise
        if handed is None:
            self.reports.told(trace_id, call.tool, call.call_id, failed.node, split.summary, by_report=False)
        elif handed.summary is None:
            handed.summary = split.summary
        return self._recorded(span, split)

    def _recorded(self, span: ReadableSpan, split: Split) -> bool:
        if split.durable:
            self._mark_failed(span.context.trace_id)
        elif self._courier is not None and split.plain is not None and self._exports(span):
            self._courier.try_from_memory(split.plain, span.resource)
        self._wake()
        return self._exports(span)

    def _complete(self, span: ReadableSpan, report: Report, failed: Failed | None) -> bool:
        """Write a reported failure again, now with its span; nothing more of one whose loss is counted already."""
        if not report.record_id:
            return self._keep_if_failed(span)
        completed = self.splitter.complete(report, span, failed)
        self._mark_failed(span.context.trace_id)
        self._wake()
        return completed and self._exports(span)

    def _failed_of(self, span: ReadableSpan, call: ToolCall, evidence: Evidence, live: BaseException | None) -> Failed:
        event = evidence.event
        truncated = False
        if live is not None:
            # With an event the stack stands there, unless the SDK's limits cut it.
            limits = self._limits if event is None or stack_was_cut(event) else self._limits._replace(max_frames=0)
            node, truncated = capture(live, limits)
        elif event is not None:
            node = node_of_event(event)
        elif evidence.told is not None:
            node = node_of_text(evidence.told.type, evidence.told.message)
        else:
            error_type = (span.attributes or {}).get("error.type")
            node = node_of_text(None if error_type is None else str(error_type), span.status.description)
        return Failed(call, node, "", live is not None, truncated)

    # --- whole traces -------------------------------------------------------------------------

    def _sampled(self, span: ReadableSpan) -> bool:
        return bool(span.context.trace_flags.sampled)

    def _exports(self, span: ReadableSpan) -> bool:
        """Tell whether a span's way to the backend is the outbox, now that it stands there."""
        return self._courier is not None and self._sampled(span) and not self._shut_down

    def _mark_failed(self, trace_id: int) -> None:
        with self._failed_lock:
            self._failed[trace_id] = None
            if len(self._failed) > _MAX_FAILED_TRACES:
                self._failed.popitem(last=False)

    def _keep_if_failed(self, span: ReadableSpan) -> bool:
        """Keep a span that ends in a trace with a failed tool call."""
        if not self._failed or span.context.trace_id not in self._failed or not self._exports(span):
            return False
        kept = self.splitter.keep(span)
        self._wake()
        return kept

    def _wake(self) -> None:
        if self._courier is not None:
            self._courier.wake()

    # --- what users call ----------------------------------------------------------------------

    def conversation(self, conversation_id: str) -> ContextBuffer:
        """Return the context buffer of a conversation, made at first use."""
        return self.conversations.buffer(str(conversation_id))

    def stats(self) -> Stats:
        """Return what became of the failures of this process, right as soon as a tool's span has ended."""
        counts = self._counts
        counts.loss("store_removed", self._outbox.removed())
        states = self._outbox.states()
        lost = counts.lost + Counter({"discarded": states[State.DISCARDED]})
        return Stats(
            seen=counts.seen,
            recorded=counts.seen - lost.total(),
            pending=states[State.PENDING],
            delivered=states[State.DELIVERED] + states[State.PURGED],
            quarantined=states[State.QUARANTINED],
            expired=states[State.EXPIRED],
            unrouted=counts.unrouted,
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
        self._shut_down = True
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
        self._counts = Counts()
        self.splitter = Splitter(self._outbox, self.settings, self._counts)
        if self._courier is not None:
            self._courier.after_fork()
            self._courier.start()

    # --- for the boundary ---------------------------------------------------------------------

    def count_failure(self) -> None:
        """Count a failure that no hook will see."""
        self._counts.failure()

    @property
    def folder(self) -> Path | None:
        """This process's own folder of the store; None before its first record."""
        return self._outbox.folder

    def recorded_outside(self, split: Split, resource: Resource) -> None:
        """Take a record that a boundary made: deliver it."""
        if split.durable and split.plain is not None:
            self._mark_failed(split.plain["span"]["trace"])
        elif self._courier is not None and split.plain is not None:
            self._courier.try_from_memory(split.plain, resource)
        self._wake()
