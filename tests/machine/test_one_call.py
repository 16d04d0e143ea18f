"""One call, one failure: however many spans an MCP client and server, a framework and an instrumentation make of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode

from otel_error_hygiene import conversation, recall, report_error, tool_call
from otel_error_hygiene.machine import lineage as lineage_module
from otel_error_hygiene.machine import nested as nested_module
from otel_error_hygiene.machine.lineage import same_call
from tests.conftest import Rig
from tests.conventions.captures import captured
from tests.machine.trees import agent, fail, flag, mcp_call, start, told, tool


@pytest.fixture(autouse=True)
def _conversation(rig: Rig) -> Iterator[None]:
    """Bind the conversation "a", in which "other" fails first."""
    with conversation("a"):
        fail(tool(rig, "other"), KeyError("x"))
        yield


def test_three_spans_of_one_mcp_call_are_one_failure(rig: Rig) -> None:
    """The server tells it; the client in between, UNSET, neither clears nor counts; the outer client adds nothing."""
    client, middle, server = mcp_call(rig, "look")
    fail(server)
    assert ["other", "look"] == told(rig)
    middle.end()
    assert ["other", "look"] == told(rig)
    flag(client)
    assert ["other", "look"] == told(rig)
    stats = rig.processor.stats()
    assert (2, 2) == (stats.seen, stats.recorded)


def test_three_spans_of_one_mcp_call_that_works_are_one_success(rig: Rig) -> None:
    """It resolves when the outermost has ended, not before: the client may still time out."""
    client, middle, server = mcp_call(rig, "look")
    server.end()
    middle.end()
    assert ["other"] == told(rig)
    client.end()
    assert [] == told(rig)


def test_a_client_that_times_out_on_a_server_that_succeeds_is_a_failure(rig: Rig) -> None:
    """One outcome, the outermost's: the server's success clears nothing, before the time-out or after it."""
    client, middle, server = mcp_call(rig, "look")
    server.end()
    fail(middle, TimeoutError("timed out"))
    fail(client, TimeoutError("timed out"))
    assert ["other", "look"] == told(rig)

    client, middle, server = mcp_call(rig, "late")
    fail(middle, TimeoutError("timed out"))
    fail(client, TimeoutError("timed out"))
    server.end()
    assert ["other", "look", "late"] == told(rig)
    assert 3 == rig.processor.stats().seen


def test_a_server_that_fails_after_its_client_gave_up_adds_nothing(rig: Rig) -> None:
    """The call has failed already."""
    client, middle, server = mcp_call(rig, "look")
    fail(middle, TimeoutError("timed out"))
    fail(client, TimeoutError("timed out"))
    fail(server)
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)


def test_a_transport_s_span_alone_says_nothing_of_the_outcome(rig: Rig) -> None:
    """The server is elsewhere: UNSET, whatever became of the call; it neither clears nor counts."""
    _, middle, _ = mcp_call(rig, "look")
    middle.end()
    assert (["other"], 1) == (told(rig), rig.processor.stats().seen)


def test_captured_calls_of_an_mcp_server_and_client_make_one_failure_each(rig: Rig) -> None:
    """Replayed from their ends alone, without any start, and without the spans between the two."""
    spans = captured("fastmcp")
    for span in spans:
        rig.processor.on_end(span)
    servers = [span for span in spans if span.kind.name == "SERVER" and span.status.status_code is StatusCode.ERROR]
    assert len(servers) + 1 == rig.processor.stats().seen
    assert len(servers) > 1


@pytest.mark.parametrize("inner", ["execute_tool look", "look.tool"])
def test_a_framework_s_span_around_an_instrumentation_s_is_the_same_call(rig: Rig, inner: str) -> None:
    """Spans of other kinds may stand between; only one of them has the call's id."""
    outer = tool(rig, "look", gen_ai__tool__call__id="c1", gen_ai__tool__call__arguments='{"q":1}')
    between = start(rig, "chain step", outer)
    fail(start(rig, inner, between, traceloop__span__kind="tool", traceloop__entity__name="look"))
    between.end()
    fail(outer, RuntimeError("Error executing tool look"))
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)
    summary = rig.processor.conversation("a").pending[-1]
    record = recall(summary.ref or "")
    assert record is not None
    assert ("c1", '{"q":1}') == (record.call.call_id, record.call.arguments)


