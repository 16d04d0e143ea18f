"""Random interleavings of starts, ends, renderings, turns and model calls, beside a simple model of the rules.

Every step runs on one of three threads; some run on all of them at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from otel_error_hygiene.context import Cleared, ContextBuffer, Told
from otel_error_hygiene.context import buffer as buffer_module
from otel_error_hygiene.model import ErrorClass, ErrorSummary, Recoverable
from tests.context.told import RECOVERED, line_of, summary_of

T = TypeVar("T")
Key = tuple[str, str | None, str]

_AGENTS = st.sampled_from(["", "child", "sibling"])
_TOOLS = st.sampled_from(["search", "pay"])
_ARGUMENTS = st.sampled_from([None, "x"])
_CALL_IDS = st.sampled_from([None, "c1", "c2"])
_PRINTS = st.sampled_from(["timeout", "denied"])
_THREADS = st.integers(0, 2)
_CLASSES = {"timeout": ErrorClass.CONNECTIVITY, "denied": ErrorClass.AUTH}
_RECOVERABLE = {"timeout": Recoverable.YES, "denied": Recoverable.NO}

_LIMITS = {"timeout": 3, "denied": 2}
"""Identical failures that escalate: of a class that may pass by itself, and of any other."""
_MAX_TURNS = 4
_MAX_TICKS = 40
_MAX_ENTRIES = 4

_KEPT: dict[str, Callable[[Failure, Call], bool]] = {
    "any_later_success": lambda _failure, _call: False,
    "same_tool": lambda failure, call: failure.call.tool != call.tool,
    "same_call": lambda failure, call: failure.call.arguments is None or failure.key[:2] != (call.tool, call.arguments),
    "keep_unrecoverable": lambda failure, _call: failure.print_ == "denied",
    "never": lambda _failure, _call: True,
    "one's own": lambda failure, call: failure.call.tool == "pay" and call.tool == "search",
}
"""What a policy keeps of the failures that the model knew of, in the words of the issue."""


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
    summary: ErrorSummary

    @property
    def key(self) -> Key:
        """What shares a line."""
        return self.call.tool, self.call.arguments, self.print_


class Agent:
    """The rules, as the design says them, with lists and walks over all of them."""

    def __init__(self, buffer: ContextBuffer, policy: str) -> None:
        self.buffer = buffer
        self.policy = policy
        self.failures: list[Failure] = []
        self.boundaries: list[int] = []
        self.rendered: int | None = None
        self.seen: set[Key] = set()
        self.placed: set[ErrorSummary] = set()
        self.note = self.note_shown = False
        self.attempts: dict[Key, int] = {}
        self.turn = 0
        self.passed_by_call = False
        self.told: dict[Key, tuple[int, int]] = {}
        """Turn and time when a line was told last, in that order."""
        self.turns: dict[ErrorSummary, int] = {}
        """In which it was told."""
        self.first_shown: dict[ErrorSummary, int] = {}
        self.dropped = 0

    def lines(self) -> dict[Key, ErrorSummary]:
        """Return the newest summary of each line that nothing resolved, the line told last at the end."""
        newest = {failure.key: failure.summary for failure in self.failures}
        return {key: newest[key] for key in self.told if key in newest}

    def starts(self, at: int) -> bool:
        """Pass a turn where a tool or model call started after the last rendering."""
        if self.rendered is None or at < self.rendered:
            return False
        self.passes()
        self.passed_by_call = True
        return True

    def passes(self) -> None:
        """Pass a turn: a note that was shown is over."""
        self.turn += 1
        self.rendered = None
        if self.note_shown:
            self.note = self.note_shown = False

    def ages(self, now: int) -> None:
        """Let go of lines that lived their turns or their time, without a word."""
        for key in self.lines():
            turn, at = self.told[key]
            if self.turn - turn >= _MAX_TURNS or now - at >= _MAX_TICKS:
                self.forgets(key)

    def forgets(self, key: Key) -> None:
        """Let go of a line, and of its count."""
        self.failures = [failure for failure in self.failures if failure.key != key]
        self.attempts.pop(key, None)
        self.seen.discard(key)

    def fails(self, call: Call, print_: str, now: int) -> Failure:
        """Count a failure and take it in."""
        key = (call.tool, call.arguments, print_)
        last = [failure for failure in self.failures if failure.key == key][-1:]
        if last and last[0].summary.escalated and any(boundary >= last[0].ended for boundary in self.boundaries):
            del self.attempts[key]
        number = self.attempts[key] = self.attempts.get(key, 0) + 1
        escalates = number >= _LIMITS[print_]
        summary = summary_of(
            call.tool,
            number,
            call.span_id,
            error_class=_CLASSES[print_],
            recoverable=_RECOVERABLE[print_],
            escalated=escalates,
        )
        if key not in self.lines() and len(self.lines()) == _MAX_ENTRIES:
            self.forgets(next(iter(self.lines())))
            self.dropped += 1
        failure = Failure(call, print_, now, summary)
        self.failures.append(failure)
        self.told.pop(key, None)
        self.told[key] = (self.turn, now)
        self.turns[summary] = self.turn
        return failure

    def resolves(self, failure: Failure, call: Call) -> bool:
        """Tell whether a success resolves a failure."""
        before = [boundary for boundary in self.boundaries if boundary <= call.started]
        known = (max(before) if before else -1) if self.boundaries else call.started
        same_id = call.call_id is not None and call.call_id == failure.call.call_id
        same_arguments = call.arguments is not None and failure.key[:2] == (call.tool, call.arguments)
        asked = failure.ended <= known and not _KEPT[self.policy](failure, call)
        return asked or same_id or same_arguments

    def succeeds(self, call: Call, now: int) -> list[Failure]:
        """Resolve what a success resolves."""
        self.starts(call.started)
        self.ages(now)
        resolved = [failure for failure in self.failures if self.resolves(failure, call)]
        before = self.lines()
        self.failures = [failure for failure in self.failures if failure not in resolved]
        for key in before.keys() - self.lines().keys():
            self.attempts.pop(key, None)
            if key in self.seen:
                self.note, self.note_shown = True, False
                self.seen.discard(key)
        return resolved

    def renders(self, now: int) -> list[str]:
        """Return what a rendering shows: lines not placed, newest last, the note; dated if shown in an earlier turn."""
        self.boundaries.append(now)
        self.rendered, self.passed_by_call = now, False
        expected = []
        for key, summary in self.lines().items():
            if summary in self.placed:
                continue
            self.seen.add(key)
            age = self.turn - self.turns[summary]
            dated = self.first_shown.setdefault(summary, self.turn) != self.turn
            remark = "" if not dated else " (1 turn ago)" if age == 1 else f" ({age} turns ago)"
            expected.append(line_of(key[0], summary) + remark)
        if self.note:
            self.note_shown = True
            expected.append(RECOVERED)
        return expected


def mine(failure: Told, success: Any) -> bool:
    """Resolve by a rule of one's own: a search says nothing about payments."""
    return not (failure.tool == "pay" and success.tool == "search")


