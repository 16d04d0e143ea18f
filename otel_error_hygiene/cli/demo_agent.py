"""The demo's agent: a hand-written loop with a scripted model, beside the history of a naive one.

Nothing is faked: the tools are called, the failures are raised, the naive history is built with
``traceback.format_exc()``, and the waiting time is read from the line in the prompt.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.trace import TracerProvider

from .. import semconv
from ..boundary import ToolCallHandle, tool_call
from ..model import ErrorSummary
from ..verbs import conversation
from .demo_tools import Tools

CONVERSATION: Final = "demo"
_WAIT: Final = re.compile(r"Wait (\d+) seconds")
_MAX_WAIT_SECONDS: Final = 5


@dataclass(frozen=True)
class Step:
    """What the scripted model asks for at one turn."""

    tool: str
    arguments: Mapping[str, Any]
    fails: bool
    """What is to happen; where it does not, the demo says so and fails."""
    obeys_wait: bool = False
    """Wait as long as the prompt says before the call."""


SCRIPT: Final = (
    Step("search_orders", {"customer": "acme"}, fails=True),
    Step("search_orders", {"customer": "acme"}, fails=False, obeys_wait=True),
    Step("load_policy", {"name": "acme"}, fails=True),
    Step("issue_refund", {"order_id": "A-17", "amount_cents": "12 euros", "policy": "standard"}, fails=True),
    Step("issue_refund", {"order_id": "A-17", "amount_cents": 1200, "policy": "standard"}, fails=False),
    Step("send_receipt", {"refund": "R-1"}, fails=False),
)
TURNS: Final = len(SCRIPT) + 1
"""Model calls in all: one for each step, and the last, at which the model answers."""


@dataclass(frozen=True)
class Raw:
    """One failure in the naive history."""

    error: str
    """Class name of the exception."""
    headline: str
    """Qualified class and the first line of its message, as the traceback spells them."""
    text: str
    """What ``traceback.format_exc()`` gave."""


@dataclass
class Turn:
    """One model call, and the tool call that followed."""

    number: int
    """Counted from 1."""
    naive: tuple[Raw, ...]
    """The failures that the naive prompt of this turn holds, the oldest first."""
    ours: str
    """What ``errors.render()`` gave for the prompt of this turn."""
    step: Step | None = None
    """None where the model answers."""
    waited_seconds: int = 0
    result: Any = None
    error: str | None = None
    """Headline of what the tool raised; None for a success."""
    told: ErrorSummary | None = None
    pruned: list[ErrorSummary] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """What happened."""

    turns: tuple[Turn, ...]
    trace_id: str
    """32 hex digits."""

    @property
    def failures(self) -> list[ErrorSummary]:
        """What the agent was told, the oldest first."""
        return [turn.told for turn in self.turns if turn.told is not None]


def run_agent(tools: Tools, provider: TracerProvider, show: Callable[[Turn], None]) -> Run:
    """Run the loop, and show each turn as it ends.

    Args:
        tools: What the agent can do.
        provider: Where its spans come from.
        show: Called with each turn.
    """
    tracer = provider.get_tracer("otel_error_hygiene.demo")
    attributes = {
        semconv.GEN_AI_OPERATION_NAME: "invoke_agent",
        semconv.GEN_AI_AGENT_NAME: "refund desk",
        semconv.GEN_AI_CONVERSATION_ID: CONVERSATION,
    }
    with tracer.start_as_current_span("invoke_agent refund desk", attributes=attributes) as span:
        turns: list[Turn] = []
        for turn in _turns(tools, provider):
            show(turn)
            turns.append(turn)
        return Run(tuple(turns), f"{span.get_span_context().trace_id:032x}")


def _turns(tools: Tools, provider: TracerProvider) -> Iterator[Turn]:
    naive: list[Raw] = []
    with conversation(CONVERSATION) as errors:
        for number, step in enumerate((*SCRIPT, None), 1):
            turn = Turn(number, tuple(naive), errors.render(), step)
            before = errors.pending
            if step is not None:
                _wait(turn, step)
                naive += _call(tools, provider, turn, step)
            left = errors.pending
            turn.pruned = [summary for summary in before if summary not in left]
            yield turn


def _wait(turn: Turn, step: Step) -> None:
    found = _WAIT.search(turn.ours)
    if step.obeys_wait and found is not None:
        turn.waited_seconds = min(int(found[1]), _MAX_WAIT_SECONDS)
        time.sleep(turn.waited_seconds)


def _call(tools: Tools, provider: TracerProvider, turn: Turn, step: Step) -> list[Raw]:
    """Call the tool; return what a naive agent appends to its history."""
    call: ToolCallHandle | None = None
    try:
        with tool_call(
            step.tool, call_id=f"call_{turn.number}", arguments=step.arguments, tracer_provider=provider
        ) as call:
            turn.result = getattr(tools, step.tool)(**step.arguments)
    except Exception as error:
        headline = "".join(traceback.format_exception_only(error)).partition("\n")[0]
        turn.error = headline
        turn.told = None if call is None else call.summary
        return [Raw(type(error).__name__, headline, traceback.format_exc())]
    return []