def test_nested_spans_with_different_ids_are_two_calls(rig: Rig) -> None:
    """A tool that calls itself."""
    outer = tool(rig, "look", gen_ai__tool__call__id="c1")
    fail(tool(rig, "look", outer, gen_ai__tool__call__id="c2"), ValueError("deep"))
    fail(outer, RuntimeError("shallow"))
    assert (["other", "look", "look"], 3) == (told(rig), rig.processor.stats().seen)


def test_a_tool_that_calls_another_stays_two_calls(rig: Rig) -> None:
    """Each fails, or not, by itself."""
    outer = tool(rig, "plan")
    fail(tool(rig, "look", outer))
    fail(outer, RuntimeError("no plan"))
    assert (["other", "look", "plan"], 3) == (told(rig), rig.processor.stats().seen)

    outer = tool(rig, "plan")
    fail(tool(rig, "search", outer))
    outer.end()
    assert ["search"] == told(rig)  # a success clears what was known before it started


def test_one_exception_through_two_tools_is_one_failure(rig: Rig) -> None:
    """The innermost call that it left is named."""
    outer = tool(rig, "plan")
    fail(tool(rig, "look", outer))
    fail(outer)
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)


def test_retries_below_one_agent_are_calls_of_their_own(rig: Rig) -> None:
    """They are siblings: each failure counts, and a success resolves them."""
    root = agent(rig, "main")
    for _ in range(2):
        fail(tool(rig, "look", root))
    assert ([1, 2], 3) == (
        [each.attempt for each in rig.processor.conversation("a").pending],
        rig.processor.stats().seen,
    )
    tool(rig, "look", root).end()
    assert [] == told(rig)
    root.end()


def test_a_try_that_works_inside_the_call_s_own_span_makes_the_call_a_success(rig: Rig) -> None:
    """The framework tries again by itself: what the first try was told of is resolved with the call."""
    rig.processor.conversation("a").turn()
    outer = tool(rig, "look")
    fail(tool(rig, "look", outer))
    tool(rig, "look", outer).end()
    assert ["other", "look"] == told(rig)
    outer.end()
    assert [] == told(rig)


def test_a_call_whose_last_try_failed_is_no_success_whatever_its_own_span_says(rig: Rig) -> None:
    """The framework made text of the exception."""
    outer = tool(rig, "look")
    for _ in range(2):
        fail(tool(rig, "look", outer))
    outer.set_status(StatusCode.OK)
    outer.end()
    assert (["other", "look"], 3) == (told(rig), rig.processor.stats().seen)


@pytest.mark.parametrize("events", [1, 2])
def test_copies_on_parents_and_doubled_events_are_one_failure(rig: Rig, events: int) -> None:
    """ADK records it twice on the tool's span, and on the agent and the workflow; LangChain on chains."""
    workflow = start(rig, "invoke_workflow main", gen_ai__operation__name="invoke_workflow")
    root = agent(rig, "main", workflow)
    fail(tool(rig, "look", root), events=events)
    fail(root)
    fail(workflow)
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)


@pytest.mark.parametrize("swallowed", [True, False])
def test_our_boundary_around_an_instrumentation_s_span_is_the_same_call(rig: Rig, swallowed: bool) -> None:
    """The boundary gives the summary of what was told inside; swallowed there, the call is no success."""

    def look() -> None:
        with rig.tracer.start_as_current_span("look.tool", attributes={"traceloop.span.kind": "tool"}):
            raise ConnectionError("no route to host")

    with contextlib.suppress(ConnectionError), tool_call("look", tracer_provider=rig.provider) as call:
        if swallowed:
            with contextlib.suppress(ConnectionError):
                look()
        else:
            look()
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)
    assert call.summary == rig.processor.conversation("a").pending[-1]


def test_our_boundary_says_by_hand_what_a_span_inside_has_told(rig: Rig) -> None:
    """``fail`` gives what stands there already."""
    with tool_call("look", tracer_provider=rig.provider) as call:
        fail(tool(rig, "look", call.span))
        summary = call.fail("no route to host")
    assert summary == rig.processor.conversation("a").pending[-1]
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)


