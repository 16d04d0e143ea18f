"""Outboxes with plain records, and what a stranger finds in their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource

from otel_error_hygiene.forensics import record
from otel_error_hygiene.forensics.outbox import Outbox
from otel_error_hygiene.forensics.segment import RecordKind, State
from otel_error_hygiene.forensics.store import writers

EMPTY = Resource.get_empty()


def make(root: Path, **more: Any) -> Outbox:
    """Make an outbox for one destination."""
    return Outbox(root, "here", "label", **{"max_bytes": 2**26, **more})


def put(outbox: Outbox, text: str, kind: RecordKind = RecordKind.FAILURE, record_id: int | None = None) -> int:
    """Append one record; return its id."""
    record_id = outbox.new_id() if record_id is None else record_id
    outbox.append(kind, record_id, {"text": text}, outbox.resource(EMPTY))
    return record_id


def texts(root: Path) -> Counter[str]:
    """Return the texts of all records in a store, read as a stranger."""
    found: Counter[str] = Counter()
    for writer in writers(root):
        for reader in writer.segments():
            for header in reader.live():
                if header.kind is not RecordKind.RESOURCE and header.state is not State.SUPERSEDED:
                    payload = reader.payload(header)
                    assert payload is not None
                    found[record.loads(payload)["text"]] += 1
        writer.close()
    return found


def flip(root: Path, wanted: Callable[[int], bool], state: State) -> None:
    """Flip the records whose id is wanted, as another process would."""
    for writer in writers(root):
        for reader in writer.segments():
            for header in reader.headers():
                if header.kind is not RecordKind.RESOURCE and wanted(header.record_id):
                    reader.set_state(header.offset, state)
        writer.close()
