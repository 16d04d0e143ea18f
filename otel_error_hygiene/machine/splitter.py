"""Split one failure two ways: the record for the engineer, made durable; then the line for the agent.

The order is the promise: a line reaches a context buffer only after its record is durable, or after its
loss was counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from .. import semconv
from .._guard import say_once
from .._sdk import mapping_of, span_attributes
from ..capture import fingerprint, format_node
from ..classify import classify
from ..context import Attempt, ContextBuffer, Taken, Told
from ..conventions import digest
from ..forensics.outbox import Outbox, Refused
from ..forensics.record import VERSION, Plain, of_span
from ..forensics.segment import RecordKind
from ..model import ErrorSummary, ExceptionNode, ToolCall
from ..redact import mask, mask_attributes, mask_end, mask_start, sanitize_name
from ..settings import Settings
from .counts import Counts
from .nouns import masked, plain_call, plain_node, plain_summary
from .summaries import summary_of_node
from .texts import nameless


class Failed(NamedTuple):
    """What is known of one failed call, before it is split."""

    call: ToolCall
    node: ExceptionNode
    """The exception as captured, or made of what was recorded."""
    stacktrace: str
    """Recorded stack text; "" when it stands in the span's event, or the captured frames stand for it."""
    escaped: bool
    """The exception left the span, rather than being handled in it."""
    truncated: bool
    impact: str | None = None


class Report(NamedTuple):
    """A failure that was recorded before its span ended."""

    record_id: int
    plain: Plain
    summary: ErrorSummary


class Split(NamedTuple):
    """What became of one failure."""

    summary: ErrorSummary
    record_id: int
    plain: Plain | None
    """The record, None when there is no store."""
    durable: bool


