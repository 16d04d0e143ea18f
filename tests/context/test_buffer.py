"""The context buffer: ordered, bounded, idempotent; the lines that matter, for as long as they matter."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from otel_error_hygiene.context import Cleared, ContextBuffer, Told
from otel_error_hygiene.context import buffer as buffer_module
from otel_error_hygiene.errors import ConfigurationError
from tests.context.told import RECOVERED, fail, line_of, summary_of


@pytest.fixture
def buffer() -> ContextBuffer:
    """Return an empty buffer."""
    return ContextBuffer("c")


def succeed(buffer: ContextBuffer, tool: str = "search", *, start_ns: int | None = None) -> list[Cleared]:
    """Let a call of a tool succeed that started now, with unknown arguments."""
    start = time.time_ns() if start_ns is None else start_ns
    buffer.tool_called(start)
    return buffer.resolve(tool, None, None, start)


def test_an_empty_buffer_says_nothing(buffer: ContextBuffer) -> None:
    """No header, no placeholder: the prompt of a healthy agent stays as it is."""
    assert "" == buffer.render()
    assert [] == buffer.as_messages("openai")
    assert () == tuple(buffer.pending)


def test_lines_stand_in_the_order_of_their_failures(buffer: ContextBuffer) -> None:
    """The newest is last, nearest to the model's answer."""
    summaries = {tool: fail(buffer, tool) for tool in ("a", "b", "c")}
    assert "\n".join(line_of(tool, summary) for tool, summary in summaries.items()) == buffer.render()
    assert tuple(summaries.values()) == tuple(buffer.pending)


def test_a_repeat_raises_a_count_and_moves_to_the_end(buffer: ContextBuffer) -> None:
    """Three identical failures are one line with ``x3``."""
    fail(buffer, "a")
    fail(buffer, "b")
    fail(buffer, "a")
    third = fail(buffer, "a")
    lines = buffer.render().splitlines()
    assert 2 == len(lines)
    assert line_of("a", third) == lines[1]
    assert " x3 ref=" in lines[1]


def test_another_error_of_the_same_call_is_another_line(buffer: ContextBuffer) -> None:
    """Tool, arguments and fingerprint together make a repeat."""
    fail(buffer, arguments="1", print_="one")
    fail(buffer, arguments="1", print_="two")
    fail(buffer, arguments="2", print_="one")
    assert 3 == len(buffer.render().splitlines())


def test_the_count_starts_again_after_the_success_that_resolves_it(buffer: ContextBuffer) -> None:
    """N is the attempt since the last success that resolved the failure."""
    fail(buffer)
    assert 2 == fail(buffer).attempt
    succeed(buffer)
    assert 1 == fail(buffer).attempt


def test_a_success_that_resolves_nothing_leaves_the_count(buffer: ContextBuffer) -> None:
    """A parallel sibling's success is none of this failure's business."""
    started = time.time_ns()
    fail(buffer, ended_ns=started + 1000)
    succeed(buffer, "other", start_ns=started)
    assert 2 == fail(buffer).attempt


def test_attempts_are_unique_under_threads() -> None:
    """Eight threads count one failure: no number is given twice, none is left out."""
    buffer = ContextBuffer("c", escalate_transient_after=0)
    numbers: list[int] = []
    lock = threading.Lock()

    def count() -> None:
        for _ in range(500):
            number = fail(buffer).attempt
            with lock:
                numbers.append(number)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(1, 4001)) == sorted(numbers)
    assert " x4000 " in buffer.render()


