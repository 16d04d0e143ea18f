"""What is known of a failure without a live exception: the best of what a span, or a recorded exception, says."""

from __future__ import annotations

import time

import pytest
from opentelemetry.sdk.trace import Event
from opentelemetry.trace import StatusCode

from otel_error_hygiene import RecordedException, conversation, recall, report_error, summarize, tool_call
from otel_error_hygiene.classify import classify
from otel_error_hygiene.machine.nouns import node_of_event, node_of_recorded, node_of_span, node_of_text
from otel_error_hygiene.machine.texts import nameless
from otel_error_hygiene.model import ErrorClass, ExceptionNode
from tests.capture.test_parse import rows
from tests.conftest import Rig

HEADER = "Traceback (most recent call last):"
STACK = f"""{HEADER}
  File "/srv/agent/tools.py", line 10, in look
    raise TimeoutError("no answer")
TimeoutError: no answer

The above exception was the direct cause of the following exception:

{HEADER}
  File "/srv/agent/server.py", line 20, in call_tool
    raise ToolError(f"Error calling tool 'look': {{e}}") from e
framework.ToolError: Error calling tool 'look': no answer
"""

# Written by reading the captures: the types from the outermost to the root, how the message begins, the class.
TOLD = {
    "langchain-openinference": [
        ("ConnectionError < TimeoutError", "weather service unreachable for 'Berlin'", "connectivity"),
        ("ValueError", "amount must be positive, got -5.0", "bad_request"),
        ("httpx.HTTPStatusError", "Client error '401 Unauthorized' for url", "auth"),
        ("langchain_core.tools.base.ToolException", "SKU-12 is out of stock; pick another SKU", "unknown"),
        ("TimeoutError < asyncio.exceptions.CancelledError", "", "connectivity"),
    ],
    # The event's type is always Exception, its message the repr and the traceback.
    "langchain-langsmith": [
        ("ConnectionError < TimeoutError", "weather service unreachable for 'Berlin'", "connectivity"),
        ("ValueError", "amount must be positive, got -5.0", "bad_request"),
        ("httpx.HTTPStatusError", "Client error '401 Unauthorized' for url", "auth"),
        ("langchain_core.tools.base.ToolException", "SKU-12 is out of stock; pick another SKU", "unknown"),
        ("TimeoutError < asyncio.exceptions.CancelledError", "", "connectivity"),
    ],
    # The server's span, whose event has the chain in its stack text only, and the client's, which has a sentence.
    "fastmcp": [
        (
            "fastmcp.exceptions.ToolError < ConnectionError < httpx.ConnectError < httpcore.ConnectError",
            "Error calling tool 'fetch_weather': weather backend unreachable",
            "connectivity",
        ),
        ("tool_error", "weather backend unreachable for city='Oslo'", "connectivity"),
        ("fastmcp.exceptions.ToolError < ValueError", "Error calling tool 'create_invoice': amount", "bad_request"),
        ("tool_error", "amount must be positive, got -5.0", "bad_request"),
        ("fastmcp.exceptions.ToolError < httpx.HTTPStatusError", "Error calling tool 'charge_card': Client", "auth"),
        ("tool_error", "Client error '401 Unauthorized' for url", "auth"),
        (
            "fastmcp.exceptions.ToolError < TimeoutError < asyncio.exceptions.CancelledError",
            "Error calling tool 'slow_lookup': ",
            "connectivity",
        ),
        ("tool_error", "", "unknown"),
        (
            "fastmcp.exceptions.ValidationError < pydantic_core._pydantic_core.ValidationError",
            "1 validation error for call[create_invoice]",
            "bad_request",
        ),
        ("tool_error", "1 validation error for call[create_invoice]", "bad_request"),
        ("fastmcp.exceptions.NotFoundError", "Unknown tool: 'delete_everything'", "not_found"),
        ("tool_error", "Unknown tool: 'delete_everything'", "not_found"),
    ],
    "openai-agents": [("_OTHER", "Tool execution failed. Error details are redacted.", "unknown")] * 3,
    "openai-agents-traceloop": [("_OTHER", "Tool execution failed. Error details are redacted.", "unknown")] * 2,
    "openai-agents-0.11": [
        ("_OTHER", "weather backend unreachable for city='Oslo'", "connectivity"),
        ("_OTHER", "amount must be positive, got -5.0", "bad_request"),
        ("_OTHER", "Client error '401 Unauthorized' for url", "auth"),
    ],
    "strands-agents": [
        ("ConnectionError < httpx.ConnectError < httpcore.ConnectError", "weather backend unreachable", "connectivity"),
        ("ValueError", "amount must be positive, got -5.0", "bad_request"),
        ("httpx.HTTPStatusError", "Client error '401 Unauthorized' for url", "auth"),
        ("TimeoutError < asyncio.exceptions.CancelledError", "", "connectivity"),
    ],
    "autogen": [
        ("ConnectionError < TimeoutError", "weather service unreachable for 'Berlin'", "connectivity"),
        ("ValueError", "amount must be positive, got -5.0", "bad_request"),
        ("httpx.HTTPStatusError", "Client error '401 Unauthorized' for url", "auth"),
        ("TimeoutError < asyncio.exceptions.CancelledError", "", "connectivity"),
    ],
    "langfuse": [
        ("_OTHER", "weather service unreachable for 'Berlin'", "connectivity"),
        ("_OTHER", "amount must be positive, got -5.0", "bad_request"),
        ("_OTHER", "Client error '401 Unauthorized' for url", "auth"),
        ("TimeoutError", "", "connectivity"),
    ],
    "haystack": [
        ("_OTHER", "weather service unreachable for 'Berlin'", "connectivity"),
        ("_OTHER", "amount must be positive, got -5.0", "bad_request"),
    ],
    "google-adk": [
        ("ConnectionError < httpx.ConnectError < httpcore.ConnectError", "weather backend unreachable", "connectivity"),
        ("ValueError", "amount must be positive, got -5", "bad_request"),
        ("httpx.HTTPStatusError", "Client error '401 Unauthorized' for url", "auth"),
        ("TimeoutError < asyncio.exceptions.CancelledError", "", "connectivity"),
    ],
    # The repr stands in the output; no event, no description.
    "anthropic": [
        ("ConnectionError", "weather backend unreachable for city='Oslo'", "connectivity"),
        ("ValueError", "amount must be positive, got -5.0", "bad_request"),
        ("HTTPStatusError", "Client error '401 Unauthorized' for url", "auth"),
        ("TimeoutError", "", "connectivity"),
        ("RuntimeError", "stock lock for LAMP-01 is held by another worker (attempt 1)", "upstream"),
    ],
    "agent-framework": [
        ("ConnectionError", "", "connectivity"),
        ("ValueError", "", "bad_request"),
        ("HTTPStatusError", "", "unknown"),
    ],
    "mcp-v1-traceloop": [
        ("tool_error", "weather backend unreachable for city='Oslo'", "connectivity"),
        ("tool_error", "amount must be positive, got -5.0", "bad_request"),
        ("tool_error", "Client error '401 Unauthorized' for url", "auth"),
        ("tool_error", "", "unknown"),
    ],
    "mcp": [("tool_error", "", "unknown")] * 2,
    "smolagents": [("ConnectionError < TimeoutError", "weather service unreachable for 'Berlin'", "connectivity")],
    "dspy": [("ConnectionError < TimeoutError", "weather service unreachable for 'Berlin'", "connectivity")],
    "llamaindex": [("ConnectionError < TimeoutError", "weather service unreachable for 'Berlin'", "connectivity")],
}


