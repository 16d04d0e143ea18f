"""The outbox's bounds: quota, disk, retention, and counts that add up through all of them."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_error_hygiene import Settings
from otel_error_hygiene.forensics.outbox import Outbox, Refused
from otel_error_hygiene.forensics.segment import State
from otel_error_hygiene.forensics.store import store_bytes, writers
from tests.forensics.agents import Agent, Child, agent, exporter_to
from tests.forensics.outboxes import flip, make, put, texts
from tests.otlp_server import HttpReceiver, status


def refusal(outbox: Outbox) -> str | None:
    """Append one record; return why it was refused, or None."""
    try:
        put(outbox, "x" * 2000)
    except Refused as refused:
        return refused.reason
    return None


def fill(outbox: Outbox) -> int:
    """Append until the quota refuses; return how many went in."""
    count = 0
    while (reason := refusal(outbox)) is None:
        count += 1
    assert "quota" == reason
    return count


def test_the_quota_refuses_and_delivered_records_make_room(tmp_path: Path) -> None:
    """The store never grows over its bound; when all was delivered there is room again, and the counts stay right."""
    outbox = make(tmp_path, max_bytes=2**17)
    count = fill(outbox)
    assert 30 < count < 70
    assert store_bytes(tmp_path) <= 2**17
    flip(tmp_path, lambda _: True, State.DELIVERED)
    more = fill(outbox)
    assert more > 30
    assert store_bytes(tmp_path) <= 2**17
    assert Counter({State.DELIVERED: count, State.PENDING: more}) == outbox.states()
    outbox.close()


def test_what_dead_processes_delivered_makes_room_too(tmp_path: Path) -> None:
    """The quota is the whole store's: files that wait for nothing go, what is pending or of a living process stays."""
    waiting, done = make(tmp_path, max_bytes=2**17), make(tmp_path, max_bytes=2**17)
    put(waiting, "waiting")
    waiting.close()
    fill(done)
    assert done.folder is not None
    folder = done.folder
    done.close()
    outbox = make(tmp_path, max_bytes=2**17)
    assert fill(outbox) < 10
    name = folder.name
    for writer in writers(tmp_path):
        if writer.folder.name == name:
            for reader in writer.segments():
                for header in reader.headers():
                    reader.set_state(header.offset, State.DELIVERED)
        writer.close()
    put(outbox, "there is room")
    assert {"waiting", "there is room"} <= texts(tmp_path).keys()
    outbox.close()


def test_a_full_disk_is_an_error_of_the_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC comes when a file is made, with its own reason, leaves no file, and is over when there is room."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    outbox = make(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full, raising=False)
        patched.setattr(os, "pwrite", full)
        with pytest.raises(Refused) as refused:
            put(outbox, "first")
    assert "disk_full" == refused.value.reason
    assert 0 == store_bytes(tmp_path)
    put(outbox, "second")
    assert Counter(["second"]) == texts(tmp_path)
    outbox.close()