def test_a_count_in_use_outlives_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on counts drops those that were longest not used."""
    monkeypatch.setattr(buffer_module, "_MAX_ENTRIES", 1000)
    buffer = ContextBuffer("c", escalate_transient_after=0)
    for number in range(2500):
        fail(buffer, print_=f"other {number}")
        fail(buffer, "steady")
    assert 2501 == fail(buffer, "steady").attempt


def test_the_same_span_is_told_once(buffer: ContextBuffer) -> None:
    """A failure that two sides report is one failure."""
    told = Told(("t", None, "fp"), summary_of("t"), 0, (1, 77), None)
    assert buffer.put(told)
    assert not buffer.put(told)
    assert 1 == len(buffer.pending)
    assert 1 == buffer.attempt(told.key, told.origin).number
    assert 1 == buffer.attempt(told.key, (1, 78)).number
    assert 2 == buffer.attempt(told.key, (1, 79)).number


@pytest.mark.parametrize("max_lines", [1, 2, 5])
def test_the_newest_lines_are_kept_when_lines_are_few(max_lines: int) -> None:
    """What is shown is a tail of what is pending."""
    buffer = ContextBuffer("c", max_lines=max_lines)
    lines = [line_of(f"t{n}", fail(buffer, f"t{n}")) for n in range(8)]
    assert "\n".join(lines[-max_lines:]) == buffer.render()


def test_the_newest_lines_are_kept_when_characters_are_few() -> None:
    """A bound that fits exactly is used in full; one character less costs a line."""
    wide = ContextBuffer("c", max_chars=10_000)
    lines = [str(fail(wide, f"t{n}", hint="some advice " * 20)) for n in range(3)]
    assert "\n".join(lines) == wide.render()
    two = f"{lines[1]}\n{lines[2]}"
    for max_chars, expected in ((len(two), two), (len(two) - 1, lines[2])):
        buffer = ContextBuffer("c", max_chars=max_chars)
        for summary in wide.pending:
            buffer.put(Told((summary.tool, None, "fp"), summary, 0, (0, 0), None))
        assert expected == buffer.render()


def test_the_note_counts_within_the_bounds() -> None:
    """The newest error line goes first, then the note, then older lines."""
    for max_lines, expected in ((1, 1), (2, 2), (3, 3)):
        buffer = ContextBuffer("c", max_lines=max_lines, max_chars=280)
        fail(buffer, "old")
        buffer.render()
        succeed(buffer)
        newest = str([fail(buffer, f"t{n}") for n in range(3)][-1])
        lines = buffer.render().splitlines()
        assert expected == len(lines)
        assert sum(map(len, lines)) + len(lines) - 1 <= 280
        assert newest == (lines[0] if max_lines == 1 else lines[-2])
        assert (max_lines > 1) == (RECOVERED in lines)


def test_rendering_is_idempotent(buffer: ContextBuffer) -> None:
    """Bytes that were sent stay the same until a tool call ends or a turn passes."""
    fail(buffer, "a")
    first = buffer.render()
    assert [first] * 5 == [buffer.render() for _ in range(5)]
    succeed(buffer)
    note = buffer.render()
    assert RECOVERED == note
    assert [note] * 5 == [buffer.render() for _ in range(5)]


def test_the_note_is_shown_for_one_turn(buffer: ContextBuffer) -> None:
    """The first tool or model call after the rendering passes the turn, and so does ``turn()``."""
    passing = {
        "a success": lambda: succeed(buffer),
        "a tool call": lambda: buffer.tool_called(time.time_ns()),
        "a model call": lambda: buffer.model_called(time.time_ns()),
        "turn()": buffer.turn,
    }
    for name, passes in passing.items():
        buffer.clear()
        fail(buffer)
        buffer.render()
        succeed(buffer)
        assert RECOVERED == buffer.render()
        passes()
        assert RECOVERED not in buffer.render(), name


def test_a_call_that_started_before_the_rendering_passes_no_turn(buffer: ContextBuffer) -> None:
    """It belongs to the turn that was rendered before."""
    fail(buffer)
    buffer.render()
    early = time.time_ns()
    succeed(buffer)
    buffer.render()
    buffer.tool_called(early)
    buffer.model_called(early)
    fail(buffer, "late")
    assert RECOVERED in buffer.render()


def test_no_note_where_the_model_never_saw_the_error(buffer: ContextBuffer) -> None:
    """A failure that was resolved before a rendering is none of the model's business."""
    fail(buffer)
    assert 1 == len(succeed(buffer))
    assert "" == buffer.render()


