"""Which spans are tool calls, model calls and agents, and what they say of the call."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import Event

from otel_error_hygiene.conventions import Kind, agent_of, call_of, conversation_of, recognise


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
        ({"langfuse__observation__type": "tool"}, Kind.TOOL),
        ({"langfuse__observation__type": "generation"}, Kind.MODEL),
        ({"langfuse__observation__type": "agent"}, Kind.AGENT),
        ({"langfuse__observation__type": "span"}, None),
        ({"langsmith__span__kind": "tool"}, Kind.TOOL),
        ({"langsmith__span__kind": "llm"}, Kind.MODEL),
        ({"langsmith__span__kind": "chain"}, None),
        ({"langsmith__span__kind": "chain", "langsmith__trace__name": "a",
          "langsmith__metadata__lc_agent_name": "a"}, Kind.AGENT),
        ({"langsmith__span__kind": "chain", "langsmith__trace__name": "tools",
          "langsmith__metadata__lc_agent_name": "a"}, None),
        ({"gen_ai__operation__name": "create_agent"}, None),
        ({"haystack__tool__name": "search"}, Kind.TOOL),
        # what came before the operation's name
        ({"gen_ai__tool__name": "search"}, Kind.TOOL),
        ({"gen_ai__tool__name": "search", "gen_ai__request__model": "m"}, Kind.TOOL),
        ({"gen_ai__request__model": "m"}, Kind.MODEL),
        ({"gen_ai__request__model": "m", "gen_ai__operation__name": "embeddings"}, None),
        ({"http__request__method": "GET"}, None),
        ({}, None),
        # a marker whose value nobody knows does not hide another that is known
        ({"gen_ai__operation__name": "execute_task", "traceloop__span__kind": "tool"}, Kind.TOOL),
        ({"gen_ai__operation__name": ("execute_tool",), "openinference__span__kind": 7}, None),
    ],
)  # fmt: skip
def test_kind_of_a_span(attributes: dict[str, Any], kind: Kind | None) -> None:
    """By the marker attribute of each convention."""
    assert kind is kind_of(**attributes)


@pytest.mark.parametrize(
    ("name", "kind", "tool"),
    [
        ("execute_tool search", Kind.TOOL, "search"),
        ("tools/call search", Kind.TOOL, "search"),
        ("MCP send tools/call search", Kind.TOOL, "search"),
        ("anthropic.custom_tool_use search", Kind.TOOL, "search"),
        ("search.tool", Kind.TOOL, "search"),
        ("haystack.agent.step.tool", Kind.TOOL, "haystack.agent.step.tool"),
        ("claude_code.tool", Kind.TOOL, "claude_code.tool"),
        ("haystack.agent.step.llm", Kind.MODEL, None),
        ("invoke_agent main", Kind.AGENT, None),
        ("claude_code.tool.execution", None, None),
        ("search.__call__", None, None),
        ("search.run", None, None),
        ("execute_tool ", None, None),
        (".tool", None, None),
        ("execute_tools", None, None),
        ("toolbox", None, None),
    ],
)
def test_a_name_is_the_last_resort(name: str, kind: Kind | None, tool: str | None) -> None:
    """Where no attribute says what a span is, its name does; a method's name says nothing."""
    found = recognise({"work": 1}, name)
    assert kind == (None if found is None else found[0])
    if found is not None and tool is not None:
        assert tool == call_of(found[1], name, {}).tool


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "execute_task"}, {"openinference.span.kind": "CHAIN"},
        {"traceloop.span.kind": "workflow"}, {"mcp.method.name": "tools/list"}, {"langfuse.observation.type": "span"},
        {"http.request.method": "POST"}, {"http.method": "POST"}, {"db.system": "redis"}, {"rpc.system": "grpc"},
        {"messaging.system": "kafka"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["execute_tool search", "search.tool", "tools/call search"])
