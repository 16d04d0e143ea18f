"""What the texts of a span say of a failure, apart from what a framework puts around it.

The shapes are general: data with an ``error`` in it, a ``repr``, ``Type: message``, a sentence that ends in the tool's
name and a colon. What they leave behind is evidence; the tool's name and the framework's own words are not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from .. import semconv
from ..conventions.control import ASKS_AGAIN
from ..conventions.result import failure_in
from ..model import ExceptionNode
from ..redact import sanitize

_MAX_DATA_CHARS: Final = 32_768
_MAX_HEAD_CHARS: Final = 60
_MAX_NAME_CHARS: Final = 300
_CLASS: Final = re.compile(r"(?:[A-Za-z_]\w*\.){0,10}[A-Z]\w*(?:Error|Exception|Timeout|Interrupt|Exit|Warning)")
_TYPED: Final = re.compile(r"((?:[A-Za-z_]\w*\.){0,10}[A-Za-z_]\w*): ?")
_REPR: Final = re.compile(rf"({_CLASS.pattern})\((.*)\)", re.DOTALL)
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"", re.DOTALL)
_LINK: Final = re.compile(r"[A-Za-z][\w+.-]*://\S+")
_MAX_ADVICE_CHARS: Final = 120
_TOOL_KEY: Final = re.compile(r"['\"]tool(?:_?name)?['\"]: ?['\"]")
_ERROR_KEY: Final = re.compile(rf"['\"]error['\"]: ?({_QUOTED.pattern})", re.DOTALL)
_HEAD: Final = re.compile(
    # What frameworks say before the tool's name; any other word there may be evidence ("Permission denied for tool x").
    r"(?:(?:an?|the|tool|mcp|function|error|failed|failure|exception|occurred|while|when|in|from|to"
    r"|call|execut|run|invok|us)(?:e|ing|ning)?\W{1,3})+",
    re.IGNORECASE,
)
_AFTER_NAME: Final = re.compile(
    r"['\"`)]{0,2}(?: with (?:parameters|arguments|kwargs|args|inputs?) \{.*?\})?(?:\.? (?:with )?[Ee]rror)?:\s*",
    re.DOTALL,
)
_OUTPUTS: Final = (
    semconv.GEN_AI_TOOL_CALL_RESULT,
    semconv.OUTPUT_VALUE,
    semconv.TRACELOOP_ENTITY_OUTPUT,
    semconv.HAYSTACK_TOOL_OUTPUT,
    semconv.ANTHROPIC_TOOL_RESULT,
)
_FLAGS: Final = ((semconv.HAYSTACK_TOOL_ERROR, True), (semconv.GEN_AI_TOOL_STATUS, "error"))


def is_class(kind: str | None) -> bool:
    """Tell the name of an exception's class from a code such as ``tool_error``, ``_OTHER`` or ``500``."""
    return kind is not None and any("a" <= c <= "z" for c in kind) and kind.rpartition(".")[2][:1].isupper()


def spoken(text: str, tool: str | None) -> str:
    """Return the part of a text that somebody said of the failure; "" when nothing is left."""
    text = _in_data(text).strip()
    if not tool or not (found := _whole(tool).search(text, 0, _MAX_HEAD_CHARS + len(tool))):
        return text
    head = text[: found.start()]
    if (not head or _HEAD.fullmatch(head)) and (
        after := _AFTER_NAME.match(text, found.end(), found.end() + _MAX_DATA_CHARS)
    ):
        return text[after.end() :]
    return text


def typed(text: str) -> tuple[str | None, str]:
    """Split ``Type: message``, ``Type('message')`` or a bare type; the type is None when there is none."""
    if len(text) <= _MAX_NAME_CHARS and _CLASS.fullmatch(text):
        return text, ""
    if text.endswith(")") and len(text) <= _MAX_DATA_CHARS and (found := _REPR.fullmatch(text)):
        return found[1], _string(found[2]) if _QUOTED.fullmatch(found[2]) else found[2]
    if (found := _TYPED.match(text, 0, _MAX_NAME_CHARS)) and ("." in found[1] or is_class(found[1])):
        return found[1], text[found.end() :]
    return None, text


def texts_of(attributes: Mapping[str, Any], description: str | None) -> list[tuple[str | None, str]]:
    """Return what a span says of a failure, best first, each with a type of its own or None.

    The convention's own message; then the output, when the output's data or the span's flags say that it is an error;
    then the status description.
    """
    found: list[tuple[str | None, str]] = []
    if isinstance(message := attributes.get(semconv.LANGFUSE_STATUS_MESSAGE), str):
        found.append((None, message))
    flagged = attributes.get(semconv.ERROR_TYPE) == semconv.MCP_TOOL_ERROR or any(
        attributes.get(key) == value for key, value in _FLAGS
    )
    outputs = (output for key in _OUTPUTS if isinstance(output := attributes.get(key), str))
    found += [_of_output(output, flagged=flagged) for output in outputs]
    found.append((None, description or ""))
    return found


def nameless(node: ExceptionNode, tool: str) -> ExceptionNode:
    """Return the tree for the classification: a tool's name in a message is no evidence, whatever words are in it."""
    if not tool or (tool.isalpha() and tool.islower()):  # a word of the language, such as "search"
        return node
    update: dict[str, Any] = {}
    for name in ("cause", "context"):
        before = getattr(node, name)
        if before is not None and (after := nameless(before, tool)) is not before:
            update[name] = after
    if tool in node.message and (message := _whole(tool).sub("tool", node.message)) != node.message:
        update["message"] = message
    members = tuple([nameless(member, tool) for member in node.group])
    if any(after is not before for before, after in zip(node.group, members, strict=True)):
        update["group"] = members
    return node.model_copy(update=update) if update else node


def _whole(tool: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(tool[:200])}(?!\w)")


def _of_output(output: str, *, flagged: bool) -> tuple[str | None, str]:
    if output[:1] in ("{", "[") and len(output) <= _MAX_DATA_CHARS:
        try:
            data = json.loads(output)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, list) and flagged:
            data = {"isError": True, "content": data}
        failed = failure_in(data)
        if failed is not None:
            return (failed.type if is_class(failed.type) else None), failed.message
        if data is not None:
            return None, ""
    return None, output if flagged else ""


def _in_data(text: str) -> str:
    """Return the ``error`` of a text that holds a framework's own mapping: one that names the tool beside it."""
    if len(text) > _MAX_DATA_CHARS or not text.endswith("}") or not _TOOL_KEY.search(text):
        return text
    found = _ERROR_KEY.search(text)
    return text if found is None else _string(found[1])


def _string(literal: str) -> str:
    """Return the value of one quoted string, as JSON or as Python writes it."""
    for read in (json.loads, ast.literal_eval):  # of one string only: what is nested could exhaust the C stack
        try:
            return str(read(literal))
        except (ValueError, SyntaxError):
            continue
    return literal[1:-1]


def advice_in(node: ExceptionNode) -> str | None:
    """Return what a tool's author tells the model to do otherwise, made safe for the context; None when nobody does.

    The author is local: the text was written for the model, in the agent's own code (``ModelRetry`` and its like).
    """
    step: ExceptionNode | None = node
    while step is not None:
        if step.message and (step.type in ASKS_AGAIN or not ASKS_AGAIN.isdisjoint(step.class_names)):
            return sanitize(_LINK.sub("(link)", step.message), _MAX_ADVICE_CHARS) or None
        step = step.cause
    return None