class Buffers(RuleBasedStateMachine):
    """One conversation with an agent and two children. The clock stands still unless a rule moves it."""

    running: Bundle[Call] = Bundle("running")
    told: Bundle[Failure] = Bundle("told")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.now = 1000
        self.span_ids = itertools.count(1)
        self.durable: dict[str, ErrorSummary] = {}
        self.patch.setattr(time, "time_ns", lambda: self.now)
        self.patch.setattr(buffer_module, "_MAX_ENTRIES", _MAX_ENTRIES)
        self.agents: dict[str, Agent] = {}

    def teardown(self) -> None:
        """Give the clock back."""
        self.patch.undo()

    @initialize(policy=st.sampled_from(sorted(_KEPT)))
    def converse(self, policy: str) -> None:
        """Open the conversation."""
        parent = ContextBuffer(
            "c",
            prune_policy=mine if policy == "one's own" else policy,
            escalate_after=_LIMITS["denied"],
            escalate_transient_after=_LIMITS["timeout"],
            max_age_turns=_MAX_TURNS,
            max_age_seconds=_MAX_TICKS / 1e9,
        )
        buffers = {"": parent, "child": parent.scope("child"), "sibling": parent.scope("sibling")}
        self.agents = {name: Agent(buffer, policy) for name, buffer in buffers.items()}

    @rule(ticks=st.integers(1, 15))
    def wait(self, ticks: int) -> None:
        """Let time pass; between two such steps everything happens in the same nanosecond."""
        self.now += ticks

    @rule(target=running, agent=_AGENTS, tool=_TOOLS, arguments=_ARGUMENTS, call_id=_CALL_IDS)
    def start(self, agent: str, tool: str, arguments: str | None, call_id: str | None) -> Call:
        """Start a tool call."""
        return Call(agent, tool, arguments, call_id, self.now, next(self.span_ids))

    @rule(target=told, call=consumes(running), print_=_PRINTS, thread=_THREADS)
    def fail(self, call: Call, print_: str, thread: int) -> Failure:
        """End a call with a failure: its record first (P1), then its line."""
        return on(thread, lambda: self.tell(call, print_))

    def tell(self, call: Call, print_: str) -> Failure:
        """Tell the buffer and the model of the rules of one failure, in the order of the processor."""
        agent = self.agents[call.agent]
        agent.starts(call.started)
        agent.ages(self.now)
        failure = agent.fails(call, print_, self.now)
        buffer, origin = agent.buffer, (1, call.span_id)
        buffer.tool_called(call.started)
        attempt = buffer.attempt(failure.key, origin, _CLASSES[print_])
        assert (failure.summary.attempt, failure.summary.escalated) == (attempt.number, attempt.escalated)
        self.durable[str(failure.summary.ref)] = failure.summary
        assert buffer.put(Told(failure.key, failure.summary, self.now, origin, call.call_id, attempt.order))
        return failure

    @rule(failure=told, thread=_THREADS)
    def tell_again(self, failure: Failure, thread: int) -> None:
        """Let another side report a span's failure: nothing changes (P3)."""
        buffer, origin = self.agents[failure.call.agent].buffer, (1, failure.call.span_id)
        attempt = on(thread, lambda: buffer.attempt(failure.key, origin))
        assert (failure.summary.attempt, failure.summary.escalated) == (attempt.number, attempt.escalated)
        told = Told(failure.key, failure.summary, failure.ended, origin, failure.call.call_id)
        assert not on(thread, lambda: buffer.put(told))

    @rule(call=consumes(running), thread=_THREADS)
    def succeed(self, call: Call, thread: int) -> None:
        """End a call with a success: it resolves what the rule says, once, and each with its record (P2)."""
        on(thread, lambda: self.tell_success(call))

    def tell_success(self, call: Call) -> None:
        """Tell the buffer and the model of the rules of one success."""
        agent = self.agents[call.agent]
        resolved = agent.succeeds(call, self.now)
        agent.buffer.tool_called(call.started)
        cleared = agent.buffer.resolve(call.tool, call.arguments, call.call_id, call.started)
        assert [Cleared(failure.summary.ref, (1, failure.call.span_id)) for failure in resolved] == cleared
        assert all(each.ref in self.durable for each in cleared)

    @rule(first=st.sampled_from(["fail", "succeed"]), second=st.sampled_from(["fail", "succeed"]), tool=_TOOLS)
    def end_at_once(self, first: str, second: str, tool: str) -> None:
        """End calls of all agents at the same moment, each on a thread of its own: nothing crosses between them."""

        def end(name: str) -> None:
            for what in (first, second):
                call = Call(name, tool, "x", None, self.now, next(self.span_ids))
                if what == "fail":
                    self.tell(call, "timeout")
                else:
                    self.tell_success(call)

        for done in [pool.submit(end, name) for name, pool in zip(self.agents, _POOLS, strict=True)]:
            done.result()

    @rule(call=consumes(running), thread=_THREADS)
    def cancel(self, call: Call, thread: int) -> None:
        """End a call without an outcome: it neither clears nor counts, but it was a call of a new turn."""
        agent = self.agents[call.agent]
        agent.starts(call.started)
        agent.ages(self.now)
        on(thread, lambda: agent.buffer.tool_called(call.started))

    @rule(agent=_AGENTS, started_before=st.integers(0, 3), thread=_THREADS)
    def call_model(self, agent: str, started_before: int, thread: int) -> None:
        """End a model call that started some ticks ago."""
        model, start = self.agents[agent], self.now - started_before
        model.boundaries.append(start)
        if model.starts(start):
            model.ages(self.now)
        on(thread, lambda: model.buffer.model_called(start))

    @rule(agent=_AGENTS, thread=_THREADS)
    def turn(self, agent: str, thread: int) -> None:
        """Pass a turn; the one that a call has passed already is not counted twice."""
        model = self.agents[agent]
        model.boundaries.append(self.now)
        if not model.passed_by_call:
            model.passes()
        model.passed_by_call = False
        model.ages(self.now)
        on(thread, model.buffer.turn)

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
        message = model.buffer.as_tool_result(failure.summary, "call", "openai")
        assert line_of(failure.call.tool, failure.summary) == message["content"]
        if model.lines().get(failure.key) == failure.summary:
            model.placed.add(failure.summary)
            model.seen.add(failure.key)

    @rule(agent=_AGENTS, thread=_THREADS)
    def render(self, agent: str, thread: int) -> None:
        """Render twice: the same both times, each line one physical line of at most 200 characters (P4)."""
        model = self.agents[agent]
        expected = model.renders(self.now)
        text = on(thread, model.buffer.render)
        assert expected == text.splitlines()
        assert text == model.buffer.render()
        assert all(len(line) <= 200 for line in expected)

    @invariant()
    def pending_is_what_nothing_resolved(self) -> None:
        """One failure, one line, each with a record; no agent sees another's (P1, P3)."""
        for model in self.agents.values():
            pending = list(model.buffer.pending)
            assert list(model.lines().values()) == pending
            assert all(self.durable.get(str(summary.ref)) == summary for summary in pending)

    @invariant()
    def quiet_means_nothing_to_do(self) -> None:
        """A success may be passed over exactly when there is nothing to resolve and no turn to pass."""
        for model in self.agents.values():
            assert (not model.failures and model.rendered is None) == model.buffer.quiet

    @invariant()
    def what_made_room_is_counted(self) -> None:
        """A line that the bound took is a loss that is counted (P7)."""
        for model in self.agents.values():
            assert model.dropped == model.buffer.dropped

    @invariant()
    def memory_is_that_of_what_is_pending(self) -> None:
        """No index holds what is gone: each failure is in at most two, each line in at most three."""
        for model in self.agents.values():
            lines, failures = len(model.lines()), len(model.failures)
            assert lines <= _MAX_ENTRIES
            assert model.buffer._pending.indexed() <= 2 * failures + 3 * lines
            assert model.buffer._attempts._numbers.keys() <= model.lines().keys()

    @invariant()
    def a_turn_is_counted_once(self) -> None:
        """Whoever passes it: a rendering's first call, or ``turn()``."""
        for model in self.agents.values():
            assert model.turn == model.buffer._turns


_POOLS = [ThreadPoolExecutor(1, thread_name_prefix=f"tool-{number}") for number in range(3)]


def on(thread: int, run: Callable[[], T]) -> T:
    """Run something on one of the threads."""
    return _POOLS[thread].submit(run).result()


TestBuffers = Buffers.TestCase
# The same examples in every run: a search that goes on belongs beside a developer, not in front of a landing.
TestBuffers.settings = settings(max_examples=200, stateful_step_count=60, deadline=None, derandomize=True)
