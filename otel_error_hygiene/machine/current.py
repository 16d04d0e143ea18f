"""Which processor the module-level functions use, and what a tool boundary hands to it.

A boundary ends its span while it still holds the exception; ``on_end`` runs in the same call, but can
be given nothing but the span. So the boundary leaves a handover under the span's id, and takes it back.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import Protocol

from opentelemetry.sdk.resources import Resource

from ..context import ContextBuffer, Conversations, Rules
from ..model import ErrorSummary, ExceptionNode, ToolCall
from ..settings import Settings
from .counts import Counts
from .reports import Reports
from .splitter import Report, Split, Splitter


class Machine(Protocol):
    """What a boundary needs of a processor."""

    conversations: Conversations
    reports: Reports
    settings: Settings

    @property
    def splitter(self) -> Splitter:
        """Splits one failure two ways."""

    def recorded_outside(self, split: Split, resource: Resource) -> None:
        """Take a record that a boundary made: deliver it."""

    def buffer_of(self, span: object, bound: ContextBuffer | None) -> ContextBuffer | None:
        """Return the buffer that a failure of, or below, an open span concerns."""

    def told_inside(self, span_id: int, call: ToolCall) -> ErrorSummary | None:
        """Return what was told of a call by a span inside of its open one, or None."""

    @property
    def folder(self) -> Path | None:
        """One's own folder of the store; None before the first record."""


class Handover:
    """What a boundary knows of its call, and what the processor made of it."""

    __slots__ = ("arguments", "captured", "error", "escaped", "handled", "repeats", "report", "summary")

    def __init__(self, arguments: str | None) -> None:
        self.arguments = arguments
        """Canonical arguments, or None."""
        self.error: BaseException | None = None
        self.captured: tuple[ExceptionNode, bool] | None = None
        """The exception as ``capture`` gave it."""
        self.escaped = False
        self.repeats = False
        """The exception was told already by a call inside this one."""
        self.report: Report | None = None
        """The failure was recorded before the span's end."""
        self.handled = False
        self.summary: ErrorSummary | None = None


handovers: dict[int, Handover] = {}
"""Span id -> handover, for as long as the span's ``end`` runs."""


class _Unattended:
    """The machine of an agent without telemetry: lines and prunes, no records."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.conversations = Conversations(rules=Rules.of(self.settings))
        self.splitter = Splitter(None, self.settings, Counts())
        self.reports = Reports()
        self.folder: Path | None = None

    def recorded_outside(self, split: Split, resource: Resource) -> None:
        """Nothing was recorded."""

    def buffer_of(self, span: object, bound: ContextBuffer | None) -> ContextBuffer | None:  # noqa: ARG002
        """Return what is bound: nothing is known of spans."""
        return bound

    def told_inside(self, span_id: int, call: ToolCall) -> ErrorSummary | None:  # noqa: ARG002
        """Return None: nothing is known of spans."""
        return None


_lock = threading.Lock()
_unattended: _Unattended | None = None
_current: weakref.ref[Machine] | None = None


def machine() -> Machine:
    """Return the current processor, or the machine that works without one."""
    global _unattended
    found = None if _current is None else _current()
    if found is not None:
        return found
    with _lock:
        if _unattended is None:
            _unattended = _Unattended()
        return _unattended


def made_current(processor: Machine) -> None:
    """Make a processor the one that module-level functions use; it takes over what was bound before."""
    global _current
    with _lock:
        _current = weakref.ref(processor)
        if _unattended is not None:
            processor.conversations.adopt(_unattended.conversations)


def no_longer_current(processor: Machine) -> None:
    """Forget a processor that was shut down, if it is the current one."""
    global _current
    with _lock:
        if _current is not None and _current() is processor:
            _current = None


class _Forks(Protocol):
    def after_fork(self) -> None: ...


_forking: weakref.WeakSet[_Forks] = weakref.WeakSet()


def follow_forks(processor: _Forks) -> None:
    """Call ``after_fork`` of a processor in every forked child."""
    _forking.add(processor)


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    handovers.clear()
    for processor in list(_forking):
        processor.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
