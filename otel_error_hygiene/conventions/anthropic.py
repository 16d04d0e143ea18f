"""Anthropic's SDK: GenAI conventions, with its own span names and its own key for a tool's result."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="anthropic",
    result_keys=(semconv.ANTHROPIC_TOOL_RESULT,),
    name_prefixes={"anthropic.custom_tool_use ": Kind.TOOL},
)
