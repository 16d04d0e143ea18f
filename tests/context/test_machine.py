"""Random interleavings of starts, ends, renderings, turns and model calls, beside a simple model of the rules."""

from __future__ import annotations

import itertools
import time
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from otel_error_hygiene.context import Cleared, ContextBuffer, Told
from tests.context.told import RECOVERED, line_of, summary_of

_AGENTS = st.sampled_from(["", "child"])
_TOOLS = st.sampled_from(["search", "pay"])
_ARGUMENTS = st.sampled_from([None, "x", "y"])
_CALL_IDS = st.sampled_from([None, "c1", "c2", "c3"])
_PRINTS = st.sampled_from(["timeout", "refused"])


class Call(NamedTuple):
    """A tool call that is running."""

    agent: str
    tool: str
    arguments: str | None
    call_id: str | None
    started: int
    span_id: int


class Failure(NamedTuple):
    """A failure that nothing has resolved."""

    call: Call
    print_: str
    ended: int
    summary: Any

    @property
    def key(self) -> tuple[str, str | None, str]:
        """What shares a line."""
        return self.call.tool, self.call.arguments, self.print_


class Agent:
    """The rules, as the design says them, without bounds and without care for speed."""

    def __init__(self, buffer: ContextBuffer) -> None:
        self.buffer = buffer
        self.failures: list[Failure] = []
        self.boundaries: list[int] = []
        self.rendered: int | None = None
        self.seen: set[tuple[str, str | None, str]] = set()
        self.placed: set[Any] = set()
        self.note = self.note_shown = False
        self.attempts: dict[tuple[str, str | None, str], int] = {}

    def lines(self) -> dict[tuple[str, str | None, str], Any]:
        """Return the newest summary of each line, in the order of their newest failures."""
        newest: dict[tuple[str, str | None, str], Any] = {}
        for failure in self.failures:
            newest.pop(failure.key, None)
            newest[failure.key] = failure.summary
        return newest

    def starts(self, at: int) -> None:
        """A tool or model call that started after the last rendering passes a turn."""
        if self.rendered is not None and at >= self.rendered:
            self.passes()

    def passes(self) -> None:
        """Pass a turn: a note that was shown is over."""
        self.rendered = None
        if self.note_shown:
            self.note = self.note_shown = False

    def resolves(self, failure: Failure, call: Call) -> bool:
        """Tell whether a success resolves a failure."""
        before = [boundary for boundary in self.boundaries if boundary <= call.started]
        known = (max(before) if before else -1) if self.boundaries else call.started
        same_id = call.call_id is not None and call.call_id == failure.call.call_id
        same_arguments = call.arguments is not None and failure.key[:2] == (call.tool, call.arguments)
        return failure.ended <= known or same_id or same_arguments


