"""What a buffer takes in, what it gives back, and the entry in which identical failures share one line."""

from __future__ import annotations

from typing import NamedTuple

from ..model import ErrorSummary

MAX_FAILURES = 32
"""Of one entry."""

Key = tuple[str, str | None, str]
"""Tool, digest of its canonical arguments (None when unknown), fingerprint of the error."""


class Told(NamedTuple):
    """One failure as a buffer takes it in."""

    key: Key
    summary: ErrorSummary
    ended_ns: int
    origin: tuple[int, int]
    """Trace and span id of the failed call; zeros without a span."""
    call_id: str | None
    order: int = 0
    """The later of two identical failures has the greater one; ``ContextBuffer.attempt`` gives it."""

    @property
    def tool(self) -> str:
        """Name of the tool."""
        return self.key[0]

    @property
    def arguments(self) -> str | None:
        """Digest of the canonical arguments, the same for the same arguments; None when unknown."""
        return self.key[1]


class Cleared(NamedTuple):
    """One failure that a success resolved."""

    ref: str | None
    origin: tuple[int, int]


class Held(NamedTuple):
    """One failure that waits for a success; sorts by its end."""

    ended_ns: int
    number: int
    """In the order of telling, one for each."""
    told: Told


class Entry:
    """A pending failure and its repeats: one line, gone when all of them are resolved. Guarded by the buffer's lock."""

    __slots__ = ("ended_ns", "failures", "order", "placed", "shown", "shown_turn", "summary", "told_ns", "told_turn")

    def __init__(self, told: Told) -> None:
        self.summary = told.summary
        self.ended_ns = told.ended_ns
        """End of the failure whose summary it is, nanoseconds since the epoch."""
        self.order = told.order
        self.failures: dict[int, Held] = {}
        """By number, the oldest first."""
        self.placed = False
        """As the failed call's own result message."""
        self.shown = False
        """In a rendering, or placed."""
        self.shown_turn: int | None = None
        """The turn that rendered this very line first."""
        self.told_turn = 0
        self.told_ns = 0
        """When the newest failure was told, nanoseconds since the epoch."""

    def add(self, held: Held, turn: int, now_ns: int) -> Held | None:
        """Take in a failure; return the one that had to go for it, if any."""
        told = held.told
        if told.order >= self.order:
            self.summary, self.ended_ns, self.order = told.summary, told.ended_ns, told.order
        self.placed = False
        self.shown_turn = None
        self.told_turn, self.told_ns = turn, now_ns
        self.failures[held.number] = held
        # Beyond the bound the oldest go: the newest stand for them.
        return self.failures.pop(next(iter(self.failures))) if len(self.failures) > MAX_FAILURES else None

    def line(self, turn: int) -> str:
        """Return the line of a rendering: dated once it is not of this turn.

        What the model has not been shown yet is news, however long ago it was.
        """
        if self.shown_turn is None or self.shown_turn == turn:
            return str(self.summary)
        turns = turn - self.told_turn
        return self.summary.with_remark(f" ({turns} turn{'s' if turns > 1 else ''} ago)")
