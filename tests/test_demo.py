"""The demo, run for real: what it shows is what happened, and it ends by itself."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from rich.console import Console

from otel_error_hygiene import Settings
from otel_error_hygiene.cli import demo_tokens, demo_tools
from otel_error_hygiene.cli.demo import run_demo
from otel_error_hygiene.forensics.recall import matching
from otel_error_hygiene.forensics.store import writers

WIDTH = 80
TURNS = 7
REF = r"ref=[0-9a-f]{8}"
RATE_LIMIT = rf"\[error\] search_orders: rate_limit\. Wait (\d+) seconds and retry\. \(HTTP 429\) {REF}"
UPSTREAM = rf"\[error\] load_policy: upstream\. Fallback to alternative data source\. \(HTTP 503\) {REF}"
BAD_REQUEST = rf"\[error\] issue_refund: bad_request\. Check parameter format\. {REF}"


class Demo(NamedTuple):
    """One run in a process of its own."""

    code: int
    out: str
    err: str
    store: Path

    def section(self, heading: str) -> str:
        """Return what stands under a heading, up to the next one."""
        return re.split(r"^.+ -{3,}$", self.out.split(f"\n{heading}", 1)[1].partition("\n")[2], flags=re.MULTILINE)[0]

    def turn(self, number: int) -> str:
        """Return what a turn printed."""
        return self.section(f"Turn {number} of {TURNS} ")


def run(store: Path, **variables: str) -> Demo:
    """Run the demo with a store of its own, and no endpoint but the one that is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "JAEGER_"))}
    # A proxy that leads nowhere: what asks for the network gets an error.
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
    ours = {"OTEL_ERROR_HYGIENE_STORE_PATH": str(store), "COLUMNS": str(WIDTH), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-m", "otel_error_hygiene.cli.demo"],
        env=kept | nowhere | ours | variables,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,  # only against a hang; that it is short is seen from its turns
        check=False,
    )
    return Demo(done.returncode, done.stdout, done.stderr, store)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Run it once, without an endpoint."""
    return run(tmp_path_factory.mktemp("demo") / "store")


def sizes(text: str) -> tuple[int, int]:
    """Return the characters under a turn's two prompts; 0 where it has no table, because both hold nothing."""
    found = re.search(r"^([\d,]+) characters +([\d,]+) characters", text, re.MULTILINE)
    if found is None:
        assert "holds nothing about errors." in text
        return 0, 0
    return number(found[1]), number(found[2])


def number(text: str) -> int:
    """Read a number as the demo writes it."""
    return int(text.replace(",", ""))


def test_it_ends_by_itself_after_its_last_turn(demo: Demo) -> None:
    """Seven turns, in their order; the last is the model's answer, and nothing was amiss."""
    assert (0, "") == (demo.code, demo.err), demo.out
    headings = re.findall(rf"^Turn (\d) of {TURNS} -+$", demo.out, re.MULTILINE)
    assert [str(turn) for turn in range(1, TURNS + 1)] == headings
    assert "answers the user." in demo.turn(TURNS)
    assert "did not do what it shows" not in demo.out


@pytest.mark.parametrize(("turn", "line"), [(1, RATE_LIMIT), (3, UPSTREAM), (4, BAD_REQUEST)])
def test_each_failure_becomes_one_line(demo: Demo, turn: int, line: str) -> None:
    """The line stands whole on one line of the output, so that it can be copied."""
    assert 1 == len(re.findall(rf"^  {line}$", demo.turn(turn), re.MULTILINE)), demo.turn(turn)


def test_the_wait_is_the_one_that_the_server_asked_for(demo: Demo) -> None:
    """Retry-After goes from the server's header into the line, and from the prompt into the wait."""
    (seconds,) = re.findall(RATE_LIMIT, demo.turn(1))
    assert str(demo_tools.RETRY_AFTER_SECONDS) == seconds
    assert f"waits {seconds} s, as its prompt says" in demo.turn(2)
    assert "ok: {'orders'" in demo.turn(2)


def test_a_success_prunes_and_the_note_of_it_lasts_one_turn(demo: Demo) -> None:
    """After each of the two recoveries the next prompt has the note, and no other prompt has it."""
    assert [2, 5] == [turn for turn in range(1, TURNS + 1) if "this success resolves" in demo.turn(turn)]
    assert [3, 6] == [turn for turn in range(1, TURNS + 1) if "[recovered]" in demo.turn(turn)]
    assert "(nothing)" in demo.turn(TURNS)


