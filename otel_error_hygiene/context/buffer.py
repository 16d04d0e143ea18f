"""The context buffer of one conversation: what the model is told of its failures, until a success resolves them.

What the model knew is told by turn boundaries: a rendering, ``turn()``, a model-call span. Times are
span times (nanoseconds since the epoch), because some instrumentations end their spans later, on
another thread, with the true times written on them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ConfigurationError
from ..model import MAX_LINE_CHARS, ErrorSummary
from . import messages

RECOVERED = "[recovered] Previous tool errors resolved. Proceeding with task."
_MAX_ENTRIES = 1000
_MAX_BOUNDARIES = 1024
_MAX_FAILURES = 32
_MAX_SEEN = 4096
_MAX_SCOPES = 1000

Key = tuple[str, str | None, str]
"""Tool, digest of its canonical arguments (None when unknown), fingerprint of the error."""


class Told(NamedTuple):
    """One failure as a buffer takes it in."""

    key: Key
    summary: ErrorSummary
    ended_ns: int
    origin: tuple[int, int]
    """Trace and span id of the failed call."""
    call_id: str | None


class Cleared(NamedTuple):
    """One failure that a success resolved."""

    ref: str | None
    origin: tuple[int, int]


class _Failure(NamedTuple):
    """One of the identical failures that share an entry."""

    ended_ns: int
    call_id: str | None
    cleared: Cleared


class _Entry:
    """A pending failure and its repeats: one line, gone when all of them are resolved. Guarded by the buffer's lock."""

    __slots__ = ("failures", "placed", "shown", "summary")

    def __init__(self, told: Told) -> None:
        self.summary = told.summary
        self.failures: list[_Failure] = []
        self.placed = False
        """As the failed call's own result message."""
        self.shown = False
        """In a rendering, or placed."""
        self.add(told)

    def add(self, told: Told) -> None:
        if told.summary.attempt >= self.summary.attempt:
            self.summary = told.summary
        # Beyond the bound the oldest go, which every success that resolves a later one resolves too.
        del self.failures[: -_MAX_FAILURES + 1]
        self.failures.append(_Failure(told.ended_ns, told.call_id, Cleared(told.summary.ref, told.origin)))


