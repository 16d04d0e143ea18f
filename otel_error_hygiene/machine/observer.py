"""What the end of a span means: a failed call is split, a success resolves, everything else is left alone.

One call may have several spans, one inside the other: an MCP client's and its server's, a framework's and an
instrumentation's, our boundary's. Their outcome is one: it is told at the innermost end, and the outer ends add nothing
to a failure; a success counts when the outermost of them has ended well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from .. import semconv
from .._sdk import span_attributes
from ..capture import Limits
from ..context import ContextBuffer, Conversations
from ..conventions import Convention, Kind, call_of, digest, outcome_of, recognise_span, with_conversation
from ..model import ErrorSummary, ExceptionNode, Outcome, ToolCall
from ..redact import sanitize_name
from ..settings import Settings
from .current import Handover, handovers
from .lineage import Lineage
from .look import ended_badly, failed_of_span, live_exception, says_nothing
from .nested import Known, Nested, with_root_cause
from .reports import Reports
from .splitter import Failed, Report
from .ways import Ways
from .whose import Whose


class _End(NamedTuple):
    """The end of a tool call's span."""

    span: ReadableSpan
    call: ToolCall
    buffer: ContextBuffer | None
    below: Sequence[Known]
    """What failed inside it."""
    handed: Handover | None


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
        self.lineage = Lineage()
        self._whose = Whose(conversations, self.lineage)
        self._nested = Nested(self.lineage)
        self.climbing = self._nested.climbing

    def ended(self, span: ReadableSpan, span_id: int, attributes: Mapping[str, Any]) -> bool:
        """Return True when the span went into the outbox."""
        bound = self._bound.pop(span_id, None) if self._bound else None
        report = self._reports.take(span_id) if self._reported else None
        below: Sequence[Known] = ()
        alone = True
        if self.climbing:
            alone, below = False, self._nested.take(span_id)
        found = recognise_span(span, attributes)
        if found is not None and found[0] is Kind.TOOL:
            handed = handovers.get(span_id) if handovers else None
            if found[1].given is not None:
                attributes = with_conversation(attributes, found[1])
            elif alone and handed is None and report is None and self._concerns_nobody(span, bound, attributes):
                return bool(self._ways.failed) and self._ways.keep_if_failed(span)
            return self._tool_ended(span, found[1], attributes, bound, handed, report, below)
        kind = None if found is None else found[0]
        if below:
            self._climb(span, kind, below)
        if report is not None:
            return self._complete(span, report, None)
        if kind is Kind.MODEL:
            buffer = self._buffer_of(span, bound, attributes)
            if buffer is not None:
                buffer.model_called(span.start_time or 0)
        return bool(self._ways.failed) and self._ways.keep_if_failed(span)

    def _concerns_nobody(self, span: ReadableSpan, bound: ContextBuffer | None, attributes: Mapping[str, Any]) -> bool:
        """Tell of a tool's span that it ended well, and that there is nothing for it to resolve: the hot path."""
        if not says_nothing(span, attributes):
            return False
        if bound is None and self._conversations.any:
            bound = self._whose.conversation(span, None, attributes)
        return bound is None or bound.idle

    def _climb(self, span: ReadableSpan, kind: Kind | None, below: Sequence[Known]) -> None:
        """Hand on what failed inside a span that is no tool call's."""
        if kind is Kind.AGENT:
            failed = ended_badly(span)
            below = [each._replace(distant=True, agent_failed=each.agent_failed or failed) for each in below]
        self._nested.climb(span, below)

    def buffer_of(self, span: ReadableSpan, bound: ContextBuffer | None) -> ContextBuffer | None:
        """Return the buffer that a failure below an open span, or of one, concerns."""
        return self._buffer_of(span, bound, span_attributes(span))

    def told_inside(self, span_id: int, call: ToolCall) -> ErrorSummary | None:
        """Return what was told of a call by a span inside of its open one, or None."""
        known = self._nested.inside(span_id, call)
        return None if known is None else known.summary

    def _buffer_of(
        self, span: ReadableSpan, bound: ContextBuffer | None, attributes: Mapping[str, Any]
    ) -> ContextBuffer | None:
        buffer = self._whose.conversation(span, bound, attributes)
        return None if buffer is None else self._whose.scope(span, buffer, attributes)

    def _tool_ended(
        self,
        span: ReadableSpan,
        convention: Convention,
        attributes: Mapping[str, Any],
        bound: ContextBuffer | None,
        handed: Handover | None,
        report: Report | None,
        below: Sequence[Known],
    ) -> bool:
        buffer = self._buffer_of(span, bound, attributes)
        if buffer is not None:
            # However it ends: a call after a rendering passes a turn.
            buffer.tool_called(span.start_time or 0)
        end = _End(span, _call_of(span, convention, attributes, handed), buffer, below, handed)
        if below:
            self._nested.climb(span, (each.beyond(end.call) for each in below))
        if handed is not None:
            handed.handled = True
            report = handed.report or report
            # What a child agent was told, the agent that called it was not.
            if handed.repeats and (handed.summary is not None or not _delegated(end)):
                return self._ways.keep_if_failed(span)
        live = live_exception(span) if handed is None else handed.error
        status = span.status
        evidence = outcome_of(convention, attributes, span.events, status.status_code, live, status.description)
        if report is None and evidence.outcome is not Outcome.FAILURE:
            if evidence.outcome is Outcome.CANCELLED or _only_sent(span, attributes):
                return self._ways.keep_if_failed(span)
            return self._succeeded(end)
        if handed is not None and handed.captured is not None:
            node, truncated = handed.captured
            failed = Failed(end.call, node, "", handed.escaped, truncated)
        else:
            failed = failed_of_span(span, end.call, evidence, live, self._limits)
        if report is not None:
            if handed is not None:
                handed.summary = report.summary
            self._remember(end, failed.node, report.summary)
            return self._complete(span, report, failed)
        return self._failed(end, failed)

    def _succeeded(self, end: _End) -> bool:
        span, call, buffer, below, handed = end
        inside = _same(below, call)
        if inside is not None:  # whoever waited for it swallowed the failure, or does not say what became of it
            if handed is not None and handed.summary is None:
                handed.summary = inside.summary
            return self._ways.keep_if_failed(span)
        if self._nested.late(span, call) is not None:
            return self._ways.keep_if_failed(span)
        if (buffer is not None and not buffer.quiet) or self.climbing:
            around = self.lineage.call_above(span, call)
            if around is not None:  # the outer end decides
                self._nested.recovered(list(self.lineage.above(span)), call)
                return self._ways.keep_if_failed(span)
        if buffer is not None and not buffer.quiet:
            cleared = buffer.resolve(
                sanitize_name(call.tool),
                digest(call.arguments),
                call.call_id or _identity(span),
                span.start_time or 0,
            )
            if cleared and not self._ways.closed and self._ways.sampled(span):
                kept = self._ways.splitter.keep(span, cleared)
                self._ways.wake()
                return kept and self._ways.exports(span)
        return self._ways.keep_if_failed(span)

    def _failed(self, end: _End, failed: Failed) -> bool:
        span, call, buffer, below, _ = end
        inside = _same(below, call) or _copied(end, failed) or self._nested.served(span, call)
        if inside is not None:
            return self._add_nothing(end, failed, inside)
        late = self._nested.late(span, call)
        if late is not None:
            return self._add_nothing(end, failed, late)
        around = self.lineage.call_above(span, call)
        if around is not None:
            outer, known = around
            waiting = self._reports.waiting(outer.context.span_id)
            if waiting is not None:
                return self._add_nothing(end, failed, self._remember(end, failed.node, waiting.summary))
            call = call.model_copy(
                update={
                    "call_id": call.call_id or known.call_id or _identity(outer),
                    "arguments": call.arguments if call.arguments is not None else known.arguments,
                }
            )
        node = with_root_cause(failed.node, below, buffer) if below else failed.node
        return self._tell(end, failed._replace(call=call, node=node))

    def _tell(self, end: _End, failed: Failed) -> bool:
        ways, span, buffer, handed = self._ways, end.span, end.buffer, end.handed
        trace_id, call = span.context.trace_id, failed.call
        if handed is None:
            told = self._reports.other_side(trace_id, call.tool, end.call.call_id, failed.node, by_report=False)
            if told is not None:
                self._remember(end, failed.node, told)
                return ways.keep_if_failed(span)
        if buffer is None and call.agent is not None:
            buffer = self._conversations.of_agent(call.agent, make=True)
        lost = "closed" if ways.closed else None if ways.sampled(span) else "unsampled"
        split = ways.splitter.split(failed, span, span.resource, buffer, lost=lost, end_ns=span.end_time)
        if buffer is not None and split.durable and not self._conversations.asked_for(buffer):
            ways.counts.unroutable()
        if handed is None:
            self._reports.told(trace_id, call.tool, end.call.call_id, failed.node, split.summary, by_report=False)
        elif handed.summary is None:
            handed.summary = split.summary
        self._remember(end._replace(buffer=buffer), failed.node, split.summary)
        return ways.recorded(span, split)

    def _remember(self, end: _End, node: ExceptionNode, summary: ErrorSummary) -> Known:
        """Remember what was told, for the spans around this one."""
        call = end.call
        known = Known(call.tool, call.call_id, node, summary, end.buffer, by_boundary=end.handed is not None)
        self._nested.climb(end.span, (known,))
        self._nested.failed(end.span, known)
        return known

    def _add_nothing(self, end: _End, failed: Failed, known: Known) -> bool:
        """Leave a failure alone that is told already; what this span knows better stands on it, for the engineer."""
        if end.handed is not None and end.handed.summary is None:
            end.handed.summary = known.summary
        self._nested.failed(end.span, known)
        return self._ways.keep_if_failed(end.span, known.summary.ref, failed.node)

    def _complete(self, span: ReadableSpan, report: Report, failed: Failed | None) -> bool:
        """Write a reported failure again, now with its span; nothing more of one whose loss is counted already."""
        if not report.record_id:
            return self._ways.keep_if_failed(span)
        completed = self._ways.splitter.complete(report, span, failed)
        self._ways.mark_failed(span.context.trace_id)
        self._ways.wake()
        return completed and self._ways.exports(span)


