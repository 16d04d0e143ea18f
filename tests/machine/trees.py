"""Trees of spans for the tests of the machine: started and ended by hand, in the shapes of the captures."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode

from tests.conftest import Rig


def start(rig: Rig, name: str, parent: Span | None = None, kind: SpanKind = SpanKind.INTERNAL, **values: Any) -> Span:
    """Start a span below another; two underscores in a key stand for a dot."""
    context = trace.set_span_in_context(trace.INVALID_SPAN if parent is None else parent)
    attributes = {key.replace("__", "."): value for key, value in values.items() if value is not None}
    return rig.tracer.start_span(name, context, kind=kind, attributes=attributes)


def tool(rig: Rig, name: str, parent: Span | None = None, **values: Any) -> Span:
    """Start the span of a tool call, by the GenAI conventions."""
    values = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name, **values}
    return start(rig, f"execute_tool {name}", parent, **values)


def agent(rig: Rig, name: str, parent: Span | None = None, **values: Any) -> Span:
    """Start the span of an agent, by the GenAI conventions."""
    values = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": name, **values}
    return start(rig, f"invoke_agent {name}", parent, **values)


def fail(span: Span, error: Exception | None = None, *, events: int = 1) -> None:
    """End a span with an exception, recorded so many times."""
    error = error or ConnectionError("no route to host")
    for _ in range(events):
        span.record_exception(error)
    span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
    span.end()


def mcp_call(rig: Rig, name: str, parent: Span | None = None) -> tuple[Span, Span, Span]:
    """Start the three spans that fastmcp makes of one call: client, transport, server."""
    method = {"mcp__method__name": "tools/call"}
    named = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name}
    client = start(rig, f"tools/call {name}", parent, SpanKind.CLIENT, **method, **named)
    middle = start(rig, f"MCP send tools/call {name}", client, SpanKind.CLIENT, **method, jsonrpc__request__id="3")
    server = start(rig, f"tools/call {name}", middle, SpanKind.SERVER, **method)
    server.set_attributes({key.replace("__", "."): value for key, value in named.items()})
    return client, middle, server


def flag(span: Span, text: str = "Error calling tool") -> None:
    """End a span as an MCP client does whose tool failed: by its type alone."""
    span.set_attribute("error.type", "tool_error")
    span.set_status(StatusCode.ERROR, text)
    span.end()


def told(rig: Rig, conversation: str = "a") -> list[str]:
    """Return the tools whose failures are pending in a conversation."""
    return [summary.tool for summary in rig.processor.conversation(conversation).pending]
