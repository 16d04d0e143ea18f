"""Agents inside a conversation: a child's failures and recoveries are its own; its parent is told what it must know."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace
from opentelemetry.trace import Span

from otel_error_hygiene import conversation, recall, report_error, tool_call
from otel_error_hygiene.context import bound_buffer
from tests.conftest import Rig
from tests.machine.trees import agent, fail, flag, start, told, tool


@pytest.fixture(autouse=True)
def _conversation(rig: Rig) -> Iterator[None]:
    del rig  # it is to be there before
    with conversation("a"):
        yield


def scoped(rig: Rig, name: str) -> list[str]:
    """Return the tools whose failures are pending in the scope of a nested agent."""
    return [summary.tool for summary in rig.processor.conversation("a").scope(name).pending]


def delegate(rig: Rig) -> tuple[Span, Span, Span]:
    """Start a parent agent, its call of a child agent, and the child."""
    parent = agent(rig, "planner")
    call = tool(rig, "research", parent)
    return parent, call, agent(rig, "researcher", call)


def test_a_single_agent_s_failures_are_the_conversation_s_own(rig: Rig) -> None:
    """However often its name is written: on a workflow around it, on a graph inside it, on its tools."""
    workflow = start(rig, "shop workflow", openinference__span__kind="AGENT")
    outer = agent(rig, "shop", workflow)
    inner = agent(rig, "shop", outer)
    node = start(rig, "agent", inner, openinference__span__kind="AGENT")
    fail(tool(rig, "look", node, gen_ai__agent__name="shop"))
    assert ["look"] == told(rig)
    tool(rig, "look", node).end()
    assert rig.processor.conversation("a").idle  # no scope was made


@pytest.mark.parametrize("delegated", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_a_child_s_failures_and_recoveries_are_its_own(rig: Rig, delegated: bool, late: bool) -> None:
    """Below a tool's span or directly below its parent; its attributes set at the start or later."""
    parent = agent(rig, "planner")
    fail(tool(rig, "list", parent))
    call = tool(rig, "research", parent) if delegated else None
    child = start(rig, "invoke_agent researcher", call or parent) if late else agent(rig, "researcher", call or parent)
    chain = start(rig, "chain step", child)

    fail(tool(rig, "search", chain))
    assert (["list"], ["search"]) == (told(rig), scoped(rig, "researcher"))
    tool(rig, "read", chain).end()
    assert (["list"], []) == (told(rig), scoped(rig, "researcher"))

    fail(tool(rig, "search", chain))
    tool(rig, "list", parent).end()
    assert ([], ["search"]) == (told(rig), scoped(rig, "researcher"))


def test_ids_on_the_spans_do_not_hide_the_agents_of_a_bound_conversation(rig: Rig) -> None:
    """The framework's session has another id than the user's conversation."""
    parent = agent(rig, "planner", session__id="s")
    child = agent(rig, "researcher", parent, session__id="s")
    fail(tool(rig, "search", child, session__id="s"))
    assert ([], ["search"]) == (told(rig), scoped(rig, "researcher"))


def test_a_child_s_model_calls_are_no_turns_of_its_parent(rig: Rig) -> None:
    """The parent's model saw nothing of what failed meanwhile, so a success that started before resolves nothing."""
    parent, call, child = delegate(rig)
    errors = rig.processor.conversation("a")
    errors.turn()
    fail(tool(rig, "list", parent))
    start(rig, "chat", child, gen_ai__operation__name="chat").end()
    tool(rig, "other", parent).end()
    assert ["list"] == told(rig)
    start(rig, "chat", parent, gen_ai__operation__name="chat").end()
    tool(rig, "other", parent).end()
    assert [] == told(rig)
    child.end()
    call.end()


@pytest.mark.parametrize("how", ["same exception", "wrapped", "flag"])
def test_a_child_that_fails_for_good_gives_its_parent_one_line_with_the_root_cause(rig: Rig, how: str) -> None:
    """The parent's call of it failed: by the class of what the child met, under the name that the parent called."""
    parent, call, child = delegate(rig)
    root = ConnectionError("no route to host")
    fail(tool(rig, "search", child), root)
    wrapped = root if how == "same exception" else RuntimeError("the agent gave up")
    fail(child, wrapped)
    if how == "flag":
        flag(call)
    else:
        fail(call, wrapped)
    fail(parent, wrapped)

    (summary,) = rig.processor.conversation("a").pending
    assert ("research", "connectivity", "ConnectionError") == (summary.tool, summary.error_class, summary.error)
    assert ["search"] == scoped(rig, "researcher")
    stats = rig.processor.stats()
    assert (2, 2) == (stats.seen, stats.recorded)
    record = recall(summary.ref or "")
    assert record is not None
    assert "research" == record.call.tool


