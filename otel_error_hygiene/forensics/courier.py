"""The courier: takes records from the store to the backend, in the background, at least once.

A record is marked delivered only on proof. What fails is tried again for ever, with back-off and the server's
Retry-After. Records of dead processes for the same destination are adopted.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from opentelemetry.sdk.resources import Resource

from .._guard import fault, logger, say_once
from ..settings import Settings
from . import record
from .answer import Answer, Verdict
from .dispatch import Dispatch, Postponed, travels
from .outbox import Outbox
from .proof import Sender
from .settled import Settled
from .store import WAITING, Writer, expire, sweep, writers

_LINGER_SECONDS: Final = 0.05
"""Between a wake-up and the first send: a failure seldom comes alone, and the agent needs the interpreter now."""
_ADOPT_EVERY_SECONDS: Final = 30.0
_SEND_SECONDS: Final = 10.0
_BUSY_SECONDS: Final = 0.1
"""Between two looks at a folder in which another process's courier is at work."""


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
        self._reset()

    def _reset(self) -> None:
        self._wake = threading.Event()
        self._halted = threading.Event()
        self._pass_lock = threading.Lock()
        self._state = threading.Condition()
        # Guarded by _state: tickets of deliver(), the newest and the newest that is done, and until when to try.
        self._wanted = 0
        self._done = 0
        self._deadline = 0.0
        self._failures = 0
        self._not_before = 0.0
        self._adopt_at = 0.0
        self._own: Writer | None = None
        self._settled = Settled()
        self._dispatch = Dispatch(self._sender, self._settled)
        self._thread: threading.Thread | None = None

    # --- from any thread ----------------------------------------------------------------------

    @property
    def retried(self) -> int:
        """Deliveries of a failed call that had to be tried again, in attempts."""
        return self._dispatch.retried

    def start(self) -> None:
        """Start the thread, if it does not run. Raises RuntimeError where the interpreter starts none any more."""
        with self._state:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="otel-error-hygiene-courier", daemon=True)
                thread.start()
                self._thread = thread

    def wake(self) -> None:
        """Say that there is something to deliver."""
        if not self._wake.is_set():
            self._wake.set()

    def try_from_memory(self, plain: record.Plain, resource: Resource) -> None:
        """Take a record that the store refused; it is tried while the process lives, and is lost with it."""
        self._dispatch.keep_in_memory(plain, resource)
        self.wake()

    def deliver(self, timeout_seconds: float) -> bool:
        """Deliver what waits, at once; True when everything for this destination was acknowledged within the time.

        The work is done by the courier's thread, so that a backend that hangs cannot hold the caller longer.
        """
        timeout_seconds = min(max(timeout_seconds, 0.0), threading.TIMEOUT_MAX)
        deadline = time.monotonic() + timeout_seconds
        if self._halted.is_set():
            return self._attempt_here(deadline)
        try:
            self.start()
        except RuntimeError:  # the interpreter is shutting down and starts no threads any more
            return self._attempt_here(deadline)
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
                alive = writer.alive()
                if alive and writer.folder != self._outbox.folder and not self._sender.proven:
                    continue  # a living process's exporter of this kind may be another backend: only it can know
                growing = writer.names()[-1:] if alive else []
                for name in writer.names():
                    path = writer.folder / name
                    seen = self._settled.look(path)
                    quarantined = None if seen is None or name in growing else self._settled.quarantined(path, seen)
                    reader = writer.open(name) if quarantined is None else None
                    if quarantined or (reader and any(h.state in WAITING and travels(h) for h in reader.live())):
                        return False
            finally:
                writer.close()
        return True

    def stop(self, timeout_seconds: float) -> None:
        """Deliver what is possible within the time, and end the thread."""
        if timeout_seconds > 0:
            self.deliver(timeout_seconds)
        self._halted.set()
        self._wake.set()

    def after_fork(self) -> None:
        """In a forked child: no thread, no open files; both come back when needed."""
        if self._own is not None:
            self._own.close()
        self._reset()

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        news = False
        while not self._halted.is_set():
            if self._wake.wait(min(max(self._due(news=news) - time.monotonic(), 0.0), _ADOPT_EVERY_SECONDS)):
                self._wake.clear()
                news = True
            with self._state:
                ticket, deadline = self._wanted, self._deadline
            if ticket > self._done:
                self._guarded_attempt(deadline)
                with self._state:
                    self._done = ticket
                    self._state.notify_all()
            elif time.monotonic() >= self._due(news=news):
                if news and self._halted.wait(_LINGER_SECONDS):
                    break
                news = not self._guarded_pass()

    def _due(self, *, news: bool) -> float:
        """Return when the next pass is due; nothing but ``deliver`` goes before what a server asked for."""
        return self._not_before if news or self._failures else max(self._not_before, self._adopt_at)

    def _guarded_pass(self) -> bool:
        """Return False when another courier is at work on our own records."""
        try:
            busy = self._pass(time.monotonic() + _SEND_SECONDS, everyone=False)
        except Postponed as postponed:
            self._back_off(postponed.answer)
        except Exception as error:
            self._back_off(Answer(Verdict.LATER, str(error)))
            _quietly_fault("courier.pass", error)
        else:
            if busy:
                self._not_before = time.monotonic() + _BUSY_SECONDS
            return not busy
        return True

    def _guarded_attempt(self, deadline: float) -> None:
        try:
            self._attempt(deadline)
        except Exception as error:
            _quietly_fault("courier.deliver", error)

    def _attempt_here(self, deadline: float) -> bool:
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            return self._attempt(deadline)
        finally:
            detach(token)

    def _attempt(self, deadline: float) -> bool:
        """Try until everything is acknowledged or the time is over; the back-off counts only between these tries."""
        between = min(self._settings.retry_initial_millis / 1000, 1.0)
        while True:
            try:
                busy = self._pass(deadline, everyone=True)
                if self.settled():
                    return True
                if not busy:
                    return False  # what is left waits for a human, or for its span
                pause = _BUSY_SECONDS
            except Postponed as postponed:
                self._back_off(postponed.answer)
                pause = max(between, postponed.answer.retry_after_seconds or 0.0)
            if time.monotonic() + pause >= deadline or self._halted.wait(pause):
                return False

    def _back_off(self, answer: Answer) -> None:
        self._failures += 1
        ceiling = self._settings.retry_max_millis / 1000
        delay = min(self._settings.retry_initial_millis / 1000 * 2.0 ** min(self._failures - 1, 20), ceiling)
        # A server that asks for less than we would wait anyway is not asked more often for it.
        delay = max(delay * random.uniform(0.5, 1.0), answer.retry_after_seconds or 0.0)
        self._not_before = time.monotonic() + delay
        if answer.setup:
            say_once(
                f"setup:{self._sender.destination}",
                "failures are kept, the backend does not take them: %s. Check the endpoint and the credentials.",
                answer.words,
            )
        else:
            logger.debug("delivery will be tried again in %.1f s: %s", delay, answer.words)

    def _pass(self, deadline: float, *, everyone: bool) -> bool:
        """Send what there is, once; return True when another courier was at work on some of it.

        Raises:
            Postponed: The backend does not take anything now.
        """
        if not self._pass_lock.acquire(timeout=min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)):
            raise Postponed(Answer(Verdict.LATER, "another delivery of this process is at work"))
        try:
            self._on_removed(self._outbox.removed())
            self._outbox.prepare()
            before = time.time() - self._settings.retention_seconds
            adopting = everyone or time.monotonic() >= self._adopt_at
            if adopting:
                self._adopt_at = time.monotonic() + _ADOPT_EVERY_SECONDS
                self._outbox.forget_before(before)
                sweep(self._outbox.root, before)
            busy = self._send_all(deadline, before, adopting=adopting, everyone=everyone)
            self._failures = 0
            self._not_before = 0.0
            return busy
        finally:
            self._pass_lock.release()

    def _send_all(self, deadline: float, before: float, *, adopting: bool, everyone: bool) -> bool:
        busy = False
        self._dispatch.send_from_memory(deadline)
        for writer, alive in self._writers(adopting=adopting, everyone=everyone):
            with writer.delivering() as held:
                if not held:
                    busy |= (everyone or alive) and writer.folder.exists()
                    continue
                if not alive:
                    writer.remove_spares()
                expire(writer, before)
                self._dispatch.send_from(writer, deadline, alive=alive)
        return busy

    def _writers(self, *, adopting: bool, everyone: bool) -> Iterator[tuple[Writer, bool]]:
        """Yield one's own folder, then those of others that are to be delivered, and whether their owners live."""
        folder = self._outbox.folder
        if folder is not None:
            if self._own is None or self._own.folder != folder:
                if self._own is not None:
                    self._own.close()
                self._own = Writer(folder)
            yield self._own, True
        for writer in writers(self._outbox.root, self._outbox.destination) if adopting else ():
            if writer.folder != folder:
                alive = writer.alive()
                if not alive or (everyone and self._sender.proven):
                    try:
                        yield writer, alive
                    finally:
                        writer.close()


def _quietly_fault(where: str, error: Exception) -> None:
    # On our own thread a re-raise would only kill the courier; the count and the log line are loud enough.
    try:
        fault(where, error)
    except Exception:
        logger.exception("fault in %s", where)
