"""Failures that tools return instead of raising: data that says so, never prose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import semconv
from ..model import RecordedException

_ERROR_STATUS = frozenset({"error", "failed", "failure"})
_TEXT_KEYS = ("error_message", "message", "detail", "reason", "stderr")
_MAX_CHARS = 32_768


def failure_in(result: Any) -> RecordedException | None:
    """Read a failure from a tool's result, or None.

    A mapping with a truthy ``error``, a ``status`` of ``error``, ``failed`` or ``failure`` or of an HTTP error's
    number, or a true ``isError`` or ``is_error`` is a failure; so is an object with one of these flags, as MCP has it.
    An exit code is not: what it means is the tool's own matter. Text is not, whatever it says.
    """
    if not isinstance(result, Mapping):
        if getattr(result, "isError", None) is not True and getattr(result, "is_error", None) is not True:
            return None
        return _recorded(semconv.MCP_TOOL_ERROR, getattr(result, "content", None))
    if result.get("isError") is True or result.get("is_error") is True:
        return _recorded(semconv.MCP_TOOL_ERROR, result.get("content"))
    error = result.get("error")
    if error:
        if isinstance(error, Mapping):
            return _recorded(str(error.get("type") or error.get("code") or semconv.MCP_TOOL_ERROR), error)
        return _recorded(semconv.MCP_TOOL_ERROR, error)
    status = result.get("status")
    if isinstance(status, str) and status.lower() in _ERROR_STATUS:
        return _recorded(semconv.MCP_TOOL_ERROR, result)
    if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:  # RFC 9110 section 15
        return _recorded(semconv.MCP_TOOL_ERROR, f"HTTP {status} {text_in(result)}".strip())
    return None


def _recorded(kind: str, told: Any) -> RecordedException:
    return RecordedException(type=kind[:200], message=text_in(told)[:_MAX_CHARS])


def text_in(told: Any) -> str:
    """Return the words in a result, or in what it says of its failure; "" when there are none."""
    if isinstance(told, str):
        return told
    if isinstance(told, Mapping):
        for key in _TEXT_KEYS:
            if told.get(key):
                return text_in(told[key])
        return text_in(told["text"]) if isinstance(told.get("text"), str) else ""
    if isinstance(told, (list, tuple)):
        return "\n".join(part for item in told if (part := text_in(item)))
    text = getattr(told, "text", None)
    return text if isinstance(text, str) else ("" if told is None else str(told))