def test_the_totals_are_the_sums_of_the_turns(demo: Demo) -> None:
    """The naive prompts hold more at every turn after a failure; at the end theirs remain and ours are gone."""
    measured = [sizes(demo.turn(turn)) for turn in range(1, TURNS + 1)]
    naive, ours = zip(*measured, strict=True)
    totals = demo.section("Totals")
    row = re.search(r"^characters, all prompts +([\d,]+) +([\d,]+)$", totals, re.MULTILINE)
    last = re.search(r"^characters, last prompt +([\d,]+) +([\d,]+)$", totals, re.MULTILINE)
    assert row is not None
    assert last is not None
    assert (sum(naive), sum(ours)) == (number(row[1]), number(row[2]))
    assert (naive[-1], 0) == (number(last[1]), number(last[2]))
    assert all(theirs > our for theirs, our in measured[1:])
    assert list(naive) == sorted(naive)


def test_the_pruned_error_is_recalled_down_to_the_raising_frame(demo: Demo) -> None:
    """All exceptions of the chain, and their 30 frames and more, each with its source line."""
    record = demo.section(f"Record {ref_of(demo, 'load_policy')} of load_policy")
    (counted,) = re.findall(r"^stack +(\d+) frames", record, re.MULTILINE)
    frames = re.findall(r"^    \S+/\S+\.py:\d+ +(\S+)  +\S", record, re.MULTILINE)
    assert int(counted) == len(frames)
    assert len(frames) >= 30
    assert "http_error_default" in frames  # where urllib raised it
    assert "_fetch" in frames
    assert "load_policy" == frames[-1]
    for name in ("urllib.error.HTTPError", "DocumentUnavailable", "PolicyError"):
        assert f"{name}: " in record
    assert re.search(r"^pruned +\d\d:\d\d:\d\d\.\d{3} UTC, by issue_refund \(span [0-9a-f]{16}\)", record, re.MULTILINE)


def test_the_recalled_record_has_facts_attributes_and_what_was_told(demo: Demo) -> None:
    """Status and Retry-After as the server sent them, the span's attributes, the very line, and what pruned it."""
    record = demo.section(f"Record {ref_of(demo, 'search_orders')} of search_orders")
    assert re.search(rf"^  {RATE_LIMIT}$", record, re.MULTILINE)
    assert "http.response.status_code=429" in record
    assert "http.response.header.retry-after=2" in record
    assert "gen_ai.tool.name=search_orders" in record
    assert re.search(r"^pruned +.* by search_orders \(span [0-9a-f]{16}\)", record, re.MULTILINE)


def ref_of(demo: Demo, tool: str) -> str:
    """Return the reference in a tool's line."""
    found = re.search(rf"\[error\] {tool}: .*ref=([0-9a-f]{{8}})", demo.out)
    assert found is not None
    return found[1]


def test_the_commands_that_it_prints_find_its_failures(demo: Demo) -> None:
    """The records stand in the user's own store when it has ended."""
    assert "  otel-error-hygiene list\n" in demo.out
    printed = re.search(r"^  otel-error-hygiene show ([0-9a-f]{8})$", demo.out, re.MULTILINE)
    assert printed is not None
    (record,) = matching(writers(demo.store), printed[1])
    assert f"  {record.line}\n" in demo.out
    for tool in ("search_orders", "load_policy", "issue_refund"):
        assert 1 == len(matching(writers(demo.store), ref_of(demo, tool)))


def test_it_reads_well_at_80_columns_and_without_colour(demo: Demo) -> None:
    """Nothing is wider, except what may be copied; and no escape sequences where nobody can see them."""
    wide = [line for line in demo.out.splitlines() if len(line) > WIDTH]
    copied = (*demo.store.parents, demo.store)
    assert [] == [line for line in wide if not line.startswith("  [error] ") and Path(line.strip()) not in copied]
    assert "\x1b" not in demo.out


def test_it_needs_no_more_than_ascii(tmp_path: Path) -> None:
    """A terminal that knows no other letters gets the same demo."""
    demo = run(tmp_path / "store", PYTHONIOENCODING="ascii")
    assert (0, "") == (demo.code, demo.err), demo.out
    assert demo.out.isascii()
    assert "\\u" not in demo.out, "nothing had to be escaped"


