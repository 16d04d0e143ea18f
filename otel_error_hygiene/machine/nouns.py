"""Nouns in and out: nodes of what a span says, nouns as the plain values of a record, secrets hidden."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import Event

from .. import semconv
from .._sdk import mapping_of
from ..forensics.record import Plain
from ..model import ErrorSummary, ExceptionNode, ToolCall
from ..redact import mask


def node_of_event(event: Event) -> ExceptionNode:
    """Make a node of an exception event."""
    values = mapping_of(event.attributes)
    return ExceptionNode.model_construct(
        type=str(values.get(semconv.EXCEPTION_TYPE) or "Exception"),
        message=str(values.get(semconv.EXCEPTION_MESSAGE) or ""),
    )


def node_of_text(error_type: str | None, description: str | None) -> ExceptionNode:
    """Make a node of a span's own words: its ``error.type`` and its status description."""
    text = description or ""
    kind, colon, rest = text.partition(": ")
    if error_type is None and colon and kind.replace(".", "").isidentifier():
        return ExceptionNode.model_construct(type=kind, message=rest)
    return ExceptionNode.model_construct(type=error_type or "_OTHER", message=text)


def plain_call(call: ToolCall) -> Plain:
    """Return a tool call as plain values, its arguments masked."""
    plain = dict(call.__dict__)
    if call.arguments is not None:
        plain["arguments"] = mask(call.arguments)
    return plain


def plain_summary(summary: ErrorSummary) -> Plain:
    """Return a summary as plain values."""
    plain = dict(summary.__dict__)
    for name in ("error_class", "bucket", "recoverable"):
        plain[name] = plain[name].value
    plain["timestamp"] = summary.timestamp.isoformat()
    return plain


def plain_node(node: ExceptionNode) -> Plain:
    """Return a tree of exceptions as plain values."""
    plain = dict(node.__dict__)
    for name in ("cause", "context"):
        if plain[name] is not None:
            plain[name] = plain_node(plain[name])
    if node.group:
        plain["group"] = [plain_node(member) for member in node.group]
    return plain


def masked(node: ExceptionNode) -> ExceptionNode:
    """Return the tree with secrets hidden in messages and notes; the same tree when there are none."""
    update: dict[str, Any] = {}
    for name in ("cause", "context"):
        before = getattr(node, name)
        if before is not None and (after := masked(before)) is not before:
            update[name] = after
    if (message := mask(node.message)) is not node.message:
        update["message"] = message
    if node.notes:
        update["notes"] = tuple(mask(note) for note in node.notes)
    if node.group:
        update["group"] = tuple(masked(member) for member in node.group)
    return node.model_copy(update=update) if update else node
