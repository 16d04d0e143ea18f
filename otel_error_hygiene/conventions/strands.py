"""Strands Agents: GenAI conventions; a call's arguments stand in an event of the span."""

from __future__ import annotations

from .. import semconv
from ._table import Convention

CONVENTION = Convention(name="strands", argument_events=((semconv.GEN_AI_TOOL_MESSAGE, "content"),))
