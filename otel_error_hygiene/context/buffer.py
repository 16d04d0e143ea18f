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
from dataclasses import replace
from typing import Any

from ..errors import ConfigurationError
from ..model import ErrorClass, ErrorSummary
from . import messages
from .attempts import Attempt, Attempts
from .children import Children
from .entry import Cleared, Key, Taken, Told
from .pending import Pending
from .policies import Success, lanes_of, resolves
from .rules import Rules

RECOVERED = "[recovered] Previous tool errors resolved. Proceeding with task."
_MAX_ENTRIES = 10_000
_MAX_BOUNDARIES = 1024
_MAX_SEEN = 4096
_MAX_SCOPES = 1000
_DEFAULT = Rules()


class ContextBuffer:
    """Bounded, ordered, thread-safe. One lock guards all state; nothing is called while it is held.

    Args:
        conversation: Its id.
        rules: What holds for it; None: the defaults.
        **changes: Rules that are other than those, by name.

    Raises:
        ConfigurationError: There is no such rule, or its value is unusable.
    """

    def __init__(self, conversation: str, rules: Rules | None = None, **changes: Any) -> None:
        rules = _DEFAULT if rules is None else rules
        if changes:
            try:
                rules = replace(rules, **changes)
            except TypeError as error:
                raise ConfigurationError(f"no such rule, or an unusable value: {error}") from error
        self.conversation = conversation
        self._rules = rules
        self._policy = rules.policy
        self._max_age_ns = rules.max_age_seconds * 1e9
        self._lock = threading.Lock()
        self._pending = Pending(lanes_of(self._policy), _MAX_ENTRIES)
        self._entries = self._pending.entries
        self._attempts = Attempts(rules.escalate_after, rules.escalate_transient_after, _MAX_ENTRIES)
        self._seen: OrderedDict[tuple[int, int], Attempt] = OrderedDict()
        self._boundaries: list[int] = []
        self._had_boundary = False
        self._rendered_ns: int | None = None
        self._note = False
        self._note_shown = False
        self._turns = 0
        self._passed_by_call = False
        """A call has passed the turn of the last rendering, and ``turn()`` has not been said since."""
        self._children: Children[ContextBuffer] = Children(_MAX_SCOPES)

    # --- what the prompt builder uses ---------------------------------------------------------

    @property
    def pending(self) -> Sequence[ErrorSummary]:
        """Unresolved failures, the oldest first."""
        with self._lock:
            return tuple(entry.summary for entry in self._entries.values())

    def render(self) -> str:
        """Return the tail block: one line per entry, no header, "" when there is nothing to say.

        The newest lines are kept when a bound bites; a line that an earlier turn has shown already is dated. Marks what
        was shown, and is a turn boundary. Calling it again gives the same text until a tool call ends or a turn passes.
        """
        now = time.time_ns()
        with self._lock:
            self._boundary(now)
            self._rendered_ns = now
            self._passed_by_call = False
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
            self._pending.place(summary)
        return message

    def turn(self) -> None:
        """Say that a turn has passed: the model has seen what was pending.

        Said after a call that has passed the turn of the last rendering, it means that same turn.
        """
        now = time.time_ns()
        with self._lock:
            self._boundary(now)
            if self._passed_by_call:
                self._passed_by_call = False
            else:
                self._pass_turn()
            self._age(now)

    def clear(self) -> None:
        """Forget all pending failures and notes; their records stay in the store."""
        with self._lock:
            self._pending.clear()
            self._attempts.clear()
            self._note = self._note_shown = False

    def scope(self, agent: str) -> ContextBuffer:
        """Return a child agent's own view: its failures and recoveries never reach this one."""
        with self._lock:
            return self._children.get(agent, lambda: ContextBuffer(self.conversation, self._rules))

    @property
    def dropped(self) -> int:
        """Count of lines that went unresolved because more were pending than the buffer holds."""
        return self._pending.dropped

    # --- what the processor uses --------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """True when a success has nothing to resolve and no turn to pass: the hot path of a healthy agent."""
        return not self._entries and self._rendered_ns is None

    @property
    def idle(self) -> bool:
        """True when it is quiet and no nested agent has a view of its own."""
        return not self._entries and self._rendered_ns is None and not self._children

    def attempt(self, key: Key, origin: tuple[int, int], error_class: ErrorClass = ErrorClass.UNKNOWN) -> Attempt:
        """Return which identical failure this one is, and whether its line says to stop.

        Args:
            key: What makes failures identical.
            origin: Trace and span id of the failed call; one that is already told counts no more. Zeros: without span.
            error_class: Decides how many identical failures are too many.
        """
        with self._lock:
            told = self._seen.get(origin) if origin[1] else None
            if told is not None:
                return told
            entry = self._entries.get(key)
            # An escalation gives a clean slate once the model knew of it: of fifty parallel calls that fail alike, none
            # may hide that it is one too many.
            if (
                entry is not None
                and entry.summary.escalated
                and self._boundaries
                and entry.newest.ended_ns <= self._boundaries[-1]
            ):
                self._attempts.forget(key)
            return self._attempts.next(key, error_class)

    def put(self, told: Told) -> Taken:
        """Take in a failure whose record is durable."""
        now = time.time_ns()
        with self._lock:
            if told.origin[1]:
                if told.origin in self._seen:
                    return Taken.AGAIN
                self._seen[told.origin] = Attempt(told.summary.attempt, told.summary.escalated, told.order)
                if len(self._seen) > _MAX_SEEN:
                    self._seen.popitem(last=False)
            dropped = self._pending.put(told, self._turns, now)
            if dropped is not None:
                self._attempts.forget(dropped)
            self._age(now)
            return Taken.IN if dropped is None else Taken.IN_FOR_ANOTHER

    def resolve(self, tool: str, arguments: str | None, call_id: str | None, start_ns: int) -> list[Cleared]:
        """Prune what a success resolves: the failures of its own call; of what the model knew, what the policy says.

        Args:
            tool: Name of the tool that succeeded.
            arguments: Digest of its canonical arguments, None when unknown.
            call_id: Id of the call, None when unknown.
            start_ns: When the call started, nanoseconds since the epoch.

        Returns:
            The failures that it resolved, the oldest first.
        """
        success = Success(tool, arguments, call_id, start_ns)
        with self._lock:
            resolved = self._pending.own(success)
            known = self._pending.known(success, self._known_at(start_ns))
        # The policy may be the user's: it runs without the lock, and what is gone when it has answered is passed over.
        resolved += [held for held in known if resolves(self._policy, held.told, success)]
        if not resolved:
            return []
        with self._lock:
            removed, emptied = self._pending.remove(resolved)
            for key, entry in emptied:
                self._attempts.forget(key)
                if entry.shown and self._rules.recovered_note:
                    self._note, self._note_shown = True, False
        return [Cleared(held.told.summary.ref, held.told.origin) for held in removed]

    def model_called(self, start_ns: int) -> None:
        """Note a model call: what had ended before it, the model knew."""
        now = time.time_ns()
        with self._lock:
            self._boundary(start_ns)
            if self._call_started(start_ns):
                self._age(now)

    def tool_called(self, start_ns: int) -> None:
        """Note a tool call, however it ended: the first one that started after a rendering passes a turn."""
        now = time.time_ns()
        with self._lock:
            self._call_started(start_ns)
            self._age(now)

    # --- under the lock -----------------------------------------------------------------------

    def _lines(self) -> list[str]:
        """Choose what one rendering shows: the newest line, then the note, then older lines while there is room."""
        lines: list[str] = []
        max_lines = self._rules.max_lines
        room, note = self._rules.max_chars + 1, 0
        for entry in self._pending.newest_first():
            line = entry.line(self._turns)
            room -= len(line) + 1
            if room < 0 or len(lines) + note == max_lines:
                break
            lines.append(line)
            entry.show(self._turns)
            if len(lines) == 1 and self._note and room > len(RECOVERED) and max_lines > 1:
                room -= len(RECOVERED) + 1
                note = 1
        lines.reverse()
        if note or (self._note and not lines):
            self._note_shown = True
            lines.append(RECOVERED)
        return lines

    def _call_started(self, start_ns: int) -> bool:
        """Pass a turn where a call of the next one has started; True when it did."""
        passes = self._rendered_ns is not None and start_ns >= self._rendered_ns
        if passes:
            self._pass_turn()
            self._passed_by_call = True
        return passes

    def _pass_turn(self) -> None:
        self._turns += 1
        self._rendered_ns = None
        if self._note_shown:
            self._note = self._note_shown = False

    def _age(self, now_ns: int) -> None:
        """Let go of lines that are too old; nothing is resolved by it, and their records stay."""
        # The first entry is the one longest not told of.
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if self._turns - entry.told_turn < self._rules.max_age_turns and now_ns - entry.told_ns < self._max_age_ns:
                break
            self._pending.remove_entry(key)
            self._attempts.forget(key)

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
