"""OpenLLMetry (Traceloop): ``traceloop.span.kind``, ``llm.request.type`` on model calls."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="openllmetry",
    marker=semconv.TRACELOOP_SPAN_KIND,
    kinds={"tool": Kind.TOOL, "agent": Kind.AGENT},
    tool_keys=(semconv.GEN_AI_TOOL_NAME, semconv.TRACELOOP_ENTITY_NAME),
    call_id_keys=(semconv.GEN_AI_TOOL_CALL_ID,),
    argument_keys=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, semconv.TRACELOOP_ENTITY_INPUT),
    conversation_keys=(semconv.GEN_AI_CONVERSATION_ID, semconv.TRACELOOP_SESSION_ID),
    name_suffixes=(".tool",),
)
MODEL_CALL = CONVENTION._replace(marker=semconv.LLM_REQUEST_TYPE, kinds={"chat": Kind.MODEL, "completion": Kind.MODEL})
