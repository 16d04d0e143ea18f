"""The outbox: this process's own records, appended on the tool's thread.

Nothing exists on disk until the first failure. One lock guards the writing; it is held for a copy in
memory, and for the making of a file once in about two hundred failures.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Final

from opentelemetry.sdk.resources import Resource

from .record import Plain, dumps
from .segment import FAILURES, FIRST_OFFSET, HEADER_BYTES, RecordKind, SegmentWriter, State
from .store import WAITING, make_writer, store_bytes

_SEGMENT_BYTES: Final = 1024 * 1024
_PAGE: Final = 4096


class Refused(Exception):
    """The store did not take a record; ``reason`` is the key under which the loss is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Outbox:
    """Append records, find one's own again, count what became of them.

    Args:
        root: Folder of the store.
        destination: Where its records go; the name of a folder.
        label: What a human calls the destination.
        max_bytes: Quota of the whole store.
        fsync: Write through to the disk before an append returns.
    """

    def __init__(self, root: Path, destination: str, label: str, *, max_bytes: int, fsync: bool = False) -> None:
        self.root = root
        self._label = label
        self.destination = destination
        self._max_bytes = max_bytes
        self._fsync = fsync
        self._segment_bytes = min(_SEGMENT_BYTES, max(max_bytes // 8 // _PAGE * _PAGE, 4 * _PAGE))
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        # os.urandom lets go of the interpreter lock; the generator is seeded once and never shared with a fork.
        self._random = random.Random(os.urandom(16))
        self._folder: Path | None = None
        self._owner_fd: int | None = None
        self._segments: list[SegmentWriter] = []
        self._spare: SegmentWriter | None = None
        self._written: set[int] = set()
        self._number = 0
        self._index: dict[int, tuple[SegmentWriter, int]] = {}
        self._refs: set[int] = set()
        self._gone: Counter[State] = Counter()
        self._resources: list[tuple[Resource, bytes]] = []
        self._closed = False

    @property
    def folder(self) -> Path | None:
        """This process's own folder; None before its first record."""
        return self._folder

    def new_id(self) -> int:
        """Return a record id whose first 8 hex digits no record of this process has."""
        while True:
            record_id = self._random.getrandbits(64)
            if record_id >> 32 and record_id >> 32 not in self._refs:
                return record_id

    def resource(self, resource: Resource) -> int:
        """Return the number under which a resource is written."""
        for number, (known, _) in enumerate(self._resources):
            if known is resource:
                return number
        with self._lock:
            plain = {"attributes": dict(resource.attributes), "schema_url": resource.schema_url}
            self._resources.append((resource, dumps(plain)))
            return len(self._resources) - 1

    def append(self, kind: RecordKind, record_id: int, plain: Plain, resource: int) -> None:
        """Make a record durable (against the death of the process; against a power cut with ``fsync``).

        A second record under the same id completes the first.

        Raises:
            Refused: The disk is full, the quota is used up, or the store cannot be written.
        """
        payload = dumps(plain)
        with self._lock:
            segment = self._segment(len(payload), resource)
            offset = segment.append(kind, record_id, payload, fsync=self._fsync)
            if kind not in FAILURES:
                return
            before = self._index.get(record_id)
            self._index[record_id] = (segment, offset)
            self._refs.add(record_id >> 32)
            if before is not None:
                before[0].set_state(before[1], State.SUPERSEDED)

    def _segment(self, length: int, resource: int) -> SegmentWriter:
        current = self._segments[-1] if self._segments else None
        described = len(self._resources[resource][1]) + 2 * HEADER_BYTES + 16
        if current is None or current.room() < length + (0 if resource in self._written else described):
            current = self._next(length + described)
        if resource not in self._written:
            current.append(RecordKind.RESOURCE, resource, self._resources[resource][1])
            self._written.add(resource)
        return current

    def _next(self, length: int) -> SegmentWriter:
        if self._closed:
            raise Refused("closed", "the processor is shut down")
        needed = FIRST_OFFSET + HEADER_BYTES + 16 + length
        size = max(self._segment_bytes, -(-needed // _PAGE) * _PAGE)
        spare, self._spare = self._spare, None
        segment = spare if spare is not None and spare.size >= size else self._allocate(size)
        self._segments.append(segment)
        self._written = set()
        return segment

    def _allocate(self, size: int) -> SegmentWriter:
        try:
            if store_bytes(self.root) + size > self._max_bytes:
                self._forget_delivered()
                if store_bytes(self.root) + size > self._max_bytes:
                    raise Refused("quota", f"the store in {self.root} has reached its quota of {self._max_bytes} bytes")
            if self._folder is None or not self._folder.exists():
                self._let_go()
                self._folder, self._owner_fd = make_writer(self.root, self.destination, self._label)
            self._number += 1
            return SegmentWriter(self._folder / f"{self._number:08d}.seg", size)
        except OSError as error:
            reason = "disk_full" if error.errno in (28, 122) else "store_unavailable"  # ENOSPC, EDQUOT
            raise Refused(reason, f"the store in {self.root} cannot be written: {error}") from error

    def _let_go(self) -> None:
        if self._owner_fd is not None:
            os.close(self._owner_fd)
            self._owner_fd = None

    def prepare(self) -> None:
        """Allocate the next file before it is needed; for the courier's thread."""
        with self._lock:
            current = self._segments[-1] if self._segments else None
            if current is None or self._spare is not None or current.used < current.size // 2:
                return
            try:
                self._spare = self._allocate(self._segment_bytes)
            except Refused:
                return

    def _forget_delivered(self) -> None:
        """Remove one's own files, the current one excepted, of which nothing waits any more."""
        for segment in self._segments[:-1]:
            if WAITING.isdisjoint(segment.states()):
                self._forget(segment)
                segment.path.unlink(missing_ok=True)

    def _forget(self, segment: SegmentWriter) -> int:
        """Drop a file from the index; return how many failures in it were still waiting."""
        waiting = 0
        for record_id, (where, offset) in list(self._index.items()):
            if where is segment:
                state = State(segment.state(offset))
                if state in WAITING:
                    waiting += 1
                else:
                    self._gone[state] += 1
                del self._index[record_id]
        self._segments.remove(segment)
        segment.close()
        return waiting

    def removed(self) -> int:
        """Notice files that somebody removed under us; return how many failures were lost with them.

        The next record makes a new folder.
        """
        with self._lock:
            gone = [segment for segment in self._segments if segment.removed()]
            lost = sum(self._forget(segment) for segment in gone)
            if gone and self._folder is not None and not self._folder.exists():
                if self._spare is not None:
                    self._spare.close()
                    self._spare = None
                self._folder = None
                self._written = set()
            return lost

    def forget_before(self, before: float) -> None:
        """Remove one's own files, the current one excepted, that the retention has passed (seconds since the epoch)."""
        with self._lock:
            for segment in self._segments[:-1]:
                if segment.newest() < before and WAITING.isdisjoint(segment.states()):
                    self._forget(segment)
                    segment.path.unlink(missing_ok=True)

    def states(self) -> Counter[State]:
        """Count what became of this process's own failures, whoever did it."""
        with self._lock:
            counts = Counter(self._gone)
            for segment, offset in self._index.values():
                counts[State(segment.state(offset))] += 1
            return counts

    def close(self) -> None:
        """Take no more, give back what is not used. Records stay for whoever adopts them, and can still be counted."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for segment in self._segments:
                segment.shrink()
            if self._spare is not None:
                self._spare.shrink()
                self._spare = None
            self._let_go()

    def after_fork(self) -> None:
        """In a forked child: the files belong to the parent; begin anew."""
        for segment in [*self._segments, *([self._spare] if self._spare else [])]:
            segment.close()
        self._let_go()
        self._reset()