def test_a_child_that_recovered_gives_its_parent_nothing(rig: Rig) -> None:
    """Neither a line nor a cause: what made the call fail then was something else."""
    parent, call, child = delegate(rig)
    fail(tool(rig, "search", child))
    tool(rig, "search", child).end()
    child.end()
    fail(call, ValueError("the report is too long"))
    (summary,) = rig.processor.conversation("a").pending
    assert ("research", "ValueError") == (summary.tool, summary.error)
    parent.end()


def test_a_child_that_ended_well_with_a_failure_behind_it_is_not_blamed(rig: Rig) -> None:
    """It never got over it, and answered all the same."""
    _, call, child = delegate(rig)
    fail(tool(rig, "search", child))
    child.end()
    call.end()
    assert [] == told(rig)
    assert ["search"] == scoped(rig, "researcher")


def test_a_grandchild_s_failure_is_told_once_at_each_level_that_it_makes_fail(rig: Rig) -> None:
    """Each agent gets one line, about the call that it made."""
    _, call, child = delegate(rig)
    inner_call = tool(rig, "fetch", child)
    grandchild = agent(rig, "fetcher", inner_call)
    error = ConnectionError("no route to host")
    for span in (tool(rig, "get", grandchild), grandchild, inner_call, child, call):
        fail(span, error)
    assert (["research"], ["fetch"], ["get"]) == (told(rig), scoped(rig, "researcher"), scoped(rig, "fetcher"))


def test_boundaries_nest_like_spans(rig: Rig) -> None:
    """One exception through the child's call and the parent's call of the child: one line for each of the two."""
    parent = agent(rig, "planner")
    with (
        trace.use_span(parent, end_on_exit=False),
        pytest.raises(ConnectionError),
        tool_call("research", tracer_provider=rig.provider),
        rig.tracer.start_as_current_span("invoke_agent researcher"),
        tool_call("search", tracer_provider=rig.provider),
    ):
        raise ConnectionError("no route to host")
    assert (["research"], ["search"]) == (told(rig), scoped(rig, "researcher"))
    assert ["connectivity"] == [each.error_class for each in rig.processor.conversation("a").pending]


def test_what_is_told_by_hand_is_the_child_s_too(rig: Rig) -> None:
    """``fail``, ``result`` and ``report_error`` look at the spans above them as the hooks do."""
    parent, outer_call, child = delegate(rig)
    with trace.use_span(child, end_on_exit=False):
        with tool_call("search", tracer_provider=rig.provider) as call:
            call.fail("HTTP 503")
        report_error(KeyError("x"), tool="read")
    with trace.use_span(outer_call, end_on_exit=False):
        report_error(KeyError("x"), tool="research")
    with trace.use_span(parent, end_on_exit=False):
        report_error(KeyError("x"), tool="list")
    assert (["research", "list"], ["search", "read"]) == (told(rig), scoped(rig, "researcher"))


def test_a_child_that_has_a_conversation_of_its_own_is_its_outermost_agent(rig: Rig) -> None:
    """Bound by the user, or named by its span."""
    parent = agent(rig, "planner")
    with conversation("b"):
        child = agent(rig, "researcher", parent)
        fail(tool(rig, "search", child))
    token = bound_buffer.set(None)
    child = agent(rig, "researcher", parent, session__id="c")
    fail(tool(rig, "read", child))
    bound_buffer.reset(token)
    assert ([], ["search"], ["read"]) == (told(rig), told(rig, "b"), told(rig, "c"))


def test_children_at_once_on_threads_do_not_meet(rig: Rig) -> None:
    """Each in a thread with a copied context, below one parent."""
    parent = agent(rig, "planner")

    def run(name: str, fails: bool) -> None:
        call = tool(rig, f"ask {name}", parent)
        child = agent(rig, name, call)
        for number in range(20):
            span = tool(rig, f"t{number}", child)
            if fails:
                fail(span, ValueError(str(number)))
            else:
                span.end()

    with ThreadPoolExecutor(4) as pool:
        for number in range(8):
            pool.submit(contextvars.copy_context().run, run, f"child{number}", number % 2 == 0)
    for number in range(8):
        assert (20 if number % 2 == 0 else 0) == len(scoped(rig, f"child{number}"))
    assert [] == told(rig)


def test_a_span_belongs_to_the_conversation_of_its_nearest_ancestor(rig: Rig) -> None:
    """Two in one trace, told late, by agents' spans that are still open."""
    token = bound_buffer.set(None)
    server = start(rig, "POST /chat")
    for name in ("x", "y"):
        parent = agent(rig, "shop", server)
        parent.set_attribute("gen_ai.conversation.id", name)
        chain = start(rig, "chain", parent)
        span = tool(rig, f"look {name}", chain)
        thread = threading.Thread(target=fail, args=(span,))
        thread.start()
        thread.join()
    bound_buffer.reset(token)
    assert (["look x"], ["look y"]) == (told(rig, "x"), told(rig, "y"))
    assert 0 == rig.processor.stats().unrouted
