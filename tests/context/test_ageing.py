"""A line grows old: dated once it is not of this turn, gone after its turns or its hour, recallable all the while."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from otel_error_hygiene import Settings, conversation, recall, report_error
from otel_error_hygiene.context import ContextBuffer, Rules
from tests.conftest import Rig
from tests.context.told import RECOVERED, fail

SECOND = 10**9


class Clock:
    """The time of the tests."""

    def __init__(self) -> None:
        self.now = 1_000_000 * SECOND

    def __call__(self) -> int:
        """Return nanoseconds since the epoch; a little later each time."""
        self.now += 1
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Take the clock over."""
    made = Clock()
    monkeypatch.setattr(time, "time_ns", made)
    return made


@pytest.fixture
def buffer() -> ContextBuffer:
    """Return an empty buffer."""
    return ContextBuffer("c")


def step(buffer: ContextBuffer) -> str:
    """Do what a hand-written loop does in one turn: render, ask the model, call a tool that is cancelled."""
    text = buffer.render()
    buffer.tool_called(time.time_ns())
    return text


def test_a_line_is_dated_once_it_is_not_of_this_turn(buffer: ContextBuffer) -> None:
    """The line itself stays what the record says; the date follows it."""
    line = str(fail(buffer))
    assert [line, f"{line} (1 turn ago)", f"{line} (2 turns ago)"] == [step(buffer) for _ in range(3)]
    assert [line] == [str(summary) for summary in buffer.pending]


def test_what_the_model_has_not_seen_is_news(buffer: ContextBuffer) -> None:
    """The first rendering that shows a line shows it as it is recorded, also in an agent that says ``turn()`` first."""
    line = str(fail(buffer))
    buffer.turn()
    assert line == buffer.render()
    buffer.turn()
    assert f"{line} (2 turns ago)" == buffer.render()


def test_a_dated_line_is_the_same_all_turn_long(buffer: ContextBuffer, clock: Clock) -> None:
    """Rendering is idempotent: the seconds that pass change nothing."""
    fail(buffer)
    step(buffer)
    first = buffer.render()
    clock.now += 7200 * SECOND
    assert [first] * 3 == [buffer.render() for _ in range(3)]


def test_a_repeat_is_of_this_turn_again(buffer: ContextBuffer) -> None:
    """The new count is news."""
    fail(buffer)
    step(buffer)
    repeat = fail(buffer)
    assert str(repeat) == buffer.render()


