"""One lookup per marker attribute tells what a span is; the rest is read only when it is a tool call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import semconv
from ..model import ToolCall
from . import genai, mcp, openinference, openllmetry
from ._table import Convention, Kind
from .arguments import canonical

# In the order of precedence: the first marker that knows its value wins.
_CONVENTIONS: tuple[Convention, ...] = (
    genai.CONVENTION,
    mcp.CONVENTION,
    openinference.CONVENTION,
    openllmetry.CONVENTION,
    openllmetry.MODEL_CALL,
)
_MARKERS: tuple[tuple[str, Mapping[str, Kind], Convention], ...] = tuple((c.marker, c.kinds, c) for c in _CONVENTIONS)
_MARKER_KEYS: frozenset[str] = frozenset(c.marker for c in _CONVENTIONS)
_FLAG_KEYS: frozenset[str] = frozenset(key for c in _CONVENTIONS for key, _ in c.failure_flags)
_CONVERSATION_KEYS: tuple[str, ...] = tuple(dict.fromkeys(key for c in _CONVENTIONS for key in c.conversation_keys))


# The first look at every span of a process: each is one call into C, a fraction of a look-up loop.
unmarked = _MARKER_KEYS.isdisjoint
"""Tell that attributes mark neither tool, model nor agent."""
untroubled = (_FLAG_KEYS | {semconv.ERROR_TYPE}).isdisjoint
"""Tell that no attribute hints at a failure, whatever it says."""
unnamed = frozenset(_CONVERSATION_KEYS).isdisjoint
"""Tell that attributes name no conversation."""


def recognise(attributes: Mapping[str, Any]) -> tuple[Kind, Convention] | None:
    """Tell what a span stands for; None for anything that is neither tool, model nor agent.

    Args:
        attributes: The span's attributes at its end.
    """
    get = attributes.get
    for marker, kinds, convention in _MARKERS:
        value = get(marker)
        if value is not None:
            kind = kinds.get(value) if isinstance(value, str) else None
            if kind is None:
                kind = kinds.get(str(value).lower())
            if kind is not None:
                return kind, convention
    return None


def call_of(convention: Convention, name: str, attributes: Mapping[str, Any]) -> ToolCall:
    """Read the tool call from a recognised span.

    Args:
        convention: What ``recognise`` returned.
        name: The span's name, the last resort for the tool's name.
        attributes: The span's attributes.
    """
    return ToolCall.made(
        {
            "tool": _first(attributes, convention.tool_keys) or _from_name(convention, name),
            "call_id": _first(attributes, convention.call_id_keys),
            "arguments": canonical(next((attributes[k] for k in convention.argument_keys if k in attributes), None)),
            "agent": _first(attributes, ("gen_ai.agent.name",)),
            "conversation": conversation_of(attributes),
        }
    )


def conversation_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the conversation id that a span itself names, or None."""
    if unnamed(attributes):
        return None
    return _first(attributes, _CONVERSATION_KEYS)


def _first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = attributes.get(key)
        if value is not None and value != "":
            return str(value)
    return None


def _from_name(convention: Convention, name: str) -> str:
    for prefix in convention.name_prefixes:
        name = name.removeprefix(prefix)
    for suffix in convention.name_suffixes:
        name = name.removesuffix(suffix)
    return name