def types_of(node: ExceptionNode) -> str:
    """Return the types of a chain, the outermost first."""
    found = [node.type]
    step: ExceptionNode | None = node
    while step is not None and (step := step.cause or step.context) is not None:
        found.append(step.type)
    return " < ".join(found)


def class_of(node: ExceptionNode, tool: str = "look") -> str:
    """Return the class of a failure."""
    return classify(nameless(node, tool), now=0).error_class


@pytest.mark.parametrize("framework", TOLD)
def test_what_frameworks_tell_of_a_failure(framework: str) -> None:
    """Chain, message and class, from the event where there is one, else from the span's own texts."""
    told = [row for row in rows("spans") if row["framework"] == framework]
    assert len(TOLD[framework]) == len(told)
    for expected, row in zip(TOLD[framework], told, strict=True):
        if row["event"] is not None:
            node = node_of_event(Event("exception", row["event"]))
        else:
            node = node_of_span(row["attributes"], row["description"], row["tool"])
        types, message, error_class = expected
        assert (types, error_class) == (types_of(node), class_of(node, row["tool"]))
        assert node.message.startswith(message)
        assert bool(message) == bool(node.message)
        assert "Traceback" not in node.message


def test_the_stack_text_of_a_real_error_classifies_it() -> None:
    """Better than type and message alone, and nowhere worse."""
    right = {True: 0, False: 0}
    for row in rows("errors"):
        event = {"exception.type": row["type"], "exception.message": row["message"]}
        alone = classify(node_of_event(Event("exception", event)), now=row["now"]).error_class in row["classes"]
        event["exception.stacktrace"] = row["stacktrace"]
        whole = classify(node_of_event(Event("exception", event)), now=row["now"]).error_class in row["classes"]
        assert whole or not alone, row["type"]
        right[False] += alone
        right[True] += whole
    assert right[True] > right[False]


