"""Read the whole store: every record where it stands, and counts by destination and state."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..forensics import record
from ..forensics.recall import HIDDEN_STATES
from ..forensics.segment import FAILURES, Header, RecordKind, SegmentReader, State
from ..forensics.store import LOCAL, Writer, label_of, writers

_REF = re.compile(r"[0-9a-f]{8}|[0-9a-f]{16}")


def parse_ref(text: str) -> str | None:
    """Return the 8 or 16 hex digits of a reference, also when it was copied with its ``ref=``; None for others."""
    key = text.strip().lower().removeprefix("ref=")
    return key if _REF.fullmatch(key) else None


class Entry(NamedTuple):
    """One record where it stands. Its reader is closed once the next writer is read."""

    writer: Writer
    reader: SegmentReader
    header: Header
    plain: record.Plain | None
    """None when its payload is damaged."""

    @property
    def is_failure(self) -> bool:
        """Whether it is a failed tool call, and not another span that was kept."""
        return self.header.kind in FAILURES

    @property
    def record_id(self) -> str:
        """16 hex digits."""
        return f"{self.header.record_id:016x}"

    @property
    def span_id(self) -> str | None:
        """16 hex digits, None when the record is damaged."""
        return None if self.plain is None else f"{self.plain['span']['id']:016x}"

    @property
    def trace_id(self) -> str | None:
        """32 hex digits, None when the record is damaged."""
        return None if self.plain is None else f"{self.plain['span']['trace']:032x}"

    @property
    def at_ns(self) -> int:
        """When it was recorded, nanoseconds since the epoch; whole seconds when the record is damaged."""
        return self.header.at * 1_000_000_000 if self.plain is None else int(self.plain["at"])

    @property
    def line(self) -> str:
        """The summary line, or the name of a span that is no failure."""
        if self.plain is None:
            return "(the record is damaged)"
        return str(self.plain["failure"]["line"] if self.is_failure else self.plain["span"]["name"])

    @property
    def tool(self) -> str | None:
        """The tool's name as the agent knows it; None for a damaged record or another span."""
        return str(self.plain["failure"]["summary"]["tool"]) if self.plain and self.is_failure else None

    @property
    def state(self) -> str:
        """In the word that the user sees."""
        return self.header.state.name.lower()


def entries(root: Path) -> Iterator[Entry]:
    """Yield every record of a store that can be seen, other spans included."""
    for writer in writers(root):
        try:
            for reader in writer.segments():
                for header in reader.live():
                    if header.kind is not RecordKind.RESOURCE and header.state not in HIDDEN_STATES:
                        yield Entry(writer, reader, header, _load(reader, header))
        finally:
            writer.close()


def _load(reader: SegmentReader, header: Header) -> record.Plain | None:
    payload = reader.payload(header)
    try:
        return None if payload is None else record.loads(payload)
    except ValueError:
        return None


class Refused(NamedTuple):
    """One quarantined record."""

    record_id: str
    failure: bool
    words: str | None
    """Of the backend."""


class Tally:
    """What the store holds for one destination."""

    def __init__(self, root: Path, destination: str) -> None:
        self.destination = destination
        self.label = label_of(root, destination)
        self.failures: Counter[State] = Counter()
        """In failed tool calls; superseded records are the same call again and not counted."""
        self.others: Counter[State] = Counter()
        """Other spans that were kept for their trace, in spans."""
        self.open_reports = 0
        """Pending failures of live processes whose span has not ended, which are sent when it does."""
        self.bytes = 0
        """Of the files, their unused room included."""
        self.live_writers = 0
        self.dead_writers = 0
        self.oldest_pending_at_ns: int | None = None
        self.refused: list[Refused] = []

    @property
    def local(self) -> bool:
        """Whether nobody exports these."""
        return self.destination == LOCAL

    def waiting(self, state: State) -> int:
        """Return how many records of either kind are in a state."""
        return self.failures[state] + self.others[state]

    def read(self, writer: Writer) -> None:
        """Add one writer's records."""
        alive = writer.alive()
        self.live_writers += alive
        self.dead_writers += not alive
        reasons: dict[int, str] | None = None
        for reader in writer.segments():
            with contextlib.suppress(FileNotFoundError):  # its owner made room, or another purge was faster
                self.bytes += reader.path.stat().st_size
            for header in reader.live():
                if header.kind is RecordKind.RESOURCE or header.state is State.SUPERSEDED:
                    continue
                failure = header.kind in FAILURES
                (self.failures if failure else self.others)[header.state] += 1
                if header.state is State.PENDING:
                    at_ns = header.at * 1_000_000_000
                    self.oldest_pending_at_ns = min(at_ns, self.oldest_pending_at_ns or at_ns)
                    self.open_reports += alive and header.kind is RecordKind.REPORT
                elif header.state is State.QUARANTINED:
                    reasons = writer.reasons() if reasons is None else reasons
                    words = reasons.get(header.record_id)
                    self.refused.append(Refused(f"{header.record_id:016x}", failure, words))


def survey(root: Path) -> list[Tally]:
    """Count a whole store by destination, the local one last."""
    tallies: dict[str, Tally] = {}
    for writer in writers(root):
        try:
            if writer.destination not in tallies:
                tallies[writer.destination] = Tally(root, writer.destination)
            tallies[writer.destination].read(writer)
        finally:
            writer.close()
    return sorted(tallies.values(), key=lambda each: (each.local, each.label, each.destination))
