"""What others left, what waits too long, and what a pass does not look at again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from otel_error_hygiene import Settings, recall, report_error
from otel_error_hygiene.forensics.segment import RecordKind, SegmentReader, State
from otel_error_hygiene.forensics.store import Writer
from tests.forensics.agents import SEARCH, Agent, agent, eventually, exporter_to
from tests.forensics.children import child, pending_in
from tests.otlp_server import (
    HttpReceiver,
    free_port,
    ok,
    refusing,
    status,
)


def test_what_a_killed_process_left_is_adopted(settings: Settings) -> None:
    """The next process with the same destination delivers it, without being asked, all of it."""
    port = free_port()
    receiver = HttpReceiver(port)
    child(settings, receiver.endpoint, "one", "two", STAY="1").kill()
    with receiver, agent(exporter_to(receiver), settings):
        assert receiver.wait_for(lambda: receiver.names() == ["execute_tool one", "execute_tool two"])
        assert eventually(lambda: not pending_in(settings.store_path))


@pytest.mark.parametrize("other", ["endpoint", "headers", "local"])
def test_what_was_meant_for_somebody_else_is_not_adopted(settings: Settings, http: HttpReceiver, other: str) -> None:
    """Another endpoint, other headers (another tenant), or nobody at all: it stays where it is."""
    endpoint = f"http://127.0.0.1:{free_port()}/v1/traces" if other == "endpoint" else http.endpoint
    environment = {"headers": {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=b"}, "local": {"LOCAL": "1"}}.get(other, {})
    http.default = status(503)
    theirs = child(settings, endpoint, "theirs", STAY="1", **environment)
    assert other != "headers" or http.wait_for(lambda: len(http.requests) == 1)
    theirs.kill()
    http.default = ok
    with agent(exporter_to(http), settings) as made:
        made.fail("ours")
        assert made.processor.deliver(5000)
        assert ["execute_tool ours"] == http.names()
    assert 1 == pending_in(settings.store_path)


def test_nothing_of_a_living_process_is_adopted_in_the_background(
    settings: Settings, http: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own courier delivers it; only who calls `deliver` takes it along."""
    monkeypatch.setattr("otel_error_hygiene.forensics.courier._ADOPT_EVERY_SECONDS", 0.1)
    http.default = status(503)
    living = child(settings, http.endpoint, "theirs", STAY="1")
    assert http.wait_for(lambda: len(http.requests) == 1)
    http.default = ok
    with agent(exporter_to(http), settings) as made:
        made.fail("ours")
        assert eventually(lambda: made.stats().delivered == 1)
        time.sleep(0.5)
        assert ["execute_tool ours"] == http.names()
        assert made.processor.deliver(5000)
        assert ["execute_tool ours", "execute_tool theirs"] == http.names()
    living.kill()


def test_a_report_whose_process_died_is_sent_as_unfinished(settings: Settings) -> None:
    """A living process's report waits for its span; when no end will come it is sent, says so, and has a sane end."""
    port = free_port()
    receiver = HttpReceiver(port)
    living = child(settings, receiver.endpoint, "report:search", STAY="1")
    with receiver, agent(exporter_to(receiver), settings) as made:
        assert not made.processor.deliver(500)
        assert [] == receiver.names()
        living.kill()
        assert made.processor.deliver(5000)
    span = receiver.one(SEARCH)
    assert True is span.attributes["error_hygiene.unfinished"]
    assert span.start < span.end < time.time_ns()
    assert 2 == span.status[0]  # STATUS_CODE_ERROR


def test_a_report_goes_out_once_and_whole_when_its_span_ends(settings: Settings, http: HttpReceiver) -> None:
    """Until then nothing is sent and `deliver` is False; afterwards there is one span, finished."""
    with agent(exporter_to(http), settings) as made:
        with made.tracer.start_as_current_span(
            SEARCH, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        ):
            report_error(ConnectionError("refused"), tool="search")
            assert not made.processor.deliver(200)
        assert made.processor.deliver(5000)
        assert (1, 1) == (made.stats().seen, made.stats().delivered)
    assert [1] == [len(spans) for spans in http.requests]
    assert "error_hygiene.unfinished" not in http.one(SEARCH).attributes


