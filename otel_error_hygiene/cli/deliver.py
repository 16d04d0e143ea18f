"""``deliver``: send what is pending now, whoever recorded it, by the courier that the processor has."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .._guard import logger
from ..errors import ConfigurationError
from ..forensics.courier import Courier
from ..forensics.outbox import Outbox
from ..forensics.proof import Answer, Sender, Verdict, sender_for
from ..forensics.segment import FAILURES, RecordKind, State
from ..forensics.store import writers
from ..installer import exporter_from_environment
from ..settings import Settings
from .output import Exit, calls, clean, console, emit_json, failed, other_spans, say
from .survey import Tally, survey

_BUSY_PAUSE_SECONDS = 0.2

Place = tuple[Path, int]
"""A segment's file and the offset of a record in it."""


class Watched:
    """A sender that tells how many spans each answer accepted, and keeps the last answer that was no acceptance."""

    def __init__(self, sender: Sender, on_answer: Callable[[int, str], None]) -> None:
        self._sender = sender
        self._on_answer = on_answer
        self.destination = sender.destination
        self.label = sender.label
        self.proven = sender.proven
        self.last: Answer | None = None

    def send(self, spans: Sequence[ReadableSpan], timeout_seconds: float) -> Answer:
        """Send, and watch."""
        answer = self._sender.send(spans, timeout_seconds)
        if answer.verdict is Verdict.ACCEPTED:
            self._on_answer(len(spans), "")
        else:
            self.last = answer
            self._on_answer(0, answer.words)
        return answer


def deliver(settings: Settings, timeout_seconds: float, *, as_json: bool) -> None:
    """Send what is pending for the destination that the environment names, and say what became of it."""
    exporter = _exporter(settings.store_path)
    try:
        sender = sender_for(exporter)
        before = _pending(settings.store_path, sender.destination)
        with _progress(len(before), shown=not as_json) as answered:
            watched = Watched(sender, answered)
            _run(settings, watched, timeout_seconds)
    finally:
        with contextlib.suppress(Exception):  # the result is known; an exporter that cannot close changes nothing
            exporter.shutdown()
    became = _became(settings.store_path, sender.destination, before)
    _report(settings.store_path, watched, became, as_json=as_json)


def _exporter(root: Path) -> SpanExporter:
    try:
        exporter = exporter_from_environment()
    except ConfigurationError as error:
        raise failed(Exit.USAGE, error) from None
    except Exception as error:  # what an exporter's constructor makes of its variables
        raise failed(Exit.USAGE, f"OTEL_EXPORTER_OTLP_* cannot be used: {type(error).__name__}: {error}") from None
    if exporter is not None:
        return exporter
    wanted = os.environ.get("OTEL_TRACES_EXPORTER")
    if wanted and "otlp" not in wanted.lower():
        raise failed(Exit.USAGE, f"OTEL_TRACES_EXPORTER is {wanted!r}; to deliver it must be 'otlp', or unset")
    labels = [each.label for each in survey(root) if each.failures[State.PENDING] and not each.local]
    raise failed(
        Exit.USAGE,
        "no endpoint is configured; set OTEL_EXPORTER_OTLP_ENDPOINT to the one that the agent uses, such as "
        "http://localhost:4318, and OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_PROTOCOL as the agent has them.",
        f" Failed tool calls are pending for: {', '.join(labels)}." if labels else "",
    )


def _pending(root: Path, destination: str) -> dict[Place, RecordKind]:
    found: dict[Place, RecordKind] = {}
    for writer in writers(root, destination):
        try:
            for reader in writer.segments():
                for header in reader.live():
                    if header.state is State.PENDING and header.kind is not RecordKind.RESOURCE:
                        found[reader.path, header.offset] = header.kind
        finally:
            writer.close()
    return found


def _run(settings: Settings, sender: Sender, timeout_seconds: float) -> None:
    outbox = Outbox(
        settings.store_path, sender.destination, sender.label, max_bytes=settings.store_max_bytes, fsync=settings.fsync
    )
    courier = Courier(outbox, sender, settings, lambda _: None)
    deadline = time.monotonic() + timeout_seconds
    with _only_faults():
        while not courier.deliver(max(deadline - time.monotonic(), 0)):
            # Another courier may be at work, such as the agent's own: what it sends need not be sent twice.
            if time.monotonic() + _BUSY_PAUSE_SECONDS >= deadline or not _others_at_work(settings, sender.destination):
                break
            time.sleep(_BUSY_PAUSE_SECONDS)
        courier.stop(0)


@contextlib.contextmanager
def _only_faults() -> Iterator[None]:
    """Keep the courier's warnings from stderr: what they say stands in our report. Faults of ours pass."""

    def passes(entry: logging.LogRecord) -> bool:
        return bool(entry.exc_info)

    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


def _others_at_work(settings: Settings, destination: str) -> bool:
    for folder in {path.parent for path, _ in _pending(settings.store_path, destination)}:
        for writer in writers(settings.store_path, destination):
            if writer.folder == folder:
                with writer.delivering() as held:
                    if not held:
                        return True
    return False


