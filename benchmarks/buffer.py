"""What the context buffer costs as it fills, and as conversations grow in number.

    python benchmarks/buffer.py [--quick]

Each operation is timed with 10 failures pending and with 10 000, or in 10 conversations and in 1 000, in the same run
and taking turns. The table gives the medians and their ratio: what takes the tool's thread must not grow with what is
pending. An operation leaves as much pending as it has found; what restores that is not timed.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from otel_error_hygiene.context import ContextBuffer, Conversations, Told
from otel_error_hygiene.context.policies import Policy, Success
from otel_error_hygiene.model import Bucket, ErrorClass, ErrorSummary, Recoverable

FEW, MANY = 10, 10_000
FEW_CONVERSATIONS, MANY_CONVERSATIONS = 10, 1000
AT = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)


def told(buffer: ContextBuffer, name: str, ended_ns: int = 1) -> Told:
    """Make a failure as the splitter does, with its own id, arguments and time."""
    number = next(_numbers)
    key = (f"tool_{hash(name) % 50}", name, "fingerprint")
    attempt = buffer.attempt(key, (1, number), ErrorClass.AUTH)
    values = {
        "tool": key[0],
        "error_class": ErrorClass.AUTH,
        "bucket": Bucket.AUTH,
        "recoverable": Recoverable.NO,
        "hint": "Escalate to human — credentials needed.",
        "retry_after_seconds": None,
        "error": "PermissionError",
        "message": "access refused",
        "impact": None,
        "attempt": attempt.number,
        "escalated": attempt.escalated,
        "timestamp": AT,
        "http_status": 403,
        "trace_id": f"{1:032x}",
        "span_id": f"{number:016x}",
        "ref": f"{number & 0xFFFFFFFF:08x}",
    }
    return Told(key, ErrorSummary.made(values), ended_ns, (1, number), f"call_{name}", attempt.order)


def mine(failure: Told, success: Success) -> bool:
    """Keep everything: a callable of a user's own is asked of each failure that the model knew of."""
    return failure.tool == success.tool


def filled(count: int, policy: str | Policy, ended_ns: int = 1) -> ContextBuffer:
    """Return a buffer with as many failures pending."""
    buffer = ContextBuffer("bench", prune_policy=policy, max_age_turns=10**9, escalate_after=0)
    for number in range(count):
        buffer.put(told(buffer, f"pending {number}", ended_ns))
    buffer.model_called(2)
    return buffer


Operation = Callable[[], Callable[[], object]]
"""Called untimed before each time, it gives what is timed."""


def append(buffer: ContextBuffer) -> Operation:
    """Tell of a failure of another kind; the one before it is taken out again, untimed."""

    def prepare() -> Callable[[], object]:
        buffer.resolve("none", None, "call_new", 0)
        failure = told(buffer, "new")

        def run() -> None:
            buffer.attempt(failure.key, failure.origin)
            buffer.put(failure)

        return run

    return prepare


def append_full(buffer: ContextBuffer) -> Operation:
    """Tell of a failure of another kind each time; at the bound the oldest goes."""

    def prepare() -> Callable[[], object]:
        failure = told(buffer, f"new {next(_numbers)}")
        return lambda: buffer.put(failure)

    return prepare


def repeat(buffer: ContextBuffer) -> Operation:
    def prepare() -> Callable[[], object]:
        failure = told(buffer, "pending 3")
        return lambda: buffer.put(failure)

    return prepare


def prune_own(buffer: ContextBuffer) -> Operation:
    """Tell of a success of the same call, by its id."""

    def prepare() -> Callable[[], object]:
        buffer.put(told(buffer, "new"))
        return lambda: buffer.resolve("tool", "other arguments", "call_new", 0)

    return prepare


def sibling(buffer: ContextBuffer) -> Operation:
    """Tell of a success that resolves nothing: it started before the model knew."""
    return lambda: lambda: buffer.resolve("tool", "arguments", "call_other", 0)


def later(buffer: ContextBuffer) -> Operation:
    """Tell of a later success, under a policy that keeps all."""
    return lambda: lambda: buffer.resolve("tool", "arguments", "call_other", 10)


def one_known(buffer: ContextBuffer) -> Operation:
    """Tell of a later success that resolves one failure of many: the others ended after the boundary."""

    def prepare() -> Callable[[], object]:
        buffer.put(told(buffer, "new", 1))
        return lambda: buffer.resolve("tool", "arguments", "call_other", 10)

    return prepare


def render(buffer: ContextBuffer) -> Operation:
    return lambda: buffer.render


def render_placed(buffer: ContextBuffer) -> Operation:
    """Render where all have their place in the history: nothing."""
    for summary in buffer.pending:
        buffer.as_tool_result(summary, "call", "openai")
    return lambda: buffer.render