class Splitter:
    """Capture to record, classification to line.

    Args:
        outbox: Where records go; None without a processor: then there is a line and no record.
        settings: Bounds of what is kept.
        counts: Where losses are counted.
    """

    def __init__(self, outbox: Outbox | None, settings: Settings, counts: Counts) -> None:
        self._outbox = outbox
        self._settings = settings
        self._counts = counts

    def split(
        self,
        failed: Failed,
        span: ReadableSpan | Plain | None,
        resource: Resource | None,
        buffer: ContextBuffer | None,
        *,
        kind: RecordKind = RecordKind.FAILURE,
        lost: str | None = None,
        end_ns: int | None = None,
    ) -> Split:
        """Record one failure, then tell it.

        Args:
            failed: What is known.
            span: The span that stands for the call, ended or not; plain values where there is none to read.
            resource: The resource of the span.
            buffer: The conversation's buffer, None when it is unknown.
            kind: ``REPORT`` while the span is still open.
            lost: Why the record is not written, when that is known beforehand.
            end_ns: When the call failed, nanoseconds since the epoch; None: now.
        """
        now_ns = time.time_ns()
        self._counts.cut(failed.truncated)
        try:
            node = masked(failed.node)
            print_ = fingerprint(node)
            tool = sanitize_name(failed.call.tool)
            key = (tool, digest(failed.call.arguments), print_)
            trace_id, span_id = _ids(span)
            classification = classify(nameless(node, failed.call.tool), now=now_ns / 1e9)
            attempt = (
                Attempt() if buffer is None else buffer.attempt(key, (trace_id, span_id), classification.error_class)
            )
            durable = lost is None and self._outbox is not None
            record_id = self._outbox.new_id() if durable and self._outbox is not None else 0
            summary = summary_of_node(
                node,
                classification,
                tool=tool,
                attempt=attempt.number,
                escalated=attempt.escalated,
                impact=failed.impact,
                timestamp=datetime.fromtimestamp(now_ns / 1e9, UTC),
                trace_id=f"{trace_id:032x}" if trace_id else None,
                span_id=f"{span_id:016x}" if span_id else None,
                ref=f"{record_id >> 32:08x}" if durable else None,
            )
            plain: Plain | None = None
            reason = lost
            if lost is None and self._outbox is not None:
                plain = self._plain(failed, node, print_, summary, span, resource, buffer, now_ns)
                reason = self._append(kind, record_id, plain, resource)
        except BaseException:  # an interrupt, too, must not unbalance the counts
            self._counts.loss("internal")
            raise
        if reason is not None:
            self._counts.loss(reason)
            durable, record_id = False, 0
            summary = summary.model_copy(update={"ref": None})
            if plain is not None:
                plain["failure"].update(summary=plain_summary(summary), line=str(summary))
        if buffer is None:
            if durable:
                self._counts.unroutable()
        else:
            ended = now_ns if end_ns is None else end_ns
            told = Told(key, summary, ended, (trace_id, span_id), failed.call.call_id, attempt.order)
            if buffer.put(told) is Taken.IN_FOR_ANOTHER:
                self._counts.displace()
        return Split(summary, record_id, plain, durable)

    def complete(self, report: Report, span: ReadableSpan, failed: Failed | None) -> bool:
        """Write the record of a reported failure again, now with its span; False when that was refused.

        Nothing is counted and nothing is told: it is the same failure.
        """
        assert self._outbox is not None
        resource = span.resource
        plain = dict(report.plain)
        plain["span"] = self._span_plain(span, resource)
        known = report.plain["failure"]["exception"]
        if failed is not None and not known["frames"]:
            node = masked(failed.node)
            if node.frames or (node.cause is not None and known["cause"] is None):
                plain["failure"] = {**plain["failure"], "exception": plain_node(node)}
        return self._append(RecordKind.FAILURE, report.record_id, plain, resource) is None

    def synthetic_span(self, failed: Failed, parent: SpanContext | None, resource: Resource) -> Plain | None:
        """Make a span without length for a failure that has none; None where there is no store."""
        if self._outbox is None:
            return None
        now_ns = time.time_ns()
        ids = RandomIdGenerator()
        call = failed.call
        attributes = {
            semconv.GEN_AI_OPERATION_NAME: semconv.EXECUTE_TOOL,
            semconv.GEN_AI_TOOL_NAME: call.tool,
            semconv.GEN_AI_TOOL_CALL_ID: call.call_id,
        }
        return {
            "name": f"{semconv.EXECUTE_TOOL} {mask(call.tool)}",
            "trace": ids.generate_trace_id() if parent is None else parent.trace_id,
            "id": ids.generate_span_id(),
            "flags": TraceFlags.SAMPLED,
            "parent": None if parent is None else [parent.trace_id, parent.span_id, parent.is_remote],
            "kind": SpanKind.INTERNAL.value,
            "start": now_ns,
            "end": now_ns,
            "status": StatusCode.ERROR.value,
            "description": f"{failed.node.type}: {mask_start(failed.node.message, self._settings.max_message_chars)}",
            "attributes": {key: value for key, value in attributes.items() if value is not None},
            "events": [],
            "res": self._outbox.resource(resource),
            "scope": ["otel_error_hygiene", None, None, {}],
        }

    def keep(
        self,
        span: ReadableSpan,
        cleared: Sequence[Any] = (),
        *,
        ref: str | None = None,
        node: ExceptionNode | None = None,
    ) -> bool:
        """Write a span that must not be lost; False when the store refused it.

        Args:
            span: The span.
            cleared: The failures that it resolved.
            ref: The record of the failure that it repeats, which was told by a span inside of it.
            node: What it knows of that failure: written as its exception event, where it has none.
        """
        if self._outbox is None:
            return False
        plain: Plain = {
            "v": VERSION,
            "at": time.time_ns(),
            "span": self._span_plain(span, span.resource),
            "cleared": [(trace_id, span_id, ref) for ref, (trace_id, span_id) in cleared],
        }
        if ref is not None:
            plain["span"]["attributes"][semconv.REF] = ref
        if node is not None and node.frames and not any(e.name == semconv.EXCEPTION_EVENT for e in span.events):
            node = masked(node)
            values = {
                semconv.EXCEPTION_TYPE: node.type,
                semconv.EXCEPTION_MESSAGE: node.message,
                semconv.EXCEPTION_STACKTRACE: mask_end(format_node(node), self._settings.max_stacktrace_chars),
            }
            plain["span"]["events"].append([semconv.EXCEPTION_EVENT, span.end_time, values])
        kind = RecordKind.RECOVERY if cleared else RecordKind.SPAN
        return self._append(kind, self._outbox.new_id(), plain, span.resource) is None

    def _append(self, kind: RecordKind, record_id: int, plain: Plain, resource: Resource | None) -> str | None:
        assert self._outbox is not None
        try:
            self._outbox.append(kind, record_id, plain, self._outbox.resource(resource or Resource.get_empty()))
        except Refused as refused:
            say_once(f"refused:{refused.reason}", "a failure is told but not kept: %s", refused)
            return refused.reason
        return None

    def _plain(
        self,
        failed: Failed,
        node: ExceptionNode,
        print_: str,
        summary: ErrorSummary,
        span: ReadableSpan | Plain | None,
        resource: Resource | None,
        buffer: ContextBuffer | None,
        now_ns: int,
    ) -> Plain:
        # Captured frames stand for the stack text: whoever makes the span writes it from them.
        plain_span = (
            self._span_plain(span, resource, without_stack=bool(node.frames))
            if isinstance(span, ReadableSpan)
            else span
        )
        return {
            "v": VERSION,
            "at": now_ns,
            "span": plain_span,
            "failure": {
                "at": now_ns,
                "call": plain_call(failed.call),
                "summary": plain_summary(summary),
                "line": str(summary),
                "fingerprint": print_,
                "conversation": None if buffer is None else buffer.conversation,
                "type": node.type,
                "message": node.message,
                "stacktrace": mask_end(failed.stacktrace, self._settings.max_stacktrace_chars),
                "exception": plain_node(node),
                "escaped": failed.escaped,
                "told_at": None if buffer is None else now_ns,
            },
        }

    def _span_plain(self, span: ReadableSpan, resource: Resource | None, *, without_stack: bool = False) -> Plain:
        assert self._outbox is not None
        number = self._outbox.resource(resource or Resource.get_empty())
        events = []
        for event in span.events:
            values = mapping_of(event.attributes)
            if without_stack and event.name == semconv.EXCEPTION_EVENT:
                values = {name: value for name, value in values.items() if name != semconv.EXCEPTION_STACKTRACE}
            events.append([event.name, event.timestamp, self._attributes(values)])
        description = span.status.description
        plain = of_span(
            span,
            number,
            self._attributes(span_attributes(span)),
            None if description is None else mask_start(description, self._settings.max_message_chars),
            events,
        )
        plain["name"] = mask(span.name)
        return plain

    def _attributes(self, attributes: Mapping[str, Any]) -> Plain:
        settings = self._settings
        found = dict(attributes)
        for name, value in attributes.items():
            if isinstance(value, str) and len(value) > settings.max_message_chars:
                # Masked before it is cut. Of a stack the end is kept: the raising frame and the message stand there.
                found[name] = (
                    mask_end(value, settings.max_stacktrace_chars)
                    if name == semconv.EXCEPTION_STACKTRACE
                    else mask_start(value, settings.max_message_chars)
                )
        return mask_attributes(found)


def _ids(span: ReadableSpan | Plain | None) -> tuple[int, int]:
    if span is None:
        return 0, 0
    if isinstance(span, ReadableSpan):
        context = span.get_span_context()
        return (0, 0) if context is None else (context.trace_id, context.span_id)
    return span["trace"], span["id"]
