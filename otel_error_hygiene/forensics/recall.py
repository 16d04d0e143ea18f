"""Recall: from a reference back to the whole record, from any process, pruned or not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource

from .. import semconv
from ..model import ErrorSummary, ExceptionNode, ForensicRecord, ToolCall
from . import record
from .record import Plain
from .rewrite import exported_span, stack_of
from .segment import FAILURES, Header, RecordKind, SegmentReader, State
from .store import Writer

_NAMES: Mapping[State, str] = {state: state.name.lower() for state in State}
_KEY = re.compile(r"[0-9a-f]{8}|[0-9a-f]{16}")
HIDDEN_STATES = frozenset({State.SUPERSEDED, State.DISCARDED, State.PURGED})


class Stored(NamedTuple):
    """One record where it stands."""

    writer: Writer
    reader: SegmentReader
    header: Header
    plain: Plain


def stored(found: Iterable[Writer], wanted: Callable[[Header], bool] | None = None) -> Iterator[Stored]:
    """Yield the records of writers, other than those that were superseded or destroyed.

    Args:
        found: The writers; their files are closed when they were read.
        wanted: Which records to read, by their headers; None: all.
    """
    for writer in found:
        try:
            for reader in writer.segments():
                for header in reader.live():
                    if (
                        header.kind is RecordKind.RESOURCE
                        or header.state in HIDDEN_STATES
                        or (wanted and not wanted(header))
                    ):
                        continue
                    payload = reader.payload(header)
                    if payload is not None:
                        yield Stored(writer, reader, header, record.loads(payload))
        finally:
            writer.close()


def is_failure(one: Stored) -> bool:
    """Tell a failure from another span that was kept."""
    return one.header.kind in FAILURES


def matching(found: Iterable[Writer], key: str) -> list[ForensicRecord]:
    """Return all failures with a ref, record id or span id of ``key`` (8 or 16 hex digits), the newest first."""
    key = key.strip().lower()
    records: list[ForensicRecord] = []
    prunes: dict[tuple[int, int], tuple[int, str]] = {}

    def wanted(header: Header) -> bool:
        named = f"{header.record_id:016x}".startswith(key)
        return header.kind is RecordKind.RECOVERY or (header.kind in FAILURES and (named or len(key) == 16))

    for one in stored(found, wanted) if _KEY.fullmatch(key) else ():
        span = one.plain["span"]
        for trace_id, span_id, _ in one.plain.get("cleared", ()):
            tool = span["attributes"].get(semconv.GEN_AI_TOOL_NAME) or span["name"]
            prunes[trace_id, span_id] = (span["end"], f"{tool} (span {span['id']:016x})")
        if is_failure(one) and key in (f"{one.header.record_id:016x}"[: len(key)], f"{span['id']:016x}"):
            records.append(record_of(one))
    records = [_pruned(each, prunes) for each in records]
    return sorted(records, key=lambda each: each.recorded_at_ns, reverse=True)


def _pruned(found: ForensicRecord, prunes: Mapping[tuple[int, int], tuple[int, str]]) -> ForensicRecord:
    prune = prunes.get((int(found.trace_id, 16), int(found.span_id, 16)))
    if prune is None:
        return found
    return found.model_copy(update={"pruned_at_ns": prune[0], "pruned_by": prune[1]})


def record_of(one: Stored) -> ForensicRecord:
    """Make the public record of a stored failure."""
    reason = None
    if one.header.state is State.QUARANTINED:
        reason = one.writer.reasons().get(one.header.record_id)
    resource = _resource(one.reader, one.plain["span"]["res"])
    return _to_forensic(one, resource, reason)


def _resource(reader: SegmentReader, number: int) -> Resource:
    for header in reader.headers():
        if header.kind is RecordKind.RESOURCE and header.record_id == number:
            payload = reader.payload(header)
            if payload is not None:
                plain = record.loads(payload)
                return Resource(plain["attributes"], plain["schema_url"] or None)
    return Resource.get_empty()


def _to_forensic(one: Stored, resource: Resource, reason: str | None) -> ForensicRecord:
    plain, finished = one.plain, one.header.kind is not RecordKind.REPORT
    span = exported_span(plain, resource, finished=finished)
    failure = plain["failure"]
    node = failure["exception"]
    event = next((e for e in reversed(span.events) if e.name == semconv.EXCEPTION_EVENT), None)
    values = dict(event.attributes or {}) if event is not None else {}
    identifier = f"{one.header.record_id:016x}"
    return ForensicRecord(
        ref=identifier[:8],
        record_id=identifier,
        call=ToolCall.model_validate(failure["call"]),
        summary=ErrorSummary.model_validate(failure["summary"]),
        line=failure["line"],
        fingerprint=failure["fingerprint"],
        conversation=failure["conversation"],
        exception=None if node is None else ExceptionNode.model_validate(node),
        exception_type=failure["type"],
        exception_message=failure["message"],
        exception_stacktrace=str(values.get(semconv.EXCEPTION_STACKTRACE) or stack_of(failure)),
        recorded_at_ns=plain["at"],
        told_at_ns=failure["told_at"],
        state=_NAMES[one.header.state],
        reason=reason,
        trace_id=f"{plain['span']['trace']:032x}",
        span_id=f"{plain['span']['id']:016x}",
        parent_span_id=None if plain["span"]["parent"] is None else f"{plain['span']['parent'][1]:016x}",
        name=plain["span"]["name"],
        start_time_ns=plain["span"]["start"],
        end_time_ns=plain["span"]["end"] or plain["at"],
        finished=finished,
        attributes=dict(span.attributes or {}),
        events=tuple(
            {"name": e.name, "timestamp_ns": e.timestamp, "attributes": dict(e.attributes or {})} for e in span.events
        ),
        resource=dict(resource.attributes),
        pid=one.reader.pid,
    )
