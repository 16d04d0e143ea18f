"""Three cases from the field, by the span API alone: a deep chain over HTTP, secrets in texts, threads and tasks."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from otel_error_hygiene import ErrorSummary, conversation, recall
from tests.conftest import Rig

KEY = "sk-live-EXAMPLE0000000000000000"
Answer = tuple[str, int | Exception, dict[str, str]]
VARIANTS: dict[str, Answer] = {
    "delta": ("GET", 429, {"Retry-After": "30"}),
    "date": ("GET", 503, {"Retry-After": "Mon, 30 Nov 2026 18:05:00 GMT"}),
    "garbage": ("GET", 429, {"Retry-After": "soon"}),
    "post_read_timeout": ("POST", httpx.ReadTimeout("timed out"), {}),
    "connect_refused": ("POST", httpx.ConnectError("[Errno 111] Connection refused"), {}),
}


def tool(name: str, call_id: str, agent: str = "main", **more: str) -> dict[str, str]:
    """Return the GenAI attributes of a tool call's span."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.agent.name": agent,
    } | more


class BackendError(RuntimeError):
    """What the tool's own layer makes of an HTTP error."""


def request(method: str, outcome: int | Exception, headers: dict[str, str]) -> None:
    """Ask a server that answers so, at a URL that holds a key."""

    def answer(asked: httpx.Request) -> httpx.Response:
        if isinstance(outcome, Exception):
            raise outcome
        return httpx.Response(outcome, headers=headers, text="x" * 4000, request=asked)

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        url = f"https://api.search.example/v1/q?api_key={KEY}"
        client.request(method, url).raise_for_status()


def deep(depth: int, answer: Answer) -> None:
    """Pass through one frame for each step of depth."""
    if depth:
        deep(depth - 1, answer)
    else:
        request(*answer)


def wrap(depth: int, answer: Answer) -> None:
    """Pass through one frame for each step of depth, and wrap what comes."""
    if depth:
        wrap(depth - 1, answer)
        return
    try:
        deep(14, answer)
    except httpx.HTTPError as error:
        raise BackendError("search backend failed") from error


def search(rig: Rig, answer: Answer) -> tuple[ErrorSummary, ReadableSpan]:
    """Let the tool fail below two parents; return the one summary, and the span that the exporter got."""

    def agent() -> None:
        with (
            rig.tracer.start_as_current_span("invoke_agent main"),
            rig.tracer.start_as_current_span("chain step"),
            rig.tracer.start_as_current_span("execute_tool search_web", attributes=tool("search_web", "c0")),
        ):
            wrap(14, answer)

    with conversation("a") as errors:
        with pytest.raises(BackendError):
            agent()
        (summary,) = errors.pending
        assert str(summary) == errors.render()
    assert rig.provider.force_flush()
    (span,) = [each for each in rig.exporter.get_finished_spans() if each.name.startswith("execute_tool")]
    return summary, span


@pytest.mark.parametrize(
    ("variant", "error_class", "recoverable"),
    [
        ("delta", "rate_limit", "YES"),
        ("date", "upstream", "YES"),
        ("garbage", "rate_limit", "YES"),
        ("post_read_timeout", "connectivity", "MAYBE"),
        ("connect_refused", "connectivity", "YES"),
    ],
)
def test_the_http_cause_decides_and_not_the_words_around_it(
    rig: Rig, variant: str, error_class: str, recoverable: str
) -> None:
    """The wrapper says nothing, and the URL says "api_key": the status, or what the transport raised, tells."""
    summary, span = search(rig, VARIANTS[variant])
    assert (error_class, recoverable) == (summary.error_class, summary.recoverable)
    if variant == "delta":
        assert 30 == summary.retry_after_seconds
        assert "Wait 30 seconds and retry. (HTTP 429)" in str(summary)
    elif variant == "date":
        assert summary.retry_after_seconds is None or summary.retry_after_seconds >= 0
    else:
        assert summary.retry_after_seconds is None

    line = str(summary)
    assert len(line) <= 200
    for never in (KEY, "Traceback", "\n", "https:", "xxxx"):
        assert never not in line

    (event,) = [each for each in span.events if each.name == "exception"]
    stack = str((event.attributes or {})["exception.stacktrace"])
    assert "The above exception was the direct cause of the following exception:" in stack
    assert stack.index("httpx.") < stack.index("BackendError: search backend failed")
    assert ", in request\n" in stack
    assert ", in wrap\n" in stack
    assert KEY not in stack


SECRETS = {
    "query": "sk-live-EXAMPLE11111111111111111",
    "bearer": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJlX2V4YW1wbGU",
    "dsn": "hunter2EXAMPLE",
    "aws": "AKIAEXAMPLEEXAMPLE00",
    "env": "ghp_EXAMPLEexample0000000000000000000000",
    "bare": "xoxb-EXAMPLE-000000-abcdef",
}
TEXTS = {
    "query": f"GET https://api.example/v1?api_key={SECRETS['query']}&q=1 -> 401",
    "bearer": f"headers={{'Authorization': 'Bearer {SECRETS['bearer']}'}}",
    "dsn": f"could not connect: postgresql://app:{SECRETS['dsn']}@db.internal:5432/prod",
    "aws": f"SignatureDoesNotMatch for {SECRETS['aws']}",
    "env": f"subprocess failed: GITHUB_TOKEN={SECRETS['env']} git push",
    "bare": f"slack said no to {SECRETS['bare']}",
}


