"""Failures for the tests of the context: told with times of one's own choosing."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from otel_error_hygiene.context import ContextBuffer, Told
from otel_error_hygiene.model import Bucket, ErrorClass, ErrorSummary, Recoverable

NOW = datetime(2026, 11, 30, tzinfo=UTC)
RECOVERED = "[recovered] Previous tool errors resolved. Proceeding with task."

_span_ids = itertools.count(1)


def summary_of(
    tool: str,
    attempt: int = 1,
    span_id: int = 1,
    hint: str = "Retrying with same parameters.",
    *,
    error_class: ErrorClass = ErrorClass.CONNECTIVITY,
    recoverable: Recoverable = Recoverable.YES,
    escalated: bool = False,
) -> ErrorSummary:
    """Return a summary as the splitter makes it."""
    return ErrorSummary(
        tool=tool,
        error_class=error_class,
        bucket=Bucket.RETRYABLE,
        recoverable=recoverable,
        hint=hint,
        error="ConnectionError",
        message="no connection",
        attempt=attempt,
        escalated=escalated,
        timestamp=NOW,
        trace_id=f"{1:032x}",
        span_id=f"{span_id:016x}",
        ref=f"{span_id:08x}",
    )


def fail(  # noqa: PLR0913  (one keyword for each thing that a test may choose)
    buffer: ContextBuffer,
    tool: str = "search",
    *,
    ended_ns: int = 0,
    arguments: str | None = None,
    call_id: str | None = None,
    print_: str = "fp",
    hint: str = "Retrying with same parameters.",
    error_class: ErrorClass = ErrorClass.CONNECTIVITY,
    recoverable: Recoverable = Recoverable.YES,
) -> ErrorSummary:
    """Tell a buffer of a failure, in the order of the promise: its number, its record, its line."""
    key = (tool, arguments, print_)
    span_id = next(_span_ids)
    attempt = buffer.attempt(key, (1, span_id), error_class)
    summary = summary_of(
        tool,
        attempt.number,
        span_id,
        hint,
        error_class=error_class,
        recoverable=recoverable,
        escalated=attempt.escalated,
    )
    assert buffer.put(Told(key, summary, ended_ns, (1, span_id), call_id, attempt.order))
    return summary


def line_of(tool: str, summary: ErrorSummary) -> str:
    """Return the line that the issue prescribes for such a failure."""
    if summary.escalated:
        return (
            f"[escalate] {tool}: failed {summary.attempt} times the same way. "
            f"Stop retrying; ask a human or use another approach. ref={summary.ref}"
        )
    repeats = f" x{summary.attempt}" if summary.attempt > 1 else ""
    return f"[error] {tool}: {summary.error_class.value}. {summary.hint}{repeats} ref={summary.ref}"