def place(buffer: ContextBuffer) -> Operation:
    last = buffer.pending[-1]
    return lambda: lambda: buffer.as_tool_result(last, "call", "openai")


def turn(buffer: ContextBuffer) -> Operation:
    return lambda: buffer.turn


def call_ended(buffer: ContextBuffer) -> Operation:
    return lambda: lambda: buffer.tool_called(3)


def prune_all(count: int, policy: str, rounds: int) -> float:
    """Return the median nanoseconds for each of the failures that one success resolves."""
    times = []
    for _ in range(rounds):
        buffer = filled(count, policy)
        begun = time.perf_counter_ns()
        cleared = buffer.resolve("tool_1", None, None, 10)
        times.append((time.perf_counter_ns() - begun) / len(cleared))
    return statistics.median(times)


class Row(NamedTuple):
    name: str
    operation: Callable[[ContextBuffer], Operation]
    policy: str | Policy = "any_later_success"
    ended_ns: int = 1


ROWS = (
    Row("append another failure", append),
    Row("append a repeat", repeat),
    Row("append; at 10 000 the oldest makes room", append_full),
    Row("prune the call's own failure", prune_own),
    Row("success of a parallel sibling: prunes nothing", sibling),
    Row("later success prunes one, the rest ended later", one_known, ended_ns=5),
    Row("later success, policy same_tool, other tool", later, "same_tool"),
    Row("later success, policy same_call", later, "same_call"),
    Row("later success, policy keep_unrecoverable", later, "keep_unrecoverable"),
    Row("later success, policy never", later, "never"),
    Row("later success, a callable of one's own keeps all", later, mine),
    Row("tool call ended", call_ended),
    Row("turn", turn),
    Row("render (10 lines; at 10 000 pending, 20)", render),
    Row("render, all placed", render_placed),
    Row("as_tool_result", place),
)


def sample(operation: Operation, calls: int) -> list[int]:
    clock, times = time.perf_counter_ns, []
    for _ in range(calls):
        run = operation()
        begun = clock()
        run()
        times.append(clock() - begun)
    return times


def compare(few: Operation, many: Operation, rounds: int, calls: int) -> tuple[float, float]:
    """Return the medians of both, taken in turns."""
    times: tuple[list[int], list[int]] = ([], [])
    for number in range(rounds + 1):
        for operation, found in zip((few, many), times, strict=True):
            gc.collect()
            gc.disable()
            sampled = sample(operation, calls)
            gc.enable()
            if number:  # the first round warms up
                found.extend(sampled)
    return statistics.median(times[0]), statistics.median(times[1])


def say(name: str, few: float, many: float) -> None:
    print(f"{name:<52} {few / 1000:>9.2f} {many / 1000:>9.2f} {many / few:>7.2f}", flush=True)


def over_conversations(count: int, what: str) -> Operation:
    """Go round as many conversations, each with a few failures pending, and find each by its id."""
    conversations = Conversations()
    names = itertools.cycle([f"conversation {number}" for number in range(count)])
    for _ in range(count):
        buffer = conversations.buffer(next(names))
        for number in range(5):
            buffer.put(told(buffer, f"pending {number}"))

    def prepare() -> Callable[[], object]:
        name = next(names)
        buffer = conversations.buffer(name)
        buffer.resolve("none", None, "call_new", 0)
        failure = told(buffer, "new")
        if what == "append":
            return lambda: conversations.buffer(name).put(failure)
        if what == "prune":
            buffer.put(failure)
            return lambda: conversations.buffer(name).resolve("tool", None, "call_new", 0)
        return lambda: conversations.buffer(name).render()

    return prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a few rounds only")
    rounds = 3 if parser.parse_args().quick else 20
    print(f"Python {sys.version.split()[0]}; medians in microseconds, and their ratio\n")
    print(f"{'one conversation, failures pending:':<52} {FEW:>9} {MANY:>9} {'ratio':>7}")
    for row in ROWS:
        few, many = (row.operation(filled(count, row.policy, row.ended_ns)) for count in (FEW, MANY))
        say(row.name, *compare(few, many, rounds, 200))
    say("prune all by one success, for each", *(prune_all(n, "any_later_success", rounds) for n in (FEW, MANY)))
    head = "conversations, six failures pending in each:"
    print(f"\n{head:<52} {FEW_CONVERSATIONS:>9} {MANY_CONVERSATIONS:>9} {'ratio':>7}")
    for what in ("append", "prune", "render"):
        few, many = (over_conversations(count, what) for count in (FEW_CONVERSATIONS, MANY_CONVERSATIONS))
        say(what, *compare(few, many, rounds, 200))


if __name__ == "__main__":
    main()
