"""What a courier remembers of files, so that a long life does not make its passes long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from .segment import RecordKind, SegmentReader, State


class Settled:
    """Which segments hold nothing pending, by their time of change.

    Whoever changes a state writes to the file, so a file that did not change since need not be read again. Appends go
    through the owner's map and change no time, so this is for segments that do not grow.
    """

    _SURE_NS: Final = 1_000_000_000
    """File systems keep the time by a coarse clock: two changes within one tick look like one."""
    _MOST: Final = 10_000

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int]] = {}

    def look(self, path: Path) -> int | None:
        """Return when a file changed, nanoseconds since the epoch; None when it is gone."""
        try:
            return path.stat().st_mtime_ns
        except OSError:
            return None

    def quarantined(self, path: Path, seen: int) -> int | None:
        """Return how many of its records are quarantined when nothing is pending; None when it has to be read."""
        changed, quarantined = self._known.get(path, (0, 0))
        return quarantined if changed == seen else None

    def learn(self, path: Path, seen: int, reader: SegmentReader) -> None:
        """Note that a segment, looked at when it had changed at ``seen``, holds nothing pending, if so."""
        if time.time_ns() - seen < self._SURE_NS:
            return
        states = [header.state for header in reader.live() if header.kind is not RecordKind.RESOURCE]
        if State.PENDING not in states:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[path] = seen, states.count(State.QUARANTINED)