class Collector(ThreadingHTTPServer):
    """An OTLP receiver that takes everything and says so."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.spans: list[Span] = []


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        """Take the spans, acknowledge them."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name is http.server's)
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Run a receiver on a free port."""
    with Collector() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def test_with_an_endpoint_it_exports_and_says_that_the_backend_acknowledged(
    collector: Collector, tmp_path: Path
) -> None:
    """The whole failing trace arrives, with the line that the agent was told, and the link names that trace."""
    demo = run(
        tmp_path / "store",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.server_port}",
        JAEGER_URL="http://jaeger.test/ui/",
    )
    assert (0, "") == (demo.code, demo.err), demo.out
    backend = " ".join(demo.section("Backend").split())
    assert "acknowledged all 3 failures" in backend
    assert "is a guess" not in backend

    by_name = {span.name: span for span in collector.spans}
    failed = by_name["execute_tool load_policy"]
    assert f"http://jaeger.test/ui/trace/{failed.trace_id.hex()}" in backend
    attributes = {each.key: each.value.string_value for each in failed.attributes}
    assert f"  {attributes['error_hygiene.line']}\n" in demo.turn(3)
    assert by_name["invoke_agent refund desk"].span_id == failed.parent_span_id
    assert {failed.trace_id} == {span.trace_id for span in collector.spans}
    assert TURNS == len({span.span_id for span in collector.spans}), "six tool calls and the agent's own span"


def test_with_a_backend_that_is_down_it_says_so_and_where_the_records_wait(tmp_path: Path) -> None:
    """Nothing was acknowledged, which is said; the run itself did what it shows."""
    demo = run(tmp_path / "store", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert 0 == demo.code, demo.out
    backend = " ".join(demo.section("Backend").split())
    assert "acknowledged 0 of 3 failures" in backend
    assert "otel-error-hygiene deliver" in backend
    assert "http://localhost:16686/trace/" in backend
    assert "is a guess" in backend


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    """Make a console that keeps what is printed, and the server's limit short."""
    monkeypatch.setattr(demo_tools, "RETRY_AFTER_SECONDS", 1)
    return Console(file=io.StringIO(), width=WIDTH)


def printed(console: Console) -> str:
    """Return what a console has kept."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_the_naive_side_only_ours_is_shown(console: Console, settings: Settings) -> None:
    """The same run, with one column."""
    assert 0 == run_demo(console, naive=False, settings=settings), printed(console)
    assert "naive agent" not in printed(console)
    assert re.search(UPSTREAM, printed(console))


def test_a_run_whose_records_are_lost_ends_with_one(console: Console, tmp_path: Path) -> None:
    """The lines are shown, without a reference; that nothing can be recalled is said, and is a failure of the run."""
    (tmp_path / "file").write_text("")
    assert 1 == run_demo(console, settings=Settings(store_path=tmp_path / "file" / "store"))
    assert "[error] search_orders: rate_limit. Wait 1 seconds and retry. (HTTP 429)\n" in printed(console)
    assert "0 of 3 failures can be recalled in full." in printed(console)
    assert "This run did not do what it shows" in printed(console)


def test_an_unusable_configuration_ends_with_two(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said in words, before anything runs."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon")
    assert 2 == run_demo(console)
    assert "carrier-pigeon" in printed(console)
    assert "Turn" not in printed(console)


class _Encoding:
    name = "o200k_base"

    def encode(self, text: str, *, disallowed_special: tuple[str, ...]) -> list[str]:
        """Give a token for each word."""
        assert disallowed_special == ()
        return text.split()


def install_tiktoken(monkeypatch: pytest.MonkeyPatch, *, cached: bool) -> types.ModuleType:
    """Put a stand-in in the place of tiktoken, which loads its vocabulary as the real one does."""
    loader = types.ModuleType("tiktoken.load")
    loader.read_file = lambda _: pytest.fail("the network was asked")  # type: ignore[attr-defined]
    tiktoken = types.ModuleType("tiktoken")

    def get_encoding(_: str) -> _Encoding:
        if not cached:
            loader.read_file("a vocabulary")
        return _Encoding()

    tiktoken.get_encoding = get_encoding  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", tiktoken)
    monkeypatch.setitem(sys.modules, "tiktoken.load", loader)
    return loader


def test_tokens_are_counted_where_a_tokenizer_works_offline(
    monkeypatch: pytest.MonkeyPatch, console: Console, settings: Settings
) -> None:
    """Beside the characters, named after the tokenizer."""
    install_tiktoken(monkeypatch, cached=True)
    assert 0 == run_demo(console, settings=settings), printed(console)
    assert re.search(r"\d characters, \d+ tokens", printed(console))
    assert re.search(r"^tokens \(tiktoken o200k_base\), all prompts +[\d,]+ +\d+", printed(console), re.MULTILINE)


def test_a_tokenizer_that_needs_the_network_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the network is closed while it is asked, and open again for the user afterwards."""
    loader = install_tiktoken(monkeypatch, cached=False)
    before = loader.read_file
    assert demo_tokens.find_tokenizer() is None
    assert before is loader.read_file


def test_without_a_tokenizer_characters_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is optional, and nothing is estimated in its place."""
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert demo_tokens.find_tokenizer() is None
