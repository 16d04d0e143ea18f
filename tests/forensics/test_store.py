"""The store on disk: who owns a folder, who may adopt it, and what is left alone."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource

from otel_error_hygiene.forensics.locks import lock_file
from otel_error_hygiene.forensics.outbox import Outbox
from otel_error_hygiene.forensics.segment import RecordKind, SegmentReader, State
from otel_error_hygiene.forensics.settled import Settled
from otel_error_hygiene.forensics.store import (
    Writer,
    expire,
    label_of,
    make_writer,
    store_bytes,
    sweep,
    writers,
)
from tests.forensics.agents import Child

DAY = 24 * 3600.0


def dead_writer(root: Path, *payloads: str, destination: str = "here") -> Writer:
    """Write records as a process that is gone."""
    outbox = Outbox(root, destination, "a label", max_bytes=2**26)
    for payload in payloads:
        outbox.append(RecordKind.FAILURE, outbox.new_id(), {"text": payload}, outbox.resource(Resource.get_empty()))
    outbox.close()
    assert outbox.folder is not None
    return Writer(outbox.folder)


def states(writer: Writer) -> list[State]:
    """Return the states of a writer's failures."""
    found = [h.state for r in writer.segments() for h in r.live() if h.kind is RecordKind.FAILURE]
    writer.close()
    return found


def test_folders_and_files_are_the_owners_alone(tmp_path: Path) -> None:
    """0700 and 0600, whatever the umask allows: a record holds what tools were given and what they said."""
    before = os.umask(0o000)
    try:
        writer = dead_writer(tmp_path / "a" / "store", "first")
        with writer.delivering() as held:
            assert held
            writer.set_reason(1, "because")
    finally:
        os.umask(before)
    writer.close()
    found = sorted((tmp_path / "a" / "store").rglob("*"))
    assert 7 == len(found)  # the destination, its label, the writer's folder, two locks, a segment, the reasons
    for path in (tmp_path / "a" / "store", *found):
        assert (0o700 if path.is_dir() else 0o600) == stat.S_IMODE(path.stat().st_mode), path


def test_a_folder_is_alive_for_as_long_as_its_process(tmp_path: Path) -> None:
    """The kernel lets go of the owner's lock however a process ends; nobody asks for a pid."""
    child = Child(
        "import sys, time; from pathlib import Path; from otel_error_hygiene.forensics.store import make_writer\n"
        "print(make_writer(Path(sys.argv[1]), 'here', 'label')[0], flush=True); time.sleep(30)",
        str(tmp_path),
    )
    writer = Writer(Path(child.line()))
    assert writer.alive()
    assert [writer.folder] == [each.folder for each in writers(tmp_path, "here")]
    child.kill()
    assert not writer.alive()


def test_one_courier_at_a_time(tmp_path: Path) -> None:
    """Whoever comes second is told so at once, and may come again."""
    folder = dead_writer(tmp_path, "first").folder
    with Writer(folder).delivering() as first, Writer(folder).delivering() as second:
        assert (True, False) == (first, second)
    with Writer(folder).delivering() as third:
        assert third


def test_a_child_that_is_forked_meanwhile_does_not_keep_the_couriers_lock(tmp_path: Path) -> None:
    """A lock belongs to the open file, which a forked child shares: its copy is closed, and its parent unlocks."""
    folder = dead_writer(tmp_path, "first").folder
    read, write = os.pipe()
    with Writer(folder).delivering() as held:
        assert held
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    try:
        with Writer(folder).delivering() as again:
            assert again
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(pid, 0)


