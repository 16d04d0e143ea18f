"""OpenInference (spec/semantic_conventions.md): ``openinference.span.kind``."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="openinference",
    marker=semconv.OPENINFERENCE_SPAN_KIND,
    kinds={"tool": Kind.TOOL, "llm": Kind.MODEL, "agent": Kind.AGENT},
    tool_keys=(semconv.TOOL_NAME,),
    call_id_keys=("tool_call.id", semconv.GEN_AI_TOOL_CALL_ID),
    argument_keys=(semconv.INPUT_VALUE,),
    conversation_keys=(semconv.SESSION_ID, semconv.GEN_AI_CONVERSATION_ID),
    name_suffixes=(".__call__", ".acall", ".run"),
)
