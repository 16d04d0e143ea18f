"""The outbox: this process's own records, appended on the tool's thread.

Nothing exists on disk until the first failure. One lock guards the writing; it is held for a copy in
memory, and for the making of a file once in about two hundred failures.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

from opentelemetry.sdk.resources import Resource

from .record import Plain, dumps
from .segment import FAILURES, FIRST_OFFSET, HEADER_BYTES, RecordKind, SegmentWriter, State
from .store import SPARE, WAITING, make_room, make_writer, out_of_retention, store_bytes, sync_folder

_SEGMENT_BYTES: Final = 1024 * 1024
_PAGE: Final = 4096
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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
        retention_seconds: Also remove one's own files that are older, when a new one is made; for processes without a
            courier, which does it otherwise. None: do not.
    """

    def __init__(
        self,
        root: Path,
        destination: str,
        label: str,
        *,
        max_bytes: int,
        fsync: bool = False,
        retention_seconds: float | None = None,
    ) -> None:
        self.root = root
        self._label = label
        self.destination = destination
        self._max_bytes = max_bytes
        self._fsync = fsync
        self._retention_seconds = retention_seconds
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
        self._spares = 0
        self._index: dict[int, tuple[SegmentWriter, int]] = {}
        self._refs: set[int] = set()
        self._gone: Counter[State] = Counter()
        self._lost = 0
        self._lost_reports: set[int] = set()
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
        written = dumps({"attributes": dict(resource.attributes), "schema_url": resource.schema_url})
        with self._lock:
            for number, (_, before) in enumerate(self._resources):
                if before == written:  # a provider made anew, as for each request
                    return number
            self._resources.append((resource, written))
            return len(self._resources) - 1

    def append(self, kind: RecordKind, record_id: int, plain: Plain, resource: int) -> None:
        """Make a record durable (against the death of the process; against a power cut with ``fsync``).

        A second record under the same id completes the first.

        Raises:
            Refused: The disk is full, the quota is used up, the store cannot be written, or the outbox is closed.
        """
        payload = dumps(plain)
        with self._lock:
            if self._closed:
                # The pages behind the end of a shrunk file are gone: to write there would kill the process.
                raise Refused("closed", "the processor is shut down")
            if self._segments and self._segments[-1].removed():
                self._drop_removed()
            segment = self._segment(len(payload), resource)
            offset = segment.append(kind, record_id, payload, fsync=self._fsync)
            if kind not in FAILURES:
                return
            before = self._index.get(record_id)
            self._index[record_id] = (segment, offset)
            self._refs.add(record_id >> 32)
            if before is not None:
                before[0].set_state(before[1], State.SUPERSEDED)
            elif record_id in self._lost_reports:  # it was counted as lost, and is here again, whole
                self._lost_reports.remove(record_id)
                self._lost -= 1

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
        needed = FIRST_OFFSET + HEADER_BYTES + 16 + length
        size = max(self._segment_bytes, -(-needed // _PAGE) * _PAGE)
        try:
            segment = self._take_spare(size) or self._allocate(size)
            try:
                # Named when used: whoever lists the folder sees whole files, and only the last one of them grows.
                self._number += 1
                segment.move(segment.path.with_name(f"{self._number:08d}.seg"))
                if self._fsync:
                    sync_folder(segment.path.parent)
            except BaseException:
                _discard(segment)
                raise
        except OSError as error:
            reason = "disk_full" if error.errno in _FULL else "store_unavailable"
            raise Refused(reason, f"the store in {self.root} cannot be written: {error}") from error
        self._segments.append(segment)
        self._written = set()
        return segment

    def _take_spare(self, size: int) -> SegmentWriter | None:
        spare = self._spare
        if spare is not None and spare.removed():
            self._drop_spare()
            return None
        if spare is None or spare.size < size:
            return None
        self._spare = None
        return spare

    def _allocate(self, size: int) -> SegmentWriter:
        if self._retention_seconds is not None:
            self._forget_before(time.time() - self._retention_seconds)
        if not self._has_room(size):
            self._forget_delivered()
            make_room(self.root, lambda: self._has_room(size))
            if not self._has_room(size):
                raise Refused("quota", f"the store in {self.root} has reached its quota of {self._max_bytes} bytes")
        if self._folder is None or not self._folder.exists():
            self._let_go()
            self._folder, self._owner_fd = make_writer(self.root, self.destination, self._label, fsync=self._fsync)
        self._spares += 1
        return SegmentWriter(self._folder / f"{self._spares}{SPARE}", size)

    def _has_room(self, size: int) -> bool:
        return store_bytes(self.root) + size <= self._max_bytes

    def _let_go(self) -> None:
        if self._owner_fd is not None:
            os.close(self._owner_fd)
            self._owner_fd = None

    def _drop_spare(self) -> None:
        if self._spare is not None:
            _discard(self._spare)
            self._spare = None

    def prepare(self) -> None:
        """Allocate the next file before it is needed; for the courier's thread, and the tool's does not wait for it."""
        with self._lock:
            current = self._segments[-1] if self._segments else None
            if self._closed or current is None or self._spare is not None or current.used < current.size // 2:
                return
            folder = current.path.parent
            self._spares += 1
            path = folder / f"{self._spares}{SPARE}"
        try:
            if not self._has_room(self._segment_bytes):
                return
            made = SegmentWriter(path, self._segment_bytes)
        except OSError:  # the next append says so
            return
        with self._lock:
            if self._left(folder):
                _discard(made)
            else:
                self._drop_spare()
                self._spare = made

    def _left(self, folder: Path) -> bool:
        return self._closed or self._folder != folder

    def _forget_delivered(self) -> None:
        """Remove one's own files, the current one excepted, of which nothing waits any more."""
        for segment in self._segments[:-1]:
            if all(state not in WAITING for _, state, _ in segment.records()):
                self._forget(segment)
                segment.path.unlink(missing_ok=True)

    def _forget(self, segment: SegmentWriter) -> int:
        """Drop a file from the index; return how many failures in it were still waiting."""
        waiting = 0
        for record_id, (where, offset) in list(self._index.items()):
            if where is segment:
                state = segment.state(offset)
                if state in WAITING:
                    waiting += 1
                    if segment.kind(offset) == RecordKind.REPORT:
                        self._lost_reports.add(record_id)
                else:
                    self._gone[state] += 1
                del self._index[record_id]
                self._refs.discard(record_id >> 32)
        self._segments.remove(segment)
        segment.close()
        return waiting

    def _drop_removed(self) -> None:
        gone = [segment for segment in self._segments if segment.removed()]
        self._lost += sum(self._forget(segment) for segment in gone)
        self._written = set()  # the last of the others, if it is written on, gets the resources once more
        if gone and self._folder is not None and not self._folder.exists():
            self._drop_spare()
            self._let_go()
            self._folder = None

    def removed(self) -> int:
        """Notice files that somebody removed under us; return how many failures were lost with them since last asked.

        The next record makes a new folder.
        """
        with self._lock:
            if any(segment.removed() for segment in self._segments):
                self._drop_removed()
            lost, self._lost = self._lost, 0
            return lost

    def forget_before(self, before: float) -> None:
        """Remove one's own files that the retention has passed (seconds since the epoch)."""
        with self._lock:
            self._forget_before(before)

    def _forget_before(self, before: float) -> None:
        for segment in list(self._segments):
            for offset, state, at in segment.records():
                if not out_of_retention(at, before):
                    break  # the later ones are younger
                if state in WAITING:
                    segment.set_state(offset, State.EXPIRED)
            if out_of_retention(segment.newest(), before):
                if segment is self._segments[-1]:
                    self._written = set()
                self._forget(segment)
                segment.path.unlink(missing_ok=True)

    def states(self) -> Counter[State]:
        """Count what became of this process's own failures, whoever did it."""
        with self._lock:
            counts = Counter(self._gone)
            for segment, offset in self._index.values():
                counts[segment.state(offset)] += 1
            return counts

    def close(self) -> None:
        """Take no more, give back what is not used. Records stay for whoever adopts them, and can still be counted."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for segment in self._segments:
                segment.shrink()
            self._drop_spare()
            self._let_go()

    def after_fork(self) -> None:
        """In a forked child: the files belong to the parent; begin anew."""
        for segment in [*self._segments, *([self._spare] if self._spare else [])]:
            segment.close()
        self._let_go()
        self._reset()


def _discard(segment: SegmentWriter) -> None:
    """Remove a file that holds no record."""
    segment.shrink()
    segment.close()
