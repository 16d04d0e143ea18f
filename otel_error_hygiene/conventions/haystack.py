"""Haystack: no marker but the spans' names, and a tool's name once content is known."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="haystack",
    present={semconv.HAYSTACK_TOOL_NAME: Kind.TOOL, semconv.HAYSTACK_TOOL_ERROR: Kind.TOOL},
    names={
        "haystack.agent.step.tool": Kind.TOOL,
        "haystack.agent.step.llm": Kind.MODEL,
        "haystack.agent.run": Kind.AGENT,
    },
    tool_keys=(semconv.HAYSTACK_TOOL_NAME,),
    argument_keys=(semconv.HAYSTACK_TOOL_INPUT,),
    result_keys=(semconv.HAYSTACK_TOOL_OUTPUT,),
)
