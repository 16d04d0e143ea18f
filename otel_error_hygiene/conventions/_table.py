"""The shape of one convention: which attribute marks a span, and where the facts of a tool call stand."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from .. import semconv


class Kind(IntEnum):
    """What a span stands for, as far as we care."""

    TOOL = 1
    MODEL = 2
    AGENT = 3


class Convention(NamedTuple):
    """One instrumentation family's way to write a tool call."""

    name: str
    marker: str
    """Attribute whose value tells the kind of span."""
    kinds: Mapping[str, Kind]
    """Lower-case value of ``marker`` -> kind."""
    tool_keys: tuple[str, ...]
    call_id_keys: tuple[str, ...]
    argument_keys: tuple[str, ...]
    conversation_keys: tuple[str, ...]
    name_prefixes: tuple[str, ...] = ()
    """What stands before the tool's name in the span's name, the last resort for the tool's name."""
    name_suffixes: tuple[str, ...] = ()
    failure_flags: tuple[tuple[str, Any], ...] = (
        (semconv.GEN_AI_TOOL_STATUS, "error"),  # Strands, beside the span's status
        (semconv.HAYSTACK_TOOL_ERROR, True),  # Haystack, whose span stays UNSET
        (semconv.LANGFUSE_LEVEL, "ERROR"),
    )
    """Attributes that say failure where the status does not; whoever made the span, somebody else may have set them."""