def test_a_line_beyond_the_bound_was_not_seen() -> None:
    """What the bound left out of the rendering was not rendered."""
    buffer = ContextBuffer("c", max_lines=1)
    fail(buffer, "left out", ended_ns=1, call_id="1")
    fail(buffer, "shown", ended_ns=time.time_ns() + 10**12)
    assert "shown" in buffer.render()
    assert 1 == len(succeed(buffer))
    assert RECOVERED not in buffer.render()


def test_the_note_can_be_switched_off() -> None:
    """It is optional."""
    buffer = ContextBuffer("c", recovered_note=False)
    fail(buffer)
    buffer.render()
    succeed(buffer)
    assert "" == buffer.render()


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_placed_line_is_left_out_of_the_renderings(buffer: ContextBuffer, dialect: str) -> None:
    """The failed call's own result message is its place, and the model has seen it there."""
    placed = fail(buffer, "placed")
    other = fail(buffer, "other")
    buffer.as_tool_result(placed, "call_1", dialect)
    assert line_of("other", other) == buffer.render()
    assert (placed, other) == tuple(buffer.pending)
    succeed(buffer)
    assert RECOVERED == buffer.render()


def test_a_placed_line_alone_is_followed_by_the_note(buffer: ContextBuffer) -> None:
    """Placing shows a line to the model as much as rendering does."""
    buffer.as_tool_result(fail(buffer), "call_1", "openai")
    succeed(buffer)
    assert RECOVERED == buffer.render()


def test_a_repeat_of_a_placed_line_is_rendered_unless_it_is_placed_too(buffer: ContextBuffer) -> None:
    """The line with the new count has no place yet."""
    buffer.as_tool_result(fail(buffer), "call_1", "openai")
    repeat = fail(buffer)
    assert line_of("search", repeat) == buffer.render()
    buffer.as_tool_result(repeat, "call_2", "openai")
    assert "" == buffer.render()


def test_messages_of_the_dialects(buffer: ContextBuffer) -> None:
    """OpenAI: a user message and a tool message. Anthropic: a text block and a tool_result block."""
    summary = fail(buffer)
    line = line_of("search", summary)
    assert [{"role": "user", "content": line}] == buffer.as_messages("openai")
    assert [{"type": "text", "text": line}] == buffer.as_messages("anthropic")
    assert {"role": "tool", "tool_call_id": "call_1", "content": line} == buffer.as_tool_result(
        summary, "call_1", "openai"
    )
    assert {
        "type": "tool_result", "tool_use_id": "call_1", "is_error": True, "content": line,
    } == buffer.as_tool_result(summary, "call_1", "anthropic")  # fmt: skip


@pytest.mark.parametrize("dialect", ["gemini", "", "OpenAI", None, ["openai"]])
def test_an_unknown_dialect_is_a_clear_error(buffer: ContextBuffer, dialect: str) -> None:
    """It names the value and what would be right, and nothing was rendered or placed by it."""
    summary = fail(buffer)
    with pytest.raises(ConfigurationError, match=r"\"dialect\" is .*; it must be one of 'openai', 'anthropic'"):
        buffer.as_messages(dialect)
    with pytest.raises(ConfigurationError, match="dialect"):
        buffer.as_tool_result(summary, "call_1", dialect)
    succeed(buffer)
    assert "" == buffer.render()


