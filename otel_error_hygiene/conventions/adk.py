"""Google ADK: GenAI conventions; arguments, result and session once stood under keys of its own."""

from __future__ import annotations

from ._table import Convention

CONVENTION = Convention(
    name="adk",
    argument_keys=("gcp.vertex.agent.tool_call_args",),
    result_keys=("gcp.vertex.agent.tool_response",),
    conversation_keys=("gcp.vertex.agent.session_id",),
)
