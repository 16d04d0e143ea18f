"""What is pending, and indexes that find what a success resolves without a walk over all of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from ..model import ErrorSummary
from .entry import Entry, Held, Key, Told
from .policies import Lanes, Success

_FEW = 8
"""Failures that are taken out of a lane one by one; more cost less in one walk."""


class Pending:
    """Entries in the order of their newest failures. Bounded. Guarded by the buffer's lock.

    Every failure of an entry stands in each index that can find it, and is taken out of all of them at once.

    Args:
        lanes: Where a success looks for what the model knew of.
        max_entries: Beyond it the oldest entry goes.
    """

    def __init__(self, lanes: Lanes, max_entries: int) -> None:
        self.entries: OrderedDict[Key, Entry] = OrderedDict()
        self.dropped = 0
        """Entries that went because of the bound."""
        self._max_entries = max_entries
        self._lanes_of = lanes
        self._number = 0
        self._lanes: dict[str, list[Held]] = {}
        """Each sorted by the failures' ends."""
        self._by_call_id: dict[str, dict[int, Held]] = {}
        self._by_call: dict[tuple[str, str | None], dict[Key, Entry]] = {}
        self._by_summary: dict[ErrorSummary, Entry] = {}
        self._unplaced: OrderedDict[Key, Entry] = OrderedDict()
        """What renderings show, in the same order."""

    def put(self, told: Told, turn: int, now_ns: int) -> Key | None:
        """Take in a failure; return the key of the entry that had to go for it, if any."""
        key, dropped = told.key, None
        self._number += 1
        held = Held(told.ended_ns, self._number, turn, told)
        entry = self.entries.get(key)
        if entry is None:
            if len(self.entries) >= self._max_entries:
                dropped = next(iter(self.entries))
                self.remove_entry(dropped)
                self.dropped += 1
            entry = self.entries[key] = Entry(held, now_ns)
            if told.arguments is not None:
                self._by_call.setdefault(key[:2], {})[key] = entry
        else:
            self.entries.move_to_end(key)
            self._forget_summary(entry)
            gone = entry.add(held, now_ns)
            if gone is not None:
                self._unindex((gone,))
        self._by_summary[entry.summary] = entry
        self._unplaced.pop(key, None)
        if not entry.placed:
            self._unplaced[key] = entry
        lane = self._lanes_of.of_failure(told)
        if lane is not None:
            insort(self._lanes.setdefault(lane, []), held)
        if told.call_id is not None:
            self._by_call_id.setdefault(told.call_id, {})[held.number] = held
        return dropped

    def own(self, success: Success) -> list[Held]:
        """Return the failures of the call that succeeded: by its id, or by its tool and known arguments."""
        found: dict[int, Held] = {}
        if success.call_id is not None:
            found.update(self._by_call_id.get(success.call_id, {}))
        if success.arguments is not None:
            for entry in self._by_call.get(success[:2], {}).values():
                found.update(entry.failures)
        return list(found.values())

    def known(self, success: Success, known_ns: int) -> list[Held]:
        """Return the failures to ask the policy about: what had ended by ``known_ns``."""
        lane = self._lanes.get(self._lanes_of.of_success(success))
        return [] if lane is None else lane[: bisect_right(lane, known_ns, key=_ended)]

    def remove(self, failures: Iterable[Held]) -> tuple[list[Held], list[tuple[Key, Entry]]]:
        """Take failures out, passing over what is gone already.

        Returns:
            Those that were there, the oldest first, and the entries that went with the last of them.
        """
        removed: dict[int, Held] = {}
        emptied: list[tuple[Key, Entry]] = []
        shown_again = False
        for held in failures:
            key = held.told.key
            entry = self.entries.get(key)
            if entry is None or held.number not in entry.failures:
                continue
            removed[held.number] = held
            if len(entry.failures) == 1:
                self._drop(key, entry)
                emptied.append((key, entry))
                entry.take(held.number)
            else:
                shown_again |= self._take(key, entry, held.number)
        if shown_again:
            self._unplaced = OrderedDict((key, entry) for key, entry in self.entries.items() if not entry.placed)
        self._unindex(removed.values())
        return [removed[number] for number in sorted(removed)], emptied

    def remove_entry(self, key: Key) -> None:
        """Take out an entry with all its failures."""
        entry = self.entries[key]
        self._drop(key, entry)
        self._unindex(entry.failures.values())

    def place(self, summary: ErrorSummary) -> None:
        """Leave the line of a summary out of the renderings, where it is the line of its entry."""
        entry = self._by_summary.get(summary)
        if entry is not None:
            entry.place()
            self._unplaced.pop(entry.newest.told.key, None)

    def newest_first(self) -> Iterator[Entry]:
        """Return what renderings show."""
        return reversed(self._unplaced.values())

    def clear(self) -> None:
        """Take out everything."""
        for index in (self.entries, self._lanes, self._by_call_id, self._by_call, self._by_summary, self._unplaced):
            index.clear()

    def _take(self, key: Key, entry: Entry, number: int) -> bool:
        """Take one of several failures out of an entry; True when a line is to be shown that was not."""
        placed = entry.placed
        self._forget_summary(entry)
        entry.take(number)
        self._by_summary[entry.summary] = entry
        if entry.placed:
            self._unplaced.pop(key, None)
        return placed and not entry.placed

    def _drop(self, key: Key, entry: Entry) -> None:
        del self.entries[key]
        self._unplaced.pop(key, None)
        self._forget_summary(entry)
        same_call = self._by_call.get(key[:2])
        if same_call is not None:
            same_call.pop(key, None)
            if not same_call:
                del self._by_call[key[:2]]

    def _forget_summary(self, entry: Entry) -> None:
        if self._by_summary.get(entry.summary) is entry:
            del self._by_summary[entry.summary]

    def _unindex(self, gone: Collection[Held]) -> None:
        by_lane: dict[str, list[Held]] = {}
        for held in gone:
            told = held.told
            if told.call_id is not None:
                same_id = self._by_call_id[told.call_id]
                del same_id[held.number]
                if not same_id:
                    del self._by_call_id[told.call_id]
            name = self._lanes_of.of_failure(told)
            if name is not None:
                by_lane.setdefault(name, []).append(held)
        for name, out in by_lane.items():
            lane = self._lanes[name]
            if len(out) <= _FEW:
                for held in out:
                    del lane[bisect_left(lane, held)]
            else:
                numbers = {held.number for held in out}
                lane[:] = [held for held in lane if held.number not in numbers]
            if not lane:
                del self._lanes[name]

    def indexed(self) -> int:
        """Return how many rows all indexes have together: what tests of the bounds look at."""
        nested = chain(self._lanes.values(), self._by_call_id.values(), self._by_call.values())
        return sum(map(len, nested)) + len(self._by_summary) + len(self._unplaced)


def _ended(held: Held) -> int:
    return held.ended_ns