def _call_of(
    span: ReadableSpan, convention: Convention, attributes: Mapping[str, Any], handed: Handover | None
) -> ToolCall:
    call = call_of(convention, span.name, attributes, span.events)
    if handed is None or handed.arguments is None:
        return call
    return call.model_copy(update={"arguments": handed.arguments})


def _only_sent(span: ReadableSpan, attributes: Mapping[str, Any]) -> bool:
    """Tell whether a span only carried the call: MCP's client span is UNSET even when the tool failed."""
    return (
        span.kind is SpanKind.CLIENT
        and span.status.status_code is StatusCode.UNSET
        and semconv.MCP_METHOD_NAME in attributes
        and semconv.GEN_AI_OPERATION_NAME not in attributes
    )


def _identity(span: ReadableSpan) -> str:
    """Return what stands for the id of a call that has none."""
    return f"span {span.context.span_id:016x}"


def _same(below: Sequence[Known], call: ToolCall) -> Known | None:
    return next((each for each in reversed(below) if each.is_of(call)), None)


def _delegated(end: _End) -> bool:
    """Tell whether what failed inside was told to another agent."""
    return any(each.buffer is not end.buffer for each in end.below)


def _copied(end: _End, failed: Failed) -> Known | None:
    """Return the failure inside whose exception went on through this call, and was told to the same agent."""
    node = failed.node
    for each in reversed(end.below):
        if each.buffer is not end.buffer or (each.by_boundary and end.handed is not None):
            continue
        if (each.node.type, each.node.message) == (node.type, node.message) and each.pending():
            return each
    return None
