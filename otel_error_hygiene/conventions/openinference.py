"""OpenInference (spec/semantic_conventions.md): ``openinference.span.kind``."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

CONVENTION = Convention(
    name="openinference",
    marker=semconv.OPENINFERENCE_SPAN_KIND,
    kinds={"tool": Kind.TOOL, "llm": Kind.MODEL, "agent": Kind.AGENT},
    tool_keys=(semconv.TOOL_NAME,),
    call_id_keys=(semconv.TOOL_CALL_ID, semconv.TOOL_ID),
    argument_keys=(semconv.INPUT_VALUE,),
    result_keys=(semconv.OUTPUT_VALUE,),
    agent_keys=(semconv.AGENT_NAME, semconv.GRAPH_NODE_NAME, semconv.GRAPH_NODE_ID),
    agent_is_span_name=True,
    conversation_keys=(semconv.SESSION_ID, semconv.GEN_AI_CONVERSATION_ID),
    # The method that a framework calls its tools by.
    name_suffixes=(".__call__", ".acall", ".call", "._run", ".run", ".arun", ".invoke", ".ainvoke", ".forward"),
)
