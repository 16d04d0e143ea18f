"""GenAI semantic conventions (docs/gen-ai/gen-ai-spans.md): ``gen_ai.operation.name``."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="genai",
    marker=semconv.GEN_AI_OPERATION_NAME,
    kinds={
        semconv.EXECUTE_TOOL: Kind.TOOL,
        "chat": Kind.MODEL,
        "generate_content": Kind.MODEL,
        "text_completion": Kind.MODEL,
        "invoke_agent": Kind.AGENT,
        "create_agent": Kind.AGENT,
    },
    tool_keys=(semconv.GEN_AI_TOOL_NAME,),
    call_id_keys=(semconv.GEN_AI_TOOL_CALL_ID,),
    argument_keys=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS,),
    conversation_keys=(semconv.GEN_AI_CONVERSATION_ID, semconv.SESSION_ID),
    name_prefixes=("execute_tool ", "tools/call "),
)
