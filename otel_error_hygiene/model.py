"""The nouns: frozen data that the verbs pass on. Nobody mutates a record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

Scalar = str | bool | int | float

MAX_LINE_CHARS: Final = 200
"""Bound of one summary line, in characters (promise P4 of the design)."""


class Outcome(StrEnum):
    """How a tool call ended. Cancelled is neither success nor failure: it clears nothing."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"


class ErrorClass(StrEnum):
    """What went wrong, in the seven words that the model is told."""

    CONNECTIVITY = "connectivity"
    BAD_REQUEST = "bad_request"
    AUTH = "auth"
    NOT_FOUND = "not_found"
    RATE_LIMIT = "rate_limit"
    UPSTREAM = "upstream"
    UNKNOWN = "unknown"


class Bucket(StrEnum):
    """What kind of act may mend it."""

    RETRYABLE = "retryable"
    AUTH = "auth"
    STRUCTURAL = "structural"
    FATAL = "fatal"
    NONE = "none"


class Recoverable(StrEnum):
    """What an act of the agent can do.

    YES: the same call may work later unchanged. MAYBE: change something or check first. NO: nothing it does helps.
    """

    YES = "YES"
    NO = "NO"
    MAYBE = "MAYBE"


class _Frozen(BaseModel):
    # Records outlive versions: what a later or an earlier one wrote besides is passed over.
    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """Make one of our own values, without validation: what ``model_construct`` does, at a fifth of its price.

        Args:
            values: Every field by its name; owned by the noun from now on.
        """
        noun = cls.__new__(cls)
        object.__setattr__(noun, "__dict__", values)
        object.__setattr__(noun, "__pydantic_fields_set__", set(values))
        object.__setattr__(noun, "__pydantic_extra__", None)
        object.__setattr__(noun, "__pydantic_private__", None)
        return noun


