"""One lookup per marker attribute tells what a span is; the rest is read only when it is a tool call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan

from .. import semconv
from .._sdk import mapping_of
from ..model import ToolCall
from . import (
    adk,
    anthropic,
    claude_code,
    genai,
    haystack,
    langfuse,
    langsmith,
    mcp,
    openinference,
    openllmetry,
    own,
    strands,
)
from ._table import Convention, Kind
from .arguments import canonical
from .wrapping import arguments_in, facts_in, may_tell_failure

# In the order of precedence: the first marker that knows its value wins.
_TABLES: tuple[Convention, ...] = (
    genai.CONVENTION,
    mcp.CONVENTION,
    openinference.CONVENTION,
    openllmetry.CONVENTION,
    openllmetry.MODEL_CALL,
    langfuse.CONVENTION,
    langsmith.CONVENTION,
    haystack.CONVENTION,
    anthropic.CONVENTION,
    strands.CONVENTION,
    adk.CONVENTION,
    claude_code.CONVENTION,
)
_AGENT_SUFFIXES = (".agent", ".workflow", "._execute_core", ".run", ".kickoff")
_NO_CALL_ID = frozenset({"", "<not specified>", "None", "null"})
_CLASS_NAME = re.compile(r"(?:[A-Z][A-Za-z0-9]*)?(?:Tool|Function)").fullmatch
_SIGNATURE = re.compile(r"([A-Za-z_]\w*)\(").match
_MAX_METADATA_CHARS = 65_536


def _all(field: str) -> list[Any]:
    return [key for table in _TABLES for key in getattr(table, field)]


def _own_first(table: Convention, field: str) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*getattr(table, field), *_all(field))))


def _completed(table: Convention) -> Convention:
    """Return a table that also knows the keys of the others, its own first."""
    return table._replace(
        tool_keys=tuple(dict.fromkeys((*table.tool_keys, *_TOOL_KEYS))),
        call_id_keys=_own_first(table, "call_id_keys"),
        argument_keys=_own_first(table, "argument_keys"),
        argument_events=_own_first(table, "argument_events"),
        result_keys=_own_first(table, "result_keys"),
        agent_keys=_own_first(table, "agent_keys"),
    )


# An entity of OpenLLMetry, or a run of LangSmith, may be anything: only their own tables take it for a tool's name.
_TOOL_KEYS = (semconv.GEN_AI_TOOL_NAME, semconv.TOOL_NAME, semconv.HAYSTACK_TOOL_NAME, semconv.CLAUDE_CODE_TOOL_NAME)
_CONVENTIONS = tuple(_completed(table) for table in _TABLES)
_BY_SUFFIX = next(c for c in _CONVENTIONS if ".tool" in c.name_suffixes)
_OWN = _CONVENTIONS[0]._replace(name="own")
_MARKERS: tuple[tuple[str, Mapping[str, Kind], Convention], ...] = tuple(
    (c.marker, c.kinds, c) for c in _CONVENTIONS if c.marker
)
_PRESENT: tuple[tuple[str, Kind, Convention], ...] = tuple(
    sorted(((key, kind, c) for c in _CONVENTIONS for key, kind in c.present.items()), key=lambda row: row[1])
)
_NAMES: Mapping[str, tuple[Kind, Convention]] = {
    name: (kind, c) for c in _CONVENTIONS for name, kind in c.names.items()
}
_PREFIXES: tuple[tuple[str, Kind, Convention], ...] = tuple(
    (prefix, kind, c) for c in _CONVENTIONS for prefix, kind in c.name_prefixes.items()
)
_SUFFIXES = tuple(dict.fromkeys(_all("name_suffixes")))
_CONVERSATION_KEYS: tuple[str, ...] = tuple(dict.fromkeys(_all("conversation_keys")))
_RESULT_KEYS: tuple[str, ...] = tuple(dict.fromkeys(_all("result_keys")))
_FLAG_KEYS: frozenset[str] = frozenset(key for c in _CONVENTIONS for key, _ in c.failure_flags)
_SOMETHING_ELSE = frozenset({
    "http.request.method", "http.method", "url.full", "http.url", "db.system", "db.system.name", "rpc.system",
    "rpc.system.name", "messaging.system", "messaging.operation", "faas.trigger", "graphql.operation.name",
}).isdisjoint  # fmt: skip
"""Attributes of spans whose name tells nothing of a tool, however it looks."""


# The first look at every span of a process: each is one call into C, a fraction of a look-up loop.
unmarked = frozenset((*(c.marker for c in _CONVENTIONS if c.marker), *(key for key, _, _ in _PRESENT))).isdisjoint
"""Tell that attributes mark neither tool, model nor agent."""
untroubled = frozenset((*_FLAG_KEYS, semconv.ERROR_TYPE)).isdisjoint
"""Tell that no attribute but a result hints at a failure, whatever it says."""
unanswered = frozenset(_RESULT_KEYS).isdisjoint
"""Tell that attributes hold no result of a tool."""
unnamed = frozenset((*_CONVERSATION_KEYS, semconv.METADATA)).isdisjoint
"""Tell that attributes name no conversation."""
NAME_HINT = "tool"
"""What the name of every span has in it that is told to be a tool call by its name alone."""
_NAME_STARTS: tuple[str, ...] = (*(prefix for prefix, _, _ in _PREFIXES), *_NAMES)


def results_are_fine(attributes: Mapping[str, Any]) -> bool:
    """Tell that none of the results on a span, if any, has a sign of a failure in it."""
    return unanswered(attributes) or not any(may_tell_failure(attributes.get(key, "")) for key in _RESULT_KEYS)


def recognise_span(span: ReadableSpan, attributes: Mapping[str, Any]) -> tuple[Kind, Convention] | None:
    """Tell what a span stands for, by the user's conventions first; None for anything that is nothing to us.

    Args:
        span: The ended span.
        attributes: Its attributes.
    """
    if own.readers:
        found = own.read_own(span, _OWN)
        if found is not None:
            return found if found[0] is not Kind.OTHER else None
    return recognise(attributes, span.name)


def recognise(attributes: Mapping[str, Any], name: str = "") -> tuple[Kind, Convention] | None:
    """Tell what a span stands for; None for anything that is neither tool, model nor agent.

    Args:
        attributes: The span's attributes at its end.
        name: The span's name: the last resort, where no attribute says what the span is.
    """
    if unmarked(attributes):
        # Most have no such name either.
        if name.startswith(_NAME_STARTS) or name.endswith(".tool"):
            return _by_name(name, attributes)
        return None
    get = attributes.get
    silent = True
    for marker, kinds, convention in _MARKERS:
        value = get(marker)
        if value is not None:
            kind = kinds.get(value) if isinstance(value, str) else None
            if kind is None:
                kind = kinds.get(str(value).lower())
            if kind is not None:
                return kind, convention
            silent = False
            where = convention.agent_where_equal
            if where is not None and get(where[0]) == get(where[1], where):
                return Kind.AGENT, convention
    if not silent:
        return None
    return next((kind, convention) for key, kind, convention in _PRESENT if key in attributes)


def _by_name(name: str, attributes: Mapping[str, Any]) -> tuple[Kind, Convention] | None:
    if not _SOMETHING_ELSE(attributes):
        return None
    if name in _NAMES:
        return _NAMES[name]
    for prefix, kind, convention in _PREFIXES:
        if len(name) > len(prefix) and name.startswith(prefix):
            return kind, convention
    return (Kind.TOOL, _BY_SUFFIX) if name.endswith(".tool") and name != ".tool" else None


def call_of(convention: Convention, name: str, attributes: Mapping[str, Any], events: Sequence[Event] = ()) -> ToolCall:
    """Read the tool call from a recognised span.

    Args:
        convention: What ``recognise`` returned.
        name: The span's name, the last resort for the tool's name.
        attributes: The span's attributes.
        events: The span's events; one convention writes the arguments there.
    """
    if convention.given is not None:
        return convention.given
    told = next((attributes[key] for key in convention.argument_keys if key in attributes), None)
    if told is None and events:
        told = _in_events(convention, events)
    call_id = _first(attributes, convention.call_id_keys, _NO_CALL_ID)
    tool = _first(attributes, convention.tool_keys)
    if tool is None or _CLASS_NAME(tool) is not None:
        tool = _wrapped_name(convention, told, attributes) or tool or _from_name(name)
    if call_id is None:
        call_id = _wrapped_call_id(convention, told, attributes)
    return ToolCall.made(
        {
            "tool": tool,
            "call_id": call_id,
            "arguments": None if told is None else _canonical_arguments(told, tool),
            "agent": agent_of(convention, attributes),
            "conversation": conversation_of(attributes),
        }
    )


def agent_of(convention: Convention, attributes: Mapping[str, Any], name: str = "") -> str | None:
    """Return the name of the agent that a span tells, or None.

    Args:
        convention: What ``recognise`` returned.
        attributes: The span's attributes.
        name: The name of an agent's own span, which holds the agent's name where no attribute does.
    """
    if convention.given is not None:
        return convention.given.agent
    agent = _first(attributes, convention.agent_keys)
    if agent is None and semconv.METADATA in attributes:
        agent = _first(_metadata(attributes), (semconv.AGENT_NAME_IN_METADATA,))
    if agent is None and name:
        stripped = name.removeprefix("invoke_agent ")
        for suffix in _AGENT_SUFFIXES:
            stripped = stripped.removesuffix(suffix)
        if name not in _NAMES and (stripped != name or convention.agent_is_span_name):
            return stripped
    return agent


def conversation_of(attributes: Mapping[str, Any]) -> str | None:
    """Return the conversation id that a span itself names, or None."""
    if unnamed(attributes):
        return None
    found = _first(attributes, _CONVERSATION_KEYS)
    if found is None and semconv.METADATA in attributes:
        found = _first(_metadata(attributes), semconv.CONVERSATION_NAMES)
    return found


# --- what stands where ----------------------------------------------------------------------------


def _first(attributes: Mapping[str, Any], keys: Iterable[str], none: frozenset[str] = frozenset({""})) -> str | None:
    for key in keys:
        value = attributes.get(key)
        if value is not None and (text := str(value)) not in none:
            return text
    return None


def _in_events(convention: Convention, events: Sequence[Event]) -> Any:
    for event in events:
        for name, key in convention.argument_events:
            if event.name == name:
                return mapping_of(event.attributes).get(key)
    return None


def _canonical_arguments(told: Any, tool: str) -> str | None:
    arguments = arguments_in(told, tool)
    if isinstance(arguments, str):  # the bare value of the one argument
        try:
            return canonical(json.loads(arguments))
        except (ValueError, RecursionError):
            return canonical(json.dumps(arguments, ensure_ascii=False))
    return canonical(arguments) if arguments is not None else None


def _wrapped_call_id(convention: Convention, told: Any, attributes: Mapping[str, Any]) -> str | None:
    for value in (told, *(attributes[key] for key in convention.result_keys if key in attributes)):
        # Most tell none: look for the word before reading the whole.
        if isinstance(value, str) and "tool_call" in value:
            call_id = facts_in(value).get("tool_call_id")
            if call_id is not None and call_id not in _NO_CALL_ID:
                return str(call_id)
    return None


def _wrapped_name(convention: Convention, told: Any, attributes: Mapping[str, Any]) -> str | None:
    """Return the tool's name from its arguments' or result's wrapping, or from a signature in its description."""
    for value in (told, *(attributes[key] for key in convention.result_keys if key in attributes)):
        tool = facts_in(value).get("tool")
        if tool:
            return str(tool)
    signature = _SIGNATURE(str(attributes.get(semconv.TOOL_DESCRIPTION, "")))
    return None if signature is None else signature[1]


def _from_name(name: str) -> str:
    if name in _NAMES:
        return name
    for prefix, _, _ in _PREFIXES:
        if len(name) > len(prefix) and name.startswith(prefix):
            return name[len(prefix) :]
    for suffix in _SUFFIXES:
        if len(name) > len(suffix) and name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def _metadata(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    text = attributes[semconv.METADATA]
    if not isinstance(text, str) or len(text) > _MAX_METADATA_CHARS or not text.startswith("{"):
        return {}
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}