def _became(root: Path, destination: str, before: dict[Place, RecordKind]) -> dict[str, Counter[State]]:
    """Count what became of the records that were pending, failures and other spans."""
    now: dict[Place, State] = {}
    for writer in writers(root, destination):
        try:
            for reader in writer.segments():
                now |= {(reader.path, header.offset): header.state for header in reader.live()}
        finally:
            writer.close()
    counts: dict[str, Counter[State]] = {"failures": Counter(), "others": Counter()}
    for place, kind in before.items():
        # A file that is gone was out of the retention.
        counts["failures" if kind in FAILURES else "others"][now.get(place, State.EXPIRED)] += 1
    return counts


@contextlib.contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[int, str], None]]:
    screen = console(stderr=True)
    if not shown or not total or not screen.is_terminal:
        yield lambda _count, _words: None
        return
    doing = TextColumn("{task.description}", markup=False)
    columns = (doing, BarColumn(), MofNCompleteColumn(), TextColumn("spans"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("sending", total=total)

        def answered(count: int, words: str) -> None:
            brief = clean(words)
            progress.update(task, advance=count, description=f"again after {brief[:28]}" if brief else "sending")

        yield answered


def _report(root: Path, sender: Watched, became: dict[str, Counter[State]], *, as_json: bool) -> None:
    tallies = survey(root)
    ours = next((each for each in tallies if each.destination == sender.destination), None)
    ours = Tally(root, sender.destination) if ours is None else ours
    elsewhere = [each for each in tallies if each is not ours and each.failures[State.PENDING]]
    complete = not (ours.waiting(State.PENDING) or ours.waiting(State.QUARANTINED))
    if as_json:
        emit_json(_document(sender, ours, became, elsewhere, complete=complete))
    else:
        _tell(sender, ours, became, elsewhere)
    if not complete:
        raise typer.Exit(Exit.INCOMPLETE)


def _document(
    sender: Watched, ours: Tally, became: dict[str, Counter[State]], elsewhere: list[Tally], *, complete: bool
) -> dict[str, Any]:
    def counts(failures: int, others: int) -> dict[str, int]:
        return {"failures": failures, "other_spans": others}

    delivered = State.DELIVERED
    return {
        "destination": sender.label,
        "destination_id": sender.destination,
        "complete": complete,
        "proven": sender.proven,
        "delivered": counts(became["failures"][delivered], became["others"][delivered]),
        "expired": counts(became["failures"][State.EXPIRED], became["others"][State.EXPIRED]),
        "pending": counts(ours.failures[State.PENDING], ours.others[State.PENDING]),
        "quarantined": counts(ours.failures[State.QUARANTINED], ours.others[State.QUARANTINED]),
        "open_reports": ours.open_reports,
        "answer": None if sender.last is None else sender.last.words,
        "retry_after_seconds": None if sender.last is None else sender.last.retry_after_seconds,
        "elsewhere": [
            {"destination": each.label, "destination_id": each.destination, "pending": each.failures[State.PENDING]}
            for each in elsewhere
        ],
    }


def _tell(sender: Watched, ours: Tally, became: dict[str, Counter[State]], elsewhere: list[Tally]) -> None:
    failures, others = became["failures"], became["others"]
    delivered, more = failures[State.DELIVERED], others[State.DELIVERED]
    if delivered or more:
        unproven = "" if sender.proven else " (the exporter's word, unproven)"
        say(f"Delivered {calls(delivered)}{other_spans(more)} to {sender.label}{unproven}.", style="green")
    else:
        was = "could be delivered to" if failures.total() or others.total() else "was pending for"
        say(f"Nothing {was} {sender.label}.")
    if failures[State.EXPIRED]:
        say(f"{calls(failures[State.EXPIRED])} had waited longer than the retention and expired.", style="red")
    _tell_waiting(sender, ours)
    if elsewhere:
        say("Pending for other destinations, not sent:")
    for each in elsewhere:
        same = " (the same endpoint with other headers: see OTEL_EXPORTER_OTLP_HEADERS)"
        say(f"  {calls(each.failures[State.PENDING])}: {each.label}", same if each.label == sender.label else "")


def _tell_waiting(sender: Watched, ours: Tally) -> None:
    if ours.waiting(State.PENDING):
        pending = ours.failures[State.PENDING]
        say(f"Still pending: {calls(pending)}{other_spans(ours.others[State.PENDING])}.", style="yellow")
        if ours.open_reports:
            say(f"  {calls(ours.open_reports)} of a live process: sent when the span ends, or the process.")
        if sender.last is not None:
            wait = sender.last.retry_after_seconds
            later = "" if wait is None else f" (it asks to wait {wait:g} s: see --timeout)"
            say(f"  The last answer was: {clean(sender.last.words)}{later}")
            if sender.last.setup:
                say("  Check the endpoint and the credentials.")
    if ours.waiting(State.QUARANTINED):
        refused = ours.failures[State.QUARANTINED]
        say(f"Quarantined: {calls(refused)}{other_spans(ours.others[State.QUARANTINED])}.", style="bold red")
        for each in ours.refused[:5]:
            say(f"  {each.record_id}: {each.words or '(no words)'}")
        say("  `requeue REF` sends one again with the next delivery, `discard REF` destroys it.")
