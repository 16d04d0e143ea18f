"""`requeue`, `discard` and `purge` change what they are asked to, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import otel_error_hygiene as hygiene
from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings
from tests.cli_rig import Agent, Backend, agents_over, backend_for, bytes_of, run, same_refs


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Give a receiver to which the environment points."""
    yield from backend_for(monkeypatch)


@pytest.fixture
def agent_of(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Make agents over the test's store."""
    yield from agents_over(tmp_path / "store")


def test_a_refused_record_is_requeued_and_delivered(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """Quarantined, exit code 1; once the backend is mended, requeued and delivered, exit code 0."""
    agent = agent_of(exports=True)
    backend.status = 503
    healthy, refused = agent.fail("search"), agent.fail("poison")
    agent.die()
    backend.status = 200
    ran = run("deliver")
    assert 1 == ran.code
    assert "Quarantined: 1 failed tool call." in ran.text
    assert [healthy.span_id] == list(backend.spans)
    backend.poison = ""
    assert 1 == run("deliver").code
    document = run("requeue", refused.ref, "--json").json
    assert (True, "pending") == (document["changed"], document["records"][0]["state"])
    assert 0 == run("deliver").code
    assert {healthy.span_id, refused.span_id} == set(backend.spans)


def test_only_quarantined_records_are_requeued(agent_of: Callable[..., Agent]) -> None:
    """A pending record needs no requeue: said, exit code 1, nothing changed."""
    summary = agent_of().fail()
    ran = run("requeue", summary.ref)
    assert 1 == ran.code
    assert "is pending; only quarantined records can be requeued" in ran.err
    assert {"changed": False} == {"changed": run("requeue", summary.ref, "--json").json["changed"]}


def test_discard_asks_first(agent_of: Callable[..., Agent]) -> None:
    """Without a yes nothing is destroyed."""
    summary = agent_of().fail()
    for answer in ("n\n", ""):
        ran = run("discard", summary.ref, answer=answer)
        assert 1 == ran.code
        assert "no backend has it" in " ".join(ran.err.split())
        assert hygiene.recall(summary.ref or "") is not None


def test_discard_destroys_the_record_and_says_what_it_was(agent_of: Callable[..., Agent], tmp_path: Path) -> None:
    """Not a word of the error is left in the store's files, and the process that recorded it counts it as lost."""
    agent = agent_of()
    summary = agent.fail(message="the patient's name")
    other = agent.fail(message="another failure")
    assert b"the patient's name" in bytes_of(tmp_path / "store")
    ran = run("discard", summary.ref, answer="y\n")
    assert 0 == ran.code
    assert str(summary) in ran.text
    assert b"the patient's name" not in bytes_of(tmp_path / "store")
    assert hygiene.recall(summary.ref or "") is None
    assert [other.ref] == [row["ref"] for row in run("list", "--json").json["failures"]]
    assert 1 == run("discard", summary.ref, "--yes").code
    assert 1 == sum(agent.processor.stats().lost.values())


def test_discard_destroys_superseded_copies_and_reasons_too(agent_of: Callable[..., Agent], tmp_path: Path) -> None:
    """A failure that was reported before its span ended stands in the files twice: both copies go."""
    agent = agent_of()
    tracer = agent.provider.get_tracer("tests")
    with tracer.start_as_current_span("execute_tool pay", attributes={"gen_ai.operation.name": "execute_tool"}):
        summary = hygiene.report_error(ValueError("card 4111"), tool="pay")
    assert 2 <= bytes_of(tmp_path / "store").count(b"card 4111")
    assert 0 == run("discard", summary.ref, "--yes").code
    assert b"card 4111" not in bytes_of(tmp_path / "store")


@pytest.mark.parametrize("command", [("requeue",), ("discard", "--yes")])
def test_an_ambiguous_reference_changes_nothing(
    command: tuple[str, ...], agent_of: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several records with the same eight digits are listed with their whole ids, exit code 1."""
    same_refs(monkeypatch)
    agent_of().fail("search")
    agent_of().fail("fetch")
    ran = run(*command, "000000aa")
    assert (1, "") == (ran.code, ran.out)
    assert "000000aa00000001" in ran.err
    assert "000000aa00000002" in ran.err
    assert 2 == len(run(*command, "000000aa", "--json").json["records"])
    assert 2 == run("list", "--json").json["total"]


def test_a_whole_record_id_is_never_ambiguous(agent_of: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    """The 16 digits name one of several records that share their first 8."""
    same_refs(monkeypatch)
    agent_of().fail("search")
    agent_of().fail("fetch")
    assert 0 == run("discard", "000000aa00000001", "--yes").code
    assert ["000000aa00000002"] == [row["record_id"] for row in run("list", "--json").json["failures"]]


def test_purge_erases_what_was_delivered_and_nothing_else(
    agent_of: Callable[..., Agent], backend: Backend, tmp_path: Path
) -> None:
    """Delivered text is gone from the files of a living process; what is pending, there and elsewhere, stays."""
    local, agent = agent_of(), agent_of(exports=True)
    kept = local.fail(message="never sent")
    sent = agent.fail(message="sent already")
    assert agent.processor.deliver(5000)
    backend.status = 503
    waiting = agent.fail(message="waiting still")
    document = run("purge", "--json").json
    assert {"failures": 1, "other_spans": 0, "files_removed": 0, "busy": []} == {
        key: document[key] for key in ("failures", "other_spans", "files_removed", "busy")
    }
    left = bytes_of(tmp_path / "store")
    assert (False, True, True) == tuple(words in left for words in (b"sent already", b"waiting still", b"never sent"))
    assert {kept.ref, waiting.ref} == {row["ref"] for row in run("list", "--json").json["failures"]}
    assert 1 == run("show", sent.ref).code
    assert 1 == agent.processor.stats().pending


def test_purge_removes_whole_files_of_dead_processes(
    agent_of: Callable[..., Agent], backend: Backend, tmp_path: Path
) -> None:
    """Nothing of a dead process whose failures were all delivered is left on the disk."""
    agent = agent_of(exports=True)
    agent.fail()
    assert agent.processor.deliver(5000)
    agent.die()
    document = run("purge", "--json").json
    assert (1, 1) == (document["failures"], document["files_removed"])
    assert document["bytes_freed"] > 0
    assert [] == list((tmp_path / "store").rglob("*.seg"))
    assert 1 == len(backend.spans)


def test_purge_keeps_who_pruned_a_failure_that_stays(agent_of: Callable[..., Agent], backend: Backend) -> None:
    """A recovering span tells when a failure was pruned; it is purged only with the failures that it cleared."""
    agent = agent_of(exports=True)
    summary = agent.fail("poison")
    agent.succeed("poison_free")
    assert not agent.processor.deliver(5000)
    assert 1 == len(backend.spans)
    assert 0 == run("purge", "--json").json["other_spans"]
    (found,) = run("show", summary.ref, "--json").json["records"]
    assert found["pruned_by"].startswith("poison_free (span ")


def test_purge_leaves_folders_of_others_alone(tmp_path: Path) -> None:
    """A store path that is really somebody's folder loses nothing."""
    other = tmp_path / "photos" / "2019" / "a.jpg"
    other.parent.mkdir(parents=True)
    other.write_text("a picture")
    before = sorted(tmp_path.rglob("*"))
    for command in ("purge", "stats", "list"):
        assert 0 == run(command, "--store", tmp_path).code
    ErrorHygieneSpanProcessor(None, settings=Settings(store_path=tmp_path)).shutdown()
    assert before == sorted(tmp_path.rglob("*"))
