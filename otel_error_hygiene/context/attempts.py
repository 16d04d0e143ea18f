"""Which identical failure is it, and is it one too many?"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from ..model import ErrorClass
from .entry import Key

TRANSIENT: Final = frozenset({ErrorClass.CONNECTIVITY, ErrorClass.RATE_LIMIT, ErrorClass.UPSTREAM})
"""Classes that may pass by themselves, so that the same call may well be tried more often."""


class Attempt(NamedTuple):
    """The place of one failure among the identical ones."""

    number: int = 1
    """Counted from 1 since the last success that resolved them, or the last escalation."""
    escalated: bool = False
    """The limit is reached: its line says to stop. Once the model knows, the next identical failure is number 1."""
    order: int = 0
    """Of two failures of a buffer the later one has the greater."""


class Attempts:
    """Counts of identical failures. Bounded, those longest not used go first. Guarded by the buffer's lock.

    Args:
        limit: The Nth identical failure that escalates; 0: none does.
        transient_limit: The same for connectivity, rate_limit and upstream.
        max_keys: Counts to keep.
    """

    def __init__(self, limit: int, transient_limit: int, max_keys: int) -> None:
        self._limit = limit
        self._transient_limit = transient_limit
        self._max_keys = max_keys
        self._numbers: OrderedDict[Key, int] = OrderedDict()
        self._order = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def next(self, key: Key, error_class: ErrorClass) -> Attempt:
        """Count one more failure."""
        self._order += 1
        number = self._numbers.pop(key, 0) + 1
        self._numbers[key] = number
        if len(self._numbers) > self._max_keys:
            self._numbers.popitem(last=False)
        limit = self._transient_limit if error_class in TRANSIENT else self._limit
        return Attempt(number, bool(limit) and number >= limit, self._order)

    def forget(self, key: Key) -> None:
        """Begin again with 1."""
        self._numbers.pop(key, None)

    def clear(self) -> None:
        """Begin again with 1, for all."""
        self._numbers.clear()