class Buffers(RuleBasedStateMachine):
    """One conversation with an agent and its child. The clock stands still unless a rule moves it."""

    running: Bundle[Call] = Bundle("running")
    told: Bundle[Failure] = Bundle("told")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.now = 1000
        self.span_ids = itertools.count(1)
        self.durable: dict[str, Any] = {}
        self.patch.setattr(time, "time_ns", lambda: self.now)

    def teardown(self) -> None:
        """Give the clock back."""
        self.patch.undo()

    @initialize()
    def converse(self) -> None:
        """Open the conversation."""
        parent = ContextBuffer("c")
        self.agents = {"": Agent(parent), "child": Agent(parent.scope("child"))}

    @rule(ticks=st.integers(1, 5))
    def wait(self, ticks: int) -> None:
        """Let time pass; between two such steps everything happens in the same nanosecond."""
        self.now += ticks

    @rule(target=running, agent=_AGENTS, tool=_TOOLS, arguments=_ARGUMENTS, call_id=_CALL_IDS)
    def start(self, agent: str, tool: str, arguments: str | None, call_id: str | None) -> Call:
        """Start a tool call."""
        return Call(agent, tool, arguments, call_id, self.now, next(self.span_ids))

    @rule(target=told, call=consumes(running), print_=_PRINTS)
    def fail(self, call: Call, print_: str) -> Failure:
        """End a call with a failure: its record first (P1), then its line."""
        agent = self.agents[call.agent]
        key = (call.tool, call.arguments, print_)
        agent.starts(call.started)
        agent.buffer.tool_called(call.started)
        number = agent.attempts[key] = agent.attempts.get(key, 0) + 1
        assert number == agent.buffer.attempt(key, (1, call.span_id))
        summary = summary_of(call.tool, number, call.span_id)
        self.durable[str(summary.ref)] = summary
        assert agent.buffer.put(Told(key, summary, self.now, (1, call.span_id), call.call_id))
        failure = Failure(call, print_, self.now, summary)
        agent.failures.append(failure)
        return failure

    @rule(failure=told)
    def tell_again(self, failure: Failure) -> None:
        """Let another side report a span's failure: nothing changes (P3)."""
        agent = self.agents[failure.call.agent]
        agent.buffer.attempt(failure.key, (1, failure.call.span_id))
        told = Told(failure.key, failure.summary, failure.ended, (1, failure.call.span_id), failure.call.call_id)
        assert not agent.buffer.put(told)

    @rule(call=consumes(running))
    def succeed(self, call: Call) -> None:
        """End a call with a success: it resolves what the rule says, once, and each with its record (P2)."""
        agent = self.agents[call.agent]
        agent.starts(call.started)
        resolved = [failure for failure in agent.failures if agent.resolves(failure, call)]
        lines_before = agent.lines()
        agent.failures = [failure for failure in agent.failures if failure not in resolved]
        agent.buffer.tool_called(call.started)
        cleared = agent.buffer.resolve(call.tool, call.arguments, call.call_id, call.started)
        assert {Cleared(f.summary.ref, (1, f.call.span_id)) for f in resolved} == set(cleared)
        assert len(resolved) == len(cleared)
        assert all(each.ref in self.durable for each in cleared)
        for key in lines_before.keys() - agent.lines().keys():
            agent.attempts.pop(key)
            if key in agent.seen:
                agent.note, agent.note_shown = True, False
                agent.seen.discard(key)

    @rule(call=consumes(running))
    def cancel(self, call: Call) -> None:
        """End a call without an outcome: it neither clears nor counts, but it was a call of a new turn."""
        agent = self.agents[call.agent]
        agent.starts(call.started)
        agent.buffer.tool_called(call.started)

    @rule(agent=_AGENTS, started_before=st.integers(0, 3))
    def call_model(self, agent: str, started_before: int) -> None:
        """End a model call that started some ticks ago."""
        model, start = self.agents[agent], self.now - started_before
        model.boundaries.append(start)
        model.starts(start)
        model.buffer.model_called(start)

    @rule(agent=_AGENTS)
    def turn(self, agent: str) -> None:
        """Pass a turn."""
        model = self.agents[agent]
        model.boundaries.append(self.now)
        model.passes()
        model.buffer.turn()

    @rule(agent=_AGENTS)
    def clear(self, agent: str) -> None:
        """Forget."""
        model = self.agents[agent]
        model.failures, model.attempts, model.seen = [], {}, set()
        model.note = model.note_shown = False
        model.buffer.clear()

    @rule(failure=told)
    def place(self, failure: Failure) -> None:
        """Give a failure's line as its call's own result; it has effect while that is the line of its entry."""
        model = self.agents[failure.call.agent]
        model.buffer.as_tool_result(failure.summary, "call", "openai")
        if model.lines().get(failure.key) == failure.summary:
            model.placed.add(failure.summary)
            model.seen.add(failure.key)

    @rule(agent=_AGENTS)
    def render(self, agent: str) -> None:
        """Render twice: the lines of the unresolved failures, newest last, then the note; the same both times."""
        model = self.agents[agent]
        text = model.buffer.render()
        model.boundaries.append(self.now)
        model.rendered = self.now
        shown = [(key, summary) for key, summary in model.lines().items() if summary not in model.placed][-20:]
        if model.note and len(shown) == 20:
            shown = shown[1:]
        model.seen |= {key for key, _ in shown}
        expected = [line_of(key[0], summary) for key, summary in shown]
        if model.note:
            model.note_shown = True
            expected.append(RECOVERED)
        assert expected == text.splitlines()
        assert text == model.buffer.render()

    @invariant()
    def pending_is_what_nothing_resolved(self) -> None:
        """One failure, one line, each with a record; no agent sees another's."""
        for model in getattr(self, "agents", {}).values():
            pending = list(model.buffer.pending)
            assert list(model.lines().values()) == pending
            assert all(summary.ref in self.durable for summary in pending)

    @invariant()
    def quiet_means_nothing_to_do(self) -> None:
        """A success may be passed over exactly when there is nothing to resolve and no turn to pass."""
        for model in getattr(self, "agents", {}).values():
            assert (not model.failures and model.rendered is None) == model.buffer.quiet


TestBuffers = Buffers.TestCase
TestBuffers.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