LOOPS: dict[str, tuple[Callable[[ContextBuffer], object], ...]] = {
    "render, tools": (ContextBuffer.render, lambda buffer: buffer.tool_called(time.time_ns())),
    "render, model, tools": (
        ContextBuffer.render,
        lambda buffer: buffer.model_called(time.time_ns()),
        lambda buffer: buffer.tool_called(time.time_ns()),
        lambda buffer: buffer.tool_called(time.time_ns()),
    ),
    "render, turn": (ContextBuffer.render, ContextBuffer.turn),
    "render, tools, turn": (
        ContextBuffer.render,
        lambda buffer: buffer.tool_called(time.time_ns()),
        ContextBuffer.turn,
    ),
    "render, model, turn": (
        ContextBuffer.render,
        lambda buffer: buffer.model_called(time.time_ns()),
        ContextBuffer.turn,
    ),
    "tools, turn": (lambda buffer: buffer.tool_called(time.time_ns()), ContextBuffer.turn),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_every_kind_of_loop_passes_one_turn_per_step(loop: str) -> None:
    """A turn that the first call passed and ``turn()`` names is one turn."""
    buffer = ContextBuffer("c", max_age_turns=5)
    fail(buffer)
    left = []
    for _ in range(6):
        for happens in LOOPS[loop]:
            happens(buffer)
        left.append(len(buffer.pending))
    assert [1, 1, 1, 1, 0, 0] == left


@pytest.mark.parametrize("turns", [1, 3, 20])
def test_a_line_lives_its_turns_and_no_longer(turns: int) -> None:
    """The one in which it was told, and those after it: twenty by default."""
    buffer = ContextBuffer("c") if turns == 20 else ContextBuffer("c", max_age_turns=turns)
    fail(buffer)
    shown = [step(buffer) != "" for _ in range(turns + 3)]
    assert [True] * turns + [False] * 3 == shown


def test_a_line_that_aged_out_was_not_resolved(buffer: ContextBuffer) -> None:
    """No note says that it was, nothing is left to resolve, and the next such failure is the first."""
    fail(buffer)
    fail(buffer)
    texts = [step(buffer) for _ in range(25)]
    assert not any(RECOVERED in text for text in texts)
    assert () == tuple(buffer.pending)
    assert [] == buffer.resolve("search", None, None, time.time_ns())
    assert 0 == buffer.dropped
    assert 1 == fail(buffer).attempt


@pytest.mark.parametrize(
    "happens",
    [
        ContextBuffer.turn,
        lambda buffer: buffer.tool_called(0),
        lambda buffer: fail(buffer, "other"),
        lambda buffer: buffer.model_called(time.time_ns()),
    ],
    ids=["a turn", "a call ends", "a failure", "a model call passes a turn"],
)
def test_a_line_is_gone_after_its_hour_when_a_turn_passes_or_a_call_ends(
    buffer: ContextBuffer, clock: Clock, happens: Callable[[ContextBuffer], object]
) -> None:
    """Not before its hour, and not between."""
    line = str(fail(buffer))
    assert line == buffer.render()
    clock.now += 3599 * SECOND
    happens(buffer)
    assert line in buffer.render()
    clock.now += 2 * SECOND
    assert line in buffer.render()
    happens(buffer)
    assert line not in buffer.render()


def test_the_hour_is_a_setting(clock: Clock) -> None:
    """``max_age_seconds``, as ``max_age_turns``."""
    rules = Rules.of(Settings(max_age_seconds=0.5, max_age_turns=7))
    assert (0.5, 7) == (rules.max_age_seconds, rules.max_age_turns)
    buffer = ContextBuffer("c", rules)
    fail(buffer)
    clock.now += SECOND // 2
    buffer.turn()
    assert () == tuple(buffer.pending)


def test_a_dated_line_keeps_the_bound(buffer: ContextBuffer) -> None:
    """At most 200 characters: the hint gives way to the date, the reference never does."""
    summary = fail(buffer, hint="some advice " * 30)
    step(buffer)
    line = buffer.render()
    assert 200 >= len(line)
    assert line.endswith(f"… ref={summary.ref} (1 turn ago)")


def test_a_placed_result_keeps_its_bytes(buffer: ContextBuffer) -> None:
    """It stands in the history: no date is written on it, and it ages out of the buffer as others do."""
    summary = fail(buffer)
    before = buffer.as_tool_result(summary, "c1", "openai")
    assert [""] * 5 == [step(buffer) for _ in range(5)]
    assert before == buffer.as_tool_result(summary, "c1", "openai")
    for _ in range(20):
        step(buffer)
    assert () == tuple(buffer.pending)


def test_no_age_is_worded_as_a_ban(buffer: ContextBuffer) -> None:
    """A line never says not to call."""
    fail(buffer)
    texts = "\n".join(step(buffer) for _ in range(20)).lower()
    assert not any(words in texts for words in ("do not", "don't", "never", "must not", "avoid"))


def test_an_aged_failure_is_recalled_in_full(rig: Rig) -> None:
    """Ageing touches the buffer only (P2)."""
    with conversation("c") as errors:
        summary = report_error(ConnectionError("down"), tool="search")
        for _ in range(25):
            errors.turn()
        assert "" == errors.render()
    record = recall(str(summary.ref))
    assert record is not None
    assert ("down", str(summary)) == (record.exception_message, record.line)
    assert 1 == rig.processor.stats().recorded


def test_entering_a_conversation_again_is_one_turn(rig: Rig) -> None:
    """A loop that enters it for every step passes one turn a step, though its tool calls pass turns, too."""
    del rig
    shown, line = [], ""
    for number in range(4):
        with conversation("c") as errors:
            shown.append(errors.render())
            if not number:
                line = str(report_error(ConnectionError("down"), tool="search"))
            else:
                errors.tool_called(time.time_ns())
    assert ["", line, f"{line} (2 turns ago)", f"{line} (3 turns ago)"] == shown
