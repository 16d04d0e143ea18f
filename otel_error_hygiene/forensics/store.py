"""The store on disk: ``<store_path>/<destination>/<writer>/<number>.seg``.

A writer is one process. It holds ``owner.lock`` for as long as it lives, and the kernel lets go of it
however the process dies; so a lock that can be had means that the owner is gone and its records may be
adopted. Whoever delivers from a folder holds ``courier.lock`` meanwhile. Nobody waits for either lock.

What cannot be read (another user's folder, another version's file) is left alone and never stops the rest.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from .._guard import say_once
from .locks import lock_file, locked_for_a_moment
from .segment import RecordKind, SegmentReader, State
from .settled import Settled

LOCAL: Final = "local"
"""Destination of records that are exported by nobody, or by a pipeline that is not ours."""
WAITING: Final = frozenset({State.PENDING, State.QUARANTINED})
"""States that want something yet: the backend's word, or a human's."""
_LABEL: Final = "destination.txt"
_OWNER: Final = "owner.lock"
_COURIER: Final = "courier.lock"
_REASONS: Final = "reasons.txt"
_REASON_LINE: Final = re.compile(r"[0-9a-f]{16} .")
SPARE: Final = ".new"
"""Suffix of a file that is allocated and not yet used."""


def make_writer(root: Path, destination: str, label: str, *, fsync: bool = False) -> tuple[Path, int]:
    """Make this process's own folder, and return it with the descriptor of its owner's lock.

    The folder gets its name only after the lock is held, so nobody sees it without its owner.

    Raises:
        OSError: The store cannot be written.
    """
    parent = root / destination
    root.parent.mkdir(parents=True, exist_ok=True)
    for folder in (root, parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        _write(parent / _LABEL, os.O_EXCL, label + "\n")
    name = f"{os.getpid()}-{time.time_ns():x}"
    hidden, folder = parent / f".{name}", parent / name
    hidden.mkdir(mode=0o700)
    fd = None
    try:
        fd = lock_file(hidden / _OWNER)
        assert fd is not None, "a new file has no other owner"
        hidden.rename(folder)
        if fsync:
            for changed in (folder, parent, root, root.parent):
                sync_folder(changed)
    except BaseException:
        if fd is not None:
            os.close(fd)
        for made in (hidden, folder):
            shutil.rmtree(made, ignore_errors=True)
        raise
    return folder, fd


def sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk; a file without its name is lost in a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path: Path, flags: int, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def label_of(root: Path, destination: str) -> str:
    """Return what a destination's folder stands for: an endpoint, without credentials."""
    try:
        return (root / destination / _LABEL).read_text("utf-8", errors="replace").strip() or destination
    except OSError:
        return destination


