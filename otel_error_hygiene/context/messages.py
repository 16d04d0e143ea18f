"""Messages in the dialects of the providers, for hand-written loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ConfigurationError

T = TypeVar("T")
Message = dict[str, Any]

_RESULT: dict[str, Callable[[str, str], Message]] = {
    "openai": lambda call_id, line: {"role": "tool", "tool_call_id": call_id, "content": line},
    "anthropic": lambda call_id, line: {
        "type": "tool_result",
        "tool_use_id": call_id,
        "is_error": True,
        "content": line,
    },
}
_TAIL: dict[str, Callable[[str], Message]] = {
    "openai": lambda text: {"role": "user", "content": text},
    "anthropic": lambda text: {"type": "text", "text": text},
}


def tool_result(line: str, call_id: str, dialect: str) -> Message:
    """Return a failed call's own result: an OpenAI ``tool`` message, or an Anthropic ``tool_result`` block.

    Raises:
        ConfigurationError: ``dialect`` is neither "openai" nor "anthropic".
    """
    return _known(_RESULT, dialect)(call_id, line)


def tail(text: str, dialect: str) -> list[Message]:
    """Return the tail block of a prompt: an OpenAI ``user`` message, or an Anthropic text block; [] for no text.

    The Anthropic block goes after the ``tool_result`` blocks of the same user message, where that API wants it.

    Raises:
        ConfigurationError: ``dialect`` is neither "openai" nor "anthropic".
    """
    make = _known(_TAIL, dialect)
    return [make(text)] if text else []


def _known(table: dict[str, T], dialect: str) -> T:
    try:
        return table[dialect]
    except (KeyError, TypeError):
        raise ConfigurationError(f'"dialect" is {dialect!r}; it must be one of {", ".join(map(repr, table))}') from None