def recall_ref(made: Agent) -> str:
    """Return the ref of the one failure of an agent."""
    assert made.processor.folder is not None
    [reader] = Writer(made.processor.folder).segments()
    with reader:
        ref = f"{reader.headers()[-1].record_id:016x}"
    found = recall(ref)
    assert found is not None
    return found.ref


def test_expired_records_are_counted_and_removed(settings: Settings, http: HttpReceiver) -> None:
    """What no backend took within the retention is given up, counted as expired, and gone from the disk."""
    http.default = status(503)
    short = settings.model_copy(update={"retention_seconds": 0.5})
    with agent(exporter_to(http), short) as made:
        made.fail()
        ref = recall_ref(made)
        time.sleep(2.1)
        http.default = ok
        assert made.processor.deliver(5000)
        assert (1, 0, 0) == (made.stats().expired, made.stats().delivered, made.stats().pending)
        assert None is recall(ref)
    assert [] == http.names()


def requeue(folder: Path) -> None:
    """Flip the first failure of a folder to pending."""
    writer = Writer(folder)
    header = next(h for h in writer.segments()[0].headers() if h.kind is RecordKind.FAILURE)
    writer.segments()[0].set_state(header.offset, State.PENDING)
    writer.close()


def test_a_requeued_record_is_noticed_by_deliver_and_by_the_periodic_pass(
    settings: Settings, http: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process flips the state back to pending, in a file that was settled: it is delivered again."""
    monkeypatch.setattr("otel_error_hygiene.forensics.courier._ADOPT_EVERY_SECONDS", 0.2)
    monkeypatch.setattr("otel_error_hygiene.forensics.settled.Settled._SURE_NS", 20_000_000)
    http.default = refusing("poison")
    small = settings.model_copy(update={"store_max_bytes": 2**20})
    with agent(exporter_to(http), small) as made:
        made.fail("poison")
        for number in range(30):
            made.fail(f"tool{number:02}", "x" * 3000)
        assert eventually(lambda: made.stats().quarantined == 1 and made.stats().delivered == 30)
        assert made.processor.folder is not None
        time.sleep(0.6)
        for again in (made.processor.deliver, lambda _: True):
            http.default = ok
            http.accepted.clear()
            requeue(made.processor.folder)
            assert again(5000)
            assert http.wait_for(lambda: http.names() == ["execute_tool poison"])
            assert eventually(lambda: made.stats().delivered == 31)
            time.sleep(0.6)


def test_a_pass_does_not_read_settled_files_again(
    settings: Settings, http: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has delivered thousands does not read them again for each new one: the newest file is enough."""
    monkeypatch.setattr("otel_error_hygiene.forensics.settled.Settled._SURE_NS", 20_000_000)
    small = settings.model_copy(update={"store_max_bytes": 2**20})
    with agent(exporter_to(http), small) as made:
        for number in range(80):
            made.fail(f"tool{number:02}", "x" * 3000)
        assert made.processor.deliver(5000)
        for _ in range(3):
            time.sleep(0.1)
            made.fail("again")
            assert eventually(lambda: made.stats().pending == 0)
        read: list[str] = []
        real = SegmentReader.state

        def watched(reader: SegmentReader, offset: int) -> State:
            read.append(reader.path.name)
            return real(reader, offset)

        monkeypatch.setattr(SegmentReader, "state", watched)
        made.fail("one more")
        assert eventually(lambda: made.stats().pending == 0)
        time.sleep(0.2)
        assert made.processor.folder is not None
        assert len(Writer(made.processor.folder).names()) > 3
        assert {Writer(made.processor.folder).names()[-1]} == set(read)
