"""Claude Code's own spans, which a program gets that runs it by the Claude Agent SDK; told by their names."""

from __future__ import annotations

from ._table import Convention, Kind

CONVENTION = Convention(
    name="claude-code",
    names={
        "claude_code.tool": Kind.TOOL,
        "claude_code.llm_request": Kind.MODEL,
        "claude_code.interaction": Kind.AGENT,
    },
    tool_keys=("tool_name",),
    call_id_keys=("tool_use_id",),
    argument_keys=("tool_input",),
)