def test_an_events_type_and_message_outrank_the_text() -> None:
    """The text's own may be cut; what it adds is the chain."""
    whole = node_of_recorded("framework.ToolError", "Error calling tool 'look': no answer", STACK)
    assert "framework.ToolError < TimeoutError" == types_of(whole)
    assert whole == node_of_recorded("ToolError", "Error calling tool 'look': no answer", STACK)
    for end in (-30, -60, -100, -150):
        cut = node_of_recorded("framework.ToolError", "Error calling tool 'look': no answer", STACK[:end])
        assert ("framework.ToolError < TimeoutError", whole.message) == (types_of(cut), cut.message), end


def test_the_stack_of_another_exception_is_its_cause() -> None:
    """A recorder that names its own type beside the stack of what it caught."""
    node = node_of_recorded("AgentError", "the tool failed", STACK)
    assert ("AgentError < framework.ToolError < TimeoutError", "the tool failed") == (types_of(node), node.message)


def test_an_event_without_content_has_the_message_of_its_stack() -> None:
    """Some leave the message out, and keep the stack."""
    node = node_of_recorded("framework.ToolError", None, STACK)
    assert "Error calling tool 'look': no answer" == node.message


@pytest.mark.parametrize(
    ("error_type", "text", "kind", "message"),
    [
        (None, None, "_OTHER", ""),
        (None, "boom", "_OTHER", "boom"),
        (None, "TimeoutError", "TimeoutError", ""),
        (None, "TimeoutError()", "TimeoutError", ""),
        (None, "socket.timeout: timed out", "socket.timeout", "timed out"),
        (None, "KeyError: 'sku'", "KeyError", "'sku'"),
        (None, "ValueError('a\\nb')", "ValueError", "a\nb"),
        (None, "OSError(2, 'No such file')", "OSError", "2, 'No such file'"),
        (None, "note: nothing", "_OTHER", "note: nothing"),
        ("tool_error", "ValueError: bad", "ValueError", "bad"),
        ("tool_error", "bad", "tool_error", "bad"),
        ("ValueError", "ValueError: bad", "ValueError", "bad"),
        ("ValueError", "ValueError", "ValueError", ""),
        ("httpx.ReadTimeout", "ReadTimeout: late", "httpx.ReadTimeout", "late"),
        ("ToolError", "KeyError: 'sku'", "ToolError", "KeyError: 'sku'"),
        ("500", "broken", "500", "broken"),
        (None, "Error executing tool look: late", "_OTHER", "late"),
        (None, "Error calling tool 'look': TimeoutError: late", "TimeoutError", "late"),
        (None, "An error occurred while invoking the function look: late", "_OTHER", "late"),
        (None, "Failed to invoke Tool `look` with parameters {'q': 'x: 401'}. Error: late", "_OTHER", "late"),
        (None, "Permission denied for tool look: ask", "_OTHER", "Permission denied for tool look: ask"),
        (None, "Error (non-fatal): {'tool_name': 'look', 'error': 'late'}", "_OTHER", "late"),
        (None, "{'message': 'Error', 'data': {'tool_name': 'look', 'error': 'late'}}", "_OTHER", "late"),
        (None, '{"tool": "look", "error": "l\\u0061te"}', "_OTHER", "late"),
        (None, "ok: {'error': 'invalid_auth'}", "_OTHER", "ok: {'error': 'invalid_auth'}"),
        (None, "{'tool': 'look', 'error': 'cut}", "_OTHER", "{'tool': 'look', 'error': 'cut}"),
        (None, "{broken", "_OTHER", "{broken"),
        (None, "what {is} {this}", "_OTHER", "what {is} {this}"),
    ],
)  # fmt: skip
def test_a_spans_own_words(error_type: str | None, text: str | None, kind: str, message: str) -> None:
    """Type and message, without what a framework puts around them."""
    node = node_of_text(error_type, text, "look")
    assert (kind, message) == (node.type, node.message)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Tool execution failed. Error details are redacted.",
        "Error running tool (non-fatal)",
        "Error running tool (non-fatal): {'tool_name': 'get_rate_limit', 'error': ''}",
        "Error calling tool 'get_rate_limit'",
        "Error calling tool 'get_rate_limit': ",
        "Tool 'get_rate_limit' failed",
        "get_rate_limit",
        "tool_error",
    ],
)
def test_a_text_that_says_nothing_classifies_nothing(text: str) -> None:
    """Nor does the tool's name, whatever words are in it."""
    for error_type in (None, "tool_error", "_OTHER", "ToolError"):
        node = node_of_text(error_type, text, "get_rate_limit")
        assert ErrorClass.UNKNOWN == class_of(node, "get_rate_limit")
    wrapped = node_of_recorded("ToolError", text, STACK.replace("TimeoutError", "RuntimeError"))
    assert ErrorClass.UNKNOWN == class_of(wrapped, "get_rate_limit")


