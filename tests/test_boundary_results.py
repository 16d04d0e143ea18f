"""The tool boundary and failures that are data: ``result``, ``fail`` and ``summary``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from otel_error_hygiene import RecordedException, Settings, conversation, recall, tool_call
from tests.conftest import Rig

NOT_FOUND = "[error] look: not_found. Try broader search or different category."


@pytest.mark.parametrize(
    ("result", "error_class"),
    [
        ({"isError": True, "content": [{"type": "text", "text": "trace not found"}]}, "not_found"),
        ({"status": "error", "error_message": "quota exceeded"}, "rate_limit"),
        ({"error": "403 Forbidden"}, "auth"),
    ],
    ids=["mcp_iserror", "adk_dict", "error_key"],
)
def test_a_result_that_says_it_failed_is_a_failure(rig: Rig, result: Mapping[str, Any], error_class: str) -> None:
    """Failures that are data: the value passes unchanged, and the summary is there at once and afterwards."""
    with conversation("a") as errors:
        with tool_call("look", tracer_provider=rig.provider) as call:
            assert result is call.result(result)
            assert call.summary is not None
            assert [str(call.summary)] == errors.render().splitlines()
        assert error_class == call.summary.error_class
        assert 1 == len(errors.pending)
    assert 1 == rig.processor.stats().seen
    assert rig.provider.force_flush()
    (span,) = rig.exporter.get_finished_spans()
    assert (StatusCode.ERROR, str(call.summary)) == (
        span.status.status_code,
        (span.attributes or {})["error_hygiene.line"],
    )


@pytest.mark.parametrize(
    "result",
    [
        {"error": None, "data": [1]},
        {"exit_code": 1, "stderr": "--- FAIL: TestFoo (0.01s)"},
        "The page explains HTTP 404 and Error handling in Python.",
        "Error: BackendError - search backend failed",
        {"status": "ok"},
        None,
    ],
    ids=["error_null", "exit_code", "text_about_errors", "handled_inside", "status_ok", "none"],
)
def test_a_result_that_only_talks_of_errors_is_a_success(rig: Rig, result: Any) -> None:
    """Prose and exit codes are the tool's own matter; ``fail`` says what they mean where they mean it."""
    with conversation("a") as errors, tool_call("look", tracer_provider=rig.provider) as call:
        assert result is call.result(result)
    assert (None, "") == (call.summary, errors.render())
    assert 0 == rig.processor.stats().seen


@pytest.mark.parametrize(
    ("error", "kind", "error_class"),
    [
        (KeyError("no such thing"), "KeyError", "not_found"),
        (RecordedException(type="ConnectionRefusedError", message="nobody"), "ConnectionRefusedError", "connectivity"),
        ({"error": {"type": "PermissionError", "message": "no"}}, "PermissionError", "auth"),
        ({"reason": "odd"}, "tool_error", "unknown"),
        ("went wrong", "tool_error", "unknown"),
    ],
    ids=["exception", "recorded", "mapping", "mapping_without_a_sign", "text"],
)
def test_fail_takes_whatever_the_loop_holds(rig: Rig, error: Any, kind: str, error_class: str) -> None:
    """The call failed without raising: one failure, told at once, completed when the span ends."""
    with conversation("a") as errors:
        with tool_call("look", tracer_provider=rig.provider) as call:
            summary = call.fail(error)
            assert summary is not None
            open_record = recall(summary.ref or "")
            assert open_record is not None
            assert not open_record.finished
            assert summary is call.fail("told already")
            assert [summary] == list(errors.pending)
        assert summary is call.summary
        assert error_class == summary.error_class
        assert 1 == len(errors.pending)

    record = recall(summary.ref or "")
    assert record is not None
    assert (True, kind, str(summary)) == (record.finished, record.exception_type, record.line)
    stats = rig.processor.stats()
    assert (1, 1) == (stats.seen, stats.recorded)


def test_fail_and_then_raise_is_one_failure(rig: Rig) -> None:
    """A tool that reports the exception and lets it go on."""

    def look() -> None:
        raise KeyError("no such thing")

    def look_and_tell() -> None:
        with tool_call("look", tracer_provider=rig.provider) as call:
            try:
                look()
            except KeyError as error:
                call.fail(error)
                raise

    with conversation("a") as errors:
        with pytest.raises(KeyError):
            look_and_tell()
        assert 1 == errors.pending[0].attempt
    assert 1 == rig.processor.stats().seen


@pytest.mark.parametrize("raises", [True, False])
def test_a_failure_that_the_store_refused_is_told_once_and_lost_once(
    settings: Settings, tmp_path: Path, raises: bool
) -> None:
    """``fail`` told it; the end of the span, with or without the exception, must not tell it again."""
    (tmp_path / "file").touch()
    rig = Rig(settings.model_copy(update={"store_path": tmp_path / "file" / "store"}))

    def look() -> None:
        error = KeyError("no such thing")
        with tool_call("look", tracer_provider=rig.provider) as call:
            call.fail(error)
            if raises:
                raise error

    with conversation("a") as errors:
        with contextlib.suppress(KeyError):
            look()
        assert NOT_FOUND == errors.render()
    stats = rig.processor.stats()
    rig.provider.shutdown()
    assert (1, 0, {"store_unavailable": 1}) == (stats.seen, stats.recorded, stats.lost)
