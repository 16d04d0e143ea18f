"""Identical failures, one too many: the line says to stop. Different ones, and those that a success parts, do not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from otel_error_hygiene import Settings, conversation, recall, report_error, semconv
from otel_error_hygiene.context import ContextBuffer, Told
from otel_error_hygiene.model import ErrorClass
from tests.conftest import Rig
from tests.context.told import RECOVERED, fail, summary_of

STOP = "[escalate] {tool}: failed {times} times the same way. Stop retrying; ask a human or use another approach."
AUTH = ErrorClass.AUTH
TRANSIENT = [ErrorClass.CONNECTIVITY, ErrorClass.RATE_LIMIT, ErrorClass.UPSTREAM]


@pytest.fixture
def buffer() -> ContextBuffer:
    """Return an empty buffer."""
    return ContextBuffer("c")


def heads(buffer: ContextBuffer) -> list[str]:
    """Return the kinds of the rendered lines."""
    return [line.partition("]")[0] + "]" for line in buffer.render().splitlines()]


@pytest.mark.parametrize("error_class", ErrorClass)
def test_the_nth_identical_failure_takes_the_place_of_the_line(buffer: ContextBuffer, error_class: ErrorClass) -> None:
    """The third; of connectivity, rate_limit and upstream, which may pass by themselves, the sixth."""
    limit = 6 if error_class in TRANSIENT else 3
    for _ in range(limit - 1):
        fail(buffer, error_class=error_class)
        assert ["[error]"] == heads(buffer)
    last = fail(buffer, error_class=error_class)
    line = f"{STOP.format(tool='search', times=limit)} ref={last.ref}"
    assert line == buffer.render() == str(last)
    assert (last,) == tuple(buffer.pending)
    assert line == buffer.as_tool_result(last, "c1", "openai")["content"]


def test_alternating_failures_escalate_each_for_itself(buffer: ContextBuffer) -> None:
    """A loop of two calls that fail in turns is a loop."""
    for _ in range(2):
        fail(buffer, "a", error_class=AUTH)
        fail(buffer, "b", error_class=AUTH)
    fail(buffer, "a", error_class=AUTH)
    assert [STOP.format(tool="a", times=3)] == [line[: line.index(" ref=")] for line in buffer.render().splitlines()][
        1:
    ]
    fail(buffer, "b", error_class=AUTH)
    assert ["[escalate]", "[escalate]"] == heads(buffer)


def test_three_different_failures_do_not_escalate(buffer: ContextBuffer) -> None:
    """Another tool, other arguments, another error: the agent tries something else each time."""
    for tool, arguments, print_ in (("a", "1", "x"), ("b", "1", "x"), ("a", "2", "x"), ("a", "1", "y")):
        fail(buffer, tool, arguments=arguments, print_=print_, error_class=AUTH)
    assert ["[error]"] * 4 == heads(buffer)


def test_a_success_gives_a_clean_slate(buffer: ContextBuffer) -> None:
    """Two failures, a success, two failures: nothing to escalate."""
    for _ in range(3):
        for number in (1, 2):
            assert number == fail(buffer, error_class=AUTH).attempt
        buffer.resolve("other", None, None, time.time_ns())


def test_a_success_resolves_an_escalation(buffer: ContextBuffer) -> None:
    """It is a line as any other: pruned, and followed by the note for one turn."""
    for _ in range(3):
        fail(buffer, error_class=AUTH)
    buffer.render()
    assert 3 == len(buffer.resolve("other", None, None, time.time_ns()))
    assert RECOVERED == buffer.render()


@pytest.mark.parametrize(
    "boundary",
    [ContextBuffer.render, ContextBuffer.turn, lambda buffer: buffer.model_called(time.time_ns())],
    ids=["render", "turn", "model call"],
)
def test_the_escalation_gives_a_clean_slate(buffer: ContextBuffer, boundary: Callable[[ContextBuffer], object]) -> None:
    """Once the model knew of it, the next identical failure is the first, in the same line."""
    told = []
    for _ in range(7):
        told.append(fail(buffer, error_class=AUTH, ended_ns=time.time_ns()))
        boundary(buffer)
    assert [1, 2, 3, 1, 2, 3, 1] == [summary.attempt for summary in told]
    assert [False, False, True] * 2 + [False] == [summary.escalated for summary in told]
    assert [told[-1]] == list(buffer.pending)


def test_a_batch_that_fails_alike_says_so_until_the_model_knew(buffer: ContextBuffer) -> None:
    """Fifty parallel calls: the line tells of all of them, and that it is enough; no hint to retry takes its place."""
    buffer.model_called(1)
    told = [fail(buffer, ended_ns=time.time_ns()) for _ in range(50)]
    assert f"{STOP.format(tool='search', times=50)} ref={told[-1].ref}" == buffer.render()
    buffer.turn()
    assert 1 == fail(buffer, ended_ns=time.time_ns()).attempt


@pytest.mark.parametrize("late", [False, True])
def test_the_later_failure_has_the_line_whoever_tells_it_first(late: bool) -> None:
    """Two threads may take their numbers in one order and tell in the other."""
    buffer = ContextBuffer("c", escalate_after=2)
    key = ("t", None, "fp")
    fail(buffer, "t", error_class=AUTH)
    told = []
    for span_id in (901, 902):
        attempt = buffer.attempt(key, (1, span_id), AUTH)
        summary = summary_of("t", attempt.number, span_id, error_class=AUTH, escalated=attempt.escalated)
        told.append(Told(key, summary, 0, (1, span_id), None, attempt.order))
    for each in reversed(told) if late else told:
        buffer.put(each)
    assert [told[1].summary] == list(buffer.pending)


def test_limits_are_settings_and_zero_means_never() -> None:
    """One for what may pass by itself, one for the rest."""
    buffer = ContextBuffer("c", escalate_after=2, escalate_transient_after=0)
    assert [False, True] == [fail(buffer, error_class=AUTH).escalated for _ in range(2)]
    assert not any(fail(buffer, "t").escalated for _ in range(50))
    for name in ("escalate_after", "escalate_transient_after"):
        for wrong in (1, -1):
            with pytest.raises(ValidationError, match=name):
                Settings(**{name: wrong})  # type: ignore[arg-type]


def test_the_line_is_bounded_whatever_the_tool_is_called() -> None:
    """At most 200 characters; its words, its reference and its date stay whole for a name of 64."""
    summary = summary_of("t" * 64, 999, error_class=AUTH, escalated=True)
    line = summary.with_remark(" (19 turns ago)")
    assert 200 >= len(line)
    assert line.endswith("Stop retrying; ask a human or use another approach. ref=00000001 (19 turns ago)")
    assert 200 >= len(summary_of("t" * 300, 3, escalated=True).with_remark(" (19 turns ago)"))


def end_failed(rig: Rig, tool: str, arguments: dict[str, Any], error: Exception) -> None:
    """End a tool's span with an exception."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    }
    with rig.tracer.start_as_current_span("execute_tool", attributes=attributes) as span:
        span.record_exception(error)