def test_a_file_system_without_locks_is_an_error_and_not_a_lock_that_another_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flock` says ENOLCK or EOPNOTSUPP there: the store is unavailable, and nothing of it is left behind."""

    def cannot(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", cannot)
    with pytest.raises(OSError, match="No locks"):
        lock_file(tmp_path / "lock")
    with pytest.raises(OSError, match="No locks"):
        make_writer(tmp_path / "store", "here", "label")
    assert [] == [path for path in (tmp_path / "store" / "here").iterdir() if path.is_dir()]


def test_a_label_is_written_once_and_read_by_all(tmp_path: Path) -> None:
    """The first writer of a destination says what it is called; an unknown one is called by its folder."""
    make_writer(tmp_path, "here", "http://collector:4318")
    make_writer(tmp_path, "here", "something else")
    assert "http://collector:4318" == label_of(tmp_path, "here")
    assert "elsewhere" == label_of(tmp_path, "elsewhere")


def test_strangers_in_the_store_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another version's file, a folder with a segment's name, a broken one: the rest is read, and they stay."""
    writer = dead_writer(tmp_path, "first")
    (writer.folder / "00000000.seg").write_bytes(b"from the future" * 100)
    (writer.folder / "00000009.seg").mkdir()
    assert [State.PENDING] == states(writer)
    assert 2 == sum("left alone" in each.message for each in caplog.records)
    sweep(tmp_path, time.time() + 10 * DAY)
    assert (writer.folder / "00000000.seg").exists()
    assert (writer.folder / "00000009.seg").exists()


def test_reasons_are_kept_by_record_one_line_each(tmp_path: Path) -> None:
    """The newest words count; line breaks, lone surrogates and a torn last line do no harm."""
    writer = dead_writer(tmp_path, "first")
    writer.set_reason(0xABC, "old")
    writer.set_reason(0xABC, "new\nwith\u2028lines")
    writer.set_reason(0xDEF, "surrogate \udcff here")
    with (writer.folder / "reasons.txt").open("a") as file:
        file.write("not a line\n0000")
    assert {0xABC: "new with lines", 0xDEF: "surrogate \\udcff here"} == writer.reasons()
    writer.forget_reasons({0xABC})
    assert {0xDEF: "surrogate \\udcff here"} == writer.reasons()


def test_what_waited_longer_than_the_retention_expires(tmp_path: Path) -> None:
    """Pending and quarantined records expire, delivered ones do not, and nothing does before its time."""
    writer = dead_writer(tmp_path, "pending", "quarantined", "delivered")
    [reader] = writer.segments()
    _, _, quarantined, delivered = reader.headers()
    reader.set_state(quarantined.offset, State.QUARANTINED)
    reader.set_state(delivered.offset, State.DELIVERED)
    expire(writer, time.time() - 1)
    assert [State.PENDING, State.QUARANTINED, State.DELIVERED] == states(writer)
    expire(writer, time.time() + 3)
    assert [State.EXPIRED, State.EXPIRED, State.DELIVERED] == states(writer)


def test_a_sweep_removes_what_dead_processes_left_when_its_time_is_over(tmp_path: Path) -> None:
    """Of every destination; a living process's files are its own to remove."""
    gone = [dead_writer(tmp_path, "a"), dead_writer(tmp_path, "b", destination="local")]
    alive = Outbox(tmp_path, "here", "label", max_bytes=2**26)
    alive.append(RecordKind.FAILURE, 1 << 60, {}, alive.resource(Resource.get_empty()))
    sweep(tmp_path, time.time() - 1)
    assert 3 == len(writers(tmp_path))
    sweep(tmp_path, time.time() + 3)
    assert [alive.folder] == [writer.folder for writer in writers(tmp_path)]
    assert not any(writer.folder.exists() for writer in gone)
    alive.close()


def test_a_sweep_does_not_open_files_that_are_too_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder cannot hold anything older than itself: a sweep reads nothing of the thousand that are young."""
    dead_writer(tmp_path, "a")
    monkeypatch.setattr(Writer, "open", lambda *_: pytest.fail("a young folder was read"))
    sweep(tmp_path, time.time() - DAY)


def test_settled_files_are_not_opened_again_until_they_change(tmp_path: Path) -> None:
    """A file without anything pending is skipped, and read again after a requeue by anybody."""
    writer = dead_writer(tmp_path, "first", "second")
    [reader] = writer.segments()
    for header in reader.headers():
        reader.set_state(header.offset, State.DELIVERED)
    path, settled = reader.path, Settled()
    os.utime(path, ns=(0, time.time_ns() - 5_000_000_000))
    assert [path] == [each.path for each in writer.unsettled(settled, alive=False)]
    assert [] == list(writer.unsettled(settled, alive=False))
    with SegmentReader(path) as other:
        other.set_state(other.headers()[1].offset, State.PENDING)
    assert [path] == [each.path for each in writer.unsettled(settled, alive=False)]
    writer.close()


def test_the_file_that_a_living_process_appends_to_is_always_read(tmp_path: Path) -> None:
    """An append through the map does not change the file's time: the last file of a living owner is never settled."""
    writer = dead_writer(tmp_path, "first")
    [reader] = writer.segments()
    reader.set_state(reader.headers()[-1].offset, State.DELIVERED)
    settled = Settled()
    os.utime(reader.path, ns=(0, time.time_ns() - 5_000_000_000))
    for _ in range(3):
        assert 1 == len(list(writer.unsettled(settled, alive=True)))
    writer.close()


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    """The clock of a file system is coarse: a change in the same tick would look like none."""
    writer = dead_writer(tmp_path, "first")
    [reader] = writer.segments()
    reader.set_state(reader.headers()[-1].offset, State.DELIVERED)
    settled = Settled()
    for _ in range(3):
        assert 1 == len(list(writer.unsettled(settled, alive=False)))
    writer.close()


def test_the_bytes_of_a_store_are_those_allocated(tmp_path: Path) -> None:
    """A store that does not exist has none; foreign files do not count."""
    assert 0 == store_bytes(tmp_path / "nowhere")
    outbox = Outbox(tmp_path, "here", "label", max_bytes=2**26)
    outbox.append(RecordKind.FAILURE, 1 << 60, {}, outbox.resource(Resource.get_empty()))
    (tmp_path / "here" / "notes.txt").write_text("x" * 999)
    assert 2**20 == store_bytes(tmp_path)
    outbox.close()
    assert store_bytes(tmp_path) < 4096
