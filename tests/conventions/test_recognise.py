"""Which spans are tool calls, model calls and agents, and what they say of the call."""

from __future__ import annotations

from typing import Any

import pytest

from otel_error_hygiene.conventions import Kind, call_of, conversation_of, recognise


def kind_of(**attributes: Any) -> Kind | None:
    """Return the kind of a span with these attributes, dots written as double underscores."""
    found = recognise({key.replace("__", "."): value for key, value in attributes.items()})
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"gen_ai__operation__name": "execute_tool"}, Kind.TOOL),
        ({"gen_ai__operation__name": "chat"}, Kind.MODEL),
        ({"gen_ai__operation__name": "generate_content"}, Kind.MODEL),
        ({"gen_ai__operation__name": "text_completion"}, Kind.MODEL),
        ({"gen_ai__operation__name": "invoke_agent"}, Kind.AGENT),
        ({"gen_ai__operation__name": "embeddings"}, None),
        ({"mcp__method__name": "tools/call"}, Kind.TOOL),
        ({"mcp__method__name": "tools/list"}, None),
        ({"openinference__span__kind": "TOOL"}, Kind.TOOL),
        ({"openinference__span__kind": "tool"}, Kind.TOOL),
        ({"openinference__span__kind": "LLM"}, Kind.MODEL),
        ({"openinference__span__kind": "AGENT"}, Kind.AGENT),
        ({"openinference__span__kind": "CHAIN"}, None),
        ({"traceloop__span__kind": "tool"}, Kind.TOOL),
        ({"traceloop__span__kind": "agent"}, Kind.AGENT),
        ({"traceloop__span__kind": "workflow"}, None),
        ({"llm__request__type": "chat"}, Kind.MODEL),
        ({"http__request__method": "GET"}, None),
        ({}, None),
        # a marker whose value nobody knows does not hide another that is known
        ({"gen_ai__operation__name": "execute_task", "traceloop__span__kind": "tool"}, Kind.TOOL),
        ({"gen_ai__operation__name": ("execute_tool",), "openinference__span__kind": 7}, None),
    ],
)
def test_kind_of_a_span(attributes: dict[str, Any], kind: Kind | None) -> None:
    """By the marker attribute of each convention; the span's name is never enough."""
    assert kind is kind_of(**attributes)


@pytest.mark.parametrize(
    ("name", "attributes", "tool"),
    [
        ("x", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}, "search"),
        ("execute_tool search", {"gen_ai.operation.name": "execute_tool"}, "search"),
        ("MCP send tools/call search", {"mcp.method.name": "tools/call"}, "search"),
        ("tools/call search", {"mcp.method.name": "tools/call"}, "search"),
        ("FunctionTool.acall", {"openinference.span.kind": "TOOL", "tool.name": "search"}, "search"),
        ("search.run", {"openinference.span.kind": "TOOL"}, "search"),
        ("search.__call__", {"openinference.span.kind": "TOOL"}, "search"),
        ("search.tool", {"traceloop.span.kind": "tool"}, "search"),
        ("search.tool", {"traceloop.span.kind": "tool", "traceloop.entity.name": "search"}, "search"),
        ("execute_tool a b", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": ""}, "a b"),
    ],
)
def test_name_of_the_tool(name: str, attributes: dict[str, Any], tool: str) -> None:
    """From its attribute, else from the span's name without what the convention puts around it."""
    found = recognise(attributes)
    assert found is not None
    assert tool == call_of(found[1], name, attributes).tool


def test_facts_of_a_call() -> None:
    """Call id, arguments in canonical JSON, agent and conversation."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": '{"b": 1, "a": [2, "x"]}',
        "gen_ai.agent.name": "shop",
        "gen_ai.conversation.id": "c",
    }
    found = recognise(attributes)
    assert found is not None
    call = call_of(found[1], "execute_tool search", attributes)
    assert ("search", "call_1", '{"a":[2,"x"],"b":1}', "shop", "c") == (
        call.tool, call.call_id, call.arguments, call.agent, call.conversation,
    )  # fmt: skip


def test_facts_that_nobody_told_are_none() -> None:
    """Unknown is not empty."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": ""}
    found = recognise(attributes)
    assert found is not None
    call = call_of(found[1], "execute_tool search", attributes)
    assert (None, None, None, None) == (call.call_id, call.arguments, call.agent, call.conversation)


def test_the_request_number_of_mcp_is_no_call_id() -> None:
    """It is the transport's, and starts again with every connection."""
    attributes = {"mcp.method.name": "tools/call", "jsonrpc.request.id": "7", "mcp.session.id": "transport"}
    found = recognise(attributes)
    assert found is not None
    call = call_of(found[1], "tools/call search", attributes)
    assert (None, None) == (call.call_id, call.conversation)


@pytest.mark.parametrize(
    ("attributes", "conversation"),
    [
        ({"gen_ai.conversation.id": "c"}, "c"),
        ({"session.id": "s"}, "s"),
        ({"traceloop.association.properties.session_id": "t"}, "t"),
        ({"gen_ai.conversation.id": "c", "session.id": "s"}, "c"),
        ({"session.id": 7}, "7"),
        ({"session.id": ""}, None),
        ({}, None),
    ],
)
def test_conversation_of_a_span(attributes: dict[str, Any], conversation: str | None) -> None:
    """The first that is known of each convention's keys."""
    assert conversation == conversation_of(attributes)
