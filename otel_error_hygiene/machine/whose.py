"""Whose is a span: its conversation, and in it the scope of the agent that it works for.

What cannot be known: agents whose spans state no name and are not below a tool's span share the scope of the agent
above them, for instrumentations also draw workflows and graph nodes as agents; parallel runs of one agent share its
scope; and an agent in a trace or a process of its own is an outermost one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from .. import semconv
from .._sdk import span_attributes
from ..context import ContextBuffer, Conversations
from ..conventions import Kind, conversation_of
from .lineage import Lineage, said_by


class Whose:
    """Finds the buffer that a span concerns.

    Args:
        conversations: The buffers and the routes to them.
        lineage: The open spans.
    """

    def __init__(self, conversations: Conversations, lineage: Lineage) -> None:
        self._conversations = conversations
        self._lineage = lineage

    def conversation(
        self, span: ReadableSpan, bound: ContextBuffer | None, attributes: Mapping[str, Any]
    ) -> ContextBuffer | None:
        """Return the buffer of a span's conversation, that of its outermost agent; None when nobody knows it."""
        found = self._conversations.route(span.context.trace_id, bound, attributes, self._lineage.above(span))
        if found is None and (agent := attributes.get(semconv.GEN_AI_AGENT_NAME)) is not None:
            return self._conversations.of_agent(str(agent))
        return found

    def scope(self, span: ReadableSpan, buffer: ContextBuffer, attributes: Mapping[str, Any]) -> ContextBuffer:
        """Return the view of the agent that a span works for: the buffer itself, or a nested agent's scope.

        An open span of an agent works for that agent.
        """
        agents = self._agents(span, buffer)
        own = attributes.get(semconv.GEN_AI_AGENT_NAME)
        if agents and own is not None and agents[-1] is not None and own != agents[-1]:
            agents.append(str(own))
        return buffer.scope(agents[-1] or "") if len(agents) > 1 else buffer

    def _agents(self, span: ReadableSpan, buffer: ContextBuffer) -> list[str | None]:
        """Return the agents that a span works for in its conversation, the outermost first; None: without a name."""
        agents: list[str | None] = []
        delegated = False
        for each in reversed(self._within(span, buffer)):
            said = said_by(each)
            if said.kind is Kind.TOOL:
                delegated = True
            elif said.kind is Kind.AGENT:
                if not agents:
                    agents.append(said.name)
                elif delegated:
                    agents.append(said.name or each.name)
                elif agents[-1] is None:  # a workflow, drawn as an agent
                    agents[-1] = said.name
                elif said.name is not None and said.name != agents[-1]:
                    agents.append(said.name)
                delegated = False
        return agents

    def _within(self, span: ReadableSpan, buffer: ContextBuffer) -> list[ReadableSpan]:
        """Return a span and the open ones above it that belong to its conversation, the nearest first."""
        found = [span]
        for each in self._lineage.above(span):
            bound = self._conversations.open.get(each.context.span_id)
            if bound is not None and bound is not buffer:
                break
            conversation = conversation_of(span_attributes(each)) if bound is None else None
            if conversation is not None and conversation != buffer.conversation:
                break
            found.append(each)
        return found
