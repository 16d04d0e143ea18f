"""MCP (docs/gen-ai/mcp.md): a client span may carry ``mcp.method.name`` alone, the tool only in its name."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="mcp",
    marker=semconv.MCP_METHOD_NAME,
    kinds={semconv.MCP_TOOLS_CALL: Kind.TOOL},
    tool_keys=(semconv.GEN_AI_TOOL_NAME,),
    # jsonrpc.request.id is the transport's number, not the id that the model gave to the call; and mcp.session.id is
    # the transport's session, not the conversation.
    call_id_keys=(semconv.GEN_AI_TOOL_CALL_ID,),
    argument_keys=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS,),
    result_keys=(semconv.GEN_AI_TOOL_CALL_RESULT,),
    conversation_keys=(semconv.GEN_AI_CONVERSATION_ID,),
    name_prefixes={"MCP send tools/call ": Kind.TOOL, "tools/call ": Kind.TOOL},
)
