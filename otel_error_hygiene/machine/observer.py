"""What the end of a span means: a failed call is split, a success resolves, everything else is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from ..capture import Limits
from ..context import ContextBuffer, Conversations
from ..conventions import Convention, Kind, call_of, digest, outcome_of, recognise
from ..model import Outcome
from ..redact import sanitize_name
from ..settings import Settings
from .current import Handover, handovers
from .look import failed_of_span, live_exception, says_nothing
from .reports import Reports
from .splitter import Failed, Report
from .ways import Ways


class Observer:
    """Decides, when a span has ended, what it says of a tool call, and tells whom it concerns.

    Args:
        conversations: The buffers and the routes to them.
        reports: What hooks reported of calls whose spans are open.
        ways: What becomes of the spans.
        settings: Bounds of a capture.
    """

    def __init__(self, conversations: Conversations, reports: Reports, ways: Ways, settings: Settings) -> None:
        self._conversations = conversations
        self._bound = conversations.open
        self._reports = reports
        self._reported = reports.open
        self._ways = ways
        self._limits = Limits(settings.max_frames, settings.max_exceptions, settings.max_message_chars)

    def ended(self, span: ReadableSpan, attributes: Mapping[str, Any]) -> bool:
        """Return True when the span went into the outbox."""
        context = span.context
        span_id = context.span_id
        bound = self._bound.pop(span_id, None) if self._bound else None
        report = self._reports.take(span_id) if self._reported else None
        found = recognise(attributes)
        if found is not None and found[0] is Kind.TOOL:
            handed = handovers.get(span_id) if handovers else None
            if handed is None and report is None and says_nothing(span, attributes):
                buffer = bound
                if buffer is None and self._conversations.any:
                    buffer = self._conversations.route(context.trace_id, None, attributes)
                if buffer is None or buffer.quiet:
                    return bool(self._ways.failed) and self._ways.keep_if_failed(span)
            return self._tool_ended(span, found[1], attributes, bound, handed, report)
        if report is not None:
            return self._complete(span, report, None)
        if found is not None and found[0] is Kind.MODEL:
            buffer = self._conversations.route(context.trace_id, bound, attributes)
            if buffer is not None:
                buffer.model_called(span.start_time or 0)
        return bool(self._ways.failed) and self._ways.keep_if_failed(span)

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
        buffer = self._conversations.route(context.trace_id, bound, attributes)
        if buffer is not None:
            # However it ends: a call after a rendering passes a turn.
            buffer.tool_called(span.start_time or 0)
        if handed is not None:
            handed.handled = True
            report = handed.report or report
            if handed.repeats:
                return self._ways.keep_if_failed(span)
        live = live_exception(span) if handed is None else handed.error
        evidence = outcome_of(convention, attributes, span.events, span.status.status_code, live)
        if report is None and evidence.outcome is Outcome.CANCELLED:
            return self._ways.keep_if_failed(span)
        if report is None and evidence.outcome is Outcome.SUCCESS:
            return self._succeeded(span, convention, attributes, handed, buffer)
        call = call_of(convention, span.name, attributes)
        if handed is not None and handed.arguments is not None:
            call = call.model_copy(update={"arguments": handed.arguments})
        if handed is not None and handed.captured is not None:
            node, truncated = handed.captured
            failed = Failed(call, node, "", handed.escaped, truncated)
        else:
            failed = failed_of_span(span, call, evidence, live, self._limits)
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
            call = call_of(convention, span.name, attributes)
            arguments = call.arguments if handed is None or handed.arguments is None else handed.arguments
            cleared = buffer.resolve(sanitize_name(call.tool), digest(arguments), call.call_id, span.start_time or 0)
            if cleared and not self._ways.closed:
                kept = self._ways.splitter.keep(span, cleared)
                self._ways.wake()
                return kept and self._ways.exports(span)
        return self._ways.keep_if_failed(span)

    def _fail(self, span: ReadableSpan, failed: Failed, handed: Handover | None, buffer: ContextBuffer | None) -> bool:
        ways, trace_id, call = self._ways, span.context.trace_id, failed.call
        if handed is None:
            told = self._reports.other_side(trace_id, call.tool, call.call_id, failed.node, by_report=False)
            if told is not None:
                return ways.keep_if_failed(span)
        ways.counts.failure(truncated=failed.truncated)
        lost = "closed" if ways.closed else None if ways.sampled(span) else "unsampled"
        try:
            split = ways.splitter.split(failed, span, span.resource, buffer, lost=lost, end_ns=span.end_time)
        except BaseException:  # an interrupt, too, must not unbalance the counts
            ways.counts.loss("internal")
            raise
        if handed is None:
            self._reports.told(trace_id, call.tool, call.call_id, failed.node, split.summary, by_report=False)
        elif handed.summary is None:
            handed.summary = split.summary
        return ways.recorded(span, split)

    def _complete(self, span: ReadableSpan, report: Report, failed: Failed | None) -> bool:
        """Write a reported failure again, now with its span; nothing more of one whose loss is counted already."""
        if not report.record_id:
            return self._ways.keep_if_failed(span)
        completed = self._ways.splitter.complete(report, span, failed)
        self._ways.mark_failed(span.context.trace_id)
        self._ways.wake()
        return completed and self._ways.exports(span)
