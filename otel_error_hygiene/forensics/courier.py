"""The courier: takes records from the store to the backend, in the background, at least once.

A record is marked delivered only on proof. What fails is tried again for ever, with back-off and the
server's Retry-After; what is refused is halved until the guilty record stands alone, and quarantined
when it was refused alone several times. Records of dead processes for the same destination are adopted.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from .._guard import fault, logger, say_once
from ..settings import Settings
from . import record
from .outbox import Outbox
from .proof import Answer, Sender, Verdict
from .rewrite import exported_span
from .segment import FAILURES, Header, RecordKind, SegmentReader, State
from .store import WAITING, Writer, expire, sweep, writers

_LINGER_SECONDS: Final = 0.05
"""Between a wake-up and the first send: a failure seldom comes alone, and the agent needs the interpreter now."""
_ADOPT_EVERY_SECONDS: Final = 30.0
_MAX_BATCH_SPANS: Final = 512
_MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
_STRIKES: Final = 3
_MAX_HOMELESS: Final = 200
_SEND_SECONDS: Final = 10.0


class _Item(NamedTuple):
    """One record on its way."""

    span: ReadableSpan
    reader: SegmentReader | None
    """None for a record that the store refused: it is tried from memory."""
    header: Header | None


class _Stop(Exception):
    """The backend does not take anything now."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class Courier:
    """One background thread that delivers.

    Args:
        outbox: This process's own records.
        sender: How to reach the backend.
        settings: Back-off and retention.
        on_removed: Called with the number of failures that were lost because somebody removed their files.
    """

    def __init__(self, outbox: Outbox, sender: Sender, settings: Settings, on_removed: Callable[[int], None]) -> None:
        self._outbox = outbox
        self._sender = sender
        self._settings = settings
        self._on_removed = on_removed
        self.retried = 0
        self._homeless: deque[tuple[record.Plain, Resource]] = deque(maxlen=_MAX_HOMELESS)
        self._resources: dict[tuple[str, int], Resource] = {}
        self._reset()

    def _reset(self) -> None:
        self._wake = threading.Event()
        self._pass_lock = threading.Lock()
        self._state = threading.Condition()
        self._wanted = 0
        self._done = 0
        self._deadline = 0.0
        self._stopping = False
        self._failures = 0
        self._not_before = 0.0
        self._adopt_at = 0.0
        self._strikes: Counter[tuple[str, int]] = Counter()
        self._own: Writer | None = None
        self._thread: threading.Thread | None = None

    # --- from any thread ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, if it does not run."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="otel-error-hygiene-courier", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Say that there is something to deliver."""
        if not self._wake.is_set():
            self._wake.set()

    def try_from_memory(self, plain: record.Plain, resource: Resource) -> None:
        """Take a record that the store refused; it is tried while the process lives, and is lost with it."""
        self._homeless.append((plain, resource))
        self.wake()

    def deliver(self, timeout_seconds: float) -> bool:
        """Deliver what waits, at once; True when everything for this destination was acknowledged within the time.

        The work is done by the courier's thread, so that a backend that hangs cannot hold the caller longer.
        """
        deadline = time.monotonic() + timeout_seconds
        if self._stopping:
            return self._attempt(deadline)
        try:
            self.start()
        except RuntimeError:  # the interpreter is shutting down and starts no threads any more
            return self._attempt(deadline)
        with self._state:
            self._wanted += 1
            ticket = self._wanted
            self._deadline = max(self._deadline, deadline)
            self._wake.set()
            self._state.wait_for(lambda: self._done >= ticket, timeout_seconds)
        return self.settled()

    def settled(self) -> bool:
        """Tell whether nothing for this destination is pending or quarantined."""
        for writer in writers(self._outbox.root, self._outbox.destination):
            try:
                for reader in writer.segments():
                    if any(h.state in WAITING for h in reader.live() if _travels(h)):
                        return False
            finally:
                writer.close()
        return True

    def stop(self, timeout_seconds: float) -> None:
        """Deliver what is possible within the time, and end the thread."""
        if timeout_seconds > 0:
            self.deliver(timeout_seconds)
        self._stopping = True
        self._wake.set()

    def after_fork(self) -> None:
        """In a forked child: no thread, no open files; both come back when needed."""
        self._homeless.clear()
        self._reset()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        while not self._stopping:
            woken = self._wake.wait(self._sleep_seconds())
            self._wake.clear()
            with self._state:
                ticket, deadline = self._wanted, self._deadline
            if ticket > self._done:
                self._guarded_attempt(deadline)
                with self._state:
                    self._done = ticket
                    self._state.notify_all()
            elif woken or (time.monotonic() >= min(self._not_before, self._adopt_at)):
                time.sleep(_LINGER_SECONDS)
                if time.monotonic() >= self._not_before or time.monotonic() >= self._adopt_at:
                    self._guarded_pass()

    def _sleep_seconds(self) -> float:
        until = self._adopt_at if not self._failures else min(self._adopt_at, self._not_before)
        return min(max(until - time.monotonic(), 0.01), _ADOPT_EVERY_SECONDS)

    def _guarded_pass(self) -> None:
        try:
            self._pass(time.monotonic() + _SEND_SECONDS, everyone=False)
        except _Stop as stop:
            self._back_off(stop.answer)
        except Exception as error:
            self._back_off(Answer(Verdict.LATER, str(error)))
            _quietly_fault("courier.pass", error)

    def _guarded_attempt(self, deadline: float) -> None:
        try:
            self._attempt(deadline)
        except Exception as error:
            _quietly_fault("courier.deliver", error)

    def _attempt(self, deadline: float) -> bool:
        """Try until everything is acknowledged or the time is over; the back-off counts only between these tries."""
        delay = min(self._settings.retry_initial_millis / 1000, 1.0)
        while True:
            try:
                self._pass(deadline, everyone=True)
                return self.settled()
            except _Stop as stop:
                self._back_off(stop.answer)
                pause = stop.answer.retry_after_seconds
                pause = delay if pause is None else pause
            if time.monotonic() + pause >= deadline or self._stopping:
                return False
            time.sleep(pause)

    def _back_off(self, answer: Answer) -> None:
        self._failures += 1
        ceiling = self._settings.retry_max_millis / 1000
        delay = min(self._settings.retry_initial_millis / 1000 * 2.0 ** min(self._failures - 1, 20), ceiling)
        delay *= random.uniform(0.5, 1.0)
        if answer.retry_after_seconds is not None:
            delay = answer.retry_after_seconds
        self._not_before = time.monotonic() + delay
        if answer.setup:
            say_once(
                f"setup:{self._sender.destination}",
                "failures are kept, the backend does not take them: %s. Check the endpoint and the credentials.",
                answer.words,
            )
        else:
            logger.debug("delivery will be tried again in %.1f s: %s", delay, answer.words)

    def _pass(self, deadline: float, *, everyone: bool) -> None:
        with self._pass_lock:
            self._on_removed(self._outbox.removed())
            self._outbox.prepare()
            adopting = everyone or time.monotonic() >= self._adopt_at
            if adopting:
                self._adopt_at = time.monotonic() + _ADOPT_EVERY_SECONDS
            self._deliver_homeless(deadline)
            for writer, alive in self._writers(adopting, everyone=everyone):
                with writer.delivering() as held:
                    if held:
                        self._deliver_writer(writer, deadline, dead=not alive)
            self._failures = 0
            self._not_before = 0.0
            if adopting:
                before = time.time() - self._settings.retention_seconds
                self._outbox.forget_before(before)
                sweep(self._outbox.root, before)

    def _writers(self, adopting: bool, *, everyone: bool) -> Iterator[tuple[Writer, bool]]:
        folder = self._outbox.folder
        if folder is not None:
            if self._own is None or self._own.folder != folder:
                self._own = Writer(folder)
            yield self._own, True
        if not adopting:
            return
        for writer in writers(self._outbox.root, self._outbox.destination):
            if writer.folder != folder:
                alive = writer.alive()
                if everyone or not alive:
                    try:
                        yield writer, alive
                    finally:
                        writer.close()

    def _deliver_writer(self, writer: Writer, deadline: float, *, dead: bool) -> None:
        expire(writer, time.time() - self._settings.retention_seconds)
        for batch in self._batches(writer, dead=dead):
            self._send(writer, batch, deadline)

    def _batches(self, writer: Writer, *, dead: bool) -> Iterator[list[_Item]]:
        batch: list[_Item] = []
        size = 0
        for reader in writer.segments():
            for header in reader.live():
                if header.kind is RecordKind.RESOURCE:
                    self._learn(reader, header)
                if header.state is not State.PENDING or not _travels(header, dead=dead):
                    continue
                item = self._load(writer, reader, header)
                if item is None:
                    continue
                if batch and (len(batch) == _MAX_BATCH_SPANS or size + header.length > _MAX_BATCH_BYTES):
                    yield batch
                    batch, size = [], 0
                batch.append(item)
                size += header.length
        if batch:
            yield batch

    def _learn(self, reader: SegmentReader, header: Header) -> None:
        key = (str(reader.path), header.record_id)
        if key not in self._resources and (payload := reader.payload(header)) is not None:
            plain = record.loads(payload)
            if len(self._resources) > 1000:
                self._resources.clear()
            self._resources[key] = Resource(record.encodable(plain["attributes"]), plain["schema_url"] or None)

    def _load(self, writer: Writer, reader: SegmentReader, header: Header) -> _Item | None:
        payload = reader.payload(header)
        try:
            plain = record.loads(payload or b"the record is damaged")
            number = plain["span"]["res"]
            resource = self._resources.get((str(reader.path), number)) or Resource.get_empty()
            span = exported_span(plain, resource, finished=header.kind is not RecordKind.REPORT)
            return _Item(span, reader, header)
        except Exception as error:
            self._quarantine(writer, reader, header, f"cannot be made a span: {error}")
            return None

    def _deliver_homeless(self, deadline: float) -> None:
        batch = list(self._homeless)
        if batch:
            items = [_Item(exported_span(plain, resource), None, None) for plain, resource in batch]
            self._send(None, items, deadline)
            for _ in batch:
                self._homeless.popleft()

    def _send(self, writer: Writer | None, batch: list[_Item], deadline: float) -> None:
        answer = self._ask(batch, deadline)
        if answer.verdict is Verdict.ACCEPTED:
            for item in batch:
                if item.reader is not None and item.header is not None:
                    item.reader.set_state(item.header.offset, State.DELIVERED)
            return
        self.retried += sum(1 for item in batch if item.header is None or item.header.kind in FAILURES)
        if answer.verdict is Verdict.LATER:
            raise _Stop(answer)
        if len(batch) > 1:
            middle = len(batch) // 2
            self._send(writer, batch[:middle], deadline)
            self._send(writer, batch[middle:], deadline)
            return
        item = batch[0]
        if writer is None or item.reader is None or item.header is None:
            return
        key = (str(item.reader.path), item.header.offset)
        self._strikes[key] += 1
        if self._strikes[key] < _STRIKES:
            self._send(writer, batch, deadline)
            return
        del self._strikes[key]
        self._quarantine(writer, item.reader, item.header, answer.words)

    def _ask(self, batch: list[_Item], deadline: float) -> Answer:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return Answer(Verdict.LATER, "the time is over")
        try:
            return self._sender.send([item.span for item in batch], remaining)
        except Exception as error:  # encoding: the transport's errors are answers
            return Answer(Verdict.REFUSED, f"cannot be encoded: {type(error).__name__}: {error}")

    def _quarantine(self, writer: Writer, reader: SegmentReader, header: Header, words: str) -> None:
        reader.set_state(header.offset, State.QUARANTINED)
        writer.set_reason(header.record_id, words)
        say_once(f"quarantine:{header.record_id}", "record %016x is quarantined: %s", header.record_id, words)


def _travels(header: Header, *, dead: bool = True) -> bool:
    """Tell whether a record is to be sent: a report waits for its span while its process lives."""
    return header.kind is not RecordKind.RESOURCE and (dead or header.kind is not RecordKind.REPORT)


def _quietly_fault(where: str, error: Exception) -> None:
    # On our own thread a re-raise would only kill the courier; the count and the log line are loud enough.
    try:
        fault(where, error)
    except Exception:
        logger.exception("fault in %s", where)
