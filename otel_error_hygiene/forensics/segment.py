"""One append-only file of framed records, written by one process, read by any.

Layout, little endian: a file header of 32 bytes (magic, version, pid, creation time), then records.
A record is a header of 32 bytes and its payload, padded to 8 bytes. The four bytes of the header's
magic are written last, so a process that dies while it appends leaves a record that does not exist.

The writer maps the file: an append is a copy in memory, which survives SIGKILL (the pages belong to
the kernel) and never lets go of the interpreter lock. The blocks are allocated beforehand, so a full
disk is an error of the allocation and not a SIGBUS. Everybody else reads and flips states with
``pread`` and ``pwrite``, which a file that shrinks cannot hurt.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple, Self

_FILE = struct.Struct("<8sIIQ8x")
_FILE_MAGIC: Final = b"OEHSEG1\n"
_VERSION: Final = 1
_RECORD = struct.Struct("<IBBHIIQII")
_CHECKED = struct.Struct("<BIIQI")
_MAGIC: Final = 0x4F454831
_MAGIC_BYTES: Final = struct.pack("<I", _MAGIC)
_STATE_OFFSET: Final = 4
HEADER_BYTES: Final = _RECORD.size
FIRST_OFFSET: Final = _FILE.size
_ZEROS_BYTES: Final = 128 * 1024
_CRC_CHUNK: Final = 4096
"""zlib lets go of the interpreter lock above 5 KiB; beside a busy thread that costs a switch interval of 5 ms."""


class State(IntEnum):
    """What became of a record. One byte in the file, flipped in place."""

    PENDING = 1
    DELIVERED = 2
    QUARANTINED = 3
    EXPIRED = 4
    DISCARDED = 5
    SUPERSEDED = 6
    """Completed by a later record with the same id."""
    PURGED = 7
    """Delivered, and erased on demand."""


class RecordKind(IntEnum):
    """What a record holds."""

    FAILURE = 1
    REPORT = 2
    """A failure that was reported while its span was still open."""
    SPAN = 3
    """Another span of the trace of a failure."""
    RESOURCE = 4
    RECOVERY = 5
    """A span that resolved failures."""


FAILURES: Final = frozenset({RecordKind.FAILURE, RecordKind.REPORT})


class Header(NamedTuple):
    """One record as its header tells it."""

    offset: int
    kind: RecordKind
    state: State
    record_id: int
    length: int
    """Bytes of the payload."""
    crc: int
    at: int
    """When it was written, whole seconds since the epoch."""

    @property
    def end(self) -> int:
        """Offset of what follows."""
        return self.offset + HEADER_BYTES + _padded(self.length)


def _padded(length: int) -> int:
    return (length + 7) & ~7


def crc_of(payload: bytes) -> int:
    """Return the CRC-32 of a payload."""
    if len(payload) <= _CRC_CHUNK:
        return zlib.crc32(payload)
    crc, view = 0, memoryview(payload)
    for start in range(0, len(payload), _CRC_CHUNK):
        crc = zlib.crc32(view[start : start + _CRC_CHUNK], crc)
    return crc


def _state(value: int) -> State:
    try:
        return State(value)
    except ValueError:
        return State.PENDING  # a damaged byte: to deliver once more is better than never


def _header_crc(kind: int, length: int, crc: int, record_id: int, at: int) -> int:
    # Without the state, which is flipped in place.
    return zlib.crc32(_CHECKED.pack(kind, length, crc, record_id, at))


@functools.cache
def _finder() -> Callable[[bytes], bool]:
    """Return what tells whether a path is there, without letting go of the interpreter lock where that is possible."""
    try:
        import ctypes

        access = ctypes.PyDLL(None).access  # PyDLL keeps the lock; os.access gives it away, to any busy thread
        assert access(b"/", os.F_OK) == 0
    except Exception:  # a Python without ctypes, a C library without the symbol
        return lambda path: os.access(path, os.F_OK)
    return lambda path: access(path, os.F_OK) == 0


class SegmentWriter:
    """The owner's side. Not thread-safe: the outbox holds its lock.

    Args:
        path: A file that does not exist yet.
        size: Bytes to allocate.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._place(path)
        self.size = size
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _allocate(fd, size)
            self._map = mmap.mmap(fd, size)
            self._map[:FIRST_OFFSET] = _FILE.pack(_FILE_MAGIC, _VERSION, os.getpid(), time.time_ns())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)  # the map has a descriptor of its own, and an agent has no descriptors to waste
        self.used = FIRST_OFFSET
        self._newest = 0

    def _place(self, path: Path) -> None:
        self.path = path
        self._name = os.fsencode(path)
        self._found = _finder()

    def move(self, path: Path) -> None:
        """Give the file another name in its folder."""
        self.path.rename(path)
        self._place(path)

    def newest(self) -> int:
        """Return when the last record was written, whole seconds since the epoch; 0 for none."""
        return self._newest

    def room(self) -> int:
        """Return how many bytes of payload still fit."""
        while self._map[self.used : self.used + 4] == _MAGIC_BYTES:
            # A signal's exception came between a record and our note of it: a reader may have seen it, so it stays.
            self.used += HEADER_BYTES + _padded(_RECORD.unpack_from(self._map, self.used)[4])
        return self.size - self.used - HEADER_BYTES - 8

    def append(self, kind: RecordKind, record_id: int, payload: bytes, *, fsync: bool = False) -> int:
        """Write a record, and return its offset. The caller has asked ``room`` first."""
        offset, length, crc = self.used, len(payload), crc_of(payload)
        start, at = offset + HEADER_BYTES, int(time.time())
        self._map[start : start + length] = payload
        check = _header_crc(kind, length, crc, record_id, at)
        header = _RECORD.pack(_MAGIC, State.PENDING, kind, 0, length, crc, record_id, check, at)
        self._map[offset + 4 : start] = header[4:]
        self._map[offset : offset + 4] = _MAGIC_BYTES
        self.used = start + _padded(length)
        self._newest = at
        if fsync:
            self._sync()
        return offset

    def _sync(self) -> None:
        # mmap.flush would hold the interpreter lock while the disk works.
        fd = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def state(self, offset: int) -> State:
        """Return the state of the record at ``offset``, as anybody last set it."""
        return _state(self._map[offset + _STATE_OFFSET])

    def set_state(self, offset: int, state: State) -> None:
        """Flip the state of the record at ``offset``."""
        self._map[offset + _STATE_OFFSET] = state

    def kind(self, offset: int) -> int:
        """Return the kind of the record at ``offset``."""
        return self._map[offset + _STATE_OFFSET + 1]

    def records(self) -> Iterator[tuple[int, State, int]]:
        """Yield offset, state and time of all records that a courier looks at (resources are not)."""
        offset = FIRST_OFFSET
        while offset < self.used:
            _, state, kind, _, length, *_, at = _RECORD.unpack_from(self._map, offset)
            if kind != RecordKind.RESOURCE:
                yield offset, _state(state), at
            offset += HEADER_BYTES + _padded(length)

    def removed(self) -> bool:
        """Tell whether somebody removed the file, or moved it away."""
        if self._found(self._name):
            return False
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # out of our reach, but there
            return False
        return False

    def shrink(self) -> None:
        """Give back what was allocated and not used, or the file when it is empty; its records stay readable.

        Nothing can be appended afterwards: the pages behind the end are gone.
        """
        with contextlib.suppress(OSError):
            if self.used == FIRST_OFFSET:
                self.path.unlink(missing_ok=True)
            else:
                os.truncate(self.path, self.used)

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):  # a file system that cannot
                raise
        else:
            return
    zeros, start = bytes(65536), 0  # also macOS, which has no posix_fallocate
    while start < size:
        start += os.pwrite(fd, zeros[: size - start], start)


