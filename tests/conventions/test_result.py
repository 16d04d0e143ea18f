"""Failures that tools return: data that says so counts, prose does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from otel_error_hygiene.conventions import outcome_of
from otel_error_hygiene.conventions.genai import CONVENTION
from otel_error_hygiene.conventions.result import failure_in
from otel_error_hygiene.model import Outcome, RecordedException


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        # the items of the case "failure as data"
        ({"isError": True, "content": [{"type": "text", "text": "trace not found"}]},
         ("tool_error", "trace not found")),
        ({"status": "error", "error_message": "quota exceeded"}, ("tool_error", "quota exceeded")),
        ({"error": "403 Forbidden"}, ("tool_error", "403 Forbidden")),
        ({"error": None, "data": [1]}, None),
        ({"exit_code": 1, "stderr": "--- FAIL: TestFoo (0.01s)"}, None),
        ("The page explains HTTP 404 and Error handling in Python.", None),
        (None, None),
        ("Error: BackendError - search backend failed", None),
        ("An error occurred while running the tool. Please try again.", None),
        # their kin
        ({"is_error": True, "content": "no"}, ("tool_error", "no")),
        ({"isError": False, "content": "fine"}, None),
        ({"isError": "true"}, None),
        ({"error": {"type": "QuotaError", "message": "too many"}}, ("QuotaError", "too many")),
        ({"error": {"code": -32602, "message": "bad"}}, ("-32602", "bad")),
        ({"error": False}, None),
        ({"error": ""}, None),
        ({"error": {}}, None),
        ({"error": True, "x": 1}, ("tool_error", "True")),
        ({"status": "FAILED", "reason": "no stock"}, ("tool_error", "no stock")),
        ({"status": "ok"}, None),
        ({"status": 429, "message": "slow down"}, ("tool_error", "HTTP 429 slow down")),
        ({"status": 503}, ("tool_error", "HTTP 503")),
        ({"status": 200}, None),
        ({"status": True}, None),
        ({}, None),
        ([{"error": "nested"}], None),
        (SimpleNamespace(isError=True, content=[SimpleNamespace(text="no order")]), ("tool_error", "no order")),
        (SimpleNamespace(is_error=True, content=[]), ("tool_error", "")),
        (SimpleNamespace(isError=False), None),
        (7, None),
    ],
)  # fmt: skip
def test_what_a_result_says(result: Any, failure: tuple[str, str] | None) -> None:
    """A truthy ``error``, an error ``status``, ``isError``; an exit code or text says nothing."""
    expected = None if failure is None else RecordedException(type=failure[0], message=failure[1])
    assert expected == failure_in(result)


def test_a_message_of_megabytes_is_cut() -> None:
    """What a tool returns has any size."""
    found = failure_in({"error": {"type": "T" * 5000, "message": "x" * 5_000_000}})
    assert found is not None
    assert (200, 32_768) == (len(found.type), len(found.message))


@pytest.mark.parametrize(
    ("status", "attributes"), [(StatusCode.UNSET, {"error.type": "timeout"}), (StatusCode.ERROR, {})]
)
def test_what_the_span_says_beside_its_result(status: StatusCode, attributes: dict[str, str]) -> None:
    """The case's spans with ``error.type`` alone, and with status ERROR and no event, are failures."""
    assert Outcome.FAILURE is outcome_of(CONVENTION, attributes, (), status, None).outcome
