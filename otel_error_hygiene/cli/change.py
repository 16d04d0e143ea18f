"""``requeue``, ``discard`` and ``purge``: what a human decides on. Every change is made under the courier's lock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from ..forensics import record
from ..forensics.recall import HIDDEN_STATES
from ..forensics.segment import FAILURES, Header, RecordKind, SegmentReader, State
from ..forensics.store import Writer, label_of, store_bytes, writers
from ..settings import Settings
from .output import Exit, calls, clean, emit_json, failed, note, other_spans, say, size
from .survey import Entry, entries

_BUSY_SECONDS = 5.0
_BUSY_PAUSE_SECONDS = 0.05


class Match(NamedTuple):
    """One record that a reference names; it may stand in the files more than once."""

    record_id: str
    failure: bool
    tool: str | None
    line: str
    state: str
    span_id: str | None
    trace_id: str | None
    destination: str
    folder: Path


def _matches(root: Path, key: str) -> list[Match]:
    """Return what a reference names, the one record alone when the key is its whole id."""
    found: dict[str, Match] = {}
    for entry in entries(root):
        if entry.record_id == key or entry.record_id[:8] == key or entry.span_id == key:
            found[entry.record_id] = _match(root, entry)
    return [found[key]] if key in found else list(found.values())


def _match(root: Path, entry: Entry) -> Match:
    return Match(
        entry.record_id,
        entry.is_failure,
        entry.tool,
        entry.line,
        entry.state,
        entry.span_id,
        entry.trace_id,
        label_of(root, entry.writer.destination),
        entry.writer.folder,
    )


def _one(root: Path, key: str, verb: str, *, as_json: bool) -> Match:
    found = _matches(root, key)
    if len(found) == 1:
        return found[0]
    if as_json:
        emit_json(_document(key, found, changed=False))
    if not found:
        raise failed(Exit.INCOMPLETE, f'no record in "{root}" has the ref, record id or span id "{key}"')
    for each in found:
        note(f"{each.record_id}  {each.state}  {each.line}")
    raise failed(
        Exit.INCOMPLETE, f'"{key}" names {len(found)} records, nothing was changed; {verb} one by its 16-digit id'
    )


def _document(key: str, found: list[Match], *, changed: bool) -> dict[str, Any]:
    records = [{name: value for name, value in each._asdict().items() if name != "folder"} for each in found]
    return {"ref": key, "changed": changed, "records": records}


@contextlib.contextmanager
def _held(writer: Writer) -> Iterator[bool]:
    """Hold the courier's lock; waits a moment for a courier that is at work. Yields False when it stays at work."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        with writer.delivering() as held:
            if held or time.monotonic() >= deadline:
                try:
                    yield held
                finally:
                    writer.close()
                return
        time.sleep(_BUSY_PAUSE_SECONDS)


def _copies(writer: Writer, record_ids: set[int]) -> Iterator[tuple[SegmentReader, Header]]:
    for reader in writer.segments():
        for header in reader.live():
            if header.record_id in record_ids and header.kind is not RecordKind.RESOURCE:
                yield reader, header


def requeue(settings: Settings, key: str, *, as_json: bool) -> None:
    """Make a quarantined record pending again."""
    match = _one(settings.store_path, key, "requeue", as_json=as_json)
    changed = False
    if match.state == "quarantined":
        with _held(Writer(match.folder)) as held:
            changed = held and _requeued(Writer(match.folder), int(match.record_id, 16))
            if not held:
                note("a courier is at work on this file and did not finish; try again")
    else:
        note(f"{match.record_id} is {match.state}; only quarantined records can be requeued")
    _finish(key, match._replace(state="pending") if changed else match, changed=changed, as_json=as_json)
    if not as_json:
        say(f"{match.record_id} is pending again: {match.line}")
        say(f"It goes to {match.destination} with the next delivery of the agent's own, or with `deliver`.")


def _requeued(writer: Writer, record_id: int) -> bool:
    try:
        changed = False
        for reader, header in _copies(writer, {record_id}):
            if header.state is State.QUARANTINED:
                reader.set_state(header.offset, State.PENDING)
                changed = True
        return changed
    finally:
        writer.close()


