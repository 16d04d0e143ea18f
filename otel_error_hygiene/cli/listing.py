"""``list`` and ``stats``: what the store holds."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

from rich.table import Table
from rich.text import Text

from ..forensics.segment import State
from ..forensics.store import label_of, store_bytes
from ..settings import Settings
from .output import calls, clean, console, emit_json, iso, moment, say, short_moment, size
from .survey import Entry, Tally, entries, survey

_STYLES = {
    "pending": "yellow",
    "delivered": "green",
    "quarantined": "bold red",
    "expired": "red",
    "discarded": "dim",
    "purged": "dim",
}
_MAX_REASONS = 10


def styled(state: str) -> Text:
    """Return a state's word in its colour."""
    return Text(state, style=_STYLES.get(state, ""))


class Seen(StrEnum):
    """States whose records can be listed: discarded and purged ones are erased."""

    PENDING = "pending"
    DELIVERED = "delivered"
    QUARANTINED = "quarantined"
    EXPIRED = "expired"


def list_failures(
    settings: Settings, state: Seen | None, tool: str | None, limit: int | None, *, as_json: bool
) -> None:
    """Print the failed tool calls of a store, the newest last."""
    root = settings.store_path
    rows = []
    labels: dict[str, str] = {}
    for entry in entries(root):
        if entry.is_failure and state in (None, entry.state) and tool in (None, entry.tool):
            where = entry.writer.destination
            labels.setdefault(where, label_of(root, where))
            rows.append(_row(entry, labels[where]))
    rows.sort(key=lambda row: row["recorded_at_ns"])
    total = len(rows)
    rows = rows[-limit:] if limit is not None else rows
    if as_json:
        emit_json({"store": root, "total": total, "failures": rows})
        return
    if not rows:
        filtered = state is not None or tool is not None
        say("No failed tool calls", " match" if filtered else f' in "{root}"', ".", *_hint(settings))
        return
    console().print(_table(rows, list(labels.values())))
    shown = f"{calls(total)}, newest last." if len(rows) == total else f"The newest {len(rows)} of {calls(total)}."
    say(shown, " `show REF` prints one in full.", style="dim")


def _hint(settings: Settings) -> tuple[str, ...]:
    return () if settings.store_path.exists() else (" The folder is made when the first failure is recorded.",)


def _row(entry: Entry, label: str) -> dict[str, Any]:
    failure = None if entry.plain is None else entry.plain["failure"]
    summary = {} if failure is None else failure["summary"]
    return {
        "recorded_at": iso(entry.at_ns),
        "recorded_at_ns": entry.at_ns,
        "tool": entry.tool,
        "error_class": summary.get("error_class"),
        "attempt": summary.get("attempt"),
        "line": entry.line,
        "state": entry.state,
        "ref": entry.record_id[:8],
        "record_id": entry.record_id,
        "conversation": failure and failure["conversation"],
        "trace_id": entry.trace_id,
        "span_id": entry.span_id,
        "destination": label,
        "destination_id": entry.writer.destination,
        "pid": entry.reader.pid,
    }


def _table(rows: list[dict[str, Any]], labels: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("when", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("ref", no_wrap=True)
    table.add_column("failure", overflow="fold")
    if len(labels) > 1:
        table.add_column("to", no_wrap=True)
        legend = "   ".join(f"{number} = {clean(label)}" for number, label in enumerate(labels, 1))
    else:
        legend = clean(labels[0])
    table.caption, table.caption_justify, table.caption_style = Text(f"to: {legend}"), "left", "dim"
    for row in rows:
        line = row["line"].removeprefix("[error] ").replace(f" ref={row['ref']}", "")
        cells = [Text(short_moment(row["recorded_at_ns"])), styled(row["state"]), Text(row["ref"]), Text(clean(line))]
        if len(labels) > 1:
            cells.append(Text(str(labels.index(row["destination"]) + 1)))
        table.add_row(*cells)
    return table


def print_stats(settings: Settings, *, as_json: bool) -> None:
    """Print the counts of a whole store, by destination and state."""
    root = settings.store_path
    tallies = survey(root)
    used = store_bytes(root)
    if as_json:
        emit_json(
            {
                "store": root,
                "bytes": used,
                "max_bytes": settings.store_max_bytes,
                "destinations": [_tally_json(tally) for tally in tallies],
            }
        )
        return
    say(f"{root}: {size(used)} of at most {size(settings.store_max_bytes)}")
    if not tallies:
        say("No failed tool calls.", *_hint(settings))
    for tally in tallies:
        say()
        say(tally.label, style="bold")
        console().print(_tally_table(tally))


def _tally_json(tally: Tally) -> dict[str, Any]:
    shown = [state for state in State if state is not State.SUPERSEDED]
    return {
        "destination": tally.label,
        "destination_id": tally.destination,
        "failures": {state.name.lower(): tally.failures[state] for state in shown},
        "other_spans": {state.name.lower(): tally.others[state] for state in shown},
        "open_reports": tally.open_reports,
        "bytes": tally.bytes,
        "oldest_pending_at": iso(tally.oldest_pending_at_ns),
        "live_writers": tally.live_writers,
        "dead_writers": tally.dead_writers,
        "quarantined": [
            {"record_id": each.record_id, "failure": each.failure, "reason": each.words} for each in tally.refused
        ],
    }


def _tally_table(tally: Tally) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    table.add_row("  failed tool calls", _counts(tally.failures))
    if tally.others:
        table.add_row("  other spans", _counts(tally.others))
    if tally.oldest_pending_at_ns is not None:
        table.add_row("  oldest pending", moment(tally.oldest_pending_at_ns))
    if tally.open_reports:
        table.add_row("  not yet ended", f"{calls(tally.open_reports)}: sent when the span ends, or its process")
    table.add_row("  written by", f"{tally.live_writers} live and {tally.dead_writers} dead processes")
    table.add_row("  size", size(tally.bytes))
    reasons = Counter(each.words or "(no words)" for each in tally.refused)
    for words, count in reasons.most_common(_MAX_REASONS):
        refs = [each.record_id for each in tally.refused if (each.words or "(no words)") == words]
        more = "" if count <= 3 else f" and {count - 3} more"
        table.add_row("  quarantined", Text(f"{clean(words)}\n{', '.join(refs[:3])}{more}"))
    if len(reasons) > _MAX_REASONS:
        table.add_row("", f"and {len(reasons) - _MAX_REASONS} more reasons: see --json")
    return table


def _counts(counts: Counter[State]) -> Text:
    parts = [
        Text(f"{counts[state]} ") + styled(state.name.lower())
        for state in State
        if state is not State.SUPERSEDED and (counts[state] or state in (State.PENDING, State.DELIVERED))
    ]
    return Text("   ").join(parts)
