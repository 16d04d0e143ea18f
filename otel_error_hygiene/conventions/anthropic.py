"""Anthropic's SDK: GenAI conventions, with its own span names and its own key for a tool's result."""

from __future__ import annotations

from ._table import Convention, Kind

CONVENTION = Convention(
    name="anthropic",
    result_keys=("anthropic.tool_result.content",),
    name_prefixes={"anthropic.custom_tool_use ": Kind.TOOL},
)