def test_the_record_says_what_the_agent_was_told(rig: Rig) -> None:
    """``error_hygiene.line`` of each failure is what the buffer showed; order of keys and numbers are nothing."""
    shown = []
    with conversation("c") as errors:
        for number, arguments in enumerate(({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1})):
            end_failed(rig, "pay", arguments, PermissionError(f"request {number} at 0x7f00{number} denied"))
            shown.append(errors.render())
    assert 4 == len(set(shown))
    assert [False, False, True, False] == [line.startswith(STOP.format(tool="pay", times=3)) for line in shown]
    assert rig.provider.force_flush()
    lines = [(span.attributes or {}).get(semconv.LINE) for span in rig.exporter.get_finished_spans()]
    assert [line.removesuffix(" (1 turn ago)") for line in shown] == lines
    for line in shown:
        record = recall(line.split("ref=")[1][:8])
        assert record is not None
        assert (line, line.startswith("[escalate]")) == (record.line, record.summary.escalated)


def test_a_reported_failure_escalates_as_any_other(rig: Rig) -> None:
    """Where no span is: the summary that the caller gets is what the buffer shows."""
    del rig
    with conversation("c") as errors:
        told = [report_error(PermissionError("denied"), tool="pay", arguments={"a": 1}) for _ in range(3)]
        assert str(told[-1]) == errors.render()
    assert str(told[-1]).startswith(STOP.format(tool="pay", times=3))
