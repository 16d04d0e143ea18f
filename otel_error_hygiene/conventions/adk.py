"""Google ADK: GenAI conventions; arguments, result and session once stood under keys of its own."""

from __future__ import annotations

from .. import semconv
from ._table import Convention

CONVENTION = Convention(
    name="adk",
    argument_keys=(semconv.ADK_TOOL_ARGUMENTS,),
    result_keys=(semconv.ADK_TOOL_RESPONSE,),
    conversation_keys=(semconv.ADK_SESSION_ID,),
)
