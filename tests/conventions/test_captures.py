"""Recognition and outcome, held against what frameworks really exported.

The tables were written by reading the captures: the tool's name as the model was given it, and whether the
call did what it should.
"""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_error_hygiene.conventions import Kind, call_of, conversation_of, outcome_of, recognise
from otel_error_hygiene.model import Outcome
from tests.conventions.captures import FOLDER, NAMES, captured

OK, FAILED = Outcome.SUCCESS, Outcome.FAILURE

OUTCOMES = {
    "autogen": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("create_invoice", FAILED), ("charge_card", FAILED),
        ("track_order", FAILED), ("lookup_vat", OK), ("create_invoice", FAILED), ("create_invoice", OK),
        ("cancel_order", OK),
    ],
    "crewai": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("create_invoice", FAILED), ("charge_card", FAILED),
        ("track_order", FAILED), ("lookup_vat", OK), ("create_invoice", FAILED), ("create_invoice", OK),
        ("track_order", FAILED),
    ],
    # Each call twice: the server's span, then the client's.
    "fastmcp": [
        ("search_catalog", OK), ("search_catalog", OK), ("fetch_weather", FAILED), ("fetch_weather", FAILED),
        ("create_invoice", FAILED), ("create_invoice", FAILED), ("delete_everything", FAILED),
        ("delete_everything", FAILED), ("reserve_stock", OK), ("reserve_stock", OK),
    ],
    # The last two: messages of status "error".
    "langchain-openinference": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("track_order", FAILED), ("reserve_stock", FAILED),
        ("search_catalog", OK), ("lookup_vat", FAILED),
    ],
    "langchain-traceloop": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("track_order", FAILED), ("reserve_stock", FAILED),
        ("search_catalog", OK), ("lookup_vat", FAILED),
    ],
    "llamaindex": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("create_invoice", FAILED), ("charge_card", FAILED),
        ("track_order", FAILED), ("lookup_vat", FAILED), ("create_invoice", FAILED), ("create_invoice", FAILED),
        ("create_invoice", OK),
    ],
    "mcp-client": [("slow_for_client", FAILED)],
    "mcp-server": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("charge_card", FAILED), ("reserve_stock", FAILED),
        ("reserve_stock", OK), ("protocol_error", FAILED),
    ],
    # The framework's own timeout is told to the model, and the span says OK.
    "openai-agents-openinference": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("reserve_stock", FAILED), ("reserve_stock", OK),
        ("slow_fw_timeout", OK), ("fetch_weather_recorded", FAILED),
    ],
    "openai-agents-traceloop": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("reserve_stock", FAILED), ("reserve_stock", OK),
        ("slow_fw_timeout", OK), ("fetch_weather_recorded", FAILED),
    ],
    "pydantic-ai": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("charge_card", FAILED), ("create_invoice", FAILED),
        ("ship_order", FAILED), ("search_catalog", OK), ("fetch_weather", FAILED),
    ],
    "strands": [
        ("search_catalog", OK), ("fetch_weather", FAILED), ("slow_lookup", FAILED), ("reserve_stock", FAILED),
        ("reserve_stock", OK), ("refund_error_result", FAILED),
    ],
}  # fmt: skip
# The conversation that the tool's span itself names; the others leave it to an ancestor, or name none.
CONVERSATIONS = {
    "crewai": {"sess-native-sequence", "sess-native-akickoff"},
    "langchain-openinference": {
        "sess-default-success", "sess-default-fetch_weather", "sess-default-track_order-async-timeout",
        "sess-handle_tool_error-true", "sess-error-result",
    },
    "langchain-traceloop": {
        "sess-default-success", "sess-default-fetch_weather", "sess-default-track_order-async-timeout",
        "sess-handle_tool_error-true", "sess-error-result",
    },
    "llamaindex": {"sess-functionagent-streaming"},
    "pydantic-ai": {"conv-42"},
    "strands": {"conv-42"},
}  # fmt: skip
CALL_IDS = {
    "autogen": "call_00a_search_catalog",
    "pydantic-ai": "call_1_0_0",
    "strands": "tooluse_1_0_0",
}
ARGUMENTS = {
    "pydantic-ai": '{"query":"lamp"}',
    "openai-agents-traceloop": '{"query":"lamp"}',
    "openai-agents-openinference": '{"query":"lamp"}',
}
MODEL_CALLS = {
    "autogen": 0,
    "crewai": 0,
    "langchain-openinference": 3,
    "langchain-traceloop": 3,
    "llamaindex": 1,
    "pydantic-ai": 3,
    "strands": 3,
}


def tool_spans(name: str) -> list[tuple[ReadableSpan, str, Outcome]]:
    """Return the spans of a capture that are tool calls, each with the tool's name and the outcome."""
    found = []
    for span in captured(name):
        attributes = span.attributes or {}
        known = recognise(attributes)
        if known is not None and known[0] is Kind.TOOL:
            evidence = outcome_of(known[1], attributes, span.events, span.status.status_code, None)
            found.append((span, call_of(known[1], span.name, attributes).tool, evidence.outcome))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_tools_and_outcomes_of_a_capture(name: str) -> None:
    """Every tool call, no other span, each with its name and its outcome."""
    assert OUTCOMES[name] == [(tool, outcome) for _, tool, outcome in tool_spans(name)]


@pytest.mark.parametrize("name", NAMES)
def test_conversations_of_a_capture(name: str) -> None:
    """The conversation id that a tool's span carries is found, under each convention's key."""
    found = {conversation_of(span.attributes or {}) for span, _, _ in tool_spans(name)} - {None}
    assert CONVERSATIONS.get(name, set()) == found


@pytest.mark.parametrize("name", CALL_IDS)
def test_call_id_of_a_capture(name: str) -> None:
    """The id that the model gave to the call."""
    span = tool_spans(name)[0][0]
    known = recognise(span.attributes or {})
    assert known is not None
    assert CALL_IDS[name] == call_of(known[1], span.name, span.attributes or {}).call_id


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_a_capture(name: str) -> None:
    """The arguments of the call, in canonical JSON."""
    span = tool_spans(name)[0][0]
    known = recognise(span.attributes or {})
    assert known is not None
    assert ARGUMENTS[name] == call_of(known[1], span.name, span.attributes or {}).arguments


@pytest.mark.parametrize("name", MODEL_CALLS)
def test_model_calls_of_a_capture_are_boundaries(name: str) -> None:
    """The model-call spans of each convention are known; two of the frameworks export none."""
    kinds = [known[0] for span in captured(name) if (known := recognise(span.attributes or {})) is not None]
    assert MODEL_CALLS[name] == kinds.count(Kind.MODEL)


def test_the_parents_of_a_failed_call_are_no_tool_calls() -> None:
    """LangChain records one exception on three spans or more; one of them is the call."""
    for name in ("langchain-openinference", "langchain-traceloop", "pydantic-ai"):
        tools = {span.context.span_id for span, _, _ in tool_spans(name)}
        copies = [s for s in captured(name) if any(e.name == "exception" for e in s.events)]
        assert [span for span in copies if span.context.span_id not in tools], name


def test_the_captures_are_small() -> None:
    """They live in the repository."""
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 150_000
