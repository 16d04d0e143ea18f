"""The command line looks into real stores, written by real processors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import otel_error_hygiene as hygiene
from otel_error_hygiene.cli.output import clean
from tests.cli_rig import Agent, Backend, agents_over, backend_for, python, run, same_refs

COMMANDS = ("list", "stats", "show", "deliver", "requeue", "discard", "purge")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Give a receiver to which the environment points."""
    yield from backend_for(monkeypatch)


@pytest.fixture
def agent_of(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Make agents over the test's store."""
    yield from agents_over(tmp_path / "store")


# --- list --------------------------------------------------------------------------------------


def test_list_prints_failures_the_newest_last(agent_of: Callable[..., Agent]) -> None:
    """The end of a listing, which stays in sight in a terminal, is the newest failure."""
    agent = agent_of()
    first, last = agent.fail("search"), agent.fail("fetch")
    ran = run("list")
    assert 0 == ran.code
    assert 0 < ran.out.index(first.ref or "?") < ran.out.index(last.ref or "?")
    assert "2 failed tool calls, newest last." in ran.text
    assert f"{str(last).removeprefix('[error] ').removesuffix(f' ref={last.ref}')} to: kept here" in ran.text


def test_list_as_json_holds_what_the_agent_was_told(agent_of: Callable[..., Agent]) -> None:
    """Each failure's line, ref, ids and conversation are those that the agent's summary had."""
    agent = agent_of()
    summary = agent.fail()
    document = run("list", "--json").json
    assert 1 == document["total"]
    (row,) = document["failures"]
    expected = {
        "line": str(summary),
        "ref": summary.ref,
        "tool": "search",
        "error_class": "connectivity",
        "attempt": 1,
        "state": "pending",
        "trace_id": summary.trace_id,
        "span_id": summary.span_id,
        "conversation": "chat-1",
        "destination_id": "local",
        "pid": os.getpid(),
    }
    assert expected == {key: row[key] for key in expected}
    assert row["record_id"].startswith(row["ref"])


def test_list_filters_by_tool_and_state_and_limits_to_the_newest(agent_of: Callable[..., Agent]) -> None:
    """Filters say what is listed, and the limit keeps the newest of it."""
    agent = agent_of()
    agent.fail("search")
    wanted = agent.fail("fetch").ref
    last = agent.fail("search").ref
    assert [wanted] == [row["ref"] for row in run("list", "--json", "--tool", "fetch").json["failures"]]
    assert [last] == [row["ref"] for row in run("list", "--json", "--limit", "1").json["failures"]]
    assert [] == run("list", "--json", "--state", "delivered").json["failures"]
    assert "The newest 1 of 3 failed tool calls." in run("list", "--limit", "1").text


def test_a_store_that_nobody_wrote_is_empty_and_stays_unwritten(tmp_path: Path) -> None:
    """Looking makes nothing on disk, and an empty store is no error."""
    for command in ("list", "stats", "purge"):
        ran = run(command, "--store", tmp_path / "none")
        assert 0 == ran.code, command
    assert not (tmp_path / "none").exists()


def test_lists_are_readable_at_eighty_columns(agent_of: Callable[..., Agent]) -> None:
    """No line of the output is wider than the terminal."""
    agent = agent_of()
    summary = agent.fail()
    for args in (("list",), ("stats",), ("show", summary.ref), ("--help",)):
        assert 80 >= max(len(line) for line in run(*args, columns=80).out.splitlines()), args


# --- stats -------------------------------------------------------------------------------------


def test_stats_count_the_whole_store_by_destination_and_state(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """Failures of several processes and destinations, live and dead, are counted where they belong."""
    local, sent, dead = agent_of(), agent_of(exports=True), agent_of(exports=True)
    local.fail()
    sent.fail()
    assert sent.processor.deliver(5000)
    backend.status = 503
    dead.fail()
    dead.fail()
    dead.die()
    document = run("stats", "--json").json
    remote, kept = document["destinations"]
    assert f"{backend.url}/v1/traces" == remote["destination"]
    assert (2, 1, 0) == tuple(remote["failures"][state] for state in ("pending", "delivered", "quarantined"))
    assert (1, 1) == (remote["live_writers"], remote["dead_writers"])
    assert ("local", 1) == (kept["destination_id"], kept["failures"]["pending"])
    assert document["bytes"] == remote["bytes"] + kept["bytes"]
    assert remote["oldest_pending_at"] is not None
    text = run("stats").text
    assert "2 pending 1 delivered" in text
    assert "1 live and 1 dead processes" in text


def test_stats_tell_why_records_are_quarantined(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """The backend's own words stand beside the record, without their power over the terminal."""
    agent = agent_of(exports=True)
    agent.fail("poison")
    assert not agent.processor.deliver(5000)
    assert 1 == agent.processor.stats().quarantined
    (refused,) = run("stats", "--json").json["destinations"][0]["quarantined"]
    assert "HTTP 400 no room \x1b[31mfor this" == refused["reason"]
    shown = run("stats").out
    assert "\x1b[31m" not in shown
    assert r"HTTP 400 no room \x1b[31mfor this" in shown
    assert backend.spans == {}


# --- show --------------------------------------------------------------------------------------


def test_show_prints_the_whole_failure_as_a_tree(agent_of: Callable[..., Agent]) -> None:
    """Chain, notes, frames with their source, what the agent was told, ids: all in sight."""
    agent = agent_of()
    summary = agent.fail()
    agent.succeed()
    ran = run("show", summary.ref)
    assert 0 == ran.code
    for expected in (
        str(summary),
        "exception RuntimeError: the search failed",
        "note: seen by the test",
        "raise outer from error",
        "caused by ConnectionError: no such host",
        "raise ConnectionError(message)",
        'conversation "chat-1"',
        "by a success of search (span ",
        summary.trace_id,
        summary.span_id,
        'arguments: {"q":"x"}',
        "finished: yes",
    ):
        assert str(expected) in ran.text
    assert ran.out.index("raise outer from error") < ran.out.index("raise ConnectionError(message)")


def test_show_as_json_is_the_record_that_recall_gives(agent_of: Callable[..., Agent]) -> None:
    """The command line and the library tell the same of a failure."""
    agent = agent_of()
    summary = agent.fail()
    (shown,) = run("show", summary.ref, "--json").json["records"]
    recalled = hygiene.recall(summary.ref or "")
    assert recalled is not None
    expected = recalled.model_dump(mode="json", exclude={"summary": {"timestamp"}})
    del shown["summary"]["timestamp"]
    assert expected == {key: shown[key] for key in expected}
    assert str(summary) == shown["line"]


def test_show_takes_ref_record_id_and_span_id_however_copied(agent_of: Callable[..., Agent]) -> None:
    """A reference may be pasted with its ``ref=``, in capitals, or as the id that Jaeger shows."""
    agent = agent_of()
    summary = agent.fail()
    (row,) = run("list", "--json").json["failures"]
    for key in (summary.ref, f"ref={summary.ref}", str(summary.ref).upper(), row["record_id"], summary.span_id):
        (found,) = run("show", key, "--json").json["records"]
        assert row["record_id"] == found["record_id"], key


def test_show_prints_all_that_match(agent_of: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes may have given out the same eight digits: both records are shown, the newest first."""
    same_refs(monkeypatch)
    agent_of().fail("search")
    agent_of().fail("fetch")
    found = run("show", "000000aa", "--json").json["records"]
    assert ["fetch", "search"] == [each["call"]["tool"] for each in found]


def test_show_says_when_nothing_matches(agent_of: Callable[..., Agent]) -> None:
    """No match is exit code 1, and JSON stays a document."""
    agent_of().fail()
    ran = run("show", "00000000")
    assert (1, "") == (ran.code, ran.out)
    assert '"00000000"' in ran.err
    assert {"ref": "00000000", "records": []} == run("show", "00000000", "--json").json


@pytest.mark.parametrize("key", ["xyz", "1234567", "ref=", "123456789abcdef01", "../../etc"])
@pytest.mark.parametrize("command", ["show", "requeue", "discard"])
def test_what_is_no_reference_is_wrong_usage(command: str, key: str) -> None:
    """A malformed reference is named, with what would be right."""
    ran = run(command, key)
    assert (2, "") == (ran.code, ran.out)
    assert f"'{key}'" in ran.err
    assert "8 hex digits" in ran.err


def test_text_of_a_failure_cannot_steer_the_terminal(agent_of: Callable[..., Agent]) -> None:
    """Escape sequences, markup and invisible marks of an error's text are printed as text."""
    agent = agent_of()
    evil = "\x1b]0;owned\x07 [bold]loud[/bold] :boom: \u202egnp\u202c \x9b2J \udcff \r over"
    summary = agent.fail("sea\x1b[31mrch", evil)
    for args in (("show", summary.ref), ("list",), ("stats",)):
        out = run(*args).out
        assert [] == [c for c in out if c in "\x1b\x07\x9b\r\u202e\u202c"], args
    shown = run("show", summary.ref).text
    assert r"\x1b]0;owned\x07 [bold]loud[/bold] :boom: \u202egnp\u202c \x9b2J \udcff \r over" in shown


def test_clean_keeps_words_of_all_languages() -> None:
    """Only what steers is escaped; letters, combining marks and joined emoji stay."""
    text = "Größe 価格 नमस्ते e\u0301 👩\u200d💻"
    assert text == clean(text)
    assert r"a\nb" == clean("a\nb")
    assert "a\nb" == clean("a\nb", lines=True)


# --- every command -----------------------------------------------------------------------------


def arguments(command: str) -> list[str]:
    """Return what a command needs beside its options."""
    return [command, "00000000"] if command in ("show", "requeue", "discard") else [command]


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_document_and_nothing_else(command: str, agent_of: Callable[..., Agent], backend: Backend) -> None:
    """Every command has ``--json``, whose output a program can read as a whole."""
    agent_of().fail()
    assert isinstance(run(*arguments(command), "--json").json, dict)
    assert {} == backend.spans


@pytest.mark.parametrize("command", COMMANDS)
def test_a_store_that_cannot_be_read_is_exit_code_3(command: str, tmp_path: Path, backend: Backend) -> None:
    """A file in place of the folder is named, and stdout stays empty."""
    (tmp_path / "file").write_text("no store")
    ran = run(*arguments(command), "--store", tmp_path / "file", "--json")
    assert (3, "") == (ran.code, ran.out)
    assert str(tmp_path / "file") in "".join(ran.err.split("\n"))
    assert {} == backend.spans


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unusable_setting_is_exit_code_2(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable's name, its value and what would be right are said."""
    monkeypatch.setenv("OTEL_ERROR_HYGIENE_MAX_LINES", "many")
    ran = run(*arguments(command))
    assert (2, "") == (ran.code, ran.out)
    assert "'many'" in ran.err
    assert "max_lines" in ran.err.lower()


@pytest.mark.parametrize("command", [None, *COMMANDS, "demo"])
def test_help_documents_the_exit_codes(command: str | None) -> None:
    """``--help`` of the whole and of every command has them."""
    text = run(*([command] if command else []), "--help").text
    for expected in ("0 done", "1 not everything done", "2 wrong usage", "3 the store cannot be read"):
        assert expected in text


def test_version_is_the_package_s() -> None:
    """``--version`` tells what was installed."""
    assert f"otel-error-hygiene {hygiene.__version__}\n" == run("--version").out


def test_the_library_does_not_load_the_command_line_s_libraries() -> None:
    """An agent does not pay for typer and rich."""
    code = "import sys, otel_error_hygiene as h, otel_error_hygiene.cli; h.install"
    code += "; print({'typer', 'rich'} & {*sys.modules})"
    assert "set()" == python("-c", code).stdout.strip()


def test_output_fits_a_terminal_that_knows_ascii_only(agent_of: Callable[..., Agent]) -> None:
    """What the terminal's encoding lacks is escaped; showing never fails."""
    summary = agent_of().fail(message="価格が見つかりません")
    ran = python("-m", "otel_error_hygiene.cli", "show", str(summary.ref), PYTHONIOENCODING="ascii")
    assert (0, "") == (ran.returncode, ran.stderr)
    assert r"\u4fa1\u683c" in ran.stdout


def test_a_reader_that_has_seen_enough_is_no_error(agent_of: Callable[..., Agent]) -> None:
    """``list | head -1`` ends without a traceback."""
    agent = agent_of()
    for _ in range(30):
        agent.fail()
    root = str(Path(__file__).parent.parent)
    command = f"{sys.executable} -m otel_error_hygiene.cli list | head -1"
    ran = subprocess.run(
        ["sh", "-c", command],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "" == ran.stderr
