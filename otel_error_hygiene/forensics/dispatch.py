"""Dispatch: records become spans, spans go out in batches, and every record is marked by what the answer proves.

What is refused is halved until the guilty record stands alone, and quarantined when it was refused alone several
times. A server that stumbles (500) may have stumbled over one record too: halves show which, if others pass.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from .._guard import say_once
from . import record
from .answer import Answer, Verdict, in_words
from .proof import Sender
from .rewrite import exported_span
from .segment import FAILURES, Header, RecordKind, SegmentReader, State
from .settled import Settled
from .store import Writer

_MAX_BATCH_SPANS: Final = 512
_MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
_STRIKES: Final = 3
_MAX_HOMELESS: Final = 200


class Item(NamedTuple):
    """One record on its way."""

    span: ReadableSpan
    failure: bool
    place: tuple[Writer, SegmentReader, Header] | None
    """None for a record that the store refused: it is tried from memory."""


class Postponed(Exception):
    """The backend does not take anything now."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.words)
        self.answer = answer


def travels(header: Header, *, dead: bool = True) -> bool:
    """Tell whether a record is to be sent: a report waits for its span while its process lives."""
    return header.kind is not RecordKind.RESOURCE and (dead or header.kind is not RecordKind.REPORT)


class Dispatch:
    """Send records and mark them. Used by one thread at a time, except where said.

    Args:
        sender: How to reach the backend.
        settled: What is known of files that hold nothing pending.
    """

    def __init__(self, sender: Sender, settled: Settled) -> None:
        self._sender = sender
        self._settled = settled
        self.retried = 0
        self._strikes: Counter[tuple[str, int]] = Counter()
        self._homeless: deque[tuple[record.Plain, Resource, bool]] = deque()
        self._homeless_lock = threading.Lock()

    def keep_in_memory(self, plain: record.Plain, resource: Resource) -> None:
        """Take a record that has no place in the store, the newest of them; from any thread."""
        with self._homeless_lock:
            self._homeless.append((plain, resource, "failure" in plain))
            if len(self._homeless) > _MAX_HOMELESS:
                self._homeless.popleft()

    def send_from_memory(self, deadline: float) -> None:
        """Try what has no place in the store.

        Raises:
            Postponed: The backend does not take anything now.
        """
        with self._homeless_lock:
            batch = list(self._homeless)
            self._homeless.clear()
        items: list[Item] = []
        for plain, resource, failure in batch:
            try:
                # As it would have been read from the store: its nouns as plain values.
                span = exported_span(record.loads(record.dumps(plain)), resource)
                items.append(Item(span, failure, None))
            except Exception as error:
                say_once("homeless", "a record that was not kept cannot be made a span: %s", error)
        if not items:
            return
        try:
            self._send(items, deadline)
        except Postponed:
            with self._homeless_lock:
                room = max(_MAX_HOMELESS - len(self._homeless), 0)
                self._homeless.extendleft(reversed(batch[len(batch) - min(room, len(batch)) :]))
            raise

    def send_from(self, writer: Writer, deadline: float, *, alive: bool) -> None:
        """Send what is pending in a writer's files. Only under the courier's lock.

        Raises:
            Postponed: The backend does not take anything now.
        """
        for batch in self._batches(writer, alive=alive):
            self._send(batch, deadline)

    def _batches(self, writer: Writer, *, alive: bool) -> Iterator[list[Item]]:
        batch: list[Item] = []
        size = 0
        for reader in writer.unsettled(self._settled, alive=alive):
            resources = _Resources(reader)
            for header in reader.live():
                if header.state is not State.PENDING or not travels(header, dead=not alive):
                    continue
                item = self._load(writer, reader, header, resources)
                if item is None:
                    continue
                if batch and (len(batch) == _MAX_BATCH_SPANS or size + header.length > _MAX_BATCH_BYTES):
                    yield batch
                    batch, size = [], 0
                batch.append(item)
                size += header.length
        if batch:
            yield batch

    def _load(self, writer: Writer, reader: SegmentReader, header: Header, resources: _Resources) -> Item | None:
        payload = reader.payload(header)
        if payload is None:
            _quarantine((writer, reader, header), "the record is damaged")
            return None
        try:
            plain = record.loads(payload)
            finished = header.kind is not RecordKind.REPORT
            span = exported_span(plain, resources.get(plain["span"]["res"]), finished=finished)
            return Item(span, header.kind in FAILURES, (writer, reader, header))
        except Exception as error:
            _quarantine((writer, reader, header), f"cannot be made a span: {error}")
            return None

    # --- answers ------------------------------------------------------------------------------

    def _send(self, batch: list[Item], deadline: float) -> None:
        answer = self._ask(batch, deadline)
        if answer.verdict is Verdict.ACCEPTED:
            _mark_delivered(batch)
        elif answer.verdict is Verdict.REFUSED:
            self._halve(batch, answer, deadline)
        elif answer.stumbled and len(batch) > 1:
            self._suspect(batch, answer, deadline)
        else:
            raise Postponed(answer)

    def _ask(self, batch: list[Item], deadline: float) -> Answer:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise Postponed(Answer(Verdict.LATER, "the time is over"))
        try:
            answer = self._sender.send([item.span for item in batch], remaining)
        except Exception as error:  # encoding: the transport's errors are answers
            answer = Answer(Verdict.REFUSED, in_words(f"cannot be encoded: {type(error).__name__}: {error}"))
        if answer.verdict is not Verdict.ACCEPTED:
            self.retried += sum(item.failure for item in batch)
        return answer

    def _halve(self, batch: list[Item], answer: Answer, deadline: float) -> None:
        """Find what was refused."""
        if len(batch) > 1:
            middle = len(batch) // 2
            self._send(batch[:middle], deadline)
            self._send(batch[middle:], deadline)
        elif self._struck(batch[0], answer):
            self._send(batch, deadline)

    def _suspect(self, batch: list[Item], answer: Answer, deadline: float) -> None:
        """Find what the server stumbles over, if it takes the rest: a server that takes nothing is asked thrice only.

        Raises:
            Postponed: What is left is tried again later; the rest is delivered.
        """
        while len(batch) > 1:
            # At random: two guilty ones that stand in different halves this time may stand in one the next.
            random.shuffle(batch)
            left: list[Item] = []
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                answer = self._ask(half, deadline)
                if answer.verdict is Verdict.ACCEPTED:
                    _mark_delivered(half)
                elif answer.verdict is Verdict.REFUSED:
                    self._halve(half, answer, deadline)
                elif answer.stumbled:
                    left += half
                else:
                    raise Postponed(answer)
            if len(left) == len(batch):
                raise Postponed(answer)
            batch = left
        if batch and self._struck(batch[0], answer):
            raise Postponed(answer)

    def _struck(self, item: Item, answer: Answer) -> bool:
        """Count a refusal of a record alone; False when there were enough and it is out of the way."""
        if item.place is None:
            return False
        _, reader, header = item.place
        key = (str(reader.path), header.offset)
        self._strikes[key] += 1
        if self._strikes[key] < _STRIKES:
            return True
        del self._strikes[key]
        _quarantine(item.place, answer.words)
        return False


def _mark_delivered(batch: list[Item]) -> None:
    for item in batch:
        if item.place is not None:
            _, reader, header = item.place
            reader.set_state(header.offset, State.DELIVERED)


def _quarantine(place: tuple[Writer, SegmentReader, Header], words: str) -> None:
    writer, reader, header = place
    reader.set_state(header.offset, State.QUARANTINED)
    writer.set_reason(header.record_id, words)
    say_once(f"quarantine:{header.record_id}", "record %016x is quarantined: %s", header.record_id, words)


class _Resources:
    """The resources of one segment, read when a record wants them."""

    def __init__(self, reader: SegmentReader) -> None:
        self._reader = reader
        self._known: dict[int, Resource] = {}

    def get(self, number: int) -> Resource:
        if number not in self._known:
            self._known[number] = self._read(number)
        return self._known[number]

    def _read(self, number: int) -> Resource:
        for header in self._reader.headers():
            if header.kind is RecordKind.RESOURCE and header.record_id == number:
                payload = self._reader.payload(header)
                if payload is not None:
                    plain = record.loads(payload)
                    return Resource(record.encodable(plain["attributes"]), plain["schema_url"] or None)
        return Resource.get_empty()
