"""Langfuse (its SDK's ``_client/attributes.py``): ``langfuse.observation.type``; a generation is a model call."""

from __future__ import annotations

from .. import semconv
from ._table import Convention, Kind

_METADATA = "langfuse.observation.metadata."
CONVENTION = Convention(
    name="langfuse",
    marker="langfuse.observation.type",
    kinds={"tool": Kind.TOOL, "generation": Kind.MODEL, "agent": Kind.AGENT},
    # The tool's name is the span's own.
    call_id_keys=(f"{_METADATA}tool_call_id",),
    argument_keys=("langfuse.observation.input",),
    result_keys=("langfuse.observation.output",),
    agent_keys=(f"{_METADATA}lc_agent_name",),
    agent_is_span_name=True,
    conversation_keys=(
        semconv.SESSION_ID,
        "langfuse.session.id",
        *(f"{_METADATA}{key}" for key in semconv.CONVERSATION_NAMES),
    ),
)
