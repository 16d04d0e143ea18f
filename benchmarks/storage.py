"""Measure the candidates for the outbox file, and prove which of them survive SIGKILL.

Run `python benchmarks/storage.py` (some four minutes) or with `--quick` (half a minute); standard library only.
Single times depend on the machine: read the ratios, which compare each row with the first of its section. A latency is
the smallest median and the median p99 of rounds interleaved between the candidates; counts are exact. Beside a busy
thread latencies have two modes (the GIL came back at once, or a switch interval later): there read the share over 1 ms.
"""

from __future__ import annotations

import argparse
import errno
import functools
import io
import json
import marshal
import mmap
import multiprocessing
import os
import pickle
import random
import signal
import sqlite3
import statistics
import struct
import sys
import tempfile
import threading
import time
import timeit
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

PENDING, DELIVERED = 1, 2
SEGMENT_BYTES = 4 * 1024 * 1024
FRAME = struct.Struct("<II")  # body length, crc32
STATE_BYTES = 4  # the state is one byte, alone in its word: flipping it is one store, and no crc covers it
# zlib.crc32 gives the GIL away for more than 5 KiB, and a busy thread returns it a switch interval (5 ms) later.
CRC_CHUNK_BYTES = 5000
SPAWN = multiprocessing.get_context("spawn")

Records = list[tuple[int, bytes]]
Latencies = dict[str, list[list[float]]]
Crc = Callable[[bytes], int]


def crc_chunked(body: bytes) -> int:
    """Return the crc32 of `body`, taken in pieces too small to release the GIL."""
    view, crc = memoryview(body), 0
    for start in range(0, len(body), CRC_CHUNK_BYTES):
        crc = zlib.crc32(view[start : start + CRC_CHUNK_BYTES], crc)
    return crc


class Store(Protocol):
    """What the outbox needs of its file.

    `append` makes a record durable and returns its handle, `mark` flips that record to delivered, and `scan`, in
    another process, returns the intact (state, body) pairs and whether an unfinished record follows them.
    """

    def append(self, body: bytes) -> int: ...
    def mark(self, handle: int) -> None: ...
    def close(self) -> None: ...
    @staticmethod
    def scan(stem: Path, limit: int) -> tuple[Records, bool]: ...


