"""LangSmith (its ``_internal/otel/_otel_exporter.py``): ``langsmith.span.kind``, the run's type."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

_METADATA = semconv.LANGSMITH_METADATA
CONVENTION = Convention(
    name="langsmith",
    marker=semconv.LANGSMITH_SPAN_KIND,
    kinds={"tool": Kind.TOOL, "llm": Kind.MODEL},
    # It has no kind for agents: the run of an agent is the chain that bears its name.
    agent_where_equal=(semconv.LANGSMITH_RUN_NAME, f"{_METADATA}{semconv.AGENT_NAME_IN_METADATA}"),
    tool_keys=(semconv.GEN_AI_TOOL_NAME, semconv.LANGSMITH_RUN_NAME),
    call_id_keys=(semconv.GEN_AI_TOOL_CALL_ID, f"{_METADATA}{semconv.CALL_ID_IN_METADATA}"),
    argument_keys=(semconv.LANGSMITH_INPUT,),
    result_keys=(semconv.LANGSMITH_OUTPUT,),
    agent_keys=(f"{_METADATA}{semconv.AGENT_NAME_IN_METADATA}",),
    agent_is_span_name=True,
    conversation_keys=tuple(f"{_METADATA}{key}" for key in semconv.CONVERSATION_NAMES),
)