def test_the_first_text_that_says_something_counts() -> None:
    """The convention's own message, then the output when it is flagged as an error, then the description."""
    output = {"output.value": '{"isError": true, "content": [{"type": "text", "text": "from the output"}]}'}
    message = {"langfuse.observation.status_message": "from the message"}
    assert "from the message" == node_of_span({**output, **message}, "described").message
    assert "from the output" == node_of_span(output, "described").message
    assert "described" == node_of_span({"output.value": "late"}, "described").message
    assert "late" == node_of_span({"output.value": "late", "gen_ai.tool.status": "error"}, "described").message
    assert "described" == node_of_span({**message, "langfuse.observation.status_message": ""}, "described").message
    assert ("500", "") == (
        node_of_span({"error.type": "500"}, None).type,
        node_of_span({"error.type": 500}, "").message,
    )


@pytest.mark.parametrize(
    "output",
    [
        "[" * 9000,
        "{" * 9000,
        '{"error": ' * 5000,
        "{'a': " + "(" * 900 + "}",
        "\0{}",
        "x" * 99_999,
        "ValueError('" + "\\\\" * 9000 + ")",
        "{'tool': 'look', 'error': " + "'\\\\" * 9000 + "}",
        "E" * 9000 + "(" * 9000 + ")",
        "{'tool': 'look', 'error': " + "-" * 30_000 + "1}",
        "ValueError(" + "-" * 30_000 + "1)",
        "a." * 9000 + ": x",
    ],
)
def test_any_output_is_survived(output: str) -> None:
    """Nested out of all bounds, or no data at all."""
    node_of_span({"output.value": output, "error.type": "tool_error"}, output, "look")