class SegmentReader:
    """Anybody's side of a segment: scan, read, flip states.

    Raises:
        OSError: The file cannot be opened for reading and writing.
        ValueError: It is no segment, or of a later version; names the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._scanned = FIRST_OFFSET
        self._headers: list[Header] = []
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = os.pread(self._fd, FIRST_OFFSET, 0)
        except OSError:  # a folder, or a file that cannot be read
            os.close(self._fd)
            raise
        magic, version, self.pid, self.created_ns = _FILE.unpack(head) if len(head) == _FILE.size else (b"", 0, 0, 0)
        if magic != _FILE_MAGIC or version != _VERSION:
            os.close(self._fd)
            raise ValueError(f"{path.name} is not a segment of version {_VERSION}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def headers(self) -> list[Header]:
        """Return all records so far, the new ones since the last call included, states as they were when first seen."""
        while (header := self._header(self._scanned)) is not None:
            self._headers.append(header)
            self._scanned = header.end
        return self._headers

    def _header(self, offset: int) -> Header | None:
        raw = os.pread(self._fd, HEADER_BYTES, offset)
        if len(raw) < HEADER_BYTES:
            return None
        magic, state, kind, _, length, crc, record_id, check, at = _RECORD.unpack(raw)
        if magic != _MAGIC or check != _header_crc(kind, length, crc, record_id, at):
            return None
        try:
            return Header(offset, RecordKind(kind), _state(state), record_id, length, crc, at)
        except ValueError:
            return None

    def first_at(self) -> int | None:
        """Return when its first record was written, whole seconds since the epoch; None without one."""
        first = self._headers[0] if self._headers else self._header(FIRST_OFFSET)
        return None if first is None else first.at

    def live(self) -> Iterator[Header]:
        """Yield all records with their states as they are now."""
        for header in self.headers():
            yield header._replace(state=self.state(header.offset))

    def state(self, offset: int) -> State:
        """Return the state of the record at ``offset`` as it is now."""
        found = os.pread(self._fd, 1, offset + _STATE_OFFSET)
        return _state(found[0]) if found else State.DISCARDED  # cut off by somebody since it was seen

    def set_state(self, offset: int, state: State) -> None:
        """Flip the state of the record at ``offset``."""
        os.pwrite(self._fd, bytes((state,)), offset + _STATE_OFFSET)

    def payload(self, header: Header) -> bytes | None:
        """Return a record's payload; None when it was erased or is damaged."""
        payload = os.pread(self._fd, header.length, header.offset + HEADER_BYTES)
        return payload if len(payload) == header.length and crc_of(payload) == header.crc else None

    def erase(self, header: Header) -> None:
        """Overwrite a record's payload; its header stays so that the scan goes on."""
        os.pwrite(self._fd, bytes(header.length), header.offset + HEADER_BYTES)
