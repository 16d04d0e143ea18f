"""Random trees of spans: one failure makes one line, in its own conversation and its own agent's scope."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.trace import Span

from otel_error_hygiene import Settings
from otel_error_hygiene.context import bound_buffer
from tests.conftest import Rig
from tests.machine.trees import agent, fail, flag, mcp_call, start, tool


class Call(NamedTuple):
    """One tool call: how many layers of spans it has, whether it fails, what runs inside of it."""

    layers: str
    fails: bool
    inside: list[Any]


class Agent(NamedTuple):
    """An agent, nested or not, and what it does."""

    children: list[Any]


CALLS = st.builds(Call, st.sampled_from(["one", "framework", "mcp"]), st.booleans(), st.just([]))
TREES = st.builds(
    Agent,
    st.lists(
        st.recursive(
            CALLS,
            lambda inner: st.one_of(
                st.builds(Call, st.sampled_from(["one", "framework"]), st.booleans(), st.lists(inner, max_size=2)),
                st.builds(Agent, st.lists(inner, max_size=3)),
            ),
            max_leaves=8,
        ),
        max_size=4,
    ),
)


class Run:
    """Plays a tree in one conversation; each call has a name of its own, so that no success speaks of another's."""

    def __init__(self, rig: Rig, conversation: str, *, all_fail: bool) -> None:
        self.rig = rig
        self.all_fail = all_fail
        self.conversation = conversation
        self.expected: Counter[tuple[str, str]] = Counter()
        self.numbers = iter(range(10_000))

    def agent(self, tree: Agent, parent: Span | None, outermost: bool) -> None:
        """Run an agent."""
        name = f"{self.conversation}-{'main' if outermost else next(self.numbers)}"
        values = {"gen_ai__conversation__id": self.conversation} if outermost else {}
        span = agent(self.rig, name, parent, **values)
        for child in tree.children:
            chain = start(self.rig, "chain step", span)
            self.play(child, chain, "" if outermost else name)
            chain.end()
        span.end()

    def play(self, child: Call | Agent, parent: Span, scope: str) -> None:
        """Run a call, or an agent inside another."""
        if isinstance(child, Agent):
            self.agent(child, parent, outermost=False)
            return
        name = f"{self.conversation}-t{next(self.numbers)}"
        fails = child.fails or self.all_fail
        if fails:
            self.expected[scope, name] += 1
        spans: tuple[Span, ...]
        if child.layers == "mcp":
            spans = mcp_call(self.rig, name, parent)
        elif child.layers == "framework":
            outer = tool(self.rig, name, parent, gen_ai__tool__call__id="c")
            spans = (outer, start(self.rig, f"{name}.tool", outer, traceloop__span__kind="tool"))
        else:
            spans = (tool(self.rig, name, parent),)
        for inner in child.inside:
            self.play(inner, spans[-1], scope)
        *outer_spans, innermost = spans
        if fails:
            fail(innermost, ValueError(name), events=2)
        else:
            innermost.end()
        for span in reversed(outer_spans):
            if fails and span is spans[0]:
                flag(span, f"Error calling tool {name}")
            else:
                span.end()


def seen_by(rig: Rig, run: Run) -> Counter[tuple[str, str]]:
    """Return the lines of a conversation and of its agents' scopes, pruned or not, as the records know them."""
    found: Counter[tuple[str, str]] = Counter()
    buffer = rig.processor.conversation(run.conversation)
    for scope, view in [("", buffer), *buffer._children._kept.items()]:
        found.update((scope, each.tool) for each in view.pending for _ in range(each.attempt))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_one_failure_is_one_line_where_it_belongs(trees: list[Agent], at_once: bool, all_fail: bool) -> None:
    """Conversations run at once on threads; nothing is bound, so the spans alone tell whose they are.

    What has not been resolved stands where it belongs, once, and nothing else anywhere; each failure is counted once.
    """
    token = bound_buffer.set(None)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Settings(store_path=Path(folder)))
        runs = [Run(rig, f"c{number}", all_fail=all_fail) for number in range(len(trees))]
        threads = [
            threading.Thread(target=run.agent, args=(tree, None, True)) for run, tree in zip(runs, trees, strict=True)
        ]
        for thread in threads:
            thread.start()
            if not at_once:
                thread.join()
        for thread in threads:
            thread.join()
        for run in runs:
            assert seen_by(rig, run) <= run.expected
            assert not all_fail or seen_by(rig, run) == run.expected
        stats = rig.processor.stats()
        assert (sum(run.expected.total() for run in runs), 0) == (stats.seen, stats.unrouted)
        assert {} == rig.processor._observer.lineage.open
        assert not rig.processor._observer.climbing
        rig.provider.shutdown()
    bound_buffer.reset(token)
