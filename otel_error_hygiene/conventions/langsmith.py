"""LangSmith (its ``_internal/otel/_otel_exporter.py``): ``langsmith.span.kind``, the run's type."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

_METADATA = "langsmith.metadata."
CONVENTION = Convention(
    name="langsmith",
    marker="langsmith.span.kind",
    kinds={"tool": Kind.TOOL, "llm": Kind.MODEL},
    # It has no kind for agents: the run of an agent is the chain that bears its name.
    agent_where_equal=("langsmith.trace.name", f"{_METADATA}lc_agent_name"),
    tool_keys=(semconv.GEN_AI_TOOL_NAME, "langsmith.trace.name"),
    call_id_keys=(semconv.GEN_AI_TOOL_CALL_ID, f"{_METADATA}tool_call_id"),
    argument_keys=("gen_ai.prompt",),
    result_keys=("gen_ai.completion",),
    agent_keys=(f"{_METADATA}lc_agent_name",),
    agent_is_span_name=True,
    conversation_keys=tuple(f"{_METADATA}{key}" for key in semconv.CONVERSATION_NAMES),
)
