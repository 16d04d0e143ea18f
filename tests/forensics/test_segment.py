"""The segment file: what was appended is there, whatever happens to the process."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_error_hygiene.forensics import segment
from otel_error_hygiene.forensics.segment import (
    FIRST_OFFSET,
    HEADER_BYTES,
    RecordKind,
    SegmentReader,
    SegmentWriter,
    State,
)
from tests.forensics.agents import Child

SIZE = 64 * 1024


def make(path: Path, *payloads: bytes, size: int = SIZE) -> SegmentWriter:
    """Write a segment with one failure for each payload; their ids count from 1."""
    writer = SegmentWriter(path, size)
    for number, payload in enumerate(payloads, 1):
        writer.append(RecordKind.FAILURE, number, payload)
    return writer


def contents(path: Path) -> list[bytes | None]:
    """Read all payloads with a reader of one's own."""
    with SegmentReader(path) as reader:
        return [reader.payload(header) for header in reader.headers()]


def test_an_append_is_seen_at_once_by_a_reader_that_was_there_before(tmp_path: Path) -> None:
    """A record is readable elsewhere as soon as append has returned, without a flush."""
    writer = make(tmp_path / "a.seg")
    with SegmentReader(tmp_path / "a.seg") as reader:
        assert [] == reader.headers()
        for number, payload in enumerate((b"", b"x", b"y" * 8, b"z" * 9999), 1):
            writer.append(RecordKind.FAILURE, number, payload)
            header = reader.headers()[-1]
            assert (number, payload, State.PENDING) == (header.record_id, reader.payload(header), header.state)
        assert os.getpid() == reader.pid
    writer.close()


@settings(deadline=None, max_examples=40)
@given(payloads=st.lists(st.binary(max_size=300), min_size=1, max_size=4), data=st.data())
def test_a_record_cut_at_any_byte_does_not_exist_and_hides_none_before_it(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], data: st.DataObject
) -> None:
    """A process that died while it appended leaves the records before that one, and not that one."""
    path = tmp_path_factory.mktemp("torn") / "a.seg"
    writer = make(path, *payloads)
    whole = path.read_bytes()
    with SegmentReader(path) as reader:
        last = reader.headers()[-1]
    writer.close()
    end = last.offset + HEADER_BYTES + last.length
    cut = data.draw(st.integers(last.offset, end - 1))
    # Two ways to be torn: the file ends there, or what comes after was never written and is zeros.
    path.write_bytes(whole[:cut])
    short = contents(path)
    path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
    zeros = contents(path)
    for found in (short, zeros):
        # What is cut in its payload's own zeros is whole; otherwise it is either absent or known to be damaged.
        assert payloads[:-1] == found[: len(payloads) - 1]
        assert found[len(payloads) - 1 :] in ([], [None], [payloads[-1]] if whole[cut:end].strip(b"\0") == b"" else [])


def test_every_cut_of_one_record_is_refused(tmp_path: Path) -> None:
    """No prefix of a record's bytes is taken for a record, one after another."""
    path = tmp_path / "a.seg"
    make(path, b"first", b"the second record").close()
    whole = path.read_bytes()
    with SegmentReader(path) as reader:
        second = reader.headers()[1]
    for cut in range(second.offset, second.offset + HEADER_BYTES + second.length):
        path.write_bytes(whole[:cut])
        found = contents(path)
        assert b"first" == found[0]
        assert found[1:] in ([], [None]), cut


def test_the_magic_comes_last(tmp_path: Path) -> None:
    """A record whose four bytes of magic are missing is not there: they are what makes it exist."""
    path = tmp_path / "a.seg"
    make(path, b"first", b"second").close()
    with SegmentReader(path) as reader:
        second = reader.headers()[1]
    raw = bytearray(path.read_bytes())
    raw[second.offset : second.offset + 4] = bytes(4)
    path.write_bytes(raw)
    assert [b"first"] == contents(path)