def test_our_boundary_inside_a_framework_s_span_is_the_same_call(rig: Rig) -> None:
    """The boundary holds the live exception and tells it; the framework's own words add nothing."""
    outer = tool(rig, "look", gen_ai__tool__call__id="c1")
    with (
        trace.use_span(outer, end_on_exit=False),
        pytest.raises(ConnectionError),
        tool_call("look", tracer_provider=rig.provider),
    ):
        raise ConnectionError("no route to host")
    flag(outer, "Error running tool (non-fatal)")
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)


@pytest.mark.parametrize("report_first", [True, False])
def test_a_hook_on_the_outer_span_and_the_inner_span_tell_one_failure(rig: Rig, report_first: bool) -> None:
    """In either order."""
    outer = tool(rig, "look")
    inner = tool(rig, "look", outer)
    error = ConnectionError("no route to host")
    if not report_first:
        fail(inner, error)
    with trace.use_span(outer, end_on_exit=False):
        summary = report_error(error, tool="look")
    if report_first:
        flag(inner, "in other words")
    flag(outer, "in other words")
    assert summary == rig.processor.conversation("a").pending[-1]
    assert (["other", "look"], 2) == (told(rig), rig.processor.stats().seen)


def test_what_the_outer_span_knows_better_stands_on_it(rig: Rig) -> None:
    """With the reference of the record; the inner one, for the model, was told first."""
    with contextlib.suppress(ConnectionError), tool_call("look", tracer_provider=rig.provider) as call:
        flag(tool(rig, "look", call.span))
        raise ConnectionError("no route to host")
    assert rig.provider.force_flush()
    (outer,) = [
        s for s in rig.exporter.get_finished_spans() if s.context.span_id == call.span.get_span_context().span_id
    ]
    assert call.summary is not None
    assert call.summary.ref == (outer.attributes or {})["error_hygiene.ref"]
    assert "error_hygiene.line" not in (outer.attributes or {})
    (event,) = outer.events
    assert "ConnectionError: no route to host" in str((event.attributes or {})["exception.stacktrace"])


@pytest.mark.parametrize(
    ("tool_a", "id_a", "tool_b", "id_b", "same"),
    [
        ("x", None, "x", None, True),
        ("x", "1", "x", None, True),
        ("x", "1", "x", "2", False),
        ("x", "<not specified>", "x", "2", True),
        ("mcp__shop__x", "1", "x", None, True),
        ("x", None, "y", None, False),
        ("x", None, "xx", None, False),
    ],
)
def test_nested_spans_are_of_one_call(tool_a: str, id_a: str | None, tool_b: str, id_b: str | None, same: bool) -> None:
    """By the tool's name, prefixed by an MCP client or not, unless ids say otherwise."""
    assert same is same_call(tool_a, id_a, tool_b, id_b) is same_call(tool_b, id_b, tool_a, id_a)


def test_what_is_remembered_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parents that never end, spans that never end, failures without number; the newest are kept."""
    monkeypatch.setattr(nested_module, "_MAX_SPANS", 20)
    observer, kept = rig.processor._observer, []
    for _ in range(60):
        root = agent(rig, "main")
        for _ in range(40):
            fail(tool(rig, "look", root))
        kept.append(root)
    assert len(observer.climbing) <= 20
    assert all(len(each) <= 32 for each in observer.climbing.values())
    assert len(observer._nested._ended) <= 20


def test_open_spans_are_bounded_and_let_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that never end the newest are known, and none is held alive."""
    monkeypatch.setattr("otel_error_hygiene.machine.processor.MAX_OPEN", 100)
    monkeypatch.setattr(lineage_module, "MAX_OPEN", 100)
    spans: list[Span] = [start(rig, "never ends") for _ in range(1000)]
    living = rig.processor._observer.lineage.open
    assert len(living) <= 100
    newest: object = living[spans[-1].get_span_context().span_id]()
    assert spans[-1] is newest
    del newest
    del spans[:]
    assert not any(each() for each in living.values())
    for _ in range(10):
        start(rig, "ends").end()
    assert len(living) <= 100


def test_a_process_without_failures_remembers_nothing(rig: Rig) -> None:
    """All that ended well is gone from every memory."""
    observer = rig.processor._observer
    before = len(observer.climbing)
    root = agent(rig, "main")
    tool(rig, "look", root).end()
    root.end()
    assert ({}, before) == (observer.lineage.open, len(observer.climbing))