class ContextBuffer:
    """Bounded, ordered, thread-safe. One lock guards all state; nothing is called while it is held.

    Args:
        conversation: Its id.
        max_lines: Lines of one rendering, at least 1.
        max_chars: Characters of one rendering, at least one line's 200.
        recovered_note: Say for one turn that shown errors are resolved.

    Raises:
        ConfigurationError: A bound is too small for a single line.
    """

    def __init__(
        self, conversation: str, *, max_lines: int = 20, max_chars: int = 4000, recovered_note: bool = True
    ) -> None:
        if max_lines < 1:
            raise ConfigurationError(f'"max_lines" is {max_lines}; it must be at least 1')
        if max_chars < MAX_LINE_CHARS:
            raise ConfigurationError(f'"max_chars" is {max_chars}; it must be at least {MAX_LINE_CHARS}, one line')
        self.conversation = conversation
        self._max_lines = max_lines
        self._max_chars = max_chars
        self._wants_note = recovered_note
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}
        self._attempts: dict[Key, int] = {}
        self._seen: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._boundaries: list[int] = []
        self._had_boundary = False
        self._rendered_ns: int | None = None
        self._note = False
        self._note_shown = False
        self._turns = 0
        self._scopes: dict[str, ContextBuffer] = {}

    # --- what the prompt builder uses ---------------------------------------------------------

    @property
    def pending(self) -> Sequence[ErrorSummary]:
        """Unresolved failures, the oldest first."""
        with self._lock:
            return tuple(entry.summary for entry in self._entries.values())

    def render(self) -> str:
        """Return the tail block: one line per entry, no header, "" when there is nothing to say.

        The newest lines are kept when a bound bites. Marks what was shown, and is a turn boundary. Calling it again
        gives the same text until a tool call ends or a turn passes.
        """
        now = time.time_ns()
        with self._lock:
            self._boundary(now)
            self._rendered_ns = now
            return "\n".join(self._lines())

    def as_messages(self, dialect: str) -> list[messages.Message]:
        """Return ``render()`` as messages to append: OpenAI a ``user`` message, Anthropic a text block; [] for nothing.

        Raises:
            ConfigurationError: ``dialect`` is neither "openai" nor "anthropic".
        """
        messages.tail("", dialect)
        return messages.tail(self.render(), dialect)

    def as_tool_result(self, summary: ErrorSummary, call_id: str, dialect: str) -> messages.Message:
        """Return the failed call's own result, and leave its line out of the renderings: it has its place.

        Args:
            summary: What ``tool_call(...)`` or ``report_error`` gave.
            call_id: The id that the model gave to the call.
            dialect: "openai" (a ``tool`` message) or "anthropic" (a ``tool_result`` block of a user message).

        Raises:
            ConfigurationError: ``dialect`` is neither "openai" nor "anthropic".
        """
        message = messages.tool_result(str(summary), call_id, dialect)
        with self._lock:
            for entry in self._entries.values():
                if entry.summary == summary:
                    entry.placed = entry.shown = True
        return message

    def turn(self) -> None:
        """Say that a turn has passed: the model has seen what was pending."""
        with self._lock:
            self._boundary(time.time_ns())
            self._pass_turn()

    def clear(self) -> None:
        """Forget all pending failures and notes; their records stay in the store."""
        with self._lock:
            self._entries.clear()
            self._attempts.clear()
            self._note = self._note_shown = False

    def scope(self, agent: str) -> ContextBuffer:
        """Return a child agent's own view: its failures and recoveries never reach this one."""
        with self._lock:
            child = self._scopes.get(agent)
            if child is None:
                if len(self._scopes) >= _MAX_SCOPES:
                    self._scopes.pop(next(iter(self._scopes)))
                child = ContextBuffer(
                    self.conversation,
                    max_lines=self._max_lines,
                    max_chars=self._max_chars,
                    recovered_note=self._wants_note,
                )
                self._scopes[agent] = child
            return child

    # --- what the processor uses --------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """True when a success has nothing to resolve and no turn to pass: the hot path of a healthy agent."""
        return not self._entries and self._rendered_ns is None

    @property
    def idle(self) -> bool:
        """True when it is quiet and no nested agent has a view of its own."""
        return not self._entries and self._rendered_ns is None and not self._scopes

    def attempt(self, key: Key, origin: tuple[int, int]) -> int:
        """Return which identical failure this one is, counted from 1 since the last success that resolved it.

        Args:
            key: What makes failures identical.
            origin: Trace and span id of the failed call; one that is already told counts no more. Zeros: without span.
        """
        with self._lock:
            if origin[1] and origin in self._seen:
                return self._attempts.get(key, 1)
            number = self._attempts.pop(key, 0) + 1
            if len(self._attempts) >= _MAX_ENTRIES:
                self._attempts.pop(next(iter(self._attempts)))
            self._attempts[key] = number
            return number

    def put(self, told: Told) -> bool:
        """Take in a failure whose record is durable; False when the same span's failure is already told."""
        with self._lock:
            if told.origin[1] and told.origin in self._seen:
                return False
            self._seen[told.origin] = None
            if len(self._seen) > _MAX_SEEN:
                self._seen.popitem(last=False)
            entry = self._entries.pop(told.key, None)
            if entry is None:
                entry = _Entry(told)
                if len(self._entries) >= _MAX_ENTRIES:
                    self._entries.pop(next(iter(self._entries)))
            else:
                entry.add(told)
                entry.placed = False
            self._entries[told.key] = entry
            return True

    def resolve(self, tool: str, arguments: str | None, call_id: str | None, start_ns: int) -> list[Cleared]:
        """Prune what a success resolves, by the turn-boundary rule of the design.

        Args:
            tool: Name of the tool that succeeded.
            arguments: Digest of its canonical arguments, None when unknown.
            call_id: Id of the call, None when unknown.
            start_ns: When the call started, nanoseconds since the epoch.

        Returns:
            The failures that it resolved, the oldest first.
        """
        with self._lock:
            known_ns = self._known_at(start_ns)
            cleared: list[Cleared] = []
            for key, entry in list(self._entries.items()):
                same_call = arguments is not None and key[:2] == (tool, arguments)
                left: list[_Failure] = []
                for failure in entry.failures:
                    known = failure.ended_ns <= known_ns or (call_id is not None and failure.call_id == call_id)
                    if same_call or known:
                        cleared.append(failure.cleared)
                    else:
                        left.append(failure)
                entry.failures = left
                if not left:
                    del self._entries[key]
                    self._attempts.pop(key, None)
                    if entry.shown and self._wants_note:
                        self._note, self._note_shown = True, False
            return cleared

    def model_called(self, start_ns: int) -> None:
        """Note a model call: what had ended before it, the model knew."""
        with self._lock:
            self._boundary(start_ns)
            self._call_started(start_ns)

    def tool_called(self, start_ns: int) -> None:
        """Note a tool call, however it ended: the first one that started after a rendering passes a turn."""
        with self._lock:
            self._call_started(start_ns)

    # --- under the lock -----------------------------------------------------------------------

    def _lines(self) -> list[str]:
        """Choose what one rendering shows: the newest line, then the note, then older lines while there is room."""
        lines: list[str] = []
        room, note = self._max_chars + 1, 0
        for entry in reversed(self._entries.values()):
            if entry.placed:
                continue
            line = str(entry.summary)
            room -= len(line) + 1
            if room < 0 or len(lines) + note == self._max_lines:
                break
            lines.append(line)
            entry.shown = True
            if len(lines) == 1 and self._note and room > len(RECOVERED) and self._max_lines > 1:
                room -= len(RECOVERED) + 1
                note = 1
        lines.reverse()
        if note or (self._note and not lines):
            self._note_shown = True
            lines.append(RECOVERED)
        return lines

    def _call_started(self, start_ns: int) -> None:
        if self._rendered_ns is not None and start_ns >= self._rendered_ns:
            self._pass_turn()

    def _pass_turn(self) -> None:
        self._turns += 1
        self._rendered_ns = None
        if self._note_shown:
            self._note = self._note_shown = False

    def _boundary(self, at_ns: int) -> None:
        self._had_boundary = True
        insort(self._boundaries, at_ns)
        del self._boundaries[:-_MAX_BOUNDARIES]

    def _known_at(self, start_ns: int) -> int:
        """Return the time up to which a call that started at ``start_ns`` knew of failures; -1 for none."""
        if not self._had_boundary:
            return start_ns
        index = bisect_right(self._boundaries, start_ns)
        return self._boundaries[index - 1] if index else -1