def test_a_name_is_not_enough_for_a_span_that_says_what_it_is(name: str, attributes: dict[str, str]) -> None:
    """Another kind of another convention, a request, a query, a message."""
    assert recognise(attributes, name) is None
    assert recognise({"openinference.span.kind": "LLM"}, name) is not None
    assert Kind.MODEL is (recognise({"openinference.span.kind": "LLM"}, name) or [None])[0]


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
        ("FunctionTool.acall", {"openinference.span.kind": "TOOL"}, "FunctionTool"),
        (
            "FunctionTool.acall",
            {"openinference.span.kind": "TOOL", "tool.description": "search(query: str) -> str\nSearch."},
            "search",
        ),
        ("SimpleTool", {"openinference.span.kind": "TOOL", "tool.name": "SimpleTool"}, "SimpleTool"),
        (
            "SimpleTool",
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "SimpleTool",
                "output.value": '{"tool_name": "search", "raw_output": 1}',
            },
            "search",
        ),
        ("search", {"langfuse.observation.type": "tool"}, "search"),
        ("search", {"langsmith.span.kind": "tool", "langsmith.trace.name": "search"}, "search"),
        ("haystack.agent.step.tool", {"haystack.tool.name": "search"}, "search"),
        ("x", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "mcp__shop__search"}, "mcp__shop__search"),
        ("claude_code.tool", {"gen_ai.operation.name": "execute_tool", "tool_name": "Bash"}, "Bash"),
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
        ({"langfuse.session.id": "l"}, "l"),
        ({"traceloop.association.properties.thread_id": "t"}, "t"),
        ({"traceloop.association.properties.thread_id": "t",
          "traceloop.association.properties.session_id": "s"}, "s"),
        ({"langsmith.metadata.conversation_id": "c"}, "c"),
        ({"langfuse.observation.metadata.thread_id": "t"}, "t"),
        ({"gcp.vertex.agent.session_id": "g"}, "g"),
        ({"metadata": '{"thread_id": "t", "x": 1}'}, "t"),
        ({"metadata": '{"thread_id": "t"}', "session.id": "s"}, "s"),
        ({"metadata": "{broken"}, None),
        ({"metadata": "[1]"}, None),
        ({"metadata": 7}, None),
        ({"metadata": "{}"}, None),
        ({"session.id": 7}, "7"),
        ({"session.id": ""}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_conversation_of_a_span(attributes: dict[str, Any], conversation: str | None) -> None:
    """The first that is known of each convention's keys."""
    assert conversation == conversation_of(attributes)


@pytest.mark.parametrize(
    ("name", "attributes", "agent"),
    [
        ("x", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"}, "shop"),
        ("invoke_agent shop", {"gen_ai.operation.name": "invoke_agent"}, "shop"),
        ("tool_runner", {"gen_ai.operation.name": "invoke_agent"}, None),
        ("shop.run", {"openinference.span.kind": "AGENT"}, "shop"),
        ("shop", {"openinference.span.kind": "AGENT", "graph.node.id": "7", "agent.name": "seller"}, "seller"),
        ("shop._execute_core", {"openinference.span.kind": "AGENT"}, "shop"),
        ("shop", {"langfuse.observation.type": "agent"}, "shop"),
        ("shop.agent", {"traceloop.span.kind": "agent"}, "shop"),
        ("haystack.agent.run", {}, None),
        ("claude_code.interaction", {}, None),
    ],
)
def test_name_of_an_agent(name: str, attributes: dict[str, Any], agent: str | None) -> None:
    """From its attribute, else from the span's name where that bears it."""
    found = recognise(attributes, name)
    assert found is not None
    assert (Kind.AGENT, agent) == (found[0], agent_of(found[1], attributes, name))


def test_call_ids_that_say_none() -> None:
    """ADK writes so for a call that raised."""
    for value in ("<not specified>", "", "None"):
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": value}
        found = recognise(attributes)
        assert found is not None
        assert call_of(found[1], "execute_tool search", attributes).call_id is None


def test_arguments_in_an_event() -> None:
    """Strands writes them there; an attribute that says them comes first."""
    attributes = {"gen_ai.operation.name": "execute_tool"}
    found = recognise(attributes)
    assert found is not None
    events = [Event("gen_ai.choice", {"message": "x"}), Event("gen_ai.tool.message", {"content": '{"b": 1, "a": 2}'})]
    assert '{"a":2,"b":1}' == call_of(found[1], "x", attributes, events).arguments
    attributes["gen_ai.tool.call.arguments"] = "{}"
    assert "{}" == call_of(found[1], "x", attributes, events).arguments


@pytest.mark.parametrize(
    ("told", "arguments"),
    [("lamp", '"lamp"'), ("39.9", "39.9"), ("", '""'), ('{"b":[1, 2],"a":null}', '{"a":null,"b":[1,2]}'), (7, "7")],
)
def test_arguments_are_json(told: Any, arguments: str) -> None:
    """The bare value of an only argument, too."""
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "search", "input.value": told}
    found = recognise(attributes)
    assert found is not None
    assert arguments == call_of(found[1], "search", attributes).arguments
