"""The module-level verbs: bind a conversation, report, summarize, recall. They work with and without a processor."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span

from ._guard import fault
from .capture import capture, qualified_name
from .classify import classify
from .context import ContextBuffer, bound_buffer
from .conventions import Kind, canonical, recognise
from .forensics.recall import matching
from .forensics.segment import RecordKind
from .forensics.store import Writer, writers
from .machine.current import machine
from .machine.nouns import node_of_recorded
from .machine.splitter import Report
from .machine.summaries import summary_of_node
from .machine.texts import nameless
from .model import (
    Bucket,
    Classification,
    ErrorClass,
    ErrorSummary,
    ExceptionNode,
    ForensicRecord,
    RecordedException,
    Recoverable,
    ToolCall,
)
from .recording import failed_of, record, record_alone
from .redact import mask


@contextlib.contextmanager
def conversation(conversation_id: str) -> Iterator[ContextBuffer]:
    """Bind a conversation for the code below, sync and async; entering it again is a turn.

    Args:
        conversation_id: The agent's own id of the conversation.

    Yields:
        Its context buffer.
    """
    buffers = machine().conversations
    known = buffers.knows(str(conversation_id))
    buffer = buffers.buffer(str(conversation_id))
    if known:
        buffer.turn()
    token = bound_buffer.set(buffer)
    try:
        yield buffer
    finally:
        with contextlib.suppress(ValueError):  # left in another context, as a generator may be
            bound_buffer.reset(token)


def report_error(
    error: BaseException | RecordedException,
    *,
    tool: str,
    call_id: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    conversation: str | None = None,
) -> ErrorSummary:
    """Record a failure that code holds before, or without, a span's end; its line is told at once.

    When the span of the call is the current one, its end completes the same record. Where no span will come, one is
    made for it, below the current one.

    Args:
        error: The live exception, or a recorded one.
        tool: The tool's name as the model knows it.
        call_id: The id that the model gave to the call.
        arguments: The call's arguments.
        conversation: Id of the conversation; None: the one that is bound.

    Returns:
        The summary; ``str()`` of it is the line.
    """
    try:
        return _report(error, str(tool), call_id, arguments, conversation)
    except Exception as failure:  # this runs where an exception is being handled: it must not replace it
        fault("report_error", failure)
        return summary_of_node(
            ExceptionNode.model_construct(type=qualified_name(type(error))),
            Classification(ErrorClass.UNKNOWN, Bucket.NONE, Recoverable.MAYBE),
            tool=str(tool),
            timestamp=datetime.now(UTC),
        )


def _report(
    error: BaseException | RecordedException,
    tool: str,
    call_id: str | None,
    arguments: Mapping[str, Any] | None,
    conversation: str | None,
) -> ErrorSummary:
    place = machine()
    call = ToolCall.model_construct(
        tool=tool, call_id=call_id, arguments=canonical(arguments), agent=None, conversation=conversation
    )
    buffer = place.conversations.buffer(conversation) if conversation is not None else bound_buffer.get()
    failed = failed_of(call, error, place, escaped=False)
    span = trace.get_current_span()
    context = span.get_span_context()
    if conversation is None and context.is_valid:
        buffer = place.buffer_of(span, buffer) or place.conversations.of_trace(context.trace_id)
    waiting = place.reports.waiting(context.span_id)
    if waiting is not None and (waiting.plain["failure"]["type"], waiting.plain["failure"]["message"]) == (
        failed.node.type,
        mask(failed.node.message),
    ):
        return waiting.summary
    told = place.told_inside(context.span_id, call) if context.is_valid else None
    if told is not None:
        return told
    told = place.reports.other_side(context.trace_id, call.tool, call_id, failed.node, by_report=True)
    if told is not None:
        return told
    if waiting is None and span.is_recording() and _stands_for(span, call.tool):
        split = record(place, failed, span, buffer, kind=RecordKind.REPORT)
        if split.plain is not None:
            place.reports.wait(context.span_id, Report(split.record_id, split.plain, split.summary))
        return split.summary
    split = record_alone(place, failed, span, buffer)
    place.reports.told(context.trace_id, call.tool, call_id, failed.node, split.summary, by_report=True)
    return split.summary


def summarize(
    error: BaseException | RecordedException,
    *,
    tool: str,
    arguments: Mapping[str, object] | None = None,
    attempt: int = 1,
    impact: str | None = None,
    now: datetime | float | None = None,
) -> ErrorSummary:
    """Tell what an agent needs to know of a failure; records nothing and tells nobody.

    Args:
        error: The live exception, or a recorded one.
        tool: The tool's name as the model knows it.
        arguments: The call's arguments.
        attempt: Which identical failure this is, counted from 1.
        impact: A sentence about what the failure means, or None.
        now: The moment (aware datetime, or seconds since the epoch) against which dates are read; None: the clock.

    Returns:
        The summary, the same for the same input and ``now``; ``str()`` of it is the line.
    """
    del arguments  # kept for hints that name an argument
    if isinstance(error, RecordedException):
        node = node_of_recorded(error.type, error.message, error.stacktrace)
    else:
        node, _ = capture(error)
    seconds = time.time() if now is None else now.timestamp() if isinstance(now, datetime) else float(now)
    return summary_of_node(
        node,
        classify(nameless(node, tool), now=seconds),
        tool=tool,
        attempt=attempt,
        impact=impact,
        timestamp=datetime.fromtimestamp(seconds, UTC),
    )


def recall(ref: str) -> ForensicRecord | None:
    """Return the record behind a reference, pruned or not, within the retention; the newest where several have it.

    Args:
        ref: The 8 hex digits of a line's ``ref=``, or all 16 of a record id.

    Returns:
        The record, or None when the store does not have it.
    """
    ref = str(ref)
    place = machine()
    own = [Writer(place.folder)] if place.folder is not None else []
    found = matching(own, ref) or matching(writers(place.settings.store_path), ref)
    return found[0] if found else None


def _stands_for(span: Span, tool: str) -> bool:
    """Tell whether an open span is the call's own: by its attributes, or by its name where those come late."""
    if not isinstance(span, ReadableSpan):
        return False
    found = recognise(span.attributes or {})
    if found is not None:
        return found[0] is Kind.TOOL
    # A word of the name, or a server's own span "POST /search" would stand for the tool "search".
    return tool in re.split(r"[\s.:]+", span.name)