class RecordedException(_Frozen):
    """An exception as text, for code that no longer has the object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    """Qualified class name, or a code such as ``tool_error``."""
    message: str = ""
    stacktrace: str = ""
    """Python traceback text, or ""."""


class Frame(NamedTuple):
    """One entry of a stack, outermost first in a list of them."""

    filename: str
    lineno: int
    """Line in ``filename``, counted from 1."""
    function: str


class ExceptionNode(_Frozen):
    """One exception of a chain or group, with what led to it."""

    type: str
    """Qualified class name; builtins without a module."""
    class_names: tuple[str, ...] = ()
    """Qualified names of the class and its bases, nearest first; empty when only text is known."""
    message: str = ""
    notes: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    """Outermost first, the raising frame last."""
    frames_dropped: int = 0
    """Frames left out in the middle because of the bound."""
    facts: Mapping[str, Scalar] = Field(default_factory=dict)
    """Typed facts (status, errno, retry-after ...) under the keys of ``semconv``."""
    cause: ExceptionNode | None = None
    """What ``raise ... from`` named."""
    context: ExceptionNode | None = None
    """What was being handled, when it is not suppressed and there is no cause."""
    group: tuple[ExceptionNode, ...] = ()
    """Members of an exception group."""


class Classification(NamedTuple):
    """What the evidence says of a failure."""

    error_class: ErrorClass
    bucket: Bucket
    recoverable: Recoverable
    retry_after_seconds: float | None = None
    """Seconds to wait from the moment of classification; None when nobody said."""
    http_status: int | None = None
    unanswered: bool = False
    """A request was sent and not answered: it may have been applied."""


class ToolCall(_Frozen):
    """One execution of a tool by an agent."""

    tool: str
    call_id: str | None = None
    arguments: str | None = None
    """Canonical JSON (sorted keys, no spaces), or None when nobody told."""
    agent: str | None = None
    conversation: str | None = None


class ErrorSummary(_Frozen):
    """What the agent needs of one failure. Every text field is safe for the context; ``str()`` is the line."""

    tool: str
    error_class: ErrorClass
    bucket: Bucket
    recoverable: Recoverable
    hint: str
    retry_after_seconds: float | None = None
    error: str
    """Class name of the root cause, or the code that stands for it."""
    message: str
    """A brief in our own words; never text of a remote."""
    impact: str | None = None
    """A sentence of the caller about what the failure means, or None."""
    attempt: int = 1
    """1 for the first such failure; N for the Nth identical one without a success or an escalation between."""
    escalated: bool = False
    """It failed the same way too often: the line says to stop, in the place of class and hint."""
    timestamp: datetime
    """When the failure was seen, UTC."""
    http_status: int | None = None
    trace_id: str | None = None
    """32 hex digits, or None without a span."""
    span_id: str | None = None
    """16 hex digits, or None without a span."""
    ref: str | None = None
    """8 hex digits that ``recall`` takes, or None when the record could not be made durable."""

    def __str__(self) -> str:
        return self.with_remark("")

    def with_remark(self, remark: str) -> str:
        """Return the line with a few words of ours at its end, within the same bound.

        Args:
            remark: Begins with a space, or "".
        """
        tail = ""
        if self.escalated:
            line = (
                f"[escalate] {self.tool}: failed {self.attempt} times the same way. "
                "Stop retrying; ask a human or use another approach."
            )
        else:
            line = f"[error] {self.tool}: {self.error_class}. {self.hint}"
            if self.http_status is not None:
                tail = f" (HTTP {self.http_status})"
            if self.attempt > 1:
                tail += f" x{self.attempt}"
        if self.ref is not None:
            tail += f" ref={self.ref}"
        tail += remark
        room = MAX_LINE_CHARS - len(tail)
        if len(line) > room:
            line = line[: room - 1].rsplit(" ", 1)[0].rstrip() + "…"
        return line + tail


class Stats(_Frozen):
    """Counts of one processor, in failed tool calls unless said otherwise.

    ``seen = recorded + sum(lost)`` and ``recorded = pending + delivered + quarantined + expired``.
    """

    seen: int = 0
    recorded: int = 0
    pending: int = 0
    delivered: int = 0
    """Acknowledged by the backend, whoever sent them."""
    quarantined: int = 0
    """Refused by the backend on their own, several times over; kept, with its words."""
    expired: int = 0
    """Not acknowledged within the retention."""
    unrouted: int = 0
    """Recorded, but no conversation was known, so no agent was told."""
    displaced: int = 0
    """Lines, not calls: gone from a full buffer, unresolved, to make room for newer ones. Their records stay."""
    lost: Mapping[str, int] = Field(default_factory=dict)
    """Reason -> count."""
    truncated: int = 0
    """Records that were cut to the bounds of the settings."""
    retried: int = 0
    """Deliveries of a failed call that had to be tried again, in attempts."""
    internal_errors: int = 0
    """Faults of our own that were kept from the agent, in faults."""


class ForensicRecord(_Frozen):
    """Everything known of one failure, for the engineer."""

    ref: str
    record_id: str
    """16 hex digits; ``ref`` is their first 8."""
    call: ToolCall
    summary: ErrorSummary
    line: str
    """The very line that the buffer showed, or would have shown."""
    fingerprint: str
    conversation: str | None
    """The conversation that was told, None when the failure was unrouted."""
    exception: ExceptionNode | None
    exception_type: str
    exception_message: str
    exception_stacktrace: str
    recorded_at_ns: int
    """Nanoseconds since the epoch."""
    told_at_ns: int | None
    state: str
    """pending, delivered, quarantined, expired, discarded or purged."""
    reason: str | None = None
    """Why it is quarantined, in the words of the backend."""
    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_time_ns: int
    end_time_ns: int
    finished: bool
    """False when the record was written before its span ended, and no end came."""
    attributes: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    resource: Mapping[str, Any]
    pid: int
    """Process that recorded it."""
    pruned_at_ns: int | None = None
    pruned_by: str | None = None
    """Tool and span id of the success that resolved it."""