class WriteStore:
    """A: one `os.write` per framed record, states in a side file of one byte per record."""

    def __init__(self, stem: Path, *, fsync: bool = False) -> None:
        self._lock, self._count, self._fsync = threading.Lock(), 0, fsync
        self._log = os.open(f"{stem}.log", os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        self._side = os.open(f"{stem}.state", os.O_CREAT | os.O_RDWR, 0o600)

    def append(self, body: bytes) -> int:
        frame = FRAME.pack(len(body), crc_chunked(body)) + body
        with self._lock:
            if os.write(self._log, frame) != len(frame):
                raise OSError(errno.ENOSPC, "record cut short")  # the real thing must also cut it off again
            if self._fsync:
                os.fsync(self._log)
            self._count += 1
            return self._count - 1

    def mark(self, handle: int) -> None:
        os.pwrite(self._side, bytes((DELIVERED,)), handle)

    def close(self) -> None:
        os.close(self._log)
        os.close(self._side)

    @staticmethod
    def scan(stem: Path, limit: int) -> tuple[Records, bool]:
        states, records = Path(f"{stem}.state").read_bytes().ljust(limit, b"\0"), Records()
        with Path(f"{stem}.log").open("rb", buffering=1 << 20) as log:
            while len(records) < limit and (frame := log.read(FRAME.size)):
                length, crc = FRAME.unpack(frame) if len(frame) == FRAME.size else (-1, 0)
                body = log.read(max(0, length))
                if len(body) != length or zlib.crc32(body) != crc:
                    return records, True
                records.append((states[len(records)] or PENDING, body))
        return records, False


class MapStore:
    """B: preallocated segments, mapped shared; the body is copied in, then the frame, then the state byte.

    The state byte is the commit: without it a record does not exist. A killed process has finished each of its stores
    or not begun it, and the kernel keeps the pages; for a reader on a weakly ordered CPU the crc decides.
    """

    def __init__(
        self, stem: Path, *, crc: Crc = crc_chunked, zeros: bool = False, sync: str = "", flip: str = "map"
    ) -> None:
        self._stem, self._crc, self._zeros, self._sync, self._flip = stem, crc, zeros, sync, flip
        self._lock = threading.Lock()
        self._fds: list[int] = []
        self._maps: list[mmap.mmap] = []
        self._new_segment()

    def _new_segment(self) -> None:
        """Open the next segment; inline here, so that its price shows among the long waits."""
        fd = os.open(f"{self._stem}.{len(self._fds)}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        # Either way a full disk is an error here, and not a SIGBUS at a store.
        if sys.platform != "darwin" and not self._zeros:
            os.posix_fallocate(fd, 0, SEGMENT_BYTES)
        elif os.write(fd, bytes(SEGMENT_BYTES)) != SEGMENT_BYTES:
            raise OSError(errno.ENOSPC, "segment cut short")
        self._fds.append(fd)
        self._maps.append(mmap.mmap(fd, SEGMENT_BYTES))
        self._end = 0

    def append(self, body: bytes) -> int:
        frame = FRAME.pack(len(body), self._crc(body)) + body
        with self._lock:
            if self._end + STATE_BYTES + len(frame) > SEGMENT_BYTES:
                self._new_segment()
            segment, start = self._maps[-1], self._end
            end = start + STATE_BYTES + len(frame)
            segment[start + STATE_BYTES : end] = frame
            segment[start] = PENDING
            if self._sync == "flush":
                page = start // mmap.PAGESIZE * mmap.PAGESIZE
                segment.flush(page, end - page)
            elif self._sync == "fsync":
                os.fsync(self._fds[-1])
            self._end = (end + 3) // 4 * 4
            return (len(self._maps) - 1) * SEGMENT_BYTES + start

    def mark(self, handle: int) -> None:
        number, at = divmod(handle, SEGMENT_BYTES)
        if self._flip == "map":
            self._maps[number][at] = DELIVERED
        else:
            os.pwrite(self._fds[number], bytes((DELIVERED,)), at)

    def close(self) -> None:
        for segment, fd in zip(self._maps, self._fds, strict=True):
            segment.close()
            os.close(fd)

    @staticmethod
    def scan(stem: Path, limit: int) -> tuple[Records, bool]:
        records = Records()
        for number in range(len(list(stem.parent.glob(f"{stem.name}.*")))):
            data, at = Path(f"{stem}.{number}").read_bytes(), 0  # read, not mapped: no SIGBUS for a reader
            while at + STATE_BYTES + FRAME.size <= len(data) and len(records) < limit:
                body_at = at + STATE_BYTES + FRAME.size
                length, crc = FRAME.unpack_from(data, at + STATE_BYTES)
                body = data[body_at : body_at + length]
                if not data[at] or len(body) != length or zlib.crc32(body) != crc:
                    if data[at:].strip(b"\0"):
                        return records, True
                    break
                records.append((data[at], body))
                at = (body_at + length + 3) // 4 * 4
        return records, False


class SqliteStore:
    """C: one database per process, write-ahead log, one autocommit insert per record, the state in a column."""

    def __init__(self, stem: Path, *, synchronous: str = "NORMAL") -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(f"{stem}.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.execute("CREATE TABLE IF NOT EXISTS record (id INTEGER PRIMARY KEY, state INTEGER, body BLOB)")

    def append(self, body: bytes) -> int:
        with self._lock:
            return self._db.execute("INSERT INTO record (state, body) VALUES (?, ?)", (PENDING, body)).lastrowid or 0

    def mark(self, handle: int) -> None:
        with self._lock:
            self._db.execute("UPDATE record SET state = ? WHERE id = ?", (DELIVERED, handle))

    def close(self) -> None:
        self._db.close()

    @staticmethod
    def scan(stem: Path, limit: int) -> tuple[Records, bool]:
        with closing(sqlite3.connect(f"{stem}.db")) as db:
            return db.execute("SELECT state, body FROM record ORDER BY id LIMIT ?", (limit,)).fetchall(), False


Stores = dict[str, Callable[[Path], Store]]
STORES: Stores = {
    "A  write": WriteStore,
    "B  map, crc whole": lambda stem: MapStore(stem, crc=zlib.crc32),
    "B  map, crc in chunks": MapStore,
    "B  map, zeros written": lambda stem: MapStore(stem, zeros=True),
    "C  sqlite NORMAL": SqliteStore,
    "C  sqlite OFF": lambda stem: SqliteStore(stem, synchronous="OFF"),
}
FLIPS: Stores = {**STORES, "B  map, flip by pwrite": lambda stem: MapStore(stem, flip="pwrite")}
SYNCED: Stores = {
    "A  write + fsync": lambda stem: WriteStore(stem, fsync=True),
    "B  map + os.fsync": lambda stem: MapStore(stem, sync="fsync"),
    "B  map + mmap.flush": lambda stem: MapStore(stem, sync="flush"),
    "C  sqlite FULL": lambda stem: SqliteStore(stem, synchronous="FULL"),
}
SCANS = {"A": WriteStore.scan, "B": MapStore.scan, "C": SqliteStore.scan}


def plain_record() -> dict[str, object]:
    """Return a realistic failure record of plain values: 64 frames of 12 files, a 4.5 KB stack, 20 attributes."""
    files = [f"/srv/agent/.venv/lib/python3.12/site-packages/package_{n}/module_{n}.py" for n in range(12)]
    frames = [(files[n % 12], 40 + 7 * n, f"call_step_{n % 30}") for n in range(64)]
    stack = "".join(f'  File "{file}", line {line}, in {name}\n    return send(it)\n' for file, line, name in frames)
    attributes = {f"gen_ai.tool.attribute_{n}": f"value {n} of the call" for n in range(20)}
    ids = {"trace_id": 2**127 + 9, "span_id": 2**63 + 5, "start_ns": 1_700_000_000_123_456_789, "attempt": 2}
    text = {"type": "ConnectError", "message": "connection refused: caf\u00e9", "stack": stack[:4500], "note": None}
    return {**ids, **text, "frames": frames, "attributes": attributes}


BODY = pickle.dumps(plain_record(), protocol=5)


def numbered(number: int) -> bytes:
    """Return a record that only append `number` can have written."""
    mark = struct.pack("<Q", number + 1)
    return mark + BODY + mark


def latencies(store: Store, count: int, pause: float = 0) -> list[float]:
    """Return the microseconds of each of `count` appends, sleeping `pause` seconds before each when not 0."""
    taken: list[float] = []
    for _ in range(count):
        if pause:
            time.sleep(pause)
        begin = time.perf_counter_ns()
        store.append(BODY)
        taken.append((time.perf_counter_ns() - begin) / 1000)
    return taken


def four_threads(store: Store, count: int) -> list[float]:
    """Append from four threads at once."""
    with ThreadPoolExecutor(4) as pool:
        return [value for taken in pool.map(latencies, [store] * 4, [count // 4] * 4) for value in taken]


def beside_cpu(store: Store, count: int) -> list[float]:
    """Append beside a thread that computes in Python; the pause stands for the tool's own wait."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(200))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        return latencies(store, count // 8, 0.001)
    finally:
        stop.set()
        thread.join()


def in_process(name: str, stem: Path, count: int, start_at: float) -> list[float]:
    """Append in one of several processes that start at the same moment."""
    with closing(STORES[name](stem)) as store:
        time.sleep(max(0, start_at - time.time()))
        return latencies(store, count)


def keep_appending(name: str, stem: Path, counters: Path) -> None:
    """Append for ever, telling before and after each append how many were begun and have returned."""
    with counters.open("r+b") as file:
        shared = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")  # one 8-byte store each: no torn counter
    store, number = STORES[name](stem), 0
    while True:
        body = numbered(number)
        shared[0] = number = number + 1
        store.append(body)
        shared[1] = number


def kill_round(name: str, folder: Path, wait: float) -> Counter[str]:
    """Kill a writer with SIGKILL `wait` seconds after its first append, and count what this process can read of it."""
    counters, stem = folder / "counters", folder / "w"
    counters.write_bytes(bytes(16))
    child = SPAWN.Process(target=keep_appending, args=(name, stem, counters))
    child.start()
    while not struct.unpack("QQ", counters.read_bytes())[1]:
        time.sleep(0.001)
    time.sleep(wait)
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    begun, returned = struct.unpack("QQ", counters.read_bytes())
    records, torn = SCANS[name[0]](stem, 1_000_000)
    right = [body == numbered(number) for number, (_, body) in enumerate(records)]
    kept, wrong = sum(right[:returned]), right.count(False)
    return Counter(returned=returned, kept=kept, wrong=wrong, midway=begun > returned, torn=torn)


def truncate_under(name: str, stem: Path) -> None:
    """Empty every file under a writer and append again."""
    store = STORES[name](stem)
    store.append(BODY)
    for file in stem.parent.iterdir():
        os.truncate(file, 0)
    store.append(BODY)


def scan_again(name: str, stem: Path, count: int, scans: int) -> list[float]:
    """Return the milliseconds of each scan of `count` records, every one of which must be intact."""
    taken: list[float] = []
    for _ in range(scans):
        begin = time.perf_counter()
        records, _ = SCANS[name[0]](stem, count)
        taken.append((time.perf_counter() - begin) * 1000)
        assert [BODY] * count == [body for _, body in records]
    return taken


def section(title: str, columns: tuple[str, ...], rows: dict[str, list[float]]) -> None:
    """Print one table: each value, and its ratio to the first row's."""
    print(f"\n{title}\n{'':26}" + "".join(f"{column:>18}{'ratio':>9}" for column in columns))
    first = next(iter(rows.values()))
    for name, values in rows.items():
        ratios = (f"{value / base:.2f}" if base else "-" for value, base in zip(values, first, strict=True))
        print(f"{name:26}" + "".join(f"{value:18,.2f}{ratio:>9}" for value, ratio in zip(values, ratios, strict=True)))


def print_latency(title: str, taken: Latencies) -> None:
    """Print median, p99 and the share of long waits of each candidate's rounds."""
    rows: dict[str, list[float]] = {}
    for name, rounds in taken.items():
        waits = [value > 1000 for values in rounds for value in values]
        p99_us = statistics.median(statistics.quantiles(values, n=100)[-1] for values in rounds)
        rows[name] = [min(map(statistics.median, rounds)), p99_us, 100 * sum(waits) / len(waits)]
    section(title, ("median us", "p99 us", "% over 1 ms"), rows)


class Bench:
    """The sections that write, all under one scratch folder."""

    def __init__(self, root: Path, *, quick: bool) -> None:
        self._root, self._quick = root, quick
        self._rounds, self._count = (2, 800) if quick else (9, 2000)

    @contextmanager
    def _stem(self) -> Iterator[Path]:
        """Lend a file stem in an empty folder, removed before the disk has to take its pages."""
        with tempfile.TemporaryDirectory(dir=self._root) as folder:
            yield Path(folder) / "w"

    def latency(self, title: str, stores: Stores, run: Callable[[Store, int], list[float]]) -> None:
        """Print the latency of `run` for each store, the rounds interleaved so that noise meets all alike."""
        taken: Latencies = {name: [] for name in stores}
        for _ in range(self._rounds):
            for name, make in stores.items():
                with self._stem() as stem, closing(make(stem)) as store:
                    taken[name].append(run(store, self._count))
        print_latency(title, taken)

    def processes(self) -> None:
        """Print the latency in four processes at once, each with its own file in one folder."""
        taken: Latencies = {name: [] for name in STORES}
        with ProcessPoolExecutor(4, SPAWN) as pool:
            for _ in range(self._rounds):
                for name in STORES:
                    with self._stem() as stem:
                        stems, start_at = [stem.with_name(f"w{n}") for n in range(4)], time.time() + 0.3
                        jobs = [pool.submit(in_process, name, own, self._count, start_at) for own in stems]
                        taken[name].append([value for job in jobs for value in job.result()])
        print_latency("4  append, four processes, one folder", taken)

    def killed(self, rounds: int) -> None:
        """Print what survived SIGKILL, and what a truncated file does to its writer."""
        print(f"\n5  SIGKILL while appending, {rounds} rounds each; and the end of a writer whose files are truncated")
        print(f"{'':26}{'kept/returned':>18}{'share':>9}{'accepted wrong':>16}{'killed midway':>15}{'torn tails':>12}")
        chance = random.Random(5)
        for name in STORES:
            total: Counter[str] = Counter()
            for _ in range(rounds):
                with self._stem() as stem:
                    total += kill_round(name, stem.parent, chance.uniform(0, 0.02))
            with self._stem() as stem:
                child = SPAWN.Process(target=truncate_under, args=(name, stem))
                child.start()
                child.join()
            end = signal.Signals(-child.exitcode).name if child.exitcode else "lives"
            kept = f"{total['kept']}/{total['returned']}{total['kept'] / total['returned']:9.4f}"
            print(f"{name:26}{kept:>27}{total['wrong']:16}{total['midway']:15}{total['torn']:12}  truncated: {end}")

    def flips(self) -> None:
        """Print the mean cost of a state flip, the best of the rounds."""
        best = {name: [float("inf")] for name in FLIPS}
        for _ in range(self._rounds):
            for name, make in FLIPS.items():
                with self._stem() as stem, closing(make(stem)) as store:
                    handles = [store.append(BODY) for _ in range(self._count)]
                    begin = time.perf_counter_ns()
                    for handle in handles:
                        store.mark(handle)
                    best[name] = min(best[name], [(time.perf_counter_ns() - begin) / 1000 / len(handles)])
        section("6a state flip", ("us",), best)

    def scans(self) -> None:
        """Print how a reading process and the appending one bear each other."""
        rows: dict[str, list[float]] = {}
        count = 2000 if self._quick else 10_000
        with ProcessPoolExecutor(1, SPAWN) as pool:
            for name, make in STORES.items():
                with self._stem() as stem, closing(make(stem)) as store:
                    for _ in range(count):
                        store.append(BODY)
                    job, taken = pool.submit(scan_again, name, stem, count, self._rounds), latencies(store, 100, 0.0005)
                    while not job.done():
                        taken += latencies(store, 10, 0.0005)
                    rows[name] = [min(job.result()), statistics.median(taken), statistics.quantiles(taken, n=100)[-1]]
        title = f"6b another process scans {count} records, again and again, while the writer appends"
        section(title, ("scan ms", "append median us", "append p99 us"), rows)

    def disk(self) -> None:
        """Print the allocated bytes: of an empty store, and of each of many records, the writer still open."""
        rows: dict[str, list[float]] = {}
        for name, make in STORES.items():
            with self._stem() as stem, closing(make(stem)) as store:
                empty = sum(file.stat().st_blocks * 512 for file in stem.parent.iterdir())
                for _ in range(self._count):
                    store.append(BODY)
                full = sum(file.stat().st_blocks * 512 for file in stem.parent.iterdir())
                rows[name] = [empty / 1024, full / self._count]
        section(f"7  disk, {self._count} records of {len(BODY)} bytes", ("empty KiB", "bytes per record"), rows)


class PlainUnpickler(pickle.Unpickler):
    """Read a pickle of plain values: one that names a class or function is refused, so it cannot run code."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"'{module}.{name}' in a record of plain values")


def loads_plain(data: bytes) -> object:
    """Return the plain values in `data`."""
    return PlainUnpickler(io.BytesIO(data)).load()


def best_us(work: Callable[[], object]) -> float:
    """Return the microseconds of `work`, the best of 20 times 50."""
    return min(timeit.repeat(work, number=50, repeat=20)) * 20_000


def encodings() -> None:
    """Print size and time of each encoding of one record."""
    record = plain_record()
    coders: dict[str, tuple[Callable[[], bytes], Callable[[bytes], object]]] = {
        "pickle 5": (lambda: pickle.dumps(record, protocol=5), pickle.loads),
        "pickle 5, plain values": (lambda: pickle.dumps(record, protocol=5), loads_plain),
        "json, ensure_ascii": (lambda: json.dumps(record, separators=(",", ":")).encode(), json.loads),
        "marshal 4": (lambda: marshal.dumps(record, 4), marshal.loads),
    }
    rows: dict[str, list[float]] = {}
    for name, (encode, decode) in coders.items():
        data = encode()
        assert json.dumps(record) == json.dumps(decode(data)), name
        rows[name] = [len(data), best_us(encode), best_us(functools.partial(decode, data))]
    section("9  encoding of the record", ("bytes", "encode us", "decode us"), rows)


def main() -> None:
    """Run every section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and records")
    parser.add_argument("--folder", type=Path, help="where to write (default: the temporary folder)")
    options = parser.parse_args()
    versions = f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}, {sys.platform}"
    print(f"{versions}; each ratio is to the first row of its section")
    with tempfile.TemporaryDirectory(dir=options.folder) as root:
        bench = Bench(Path(root), quick=options.quick)
        bench.latency("1  append, one thread, idle", STORES, latencies)
        bench.latency("2  append, four threads, one lock", STORES, four_threads)
        bench.latency("3  append beside one CPU-bound Python thread", STORES, beside_cpu)
        bench.processes()
        bench.killed(10 if options.quick else 100)
        bench.flips()
        bench.scans()
        bench.disk()
        bench.latency("8  append with fsync (power cut)", SYNCED, lambda store, count: latencies(store, count // 10))
    encodings()


if __name__ == "__main__":
    main()
