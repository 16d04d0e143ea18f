"""The store on disk: ``<store_path>/<destination>/<writer>/<number>.seg``.

A writer is one process. It holds ``owner.lock`` for as long as it lives, and the kernel lets go of it
however the process dies; so a lock that can be had means that the owner is gone and its records may be
adopted. Whoever delivers from a folder holds ``courier.lock`` meanwhile. Nobody waits for either lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .._guard import say_once
from .segment import SegmentReader, State

LOCAL: Final = "local"
"""Destination of records that are exported by nobody, or by a pipeline that is not ours."""
WAITING: Final = frozenset({State.PENDING, State.QUARANTINED})
"""States that want something yet: the backend's word, or a human's."""
_LABEL: Final = "destination.txt"
_OWNER: Final = "owner.lock"
_COURIER: Final = "courier.lock"
_REASONS: Final = "reasons.txt"


def lock_file(path: Path) -> int | None:
    """Take an exclusive lock, without waiting; return its descriptor, or None when another holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def make_writer(root: Path, destination: str, label: str) -> tuple[Path, int]:
    """Make this process's own folder, and return it with the descriptor of its owner's lock.

    The folder gets its name only after the lock is held, so nobody sees it without its owner.

    Raises:
        OSError: The store cannot be written.
    """
    parent = root / destination
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (parent / _LABEL).exists():
        (parent / _LABEL).write_text(label + "\n", encoding="utf-8")
    name = f"{os.getpid()}-{time.time_ns():x}"
    hidden = parent / f".{name}"
    hidden.mkdir(mode=0o700)
    fd = lock_file(hidden / _OWNER)
    assert fd is not None, "a new file has no other owner"
    folder = parent / name
    hidden.rename(folder)
    return folder, fd


def label_of(root: Path, destination: str) -> str:
    """Return what a destination's folder stands for: an endpoint, without credentials."""
    try:
        return (root / destination / _LABEL).read_text("utf-8").strip()
    except OSError:
        return destination


class Writer:
    """One writer's folder, as anybody sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.destination = folder.parent.name
        self._readers: dict[str, SegmentReader] = {}

    def alive(self) -> bool:
        """Tell whether its process still lives."""
        try:
            fd = lock_file(self.folder / _OWNER)
        except FileNotFoundError:
            return False
        if fd is None:
            return True
        os.close(fd)
        return False

    @contextlib.contextmanager
    def delivering(self) -> Iterator[bool]:
        """Hold the courier's lock; yields False when another courier is at work here."""
        try:
            fd = lock_file(self.folder / _COURIER)
        except OSError:
            fd = None
        try:
            yield fd is not None
        finally:
            if fd is not None:
                os.close(fd)

    def segments(self) -> list[SegmentReader]:
        """Return readers of all its segments, oldest first; they stay open until ``close``."""
        try:
            names = sorted(path.name for path in self.folder.iterdir() if path.suffix == ".seg")
        except FileNotFoundError:
            names = []
        for name in list(self._readers):
            if name not in names:
                self._readers.pop(name).close()
        for name in names:
            if name not in self._readers:
                try:
                    self._readers[name] = SegmentReader(self.folder / name)
                except FileNotFoundError:
                    continue
                except ValueError as error:
                    say_once(f"segment:{name}", "left alone in the store: %s", error)
        return [self._readers[name] for name in names if name in self._readers]

    def close(self) -> None:
        """Close its readers."""
        while self._readers:
            self._readers.popitem()[1].close()

    def set_reason(self, record_id: int, words: str) -> None:
        """Note why a record is quarantined. Only under the courier's lock."""
        line = f"{record_id:016x} {' '.join(words.split())[:500]}\n"
        with (self.folder / _REASONS).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)

    def reasons(self) -> dict[int, str]:
        """Return why records are quarantined, by record id."""
        try:
            text = (self.folder / _REASONS).read_text("utf-8", errors="replace")
        except OSError:
            return {}
        return {int(line[:16], 16): line[17:] for line in text.splitlines() if len(line) > 17}

    def remove(self) -> None:
        """Remove the folder. Only for a dead owner, under the courier's lock."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def writers(root: Path, destination: str | None = None) -> list[Writer]:
    """Return all writers of a store, or of one destination, the oldest first."""
    found: list[Path] = []
    for parent in (root / destination,) if destination is not None else _folders(root):
        found += _folders(parent)
    return [Writer(folder) for folder in sorted(found, key=lambda folder: folder.name.rpartition("-")[2])]


def _folders(parent: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(parent) if entry.is_dir() and not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def store_bytes(root: Path) -> int:
    """Return the bytes of all segments of a store."""
    total = 0
    for destination in _folders(root):
        for folder in _folders(destination):
            with contextlib.suppress(FileNotFoundError):
                for entry in os.scandir(folder):
                    if entry.name.endswith(".seg"):
                        with contextlib.suppress(FileNotFoundError):
                            total += entry.stat().st_size
    return total


def expire(writer: Writer, before: float) -> None:
    """Flip what waited longer than the retention to expired. Only under the courier's lock.

    Args:
        writer: Whose records.
        before: Seconds since the epoch; what was written earlier is out of the retention.
    """
    for reader in writer.segments():
        headers = reader.headers()
        if headers and headers[0].at < before:
            for header in reader.live():
                if header.at < before and header.state in WAITING:
                    reader.set_state(header.offset, State.EXPIRED)


def sweep(root: Path, before: float) -> None:
    """Remove what dead processes left and the retention has passed, of all destinations."""
    for writer in writers(root):
        try:
            if writer.alive():
                continue
            with writer.delivering() as held:
                if not held:
                    continue
                expire(writer, before)
                for reader in writer.segments():
                    if all(header.at < before for header in reader.headers()):
                        reader.path.unlink(missing_ok=True)
                if not writer.segments():
                    writer.remove()
        finally:
            writer.close()