@pytest.mark.parametrize(
    "piece", ["E", "a.", "look ", "look with args {", "{", "'error': '", "E(", "\\", "|", f"{HEADER}\n"]
)
def test_five_megabytes_of_words_take_no_time(piece: str) -> None:
    """The work is bounded wherever a text may be long: measured below 50 ms."""
    text = piece * (5_000_000 // len(piece))
    started = time.perf_counter()
    for error_type in (None, "tool_error", "ValueError"):
        node_of_text(error_type, text, "look")
        node_of_text(error_type, f"{text}}}", "look")
        node_of_text(error_type, f"ValueError({text})", "look")
        node_of_recorded("E", text, text)
    assert time.perf_counter() - started < 5


def test_a_recorded_exceptions_stack_counts(rig: Rig) -> None:
    """The line names the class of the root cause; the record keeps the text as it was given."""
    error = RecordedException(type="framework.ToolError", message="Error calling tool 'look'", stacktrace=STACK)
    with conversation("c"), rig.tracer.start_as_current_span("agent"):
        summary = report_error(error, tool="look")
    alike = summarize(error, tool="look")
    assert (ErrorClass.CONNECTIVITY, "TimeoutError") == (summary.error_class, summary.error)
    assert (ErrorClass.CONNECTIVITY, "TimeoutError") == (alike.error_class, alike.error)
    record = recall(summary.ref or "")
    assert record is not None
    assert STACK == record.exception_stacktrace
    assert record.exception is not None
    assert "framework.ToolError < TimeoutError" == types_of(record.exception)


def test_a_tool_may_report_a_traceback_as_text(rig: Rig) -> None:
    """As a worker's answer: the last line is the message, the chain counts, and the record keeps all of it."""
    with conversation("c") as errors, tool_call("look", tracer_provider=rig.provider) as call:
        call.fail(STACK)
    assert "[error] look: connectivity." in errors.render()
    [record] = [recall(line.partition("ref=")[2]) for line in errors.render().splitlines()]
    assert record is not None
    assert record.exception is not None
    assert STACK == record.exception_stacktrace
    assert "Error calling tool 'look': no answer" == record.exception_message
    assert "framework.ToolError < TimeoutError" == types_of(record.exception)


def test_a_tools_name_in_a_tree_is_no_evidence() -> None:
    """In causes, contexts and members; a name that is a plain word stays, for it may be one of the message's own."""
    text = "cannot use get_rate_limit now"
    member = ExceptionNode(type="RuntimeError", message=text)
    inner = ExceptionNode(type="RuntimeError", message=text, context=member)
    node = ExceptionNode(type="ExceptionGroup", message="2 failed", group=(member, inner), cause=inner)
    assert ErrorClass.UNKNOWN == class_of(node, "get_rate_limit")
    assert ErrorClass.RATE_LIMIT == class_of(inner, "limit")
    assert node is nameless(node, "other_tool")
    assert node is nameless(node, "")


def test_a_span_that_ended_elsewhere_is_told_by_its_texts(rig: Rig) -> None:
    """No live exception: the chain comes from the event, whose own text stays whole; or from the description."""
    with conversation("c") as errors:
        for with_event in (True, False):
            span = rig.tracer.start_span("look", attributes={"openinference.span.kind": "TOOL", "tool.name": "look"})
            if with_event:
                values = {"exception.type": "Exception", "exception.message": f"ToolError('no answer'){STACK}"}
                span.add_event("exception", {**values, "exception.stacktrace": f"Exception: {STACK}"})
            span.set_status(StatusCode.ERROR, f"ToolError('no answer'){STACK}")
            span.end()
        line = errors.render()
    assert "[error] look: connectivity." in line
    assert "x2" in line
    rig.provider.force_flush()
    first, second = (span.events[0].attributes or {} for span in rig.exporter.get_finished_spans())
    assert (f"Exception: {STACK}", "Exception") == (first["exception.stacktrace"], first["exception.type"])
    assert f"ToolError('no answer'){STACK}" == second["exception.stacktrace"]
    assert "framework.ToolError" == second["exception.type"]
