"""Haystack: no marker but the spans' names, and a tool's name once content is known."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="haystack",
    present={"haystack.tool.name": Kind.TOOL, semconv.HAYSTACK_TOOL_ERROR: Kind.TOOL},
    names={
        "haystack.agent.step.tool": Kind.TOOL,
        "haystack.agent.step.llm": Kind.MODEL,
        "haystack.agent.run": Kind.AGENT,
    },
    tool_keys=("haystack.tool.name",),
    argument_keys=("haystack.agent.step.tool.input",),
    result_keys=("haystack.agent.step.tool.output",),
    agent_keys=("haystack.agent.name",),
)
