"""What a buffer takes in, what it gives back, and the entry in which identical failures share one line."""

from __future__ import annotations

from enum import IntEnum
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


class Taken(IntEnum):
    """What became of a failure that a buffer was told of; false when nothing did."""

    AGAIN = 0
    """The same span's failure was told before."""
    IN = 1
    IN_FOR_ANOTHER = 2
    """The buffer was full: the line longest not told of went for it, unresolved."""


class Cleared(NamedTuple):
    """One failure that a success resolved."""

    ref: str | None
    origin: tuple[int, int]


class Held(NamedTuple):
    """One failure that waits for a success; sorts by its end."""

    ended_ns: int
    number: int
    """In the order of telling, one for each."""
    turn: int
    """In which it was told."""
    told: Told


class Entry:
    """A pending failure and its repeats: one line, gone when all of them are resolved. Guarded by the buffer's lock.

    The line is that of the newest failure that nothing has resolved.
    """

    __slots__ = ("_placed", "_shown_turns", "failures", "newest", "shown", "told_ns", "told_turn")

    def __init__(self, held: Held, now_ns: int) -> None:
        self.newest = held
        self.failures = {held.number: held}
        """By number, the oldest first."""
        self.shown = False
        """In a rendering, or placed."""
        self.told_turn, self.told_ns = held.turn, now_ns
        """When a failure was told last, nanoseconds since the epoch."""
        self._placed: set[int] = set()
        """Numbers of the failures whose line stands as their call's own result message."""
        self._shown_turns: dict[int, int] = {}
        """By number, the turn that rendered that failure's line first."""

    @property
    def summary(self) -> ErrorSummary:
        """What its line says."""
        return self.newest.told.summary

    def add(self, held: Held, now_ns: int) -> Held | None:
        """Take in a failure; return the one that had to go for it, if any."""
        self.told_turn, self.told_ns = held.turn, now_ns
        self.failures[held.number] = held
        # Threads may tell identical failures in another order than they were counted in.
        if held.told.order >= self.newest.told.order:
            self.newest = held
        # Beyond the bound the oldest go: the newest stand for them.
        return self.take(next(iter(self.failures))) if len(self.failures) > MAX_FAILURES else None

    def take(self, number: int) -> Held | None:
        """Take a failure out; None when it is gone already."""
        taken = self.failures.pop(number, None)
        if taken is not None:
            self._placed.discard(number)
            self._shown_turns.pop(number, None)
            if taken is self.newest and self.failures:
                self.newest = max(self.failures.values(), key=lambda held: (held.told.order, held.number))
        return taken

    @property
    def placed(self) -> bool:
        """Whether its line stands as the call's own result message."""
        return self.newest.number in self._placed

    def place(self) -> None:
        """Leave its line out of the renderings."""
        self._placed.add(self.newest.number)
        self.shown = True

    def show(self, turn: int) -> None:
        """Note that a rendering of this turn shows the line."""
        self._shown_turns.setdefault(self.newest.number, turn)
        self.shown = True

    def line(self, turn: int) -> str:
        """Return the line of a rendering: dated once it is not of this turn.

        What the model has not been shown yet is news, however long ago it was.
        """
        if self._shown_turns.get(self.newest.number, turn) == turn:
            return str(self.summary)
        turns = turn - self.newest.turn
        return self.summary.with_remark(f" ({turns} turn{'s' if turns > 1 else ''} ago)")
