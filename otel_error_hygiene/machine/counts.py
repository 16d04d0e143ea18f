"""What is counted beside the records themselves: every loss (promise P7 of the design)."""

from __future__ import annotations

import threading
from collections import Counter


class Counts:
    """Counts of one processor. One lock; increments only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.unrouted = 0
        self.truncated = 0
        self.displaced = 0
        self.lost: Counter[str] = Counter()

    def cut(self, truncated: bool) -> None:
        """Count a failure that was cut to the bounds, if it was."""
        if truncated:
            with self._lock:
                self.truncated += 1

    def loss(self, reason: str, count: int = 1) -> None:
        """Count failures whose record is not durable."""
        if count:
            with self._lock:
                self.lost[reason] += count

    def displace(self) -> None:
        """Count a line that an agent is told no more, because its buffer was full."""
        with self._lock:
            self.displaced += 1

    def unroutable(self) -> None:
        """Count a failure that no agent was told of."""
        with self._lock:
            self.unrouted += 1