class ToolError(Exception):
    """The wrapper, which repeats the text and adds a note."""


def call_api(text: str) -> None:
    """Fail with a secret in the message, in the cause's message and in a note."""

    def refuse() -> None:
        raise ValueError(text)

    try:
        refuse()
    except ValueError as error:
        wrapped = ToolError(f"wrapped: {text}")
        wrapped.add_note(f"note {text}")
        raise wrapped from error


@pytest.mark.parametrize("name", TEXTS)
def test_a_secret_reaches_neither_the_agent_nor_the_backend(rig: Rig, name: str) -> None:
    """Wherever it stood: message, cause, note, status description, stack text, arguments; in the store too."""
    # A password is a word like any other where nothing around it says what it is; in a URL it is known.
    argument = TEXTS[name] if name == "dsn" else SECRETS[name]
    attributes = tool("call_api", "s1", **{"gen_ai.tool.call.arguments": json.dumps({"k": argument})})
    with conversation("a") as errors:
        with pytest.raises(ToolError), rig.tracer.start_as_current_span("execute_tool call_api", attributes=attributes):
            call_api(TEXTS[name])
        (summary,) = errors.pending
        assert SECRETS[name] not in repr(summary)
    assert rig.provider.force_flush()
    (span,) = rig.exporter.get_finished_spans()
    record = recall(summary.ref or "")
    assert record is not None
    stack = record.exception_stacktrace
    assert ", in call_api\n" in stack
    assert "ToolError: wrapped: " in stack
    if name == "query":
        assert "auth" == summary.error_class  # the 401
    seen = [span.to_json(), str(record), *(str(dict(each.attributes or {})) for each in span.events)]
    assert not [text for text in seen if SECRETS[name] in text]


def run_tool(rig: Rig, agent: str, number: int, *, fails: bool) -> None:
    """Run one call of an agent's tool."""
    attributes = tool("search_web", f"{agent}-{number}", agent)
    with (
        contextlib.suppress(ConnectionError),
        rig.tracer.start_as_current_span("execute_tool search_web", attributes=attributes),
    ):
        if fails:
            raise ConnectionError(f"{agent} down {number}")


@pytest.mark.parametrize("asked", ["before", "after", "never"])
def test_a_pool_without_the_context_loses_no_failure(rig: Rig, asked: str) -> None:
    """Spans become roots of traces of their own that name their agent alone: its conversation is its namesake.

    Until somebody asks for that, nobody is told, and the failures count as unrouted.
    """
    if asked == "before":
        rig.processor.conversation("A")
    with rig.tracer.start_as_current_span("invoke_agent A"), ThreadPoolExecutor(4) as pool:
        for running in [pool.submit(run_tool, rig, "A", n, fails=n % 2 == 0) for n in range(4)]:
            running.result()
    stats = rig.processor.stats()
    assert (2, 2, 0 if asked == "before" else 2) == (stats.seen, stats.recorded, stats.unrouted)
    if asked != "never":
        told = rig.processor.conversation("A")
        assert told is rig.processor.conversation("A")
        # The numbers in the messages vary: one kind of failure. A success on another thread may have resolved one.
        assert {summary.tool for summary in told.pending} <= {"search_web"}
        run_tool(rig, "A", 4, fails=True)
        assert ["search_web"] == [summary.tool for summary in told.pending]
        assert stats.unrouted == rig.processor.stats().unrouted


def test_a_pool_with_the_context_tells_the_right_conversation(rig: Rig) -> None:
    """Copied by hand, as asyncio does by itself: one failure, in the agent's own trace."""
    with conversation("B") as errors:
        errors.turn()
        with rig.tracer.start_as_current_span("invoke_agent B") as agent, ThreadPoolExecutor(4) as pool:
            contexts = [contextvars.copy_context() for _ in range(4)]
            jobs = [pool.submit(c.run, lambda n=n: run_tool(rig, "B", n, fails=n == 0)) for n, c in enumerate(contexts)]
            for running in jobs:
                running.result()
    (summary,) = errors.pending
    assert f"{agent.get_span_context().trace_id:032x}" == summary.trace_id
    assert 1 == rig.processor.stats().seen
    assert trace.INVALID_SPAN is trace.get_current_span()


def test_a_hundred_tasks_of_two_conversations_do_not_cross(rig: Rig) -> None:
    """All of one agent's calls fail, none of the other's: the lines are bounded, and the repeats share one."""

    async def one(agent: str, number: int) -> None:
        with conversation(agent):
            await asyncio.sleep(0)
            run_tool(rig, agent, number, fails=agent == "C")
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(one(agent, number) for number in range(50) for agent in ("C", "D")))

    asyncio.run(main())
    lines = rig.processor.conversation("C").render().splitlines()
    assert "" == rig.processor.conversation("D").render()
    assert 1 == len(lines)  # the numbers in the messages vary: one kind of failure
    assert lines[0].startswith("[escalate] search_web: failed 50 times the same way. Stop retrying; ")
    stats = rig.processor.stats()
    assert (50, 50, 0) == (stats.seen, stats.recorded, stats.unrouted)