@settings(deadline=None, max_examples=60)
@given(bit=st.integers(0, 8 * 200 - 1))
def test_a_damaged_payload_is_known_as_damaged(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    """One flipped bit of a payload is noticed (CRC-32 finds every single-bit error), and the next record is whole."""
    path = tmp_path_factory.mktemp("bits") / "a.seg"
    make(path, bytes(range(200)), b"next").close()
    raw = bytearray(path.read_bytes())
    raw[FIRST_OFFSET + HEADER_BYTES + bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    assert [None, b"next"] == contents(path)


@pytest.mark.parametrize("byte", [b for b in range(HEADER_BYTES) if b != 4])
def test_a_damaged_header_is_not_taken_for_a_record(tmp_path: Path, byte: int) -> None:
    """Whatever byte of a header is damaged: no record with another header appears; the ones before stay."""
    path = tmp_path / "a.seg"
    make(path, b"first", b"second").close()
    with SegmentReader(path) as reader:
        second = reader.headers()[1]
    raw = bytearray(path.read_bytes())
    raw[second.offset + byte] ^= 0x01
    path.write_bytes(raw)
    found = contents(path)
    assert found in ([b"first"], [b"first", b"second"])
    if found != [b"first"]:  # the reserved bytes mean nothing
        assert byte in (6, 7)


def test_a_damaged_state_means_pending_and_hides_nothing(tmp_path: Path) -> None:
    """The state is the one byte without a checksum: a wrong one costs a second delivery, never a record."""
    path = tmp_path / "a.seg"
    writer = make(path, b"first", b"second")
    raw = bytearray(path.read_bytes())
    raw[FIRST_OFFSET + 4] = 0xEE
    path.write_bytes(raw)
    with SegmentReader(path) as reader:
        assert [State.PENDING, State.PENDING] == [header.state for header in reader.live()]
    assert State.PENDING == writer.state(FIRST_OFFSET)
    writer.close()


@pytest.mark.parametrize("state", list(State))
def test_both_sides_see_each_other_flip_a_state(tmp_path: Path, state: State) -> None:
    """A flip through the map is seen by pread, and one by pwrite through the map."""
    path = tmp_path / "a.seg"
    writer = make(path, b"first", b"second")
    with SegmentReader(path) as reader:
        first, second = (header.offset for header in reader.headers())
        writer.set_state(first, state)
        assert state == reader.state(first)
        reader.set_state(second, state)
        assert state == writer.state(second)
        assert [state, state] == [header.state for header in reader.live()]
        assert [(first, state), (second, state)] == [each[:2] for each in writer.records()]
        assert [b"first", b"second"] == [reader.payload(header) for header in reader.headers()]
    writer.close()


def test_an_interrupted_note_of_a_record_neither_overwrites_nor_hides_it(tmp_path: Path) -> None:
    """Ctrl-C between a record's last byte and the writer's note of it: the record stays, the next one follows."""
    path = tmp_path / "a.seg"
    writer = make(path, b"first")
    before = writer.used
    writer.append(RecordKind.FAILURE, 2, b"second")
    writer.used = before
    writer.room()
    writer.append(RecordKind.FAILURE, 3, b"third, longer than the second")
    assert [b"first", b"second", b"third, longer than the second"] == contents(path)
    writer.close()


def test_erase_takes_the_payload_and_leaves_the_scan(tmp_path: Path) -> None:
    """An erased record has no payload any more, not even in the file; the next one is found."""
    path = tmp_path / "a.seg"
    make(path, b"a secret payload", b"second").close()
    with SegmentReader(path) as reader:
        reader.erase(reader.headers()[0])
    assert [None, b"second"] == contents(path)
    assert b"a secret payload" not in path.read_bytes()


def test_a_shrunk_file_holds_its_records_and_its_states(tmp_path: Path) -> None:
    """What is given back was not used; states can still be read and flipped afterwards."""
    path = tmp_path / "a.seg"
    writer = make(path, b"first", b"second")
    writer.shrink()
    assert path.stat().st_size < SIZE
    assert [b"first", b"second"] == contents(path)
    with SegmentReader(path) as reader:
        reader.set_state(reader.headers()[1].offset, State.DELIVERED)
    assert [State.PENDING, State.DELIVERED] == [state for _, state, _ in writer.records()]
    writer.close()


def test_an_empty_file_is_removed_when_it_is_shrunk(tmp_path: Path) -> None:
    """A segment without records leaves no file."""
    writer = make(tmp_path / "a.seg")
    writer.shrink()
    writer.close()
    assert [] == list(tmp_path.iterdir())


def test_removed_means_removed_or_moved_away(tmp_path: Path) -> None:
    """The owner notices that its file is gone by its name, also when the file itself lives on elsewhere."""
    folder = tmp_path / "there"
    folder.mkdir()
    writer = make(folder / "a.seg", b"first")
    assert not writer.removed()
    folder.rename(tmp_path / "elsewhere")
    assert writer.removed()
    (tmp_path / "elsewhere").rename(folder)
    assert not writer.removed()
    (folder / "a.seg").unlink()
    assert writer.removed()
    writer.close()


@pytest.mark.parametrize("content", [b"", b"OEHSEG1\n", b"something else entirely" * 10, bytes(SIZE)])
def test_what_is_no_segment_is_named_in_the_error(tmp_path: Path, content: bytes) -> None:
    """A stranger's file is refused by name."""
    (tmp_path / "b.seg").write_bytes(content)
    with pytest.raises(ValueError, match=r"b\.seg is not a segment"):
        SegmentReader(tmp_path / "b.seg")


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    """A file of a later version of this library is left to that version."""
    path = tmp_path / "a.seg"
    make(path, b"first").close()
    raw = bytearray(path.read_bytes())
    raw[8:12] = struct.pack("<I", 2)
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="version 1"):
        SegmentReader(path)


def test_a_file_cut_under_a_reader_is_data_lost_and_no_crash(tmp_path: Path) -> None:
    """A reader that knows a record learns from the file's new end that it is gone."""
    path = tmp_path / "a.seg"
    make(path, b"first", b"second").close()
    with SegmentReader(path) as reader:
        second = reader.headers()[1]
        os.truncate(path, second.offset)
        assert State.DISCARDED == reader.state(second.offset)
        assert None is reader.payload(second)


def test_where_posix_fallocate_is_not_supported_the_file_is_written_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system, or a C library, without preallocation: the blocks are there all the same."""

    def cannot(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", cannot, raising=False)
    writer = make(tmp_path / "a.seg", b"first")
    assert SIZE == (tmp_path / "a.seg").stat().st_size
    assert (tmp_path / "a.seg").stat().st_blocks * 512 >= SIZE
    assert [b"first"] == contents(tmp_path / "a.seg")
    writer.close()


_APPENDING = """
import importlib.util, sys
from pathlib import Path
# The module alone: the package would take most of the time of thirty starts.
spec = importlib.util.spec_from_file_location("segment", sys.argv[1])
segment = sys.modules["segment"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(segment)
writer = segment.SegmentWriter(Path(sys.argv[2]), 8 * 1024 * 1024)
number = 0
while writer.room() > 3000:
    number += 1
    writer.append(segment.RecordKind.FAILURE, number, (b"%d " % number) * 200)
    print(number, flush=True)
print("the file is full")
"""


@pytest.mark.parametrize("round_", range(30))
def test_every_append_that_returned_survives_sigkill(tmp_path: Path, round_: int) -> None:
    """A process is killed in the middle of appending: what had returned is readable, whole, and in order."""
    path = tmp_path / "a.seg"
    child = Child(_APPENDING, segment.__file__, str(path))
    printed = [child.line() for _ in range(random.Random(round_).randrange(1, 300))]
    printed += child.kill().splitlines()
    assert "the file is full" not in printed
    returned = int(printed[-1])
    found = contents(path)
    assert [(b"%d " % number) * 200 for number in range(1, returned + 1)] == found[:returned]
    # At most one more: the append that had ended and was not yet told.
    assert len(found) <= returned + 1
    assert all(found)