def discard(settings: Settings, key: str, *, yes: bool, as_json: bool) -> None:
    """Destroy a record, after a word of confirmation."""
    match = _one(settings.store_path, key, "discard", as_json=as_json)
    if not yes:
        note(clean(match.line))
        unsent = "" if match.state == "delivered" else f" It is {match.state}: no backend has it."
        typer.confirm(f"Destroy record {match.record_id}?{unsent}", abort=True, err=True)
    with _held(Writer(match.folder)) as held:
        if held:
            writer = Writer(match.folder)
            try:
                _destroy(writer, {int(match.record_id, 16)}, State.DISCARDED)
            finally:
                writer.close()
        else:
            note("a courier is at work on this file and did not finish; try again")
    _finish(key, match._replace(state="discarded") if held else match, changed=held, as_json=as_json)
    if not as_json:
        say(f"{match.record_id} is destroyed: {match.line}")


def _finish(key: str, match: Match, *, changed: bool, as_json: bool) -> None:
    if as_json:
        emit_json(_document(key, [match], changed=changed))
    if not changed:
        raise typer.Exit(Exit.INCOMPLETE)


def _destroy(writer: Writer, record_ids: set[int], state: State) -> None:
    """Hide records and overwrite them, copies that were superseded included."""
    for reader, header in _copies(writer, record_ids):
        if header.state is not State.SUPERSEDED:
            reader.set_state(header.offset, state)
        reader.erase(header)
    writer.forget_reasons(record_ids)


# --- purge -------------------------------------------------------------------------------------


class Purged:
    """What a purge did."""

    def __init__(self) -> None:
        self.failures = 0
        self.other_spans = 0
        self.files_removed = 0
        self.busy: list[str] = []


def purge(settings: Settings, *, as_json: bool) -> None:
    """Erase what was delivered, and remove the files of dead processes that hold nothing else."""
    root = settings.store_path
    done, before = Purged(), store_bytes(root)
    for writer in writers(root):
        with _held(writer) as held:
            if held:
                _purge_writer(writer, done)
            else:
                done.busy.append(writer.folder.name)
    freed = max(before - store_bytes(root), 0)
    if as_json:
        counts = {"failures": done.failures, "other_spans": done.other_spans, "files_removed": done.files_removed}
        emit_json(counts | {"bytes_freed": freed, "busy": done.busy})
    else:
        removed = f"{done.files_removed} file{'' if done.files_removed == 1 else 's'} removed, {size(freed)} freed."
        say(f"Purged what was delivered: {calls(done.failures)}{other_spans(done.other_spans)}; {removed}")
    if done.busy:
        note(f"left alone, a courier is at work: {', '.join(done.busy)}; try again")
        raise typer.Exit(Exit.INCOMPLETE)


def _purge_writer(writer: Writer, done: Purged) -> None:
    places = [
        (reader, header)
        for reader in writer.segments()
        for header in reader.live()
        if header.kind is not RecordKind.RESOURCE and header.state not in HIDDEN_STATES
    ]
    kept = {
        f"{header.record_id >> 32:08x}"
        for _, header in places
        if header.kind in FAILURES and header.state is not State.DELIVERED
    }
    gone: dict[int, bool] = {}
    for reader, header in places:
        if header.state is not State.DELIVERED:
            continue
        # A recovery tells when the failures that it cleared were pruned, and by what: it stays as long as they do.
        if header.kind is not RecordKind.RECOVERY or kept.isdisjoint(_cleared(reader, header)):
            gone[header.record_id] = header.kind in FAILURES
    if gone:
        _destroy(writer, set(gone), State.PURGED)
    done.failures += sum(gone.values())
    done.other_spans += len(gone) - sum(gone.values())
    if not writer.alive():
        _remove_files(writer, done)


def _cleared(reader: SegmentReader, header: Header) -> set[str]:
    payload = reader.payload(header)
    return set() if payload is None else {ref for *_, ref in record.loads(payload).get("cleared", ()) if ref}


def _remove_files(writer: Writer, done: Purged) -> None:
    for reader in writer.segments():
        if all(h.kind is RecordKind.RESOURCE or h.state in HIDDEN_STATES for h in reader.live()):
            reader.path.unlink(missing_ok=True)
            done.files_removed += 1
    if not writer.segments():
        writer.remove()