class Writer:
    """One writer's folder, as anybody sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.destination = folder.parent.name
        self._readers: dict[str, SegmentReader] = {}

    def alive(self) -> bool:
        """Tell whether its process still lives; True also when that cannot be told."""
        try:
            with locked_for_a_moment(self.folder / _OWNER, 0) as gone:
                return not gone
        except FileNotFoundError:
            return False
        except OSError:
            return True

    @contextlib.contextmanager
    def delivering(self) -> Iterator[bool]:
        """Hold the courier's lock; yields False when another courier is at work here."""
        with contextlib.ExitStack() as stack:
            try:
                held = stack.enter_context(locked_for_a_moment(self.folder / _COURIER))
            except OSError:
                held = False
            yield held

    def names(self) -> list[str]:
        """Return the names of all its segments, oldest first. Only the last one can still grow."""
        try:
            return sorted(path.name for path in self.folder.iterdir() if path.suffix == ".seg")
        except FileNotFoundError:
            return []
        except OSError as error:
            say_once(f"folder:{self.folder}", "left alone in the store: %s", error)
            return []

    def open(self, name: str) -> SegmentReader | None:
        """Return a reader of one segment, which stays open until ``close``; None when it is gone or unreadable."""
        if name not in self._readers:
            try:
                self._readers[name] = SegmentReader(self.folder / name)
            except FileNotFoundError:
                return None
            except (OSError, ValueError) as error:
                say_once(f"segment:{self.folder / name}", "left alone in the store: %s", error)
                return None
        return self._readers[name]

    def segments(self) -> list[SegmentReader]:
        """Return readers of all its segments, oldest first; they stay open until ``close``."""
        names = self.names()
        for name in set(self._readers).difference(names):
            self._readers.pop(name).close()
        found = [self.open(name) for name in names]
        return [reader for reader in found if reader is not None]

    def unsettled(self, settled: Settled, *, alive: bool) -> Iterator[SegmentReader]:
        """Yield readers of the segments that may hold something pending; what is settled is not even opened.

        Args:
            settled: What is known from before; learns what is found now.
            alive: The owner may still append to the last segment.
        """
        names = self.names()
        for name in names:
            path = self.folder / name
            growing = alive and name == names[-1]
            seen = settled.look(path)
            if seen is None or (not growing and settled.quarantined(path, seen) is not None):
                reader = self._readers.pop(name, None)
                if reader is not None:
                    reader.close()
                continue
            reader = self.open(name)
            if reader is None:
                continue
            yield reader
            if not growing:
                settled.learn(path, seen, reader)

    def close(self) -> None:
        """Close its readers."""
        while self._readers:
            self._readers.popitem()[1].close()

    def set_reason(self, record_id: int, words: str) -> None:
        """Note why a record is quarantined. Only under the courier's lock."""
        line = f"{record_id:016x} {' '.join(words.split())[:500]}\n"
        _write(self.folder / _REASONS, os.O_APPEND, line)

    def reasons(self) -> dict[int, str]:
        """Return why records are quarantined, by record id."""
        try:
            text = (self.folder / _REASONS).read_text("utf-8", errors="replace")
        except OSError:
            return {}
        return {int(line[:16], 16): line[17:] for line in text.splitlines() if _REASON_LINE.match(line)}

    def forget_reasons(self, record_ids: AbstractSet[int]) -> None:
        """Remove why records were quarantined. Only under the courier's lock."""
        kept = {record_id: words for record_id, words in self.reasons().items() if record_id not in record_ids}
        if len(kept) < len(self.reasons()):
            (self.folder / _REASONS).unlink(missing_ok=True)
            for record_id, words in kept.items():
                self.set_reason(record_id, words)

    def born(self) -> float:
        """Return when its folder was made, by its name, seconds since the epoch; 0 when that cannot be told."""
        try:
            return int(self.folder.name.rpartition("-")[2], 16) / 1e9
        except ValueError:
            return 0.0

    def remove_spares(self) -> None:
        """Remove what was allocated for records that will not come. Only for a dead owner, under the courier's lock."""
        for path in self.folder.glob(f"*{SPARE}"):
            path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder. Only for a dead owner, under the courier's lock."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def writers(root: Path, destination: str | None = None) -> list[Writer]:
    """Return all writers of a store, or of one destination, the oldest first."""
    found: list[Path] = []
    for parent in (root / destination,) if destination is not None else _folders(root):
        # A store may lie in a folder that holds other things: a writer's folder has its lock from the first moment.
        found += [folder for folder in _folders(parent) if (folder / _OWNER).exists()]
    return [Writer(folder) for folder in sorted(found, key=lambda folder: folder.name.rpartition("-")[2])]


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return []


def store_bytes(root: Path) -> int:
    """Return the bytes of all segments of a store, allocated ones included."""
    total = 0
    for destination in _folders(root):
        for folder in _folders(destination):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.endswith((".seg", SPARE)):
                        with contextlib.suppress(OSError):
                            total += entry.stat().st_size
    return total


def out_of_retention(at: int, before: float) -> bool:
    """Tell whether what was written at ``at``, whole seconds, is older than ``before``, seconds since the epoch."""
    return at + 1 < before


def expire(writer: Writer, before: float) -> None:
    """Flip what waited longer than the retention to expired. Only under the courier's lock.

    Args:
        writer: Whose records.
        before: Seconds since the epoch; what was written earlier is out of the retention.
    """
    for name in writer.names():
        reader = writer.open(name)
        first = None if reader is None else reader.first_at()
        if reader is None or first is None:
            continue
        if not out_of_retention(first, before):
            break  # the later ones are younger
        for header in reader.live():
            if out_of_retention(header.at, before) and header.state in WAITING and header.kind != RecordKind.RESOURCE:
                reader.set_state(header.offset, State.EXPIRED)


def sweep(root: Path, before: float) -> None:
    """Remove what dead processes left and the retention has passed, of all destinations."""

    def past(reader: SegmentReader) -> bool:
        return all(out_of_retention(header.at, before) for header in reader.headers())

    for writer in writers(root):
        if writer.born() < before:
            _clear(writer, past, before)


def make_room(root: Path, enough: Callable[[], bool]) -> None:
    """Remove what dead processes left and nobody waits for, the oldest first, until there is enough room."""

    def done(reader: SegmentReader) -> bool:
        return all(h.state not in WAITING or h.kind is RecordKind.RESOURCE for h in reader.live())

    for writer in writers(root):
        if enough():
            return
        _clear(writer, done, None)


def _clear(writer: Writer, removable: Callable[[SegmentReader], bool], before: float | None) -> None:
    try:
        if writer.alive():
            return
        with writer.delivering() as held:
            if not held:
                return
            if before is not None:
                expire(writer, before)
            writer.remove_spares()
            for reader in writer.segments():
                if removable(reader):
                    reader.path.unlink(missing_ok=True)
            if not any(path.suffix == ".seg" for path in writer.folder.iterdir()):
                writer.remove()
    except OSError as error:
        say_once(f"sweep:{writer.folder}", "left alone in the store: %s", error)
    finally:
        writer.close()
