"""Langfuse (its SDK's ``_client/attributes.py``): ``langfuse.observation.type``; a generation is a model call."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

_METADATA = semconv.LANGFUSE_METADATA
CONVENTION = Convention(
    name="langfuse",
    marker=semconv.LANGFUSE_TYPE,
    kinds={"tool": Kind.TOOL, "generation": Kind.MODEL, "agent": Kind.AGENT},
    # The tool's name is the span's own.
    call_id_keys=(f"{_METADATA}{semconv.CALL_ID_IN_METADATA}",),
    argument_keys=(semconv.LANGFUSE_INPUT,),
    result_keys=(semconv.LANGFUSE_OUTPUT,),
    agent_keys=(f"{_METADATA}{semconv.AGENT_NAME_IN_METADATA}",),
    agent_is_span_name=True,
    conversation_keys=(
        semconv.SESSION_ID,
        semconv.LANGFUSE_SESSION_ID,
        *(f"{_METADATA}{key}" for key in semconv.CONVERSATION_NAMES),
    ),
)