_LIMITED = """
import resource, sys
from pathlib import Path
from opentelemetry.sdk.resources import Resource
from otel_error_hygiene.forensics.outbox import Outbox, Refused
from otel_error_hygiene.forensics.segment import RecordKind
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
outbox = Outbox(Path(sys.argv[1]), "here", "label", max_bytes=2**26)
try:
    outbox.append(RecordKind.FAILURE, outbox.new_id(), {}, outbox.resource(Resource.get_empty()))
except Refused as refused:
    print(refused.reason)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_FSIZE does not bound allocation everywhere")
def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    """`ulimit -f` is met by the kernel itself, in a process of its own: EFBIG, and no SIGXFSZ for the agent."""
    assert ("disk_full\n", "") == Child(_LIMITED, str(tmp_path)).wait()


@pytest.mark.parametrize("obstacle", ["file", "file above", "no permission"])
def test_a_store_that_cannot_be_written_is_unavailable(
    tmp_path: Path, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the folder should be, or no permission: refused under one reason, and well again when mended."""
    root = tmp_path / "above" / "store"
    blocked = root if obstacle == "file" else root.parent

    def may_not(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")  # root, who runs some tests, may write anywhere

    outbox = make(root)
    with monkeypatch.context() as patched:
        if obstacle == "no permission":
            patched.setattr(Path, "mkdir", may_not)
        else:
            blocked.parent.mkdir(exist_ok=True)
            blocked.write_text("a file")
        with pytest.raises(Refused) as refused:
            put(outbox, "first")
    assert "store_unavailable" == refused.value.reason
    blocked.unlink(missing_ok=True)
    put(outbox, "second")
    assert Counter(["second"]) == texts(root)
    outbox.close()


def test_files_out_of_the_retention_are_removed_and_counted(tmp_path: Path) -> None:
    """The current file too: what was not delivered by then has expired, what was delivered stays counted as that."""
    outbox = make(tmp_path)
    delivered = put(outbox, "delivered")
    put(outbox, "pending")
    flip(tmp_path, lambda each: each == delivered, State.DELIVERED)
    outbox.forget_before(time.time() - 60)
    assert 2 == texts(tmp_path).total()
    outbox.forget_before(time.time() + 60)
    assert 0 == store_bytes(tmp_path)
    assert Counter({State.DELIVERED: 1, State.EXPIRED: 1}) == outbox.states()
    put(outbox, "next")
    assert Counter(["next"]) == texts(tmp_path)
    outbox.close()


def test_a_process_without_courier_keeps_its_own_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local store of a process that runs for weeks drops its old files when it makes a new one."""
    outbox = make(tmp_path, max_bytes=2**17, retention_seconds=3600.0)
    for _ in range(6):
        put(outbox, "old" * 1000)
    later = time.time() + 7200
    monkeypatch.setattr(time, "time", lambda: later)
    for _ in range(8):
        put(outbox, "new" * 1000)
    # The second old file got new records too, so it stays; what is old in it has expired.
    assert "old" * 1000 in texts(tmp_path)
    assert 6 > texts(tmp_path)["old" * 1000]
    assert Counter({State.EXPIRED: 6, State.PENDING: 8}) == outbox.states()
    outbox.close()


@pytest.fixture
def small(settings: Settings) -> Settings:
    """Give settings with a small quota."""
    return settings.model_copy(update={"store_max_bytes": 2**17})


def _counted(made: Agent, reason: str) -> Iterator[int]:
    while True:
        made.fail("search", "x" * 3000)
        yield made.stats().lost.get(reason, 0)


def test_stats_add_up_through_quota_removal_and_shutdown(small: Settings, http: HttpReceiver) -> None:
    """`seen = recorded + sum(lost)` and `recorded = pending + delivered + quarantined + expired`, at every step."""
    http.default = status(503)
    with agent(exporter_to(http), small) as made:
        refused = next(lost for lost in _counted(made, "quota") if lost)
        assert 1 == refused
        pending = made.stats().pending
        shutil.rmtree(small.store_path)
        made.fail("after")
        found = made.stats()
        assert {"quota": 1, "store_removed": pending} == {k: v for k, v in found.lost.items() if v}
        assert (1, 1) == (found.recorded, found.pending)
        http.default = status(200)
        assert made.processor.deliver(5000)
        assert 1 == made.stats().delivered
        made.provider.shutdown()
        made.fail("too late")
        found = made.stats()
        assert (1, 1) == (found.delivered, found.lost["closed"])


def test_a_record_that_the_store_refused_may_still_arrive_and_is_counted_as_lost(
    settings: Settings, http: HttpReceiver, tmp_path: Path
) -> None:
    """It is tried from memory; nothing promises it, so the counts do not."""
    (tmp_path / "store").write_text("a file")
    with agent(exporter_to(http), settings) as made:
        made.fail("search")
        assert http.wait_for(lambda: http.names() == ["execute_tool search"])
        assert {"store_unavailable": 1} == {k: v for k, v in made.stats().lost.items() if v}
        event = dict(http.one("execute_tool search").events)["exception"]
        assert "connection refused" == event["exception.message"]
