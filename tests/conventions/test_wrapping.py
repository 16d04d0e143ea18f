"""What stands around arguments and results is taken off; what a tool itself was given, or gave, never is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_error_hygiene.conventions.wrapping import arguments_in, facts_in, failure_told, read, text_told

OSLO = {"city": "Oslo"}
MESSAGE = {"content": "out of stock", "type": "tool", "name": "reserve", "tool_call_id": "c1", "status": "error"}
FINE = MESSAGE | {"status": "success"}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ('{"city": "Oslo"}', OSLO),
        ('{"kwargs": {"city": "Oslo"}}', OSLO),
        ('{"args": [], "kwargs": {"city": "Oslo"}}', OSLO),
        ('{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"city": "Oslo"}}', OSLO),
        ('{"args": ["Oslo"], "kwargs": {}}', ["Oslo"]),
        ('{"args": ["Oslo"], "kwargs": {"days": 2}}', {"args": ["Oslo"], "kwargs": {"days": 2}}),
        ('{"input_str": "{}", "tags": [], "inputs": {"city": "Oslo"}, "kwargs": {"tool_call_id": "c"}}', OSLO),
        ('{"input_str": "{\'city\': \'Oslo\'}", "inputs": null}', OSLO),
        ("{'city': 'Oslo'}", OSLO),
        ('{"tool_name": "weather", "arguments": {"city": "Oslo"}}', OSLO),
        ('{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}', OSLO),
        ('{"name": "weather", "args": {"city": "Oslo"}, "id": "c1", "type": "tool_call"}', OSLO),
        ('{"method": "tools/call", "params": {"name": "weather", "arguments": {"city": "Oslo"}}}', OSLO),
        ('"{\\"city\\": \\"Oslo\\"}"', OSLO),
        (json.dumps(json.dumps(json.dumps(OSLO))), OSLO),
        ("Oslo", "Oslo"),
        ("{not json", "{not json"),
        (OSLO, OSLO),
        (7, 7),
        # a tool's own arguments, which look like a wrapping
        ('{"args": ["-l"]}', {"args": ["-l"]}),
        ('{"name": "x", "arguments": {"a": 1}}', {"name": "x", "arguments": {"a": 1}}),
        ('{"inputs": [1]}', {"inputs": [1]}),
        ('{"tool_name": "hammer", "arguments": 1, "price": 2}', {"tool_name": "hammer", "arguments": 1, "price": 2}),
        ('{"kwargs": {"a": 1}, "other": 1}', {"kwargs": {"a": 1}, "other": 1}),
    ],
)
def test_arguments_out_of_their_wrapping(told: Any, arguments: Any) -> None:
    """Each shape that an instrumentation writes, and its look-alikes."""
    assert arguments == arguments_in(told, "weather")


@pytest.mark.parametrize(
    ("told", "facts"),
    [
        ({"output": MESSAGE}, {"tool_call_id": "c1", "tool": "reserve"}),
        ({"type": "tool", "data": MESSAGE}, {"tool_call_id": "c1", "tool": "reserve"}),
        ({"output": {"lc": 1, "type": "constructor", "kwargs": MESSAGE}, "kwargs": {"name": "x"}},
         {"tool_call_id": "c1", "tool": "reserve"}),
        ({"inputs": {}, "input_str": "", "kwargs": {"tool_call_id": "c2"}}, {"tool_call_id": "c2"}),
        ({"name": "weather", "args": {}, "id": "c3"}, {"tool_call_id": "c3", "tool": "weather"}),
        ({"tool_name": "weather", "arguments": {}}, {"tool": "weather"}),
        ({"tool_name": "hammer"}, {}),
        ({"name": "somebody", "email": "x"}, {}),
        ([1], {}),
        ("prose", {}),
    ],
)  # fmt: skip
def test_what_stands_beside_arguments_or_result(told: Any, facts: dict[str, str]) -> None:
    """The call's id and the tool's name, never a value that is the tool's own."""
    assert facts == facts_in(told) == facts_in(json.dumps(told))


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        # the case "failure as data", as spans carry it
        ({"isError": True, "content": [{"type": "text", "text": "trace not found"}]},
         ("tool_error", "trace not found")),
        ({"status": "error", "error_message": "quota exceeded"}, ("tool_error", "quota exceeded")),
        ({"error": "403 Forbidden"}, ("tool_error", "403 Forbidden")),
        ({"error": None, "data": [1]}, None),
        ({"exit_code": 1, "stderr": "--- FAIL: TestFoo (0.01s)"}, None),
        ("The page explains HTTP 404 and Error handling in Python.", None),
        ("Error: BackendError - search backend failed", None),
        # wrapped by LangChain, three times differently; by ADK and MCP; by Gemini; by LlamaIndex; as blocks of content
        ({"output": MESSAGE}, ("tool_error", "out of stock")),
        ({"type": "tool", "data": MESSAGE}, ("tool_error", "out of stock")),
        ({"output": {"lc": 1, "kwargs": MESSAGE}, "kwargs": {}}, ("tool_error", "out of stock")),
        ({"output": FINE}, None),
        ({"output": FINE | {"content": '{"error": "no stock"}'}}, ("tool_error", "no stock")),
        ({"output": FINE | {"content": "no error at all, status: error"}}, None),
        ({"result": "no such order", "is_error": True}, ("tool_error", "no such order")),
        ({"result": '{"error": "no such order"}'}, ("tool_error", "no such order")),
        ({"result": "Error: no such order"}, None),
        ({"id": "c", "name": "look", "response": {"error": "gone"}}, ("tool_error", "gone")),
        ({"response_type": "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN", "error_type": "ConnectionError",
          "error_details": "refused"}, ("ConnectionError", "refused")),
        ({"blocks": [{"text": "no VAT"}], "raw_output": None, "is_error": True}, ("tool_error", "no VAT")),
        ({"blocks": [], "raw_output": {"raw_output": "x", "is_error": True}, "is_error": False}, ("tool_error", "")),
        ([{"type": "text", "text": '{"error": "gone"}'}], ("tool_error", "gone")),
        ([{"text": "an error, in prose"}], None),
        ([{"error": "nested"}], None),
        ([{"text": '{"error": 1}'}, {"text": "two blocks"}], None),
        ({"status": 503, "message": "busy"}, ("tool_error", "HTTP 503 busy")),
        ({"status": 200, "errors": 0}, None),
        # data about something that failed is no failure of the tool
        ({"data": {"status": "failed", "error": "x"}}, None),
        ({"orders": [{"status": "error"}]}, None),
        (None, None),
    ],
)  # fmt: skip
def test_what_a_result_on_a_span_says(result: Any, failure: tuple[str, str] | None) -> None:
    """Data that says so is a failure, through each wrapping; prose never is."""
    for told in (result, json.dumps(result), json.dumps(json.dumps(result))):
        found = failure_told(told)
        assert failure == (None if found is None else (found.type, found.message))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ('[{"type":"text","text":"TimeoutError()"}]', "TimeoutError()"),
        ("An error occurred", "An error occurred"),
        ('{"message": "m"}', "m"),
        ('{"a": 1}', ""),
        (7, ""),
    ],
)
def test_the_words_of_a_result(result: Any, text: str) -> None:
    """For a failure that has none elsewhere."""
    assert text == text_told(result)


def test_texts_of_megabytes_and_without_end_are_left_alone() -> None:
    """They come from tools, on the tool's thread."""
    for text in ('{"error": "' + "x" * 300_000 + '"}', "[" * 100_000, '{"a":' * 50_000, "{" * 19_000):
        assert (text, None) == (read(text), failure_told(text))
        assert text == arguments_in(text)


@given(value=_JSON)
def test_nothing_that_json_can_hold_breaks_the_reading(value: Any) -> None:
    """Whatever stands there."""
    for told in (value, json.dumps(value)):
        arguments_in(told)
        facts_in(told)
        failure_told(told)
        text_told(told)
