"""Locks between processes: held by the kernel for a process, and let go of however it dies. Nobody waits for one."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_passing: set[int] = set()
"""Descriptors of locks that are held for a moment. A forked child would hold them for as long as it lives."""


def _forget_passing() -> None:
    for fd in _passing:
        os.close(fd)
    _passing.clear()


os.register_at_fork(after_in_child=_forget_passing)


def lock_file(path: Path, flags: int = os.O_CREAT) -> int | None:
    """Take an exclusive lock, without waiting; return its descriptor, or None when another holds it.

    Raises:
        OSError: The file cannot be opened, or its file system has no locks.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:
        os.close(fd)
        raise
    return fd


@contextlib.contextmanager
def locked_for_a_moment(path: Path, flags: int = os.O_CREAT) -> Iterator[bool]:
    """Hold a lock; yields False, at once, when another holds it. Raises as ``lock_file``."""
    fd = lock_file(path, flags)
    if fd is None:
        yield False
        return
    _passing.add(fd)
    try:
        yield True
    finally:
        _passing.discard(fd)
        # Closing is not enough: a child that was forked meanwhile shares the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
