"""What a success resolves: the scenarios of the design's rule, one by one.

In its own agent scope, the failures that the model knew of when the succeeding call started. Where a
conversation has shown a boundary, what had ended before the last boundary that precedes its start; where it
never has, what had ended before it started. A success of the same call always resolves that call's failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from otel_error_hygiene.context import ContextBuffer
from tests.context.told import fail, line_of


class Scenario(NamedTuple):
    """A failure's end, boundaries, and a success; times are ticks."""

    name: str
    resolved: bool
    failed_at: int
    boundaries: tuple[int, ...]
    started_at: int
    failed_call: tuple[str | None, str | None] = (None, None)
    """Call id and arguments of the failed call of ``search``."""
    call: tuple[str, str | None, str | None] = ("other", None, None)
    """Tool, call id and arguments of the call that succeeds."""


SCENARIOS = [
    Scenario("no boundary ever, started after the failure's end", True, 10, (), 20),
    Scenario("no boundary ever, started at the failure's end", True, 10, (), 10),
    Scenario("no boundary ever, started before the failure's end: a parallel sibling", False, 10, (), 9),
    Scenario("boundary between the failure and the start: the model knew", True, 10, (15,), 20),
    Scenario("boundary at the failure's end and at the start", True, 10, (10,), 10),
    Scenario("boundary before the failure only: a later call of the same batch", False, 10, (5,), 20),
    Scenario("boundary before, parallel sibling", False, 10, (5,), 6),
    Scenario("boundary after the start: the success comes from before it", False, 10, (25,), 20),
    Scenario("boundaries before the failure and after the start", False, 10, (5, 25), 20),
    Scenario("boundaries before, between and after", True, 10, (5, 15, 25), 20),
    Scenario("the last boundary before the start is before the failure", False, 18, (5, 15, 25), 20),
    Scenario("several turns later", True, 10, (15, 25, 35, 45), 50),
    Scenario("boundaries noted out of order, as their spans end", True, 10, (45, 5, 15), 20),
    Scenario("same call by id, same batch", True, 10, (5,), 20, ("c1", None), ("search", "c1", None)),
    Scenario("same call by id, parallel", True, 10, (5,), 6, ("c1", "a"), ("search", "c1", "b")),
    Scenario("same call by tool and arguments, same batch", True, 10, (5,), 20, ("c1", "a"), ("search", "c2", "a")),
    Scenario("same call by tool and arguments, parallel", True, 10, (5,), 6, (None, "a"), ("search", None, "a")),
    Scenario("another tool with the same arguments", False, 10, (5,), 20, (None, "a"), ("other", None, "a")),
    Scenario("same tool with other arguments", False, 10, (5,), 20, (None, "a"), ("search", None, "b")),
    Scenario("same tool, arguments of both unknown", False, 10, (5,), 20, (None, None), ("search", None, None)),
    Scenario("same tool, arguments of the success unknown", False, 10, (5,), 20, (None, "a"), ("search", None, None)),
    Scenario("same tool, arguments of the failure unknown", False, 10, (5,), 20, (None, None), ("search", None, "a")),
    Scenario("another call id", False, 10, (5,), 20, ("c1", None), ("search", "c2", None)),
    Scenario("call ids of both unknown", False, 10, (5,), 20, (None, "a"), ("search", None, "b")),
    Scenario("other tool, but the model knew", True, 10, (15,), 20, ("c1", "a"), ("other", "c2", "b")),
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_success_resolves_what_the_model_knew(scenario: Scenario) -> None:
    """The table of the rule."""
    buffer = ContextBuffer("c")
    call_id, arguments = scenario.failed_call
    fail(buffer, ended_ns=scenario.failed_at, call_id=call_id, arguments=arguments)
    for boundary in scenario.boundaries:
        buffer.model_called(boundary)
    tool, call_id, arguments = scenario.call
    cleared = buffer.resolve(tool, arguments, call_id, scenario.started_at)
    assert (scenario.resolved, not scenario.resolved) == (len(cleared) == 1, len(buffer.pending) == 1)


def test_every_kind_of_boundary_counts() -> None:
    """A rendering, messages, ``turn()`` and a model call all tell what the model knew."""
    kinds: dict[str, Callable[[ContextBuffer], object]] = {
        "render": lambda buffer: buffer.render(),
        "as_messages": lambda buffer: buffer.as_messages("openai"),
        "turn": lambda buffer: buffer.turn(),
    }
    for name, boundary in kinds.items():
        buffer = ContextBuffer("c")
        boundary(buffer)
        fail(buffer, ended_ns=2**62)  # after every boundary
        assert [] == buffer.resolve("other", None, None, 2**62 + 1), name
        buffer.clear()
        fail(buffer, ended_ns=1)  # before them
        assert 1 == len(buffer.resolve("other", None, None, 2**62 + 1)), name


def test_placing_a_result_is_no_boundary() -> None:
    """It is done before the model is asked, for each call of a batch."""
    buffer = ContextBuffer("c")
    summary = fail(buffer, ended_ns=10)
    buffer.as_tool_result(summary, "c1", "openai")
    assert 1 == len(buffer.resolve("other", None, None, 20))


def test_a_success_resolves_all_that_the_model_knew_and_nothing_else() -> None:
    """Any tool, oldest first; what ended after the boundary stays."""
    buffer = ContextBuffer("c")
    known = [fail(buffer, tool, ended_ns=tick) for tick, tool in ((1, "a"), (2, "b"))]
    buffer.model_called(5)
    later = fail(buffer, "c", ended_ns=6)
    cleared = buffer.resolve("d", None, None, 7)
    assert [summary.ref for summary in known] == [each.ref for each in cleared]
    assert (later,) == tuple(buffer.pending)


def test_repeats_are_cleared_together_with_all_their_spans() -> None:
    """The recovering span gets a link to each of them."""
    buffer = ContextBuffer("c")
    refs = [fail(buffer, ended_ns=tick).ref for tick in (1, 2, 3)]
    assert refs == [each.ref for each in buffer.resolve("other", None, None, 10)]


def test_a_line_stays_while_one_of_its_failures_is_unresolved() -> None:
    """The model knew of the first, not of its repeat: each failure is resolved once, the line goes with the last."""
    buffer = ContextBuffer("c")
    first = fail(buffer, ended_ns=1)
    buffer.model_called(5)
    repeat = fail(buffer, ended_ns=6)
    assert [first.ref] == [each.ref for each in buffer.resolve("other", None, None, 7)]
    assert (repeat,) == tuple(buffer.pending)
    assert [] == buffer.resolve("other", None, None, 7)
    buffer.model_called(8)
    assert [repeat.ref] == [each.ref for each in buffer.resolve("other", None, None, 9)]
    assert () == tuple(buffer.pending)


def test_a_call_id_resolves_its_own_failure_only() -> None:
    """Calls of unknown arguments share a line when they fail alike; one's success does not hide the other's failure."""
    buffer = ContextBuffer("c")
    buffer.model_called(1)
    one, two = (fail(buffer, ended_ns=10, call_id=call_id) for call_id in ("c1", "c2"))
    assert [one.ref] == [each.ref for each in buffer.resolve("search", None, "c1", 5)]
    assert 1 == len(buffer.pending)
    assert [two.ref] == [each.ref for each in buffer.resolve("search", None, "c2", 5)]
    assert () == tuple(buffer.pending)


def test_a_line_names_the_newest_failure_that_nothing_resolved() -> None:
    """Of two identical failures that share a line the newer recovers: the line goes on with the older one's record.

    A line that named the recovered call would be a line of a failure that a success resolved (P3).
    """
    buffer = ContextBuffer("c")
    older = fail(buffer, ended_ns=10, call_id="c1")
    newer = fail(buffer, ended_ns=10, call_id="c2")
    assert [newer] == list(buffer.pending)
    assert [newer.ref] == [cleared.ref for cleared in buffer.resolve("search", None, "c2", 5)]
    assert [older] == list(buffer.pending)
    assert line_of("search", older) == buffer.render()


def test_a_line_that_was_placed_gives_way_to_one_that_was_not() -> None:
    """The recovered call's line stood in its own result; the older one's stands nowhere yet, so renderings show it."""
    buffer = ContextBuffer("c")
    older = fail(buffer, ended_ns=10, call_id="c1")
    newer = fail(buffer, ended_ns=10, call_id="c2")
    buffer.as_tool_result(newer, "c2", "openai")
    assert buffer.render() == ""
    buffer.resolve("search", None, "c2", 5)
    assert line_of("search", older) == buffer.render()
    buffer.as_tool_result(older, "c1", "openai")
    assert buffer.render() == ""
