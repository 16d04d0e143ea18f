"""What instrumentations wrap around a call's arguments and results: shapes seen in captures, one rule for each."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from ..model import RecordedException
from .result import failure_in, text_in

_MAX_CHARS = 65_536
_MAX_LITERAL_CHARS = 20_000
_MAX_LAYERS = 6
_OPENS = ("{", "[", '"')
_PYTHON_CALL = frozenset({"args", "kwargs", "sanitize_inputs_outputs"})
_CALLS = tuple(
    (name, arguments, frozenset({name, arguments, *more}))
    for name, arguments, more in (
        ("tool_name", "arguments", ()),  # OpenLLMetry's MCP
        ("name", "arguments", ("_meta",)),  # MCP
        ("name", "args", ("id", "type")),  # a LangChain tool call, a Gemini function call
    )
)
"""Names of a tool's name and of its arguments, and all that may stand beside them."""
_ADK_RETRY = "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN"
"""ADK's retry plugin hands an exception to the model as data of this type."""
_TOOL_NAMED_BESIDE = frozenset({"arguments", "raw_input", "raw_output"})
# After the word, which most results that went well do not hold.
_STATUS_OF_FAILURE = re.compile(r"""status\\*"\s*:\s*\\*"?(?i:[45]\d\d|error|failed|failure)""").search


def read(text: Any) -> Any:
    """Return what JSON text holds, JSON text in JSON text too; anything else as it is."""
    for _ in range(_MAX_LAYERS):
        if not isinstance(text, str) or len(text) > _MAX_CHARS or not text.lstrip().startswith(_OPENS):
            return text
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if isinstance(inner, str) and not inner.lstrip().startswith(_OPENS):
            return inner
        text = inner
    return text


# --- arguments ------------------------------------------------------------------------------------


def arguments_in(value: Any, tool: str | None = None) -> Any:
    """Return a call's own arguments, out of whatever a framework handed to its instrumentation.

    Args:
        value: The attribute's value: JSON text, or the one argument's bare value.
        tool: The tool's name, where known: ``{"name", "arguments"}`` is a wrapping only when it names the tool.
    """
    value = _mapping_of_literal(read(value))
    for _ in range(_MAX_LAYERS):
        if not isinstance(value, Mapping):
            break
        keys = value.keys()
        if keys <= _PYTHON_CALL and "kwargs" in keys:
            value = _python_call(value)
            break
        if "inputs" in keys and "input_str" in keys:  # a LangChain callback
            value = value["inputs"] if value["inputs"] is not None else value["input_str"]
        elif (held := _call_holds(value, tool)) is not None:
            value = value[held]
        elif "method" in keys and isinstance(value.get("params"), Mapping) and value["method"] == "tools/call":
            value = value["params"].get("arguments")
        else:
            break
        value = _mapping_of_literal(read(value))
    return value


def facts_in(value: Any) -> Mapping[str, Any]:
    """Return what wrapped arguments, or a wrapped result, tell beside them: ``tool_call_id`` and ``tool``, if any."""
    value = read(value)
    if not isinstance(value, Mapping):
        return {}
    message = _tool_message(value) or {}
    kwargs = value.get("kwargs")
    call_id = message.get("tool_call_id") or (kwargs.get("tool_call_id") if isinstance(kwargs, Mapping) else None)
    tool = message.get("name") or (value.get("tool_name") if not _TOOL_NAMED_BESIDE.isdisjoint(value) else None)
    if _call_or_response(value):
        call_id, tool = call_id or value["id"], tool or value["name"]
    return {key: told for key, told in (("tool_call_id", call_id), ("tool", tool)) if isinstance(told, str) and told}


def _call_holds(value: Mapping[str, Any], tool: str | None) -> str | None:
    """Return the key of the arguments in a call that names its tool; None for a tool's own arguments."""
    for name, arguments, allowed in _CALLS:
        if name in value and arguments in value and value.keys() <= allowed and tool in (None, value[name]):
            return arguments
    return None


def _python_call(value: Mapping[str, Any]) -> Any:
    args, kwargs = value.get("args"), read(value["kwargs"])
    if not args:
        return kwargs
    return {"args": args, "kwargs": kwargs} if kwargs else args


def _mapping_of_literal(value: Any) -> Any:
    # LangChain's `input_str` is `str()` of a mapping.
    if isinstance(value, str) and value.startswith("{") and len(value) <= _MAX_LITERAL_CHARS:
        try:
            literal = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
        return literal if isinstance(literal, dict) else value
    return value


def _call_or_response(value: Mapping[str, Any]) -> bool:
    return "id" in value and "name" in value and ("args" in value or "response" in value)


# --- results --------------------------------------------------------------------------------------


def failure_told(result: Any) -> RecordedException | None:
    """Read a failure from the result on a span, by the rule of ``failure_in``, through what frameworks wrap around it.

    Args:
        result: The attribute's value, JSON text mostly. Other text says nothing, whatever it says.
    """
    return _failure(result, _MAX_LAYERS) if may_tell_failure(result) else None


def may_tell_failure(result: Any) -> bool:
    """Tell whether a result has any of the signs of a failure in it, so that nobody parses those that went well."""
    if not isinstance(result, str):
        return True
    return len(result) <= _MAX_CHARS and ("rror" in result or ("status" in result and bool(_STATUS_OF_FAILURE(result))))


def text_told(result: Any) -> str:
    """Return the words of the result on a span, out of the content blocks that wrap them; "" when there are none."""
    return text_in(read(result)) if isinstance(result, str) else ""


def _failure(result: Any, layers: int) -> RecordedException | None:
    result = read(result)
    if isinstance(result, list) and len(result) == 1:
        # One block of content; several values are data about something else.
        result = read(_text_of_block(result[0]))
    if layers == 0 or not isinstance(result, Mapping):
        return None
    message = _tool_message(result)
    if message is not None:
        if message.get("status") == "error":
            return failure_in({"status": "error", "message": text_in(message.get("content"))})
        return _failure(message.get("content"), layers - 1)
    if result.get("response_type") == _ADK_RETRY:
        return failure_in({"error": {"type": result.get("error_type"), "message": result.get("error_details")}})
    found = failure_in(result)
    if found is not None:
        told = found.message or text_in(result.get("result")) or text_in(result.get("blocks"))
        return found.model_copy(update={"message": told})
    held = _held_result(result)
    return None if held is None else _failure(result[held], layers - 1)


def _held_result(result: Mapping[str, Any]) -> str | None:
    """Return the key of a tool's own result in what a framework puts around it."""
    if result.keys() == {"result"}:  # ADK and MCP, around what is no mapping
        return "result"
    if "response" in result and _call_or_response(result):  # Gemini's function response
        return "response"
    return "raw_output" if "raw_output" in result and "is_error" in result else None  # LlamaIndex


def _tool_message(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return LangChain's message of a tool, in each of the three ways in which its instrumentations write it."""
    for _ in range(3):
        if "tool_call_id" in value and "content" in value:
            return value
        inner = value.get("output", value.get("data") if value.get("type") == "tool" else None)
        if value.get("lc") == 1:
            inner = value.get("kwargs")
        if not isinstance(inner, Mapping):
            return None
        value = inner
    return None


def _text_of_block(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, Mapping) and block.get("type", "text") == "text" else None
    return text if isinstance(text, str) else None
