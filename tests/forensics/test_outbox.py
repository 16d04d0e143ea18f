"""The outbox: durable when append returns, and every loss counted under its reason."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource

from otel_error_hygiene import Settings
from otel_error_hygiene.forensics.outbox import Refused
from otel_error_hygiene.forensics.segment import RecordKind, State
from otel_error_hygiene.forensics.store import Writer, store_bytes, writers
from tests.forensics.agents import Child, agent, exporter_to
from tests.forensics.outboxes import flip, make, put, texts
from tests.otlp_server import HttpReceiver


def test_nothing_is_on_disk_before_the_first_failure(tmp_path: Path) -> None:
    """An agent that never fails leaves no folder; asking for counts makes none."""
    outbox = make(tmp_path / "store")
    outbox.prepare()
    assert (0, Counter()) == (outbox.removed(), outbox.states())
    outbox.close()
    assert not (tmp_path / "store").exists()


def test_an_append_can_be_read_elsewhere_when_it_returns(tmp_path: Path) -> None:
    """P1: durable before anything is shown."""
    outbox = make(tmp_path)
    for number in range(5):
        put(outbox, str(number))
        assert Counter(map(str, range(number + 1))) == texts(tmp_path)
    outbox.close()
    assert 5 == texts(tmp_path).total()


def test_four_threads_at_once_lose_nothing(tmp_path: Path) -> None:
    """2000 records by four threads, over several files: each is there once, under its own id."""
    outbox = make(tmp_path)
    ids: list[int] = []

    def work(thread: int) -> None:
        for number in range(500):
            ids.append(put(outbox, f"{thread}-{number}-{'x' * 2000}"))
            if number % 100 == 0:
                outbox.prepare()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(tmp_path)
    assert (2000, {1}) == (len(found), set(found.values()))
    assert 2000 == len(set(ids)) == len({each >> 32 for each in ids})
    assert Counter({State.PENDING: 2000}) == outbox.states()
    outbox.close()


_WRITING = """
import sys
from pathlib import Path
from opentelemetry.sdk.resources import Resource
from otel_error_hygiene.forensics.outbox import Outbox
from otel_error_hygiene.forensics.segment import RecordKind
outbox = Outbox(Path(sys.argv[1]), "here", "label", max_bytes=2**26)
print("ready", flush=True)
sys.stdin.readline()
for number in range(600):
    outbox.append(RecordKind.FAILURE, outbox.new_id(), {"text": f"{sys.argv[2]}-{number}-" + "x" * 1000},
                  outbox.resource(Resource.get_empty()))