@pytest.mark.parametrize(
    "rules",
    [
        {"max_lines": 0},
        {"max_chars": 199},
        {"escalate_after": 1},
        {"escalate_transient_after": -1},
        {"max_age_turns": 0},
        {"max_age_seconds": 0},
        {"max_age_seconds": float("nan")},
        {"prune_policy": "some_tool"},
        {"prune_policy": None},
        {"prune_policy": ["never"]},
        {"max_line": 1},
    ],
    ids=str,
)
def test_an_unusable_rule_is_refused(rules: dict[str, Any]) -> None:
    """A constructor raises on bad input, and names it."""
    with pytest.raises(ConfigurationError, match=next(iter(rules))):
        ContextBuffer("c", **rules)


def test_clear_forgets_lines_notes_and_counts(buffer: ContextBuffer) -> None:
    """What stays is in the store."""
    fail(buffer)
    buffer.render()
    succeed(buffer)
    fail(buffer)
    buffer.clear()
    assert "" == buffer.render()
    assert [] == succeed(buffer)
    assert 1 == fail(buffer).attempt


def test_scopes_are_isolated(buffer: ContextBuffer) -> None:
    """A child's failures and recoveries never reach its parent or its siblings, nor theirs the child."""
    child, sibling = buffer.scope("child"), buffer.scope("sibling")
    assert child is buffer.scope("child")
    fail(buffer, "parents")
    fail(child, "childs")
    assert "parents" in buffer.render()
    assert "childs" in child.render()
    assert "" == sibling.render()
    assert ["childs"] == [summary.tool for summary in child.pending]
    assert 1 == len(succeed(child))
    assert (RECOVERED, 1) == (child.render(), len(buffer.pending))
    assert RECOVERED not in buffer.render()
    assert 1 == len(succeed(buffer))


def test_a_scope_has_the_bounds_of_its_parent() -> None:
    """The settings hold for every agent."""
    child = ContextBuffer("c", max_lines=1, recovered_note=False).scope("child")
    fail(child, "a")
    fail(child, "b")
    assert 1 == len(child.render().splitlines())


def test_the_scope_longest_not_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is used stays, and so does one that somebody holds, such as an open span."""
    monkeypatch.setattr(buffer_module, "_MAX_SCOPES", 10)
    buffer = ContextBuffer("c")
    steady, held = id(buffer.scope("steady")), buffer.scope("held")
    fail(buffer.scope("steady"))
    fail(buffer.scope("forgotten"))
    for number in range(100):
        buffer.scope(str(number))
        assert 1 == len(buffer.scope("steady").pending)
    assert 10 == len(buffer._children)
    assert held is buffer.scope("held")
    assert steady == id(buffer.scope("steady"))
    assert () == tuple(buffer.scope("forgotten").pending)


def test_everything_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures, repeats, turns, scopes and spans beyond number leave no more behind than the bounds say."""
    monkeypatch.setattr(buffer_module, "_MAX_ENTRIES", 1000)
    buffer = ContextBuffer("c", max_age_turns=10_000)
    for number in range(6000):
        fail(buffer, print_=str(number % 3000), call_id=str(number))
        buffer.turn()
        buffer.scope(str(number % 1500))
    for _ in range(1000):
        fail(buffer, "again", call_id="x")
    assert 1000 == len(buffer._entries)
    assert 1000 >= len(buffer._attempts)
    assert 1024 >= len(buffer._boundaries)
    assert 4096 >= len(buffer._seen)
    assert 1000 == len(buffer._children)
    assert 2000 + 1 + 3 * (1000 + 31) >= buffer._pending.indexed()
    assert 6000 + 1 - 1000 == buffer.dropped
    assert 32 == len(buffer._entries["again", None, "fp"].failures)
    assert 20 == len(buffer.render().splitlines())
    assert len(buffer.render()) <= 4000


def test_a_quiet_buffer_is_one_without_failures_and_renderings(buffer: ContextBuffer) -> None:
    """The hot path of a healthy agent asks no more than this."""
    steps = (buffer.render, buffer.turn, lambda: fail(buffer), lambda: succeed(buffer))
    quiet = [buffer.quiet]
    for step in steps:
        step()
        quiet.append(buffer.quiet)
    assert [True, False, True, False, True] == quiet
