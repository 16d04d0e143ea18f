"""OpenLLMetry (Traceloop): ``traceloop.span.kind``, ``llm.request.type`` on model calls."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

_PROPERTIES = semconv.TRACELOOP_PROPERTIES
CONVENTION = Convention(
    name="openllmetry",
    marker=semconv.TRACELOOP_SPAN_KIND,
    kinds={"tool": Kind.TOOL, "agent": Kind.AGENT},
    tool_keys=(semconv.GEN_AI_TOOL_NAME, semconv.TRACELOOP_ENTITY_NAME),
    call_id_keys=(semconv.GEN_AI_TOOL_CALL_ID,),
    argument_keys=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, semconv.TRACELOOP_ENTITY_INPUT),
    result_keys=(semconv.GEN_AI_TOOL_CALL_RESULT, semconv.TRACELOOP_ENTITY_OUTPUT),
    agent_keys=(f"{_PROPERTIES}{semconv.AGENT_NAME_IN_METADATA}",),
    conversation_keys=(
        semconv.GEN_AI_CONVERSATION_ID,
        *(f"{_PROPERTIES}{key}" for key in semconv.CONVERSATION_NAMES),
    ),
    name_suffixes=(".tool",),
)
MODEL_CALL = Convention(
    name="openllmetry-model",
    marker=semconv.LLM_REQUEST_TYPE,
    kinds={"chat": Kind.MODEL, "completion": Kind.MODEL},
)