outbox.close()
"""


def test_three_processes_share_a_store(tmp_path: Path) -> None:
    """Three processes write at once, one folder each: nobody waits, nothing is lost."""
    children = [Child(_WRITING, str(tmp_path), str(number)) for number in range(3)]
    for child in children:
        assert "ready" == child.line()
    for child in children:
        child.say("go")
    for child in children:
        assert ("", "") == child.wait()
    found = texts(tmp_path)
    assert (1800, {1}) == (len(found), set(found.values()))
    assert 3 == len(writers(tmp_path))


def test_a_second_record_completes_the_first(tmp_path: Path) -> None:
    """A report and the record with its span are one failure; the first copy is superseded."""
    outbox = make(tmp_path)
    record_id = put(outbox, "report", RecordKind.REPORT)
    put(outbox, "whole", record_id=record_id)
    assert Counter({State.PENDING: 1}) == outbox.states()
    assert Counter(["whole"]) == texts(tmp_path)
    outbox.close()


def test_other_spans_are_kept_and_not_counted(tmp_path: Path) -> None:
    """`Stats` count failed tool calls; other spans of a failed trace stand beside them in the files."""
    outbox = make(tmp_path)
    put(outbox, "span", RecordKind.SPAN)
    put(outbox, "recovery", RecordKind.RECOVERY)
    assert Counter() == outbox.states()
    assert 2 == texts(tmp_path).total()
    outbox.close()


def test_a_resource_is_written_once_in_each_file(tmp_path: Path) -> None:
    """Equal resources are one, however often a provider is made anew; each file can be read on its own."""
    outbox = make(tmp_path, max_bytes=2**17)
    numbers = {outbox.resource(Resource({"service.name": "a"})) for _ in range(50)}
    assert 1 == len(numbers)
    for _ in range(20):
        outbox.append(RecordKind.FAILURE, outbox.new_id(), {"text": "x" * 3000}, numbers.copy().pop())
    [writer] = writers(tmp_path)
    readers = writer.segments()
    assert len(readers) > 2
    for reader in readers:
        assert 1 == sum(header.kind is RecordKind.RESOURCE for header in reader.headers())
    writer.close()
    outbox.close()


def test_a_record_larger_than_a_file_gets_a_file_of_its_size(tmp_path: Path) -> None:
    """A stack text of several megabytes is one record; the file that was prepared is used for the next."""
    outbox = make(tmp_path)
    for number in range(3):
        put(outbox, f"{number}" * 300_000)
    outbox.prepare()
    put(outbox, "large" * 800_000)
    put(outbox, "small")
    assert 5 == texts(tmp_path).total()
    outbox.close()
    [writer] = writers(tmp_path)
    assert [] == [path for path in writer.folder.iterdir() if path.suffix not in (".seg", ".lock")]


def test_the_file_in_preparation_is_no_file_of_records(tmp_path: Path) -> None:
    """Nobody who lists the folder ever sees a segment without its header, and the last one is the one that grows."""
    outbox = make(tmp_path)
    put(outbox, "x" * 600_000)
    outbox.prepare()
    assert outbox.folder is not None
    assert ["00000001.seg"] == Writer(outbox.folder).names()
    put(outbox, "y" * 600_000)
    assert ["00000001.seg", "00000002.seg"] == Writer(outbox.folder).names()
    assert 2 * 2**20 == store_bytes(tmp_path)
    outbox.close()


def test_a_closed_outbox_refuses_and_does_not_write_behind_the_end(tmp_path: Path) -> None:
    """After `close` the file is shrunk under its map: to write there would be a SIGBUS, in the agent."""
    outbox = make(tmp_path)
    put(outbox, "first")
    outbox.close()
    for size in (10, 100_000):
        with pytest.raises(Refused) as refused:
            put(outbox, "x" * size)
        assert "closed" == refused.value.reason
    assert Counter({State.PENDING: 1}) == outbox.states()


def test_counts_are_right_after_close_whoever_delivers(tmp_path: Path) -> None:
    """Another process delivers what a closed outbox left, and the counts of the first one say so."""
    outbox = make(tmp_path)
    first, second = put(outbox, "first"), put(outbox, "second")
    outbox.close()
    flip(tmp_path, lambda each: each == first, State.DELIVERED)
    assert Counter({State.PENDING: 1, State.DELIVERED: 1}) == outbox.states()
    flip(tmp_path, lambda each: each == second, State.EXPIRED)
    shutil.rmtree(tmp_path)
    assert 0 == outbox.removed()
    assert Counter({State.EXPIRED: 1, State.DELIVERED: 1}) == outbox.states()


@pytest.mark.parametrize("how", ["removed", "moved", "one file"])
def test_a_removed_store_is_noticed_by_the_very_next_append(tmp_path: Path, how: str) -> None:
    """The record after the removal is in a store that exists (P1), without anybody having asked in between."""
    root = tmp_path / "store"
    outbox = make(root)
    delivered = put(outbox, "delivered")
    put(outbox, "pending")
    flip(root, lambda each: each == delivered, State.DELIVERED)
    assert outbox.folder is not None
    if how == "removed":
        shutil.rmtree(root)
    elif how == "moved":
        root.rename(tmp_path / "elsewhere")
    else:
        (outbox.folder / "00000001.seg").unlink()
    put(outbox, "after")
    assert Counter(["after"]) == texts(root)
    assert Counter({State.DELIVERED: 1, State.PENDING: 1}) == outbox.states()
    assert (1, 0) == (outbox.removed(), outbox.removed())
    outbox.close()


def test_a_report_that_was_removed_and_is_completed_is_not_lost(tmp_path: Path) -> None:
    """Its span ends after the store was removed: the failure is there, whole, and is counted once."""
    outbox = make(tmp_path / "store")
    record_id = put(outbox, "report", RecordKind.REPORT)
    shutil.rmtree(tmp_path / "store")
    assert 1 == outbox.removed()
    put(outbox, "whole", record_id=record_id)
    assert -1 == outbox.removed()
    assert Counter({State.PENDING: 1}) == outbox.states()
    assert Counter(["whole"]) == texts(tmp_path / "store")
    outbox.close()


def test_with_fsync_each_append_is_synced_and_so_are_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut takes a file whose folder was not synced: all folders down to it are."""
    synced: list[str] = []
    real = os.fsync

    def watched(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()) if sys.platform == "linux" else "")
        real(fd)

    monkeypatch.setattr(os, "fsync", watched)
    outbox = make(tmp_path / "store", fsync=True)
    put(outbox, "first")
    assert outbox.folder is not None
    if sys.platform == "linux":
        wanted = {str(each) for each in (tmp_path, tmp_path / "store", outbox.folder.parent, outbox.folder)}
        assert wanted < set(synced)
        assert str(outbox.folder / "00000001.seg") == synced[-1]
    count = len(synced)
    put(outbox, "second")
    assert count + 1 == len(synced)
    outbox.close()


def test_a_forked_child_writes_its_own_folder_and_leaves_its_parents_alone(tmp_path: Path) -> None:
    """The child's first record makes a folder; the parent's files have the parent's records only."""
    outbox = make(tmp_path)
    put(outbox, "parent, before")
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        code = 1
        try:
            outbox.after_fork()
            put(outbox, "child")
            code = int(outbox.states() != Counter({State.PENDING: 1}))
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    put(outbox, "parent, after")
    assert Counter(["parent, before", "child", "parent, after"]) == texts(tmp_path)
    assert outbox.folder is not None
    assert Counter({State.PENDING: 2}) == outbox.states()
    assert [True, False] == sorted((writer.alive() for writer in writers(tmp_path)), reverse=True)
    assert Writer(outbox.folder).alive()
    outbox.close()


def test_a_child_and_its_parent_both_deliver(settings: Settings, http: HttpReceiver) -> None:
    """Fork with a connection in use: neither speaks on the other's, and all four failures arrive whole."""
    with agent(exporter_to(http), settings) as parent:
        parent.fail("before")
        assert parent.processor.deliver(5000)
        pid = os.fork()
        if pid == 0:  # pragma: no cover
            code = 1
            try:
                parent.fail("child_one")
                parent.fail("child_two")
                found = parent.stats()
                code = int(not (parent.processor.deliver(5000) and found.seen == found.recorded == 2))
            finally:
                os._exit(code)
        parent.fail("after")
        assert parent.processor.deliver(5000)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert 2 == parent.stats().seen == parent.stats().delivered
    tools = ("after", "before", "child_one", "child_two")
    assert [f"execute_tool {tool}" for tool in tools] == http.names()
