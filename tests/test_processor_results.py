"""Failures that are data on a span: told like any other, with the class of what the data say."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from tests.conftest import Rig
from tests.test_processor import tool

RESULT = "gen_ai.tool.call.result"


def ended(rig: Rig, status: StatusCode = StatusCode.UNSET, **attributes: Any) -> str:
    """Let a tool's span end, and return what its conversation shows."""
    with rig.tracer.start_as_current_span("execute_tool look", attributes=tool(conversation_id="a")) as span:
        span.set_attributes({key.replace("__", "."): value for key, value in attributes.items()})
        span.set_status(status)
    return rig.processor.conversation("a").render()


@pytest.mark.parametrize(
    ("status", "attributes", "error_class"),
    [
        # the case "failure as data"
        (StatusCode.UNSET, {RESULT: '{"isError":true,"content":[{"type":"text","text":"trace not found"}]}'},
         "not_found"),
        (StatusCode.UNSET, {RESULT: '{"status":"error","error_message":"quota exceeded"}'}, "rate_limit"),
        (StatusCode.OK, {RESULT: '{"error":"403 Forbidden"}'}, "auth"),
        (StatusCode.UNSET, {"error.type": "timeout"}, "connectivity"),
        (StatusCode.ERROR, {RESULT: "An error occurred while running the tool. Please try again."}, "unknown"),
        # the same under other keys
        (StatusCode.OK, {"output.value": '{"error":"403 Forbidden"}'}, "auth"),
        (StatusCode.UNSET, {"traceloop.entity.output": '{"result": "trace not found", "is_error": true}'}, "not_found"),
        (StatusCode.UNSET, {"langfuse.observation.output": '{"error":"403 Forbidden"}'}, "auth"),
        (StatusCode.UNSET, {"haystack.tool.error": True,
                            "haystack.agent.step.tool.output": '{"error":"Failed. Error: 404 Not Found"}'},
         "not_found"),
    ],
)  # fmt: skip
def test_a_failure_that_is_data_is_told(
    rig: Rig, status: StatusCode, attributes: dict[str, Any], error_class: str
) -> None:
    """Whatever the status says."""
    assert ended(rig, status, **attributes).startswith(f"[error] look: {error_class}. ")
    assert 1 == rig.processor.stats().seen


@pytest.mark.parametrize(
    "result",
    [
        '{"error":null,"data":[1]}', '{"exit_code":1,"stderr":"--- FAIL: TestFoo (0.01s)"}',
        "The page explains HTTP 404 and Error handling in Python.", "Error: BackendError - search backend failed",
    ],
)  # fmt: skip
def test_a_result_that_says_nothing_is_a_success(rig: Rig, result: str) -> None:
    """It resolves what had failed before it, as any success does."""
    assert ended(rig, StatusCode.ERROR).startswith("[error] look: ")
    assert "[error]" not in ended(rig, StatusCode.OK, **{RESULT: result})
    assert 1 == rig.processor.stats().seen


def test_a_span_that_its_name_alone_tells_is_seen(rig: Rig) -> None:
    """The last resort; nothing else of the process is taken for a tool."""
    for name in ("execute_tool look", "tools/call look", "look.tool", "look", "toolbox"):
        with rig.tracer.start_as_current_span(name) as span:
            span.set_status(StatusCode.ERROR)
    assert 3 == rig.processor.stats().seen
