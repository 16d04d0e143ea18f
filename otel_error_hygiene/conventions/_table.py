"""The shape of one convention: which attribute marks a span, and where the facts of a tool call stand."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from .. import semconv
from ..model import Outcome, ToolCall

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Kind(IntEnum):
    """What a span stands for, as far as we care."""

    OTHER = 0
    """Nothing to us; only a convention of the user's own says so, to keep a span from ours."""
    TOOL = 1
    MODEL = 2
    AGENT = 3


class Convention(NamedTuple):
    """One instrumentation family's way to write tool calls, model calls and agents.

    Keys are tried in their order. What a family does not say itself is looked for under the keys of the others: two
    instrumentations often write on one span.
    """

    name: str
    marker: str = ""
    """Attribute whose value tells the kind of span; "" for a family that has none of its own."""
    kinds: Mapping[str, Kind] = _NOTHING
    """Lower-case value of ``marker`` -> kind."""
    present: Mapping[str, Kind] = _NOTHING
    """Attribute whose mere presence tells the kind, where no marker says anything."""
    agent_where_equal: tuple[str, str] | None = None
    """Two attributes whose values are equal on an agent's span, where ``kinds`` does not know the marker's value."""
    tool_keys: tuple[str, ...] = ()
    call_id_keys: tuple[str, ...] = ()
    argument_keys: tuple[str, ...] = ()
    argument_events: tuple[tuple[str, str], ...] = ()
    """Event and its attribute that hold the arguments, where no attribute of the span does."""
    result_keys: tuple[str, ...] = ()
    agent_keys: tuple[str, ...] = ()
    agent_is_span_name: bool = False
    """An agent's span bears the agent's name, where no attribute does."""
    conversation_keys: tuple[str, ...] = ()
    names: Mapping[str, Kind] = _NOTHING
    """Whole span names that tell the kind, where no attribute says anything."""
    name_prefixes: Mapping[str, Kind] = _NOTHING
    """What stands before the name of the tool, or agent, in the span's name."""
    name_suffixes: tuple[str, ...] = ()
    """What stands behind the tool's name in the span's name."""
    failure_flags: tuple[tuple[str, Any], ...] = (
        (semconv.GEN_AI_TOOL_STATUS, "error"),  # Strands, beside the span's status
        (semconv.GEN_AI_TASK_STATUS, "failure"),  # OpenLLMetry
        (semconv.HAYSTACK_TOOL_ERROR, True),  # Haystack, whose span stays UNSET
        (semconv.LANGFUSE_LEVEL, "ERROR"),
    )
    """Attributes that say failure where the status does not; whoever made the span, somebody else may have set them."""
    given: ToolCall | None = None
    """The call itself, where a convention of the user's own has read it already."""
    ended: Outcome | None = None
    """How the call ended, where a convention of the user's own says so."""
