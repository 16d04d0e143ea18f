"""Nouns in and out: nodes of what a span says, nouns as the plain values of a record, secrets hidden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import Event

from .. import semconv
from .._sdk import mapping_of
from ..capture import Limits, parse_stack, unfolded
from ..forensics.record import Plain
from ..model import ErrorSummary, ExceptionNode, ToolCall
from ..redact import mask
from .texts import is_class, spoken, texts_of, typed

_LIMITS = Limits(max_frames=0)
"""Of recorded text: the frames stand in the text, which is kept."""
_UNKNOWN = "_OTHER"


def node_of_event(event: Event) -> ExceptionNode:
    """Make a node of an exception event: its type and message, and what its stack text, or its message, tells more."""
    values = mapping_of(event.attributes)
    kind, message = values.get(semconv.EXCEPTION_TYPE), values.get(semconv.EXCEPTION_MESSAGE)
    return node_of_recorded(
        str(kind or ""), None if message is None else str(message), str(values.get(semconv.EXCEPTION_STACKTRACE) or "")
    )


def node_of_recorded(kind: str, message: str | None, stack: str) -> ExceptionNode:
    """Make a node of a recorded exception.

    Args:
        kind: Its type, "" when nobody told.
        message: Its message, None when nobody told; it may be cut, and hold a whole traceback.
        stack: Its stack text, which may be cut, or "".
    """
    node = unfolded(kind or None, message, _LIMITS) if message else None
    if node is None:
        parsed = parse_stack(stack, _LIMITS, message=message) if stack else None
        node = None if parsed is None else _joined(kind, message, parsed)
    return node or ExceptionNode.model_construct(type=kind or "Exception", message=message or "")


def _joined(kind: str, message: str | None, parsed: ExceptionNode) -> ExceptionNode:
    """Join what is known of an exception with the tree of its stack text, whose outermost it is, or should be."""
    told, simple = parsed.type.rpartition(".")[2], kind.rpartition(".")[2]
    cut = not parsed.message and simple.startswith(told)  # in the middle of the type's name, or before it
    if not kind or told in (simple, "Exception") or cut:
        update: dict[str, Any] = {}
        if kind and (told != simple or "." in kind):
            update["type"] = kind
        if message is not None and not (message and parsed.message.startswith(message)):
            update["message"] = message
        return parsed.model_copy(update=update) if update else parsed
    return ExceptionNode.model_construct(type=kind, message=message or "", cause=parsed)


def node_of_text(error_type: str | None, description: str | None, tool: str | None = None) -> ExceptionNode:
    """Make a node of a span's own words: its ``error.type`` and a text; the tool's name sets its words apart."""
    text = description or ""
    known = error_type if is_class(error_type) else None
    if (node := unfolded(known, text, _LIMITS)) is not None:
        return node
    if text == error_type:
        return ExceptionNode.model_construct(type=error_type, message="")
    text = spoken(text, tool)
    kind, rest = typed(text)
    if kind is not None and known is not None:
        text = rest if kind.rpartition(".")[2] == known.rpartition(".")[2] else text
    elif kind is not None and (error_type is None or is_class(kind)):
        known, text = kind, rest
    return ExceptionNode.model_construct(type=known or error_type or _UNKNOWN, message=text)


def node_of_span(attributes: Mapping[str, Any], description: str | None, tool: str | None = None) -> ExceptionNode:
    """Make a node of what a span without an exception event says: the first of its texts that says something."""
    told = attributes.get(semconv.ERROR_TYPE)
    error_type = None if told is None else str(told)
    node: ExceptionNode | None = None
    for kind, text in texts_of(attributes, description):
        if not text:
            continue
        found = node_of_text(error_type if kind is None or is_class(error_type) else kind, text, tool)
        if found.message or found.cause is not None or (node is None and is_class(found.type)):
            node = found
        if found.message:
            break
    return node or ExceptionNode.model_construct(type=error_type or _UNKNOWN, message="")


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
