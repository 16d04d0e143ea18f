"""Claude Code's own spans, which a program gets that runs it by the Claude Agent SDK; told by their names."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="claude-code",
    names={
        "claude_code.tool": Kind.TOOL,
        "claude_code.llm_request": Kind.MODEL,
        "claude_code.interaction": Kind.AGENT,
    },
    tool_keys=(semconv.CLAUDE_CODE_TOOL_NAME,),
    call_id_keys=(semconv.CLAUDE_CODE_TOOL_USE_ID,),
    argument_keys=(semconv.CLAUDE_CODE_TOOL_INPUT,),
)
