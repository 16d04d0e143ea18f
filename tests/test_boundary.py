"""The tool boundary: what it does to the exception, how calls nest, what is a failure, with and without a provider."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult
from opentelemetry.trace import NoOpTracerProvider, StatusCode

from otel_error_hygiene import (
    ConfigurationError,
    ErrorHygieneSpanProcessor,
    Settings,
    boundary,
    conversation,
    tool_call,
)
from tests.conftest import Rig

NOT_FOUND = "[error] look: not_found. Try broader search or different category."


class RecordOnly(Sampler):
    """Records every span and has none exported, as the SDK's own decision of that name says."""

    def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
        """Decide alike for all."""
        return SamplingResult(Decision.RECORD_ONLY)

    def get_description(self) -> str:
        """Name it."""
        return "RecordOnly"


def three_deep(rig: Rig) -> None:
    """One exception, raised in the innermost of three boundaries."""
    with (
        tool_call("plan", tracer_provider=rig.provider),
        tool_call("search", tracer_provider=rig.provider),
        tool_call("look", tracer_provider=rig.provider),
    ):
        raise KeyError("no such thing")


def test_one_exception_through_three_boundaries_is_one_failure_of_the_innermost(rig: Rig) -> None:
    """Its line names the tool that raised; the outer spans are kept and failed, but say nothing to the agent."""
    with conversation("a") as errors:
        with pytest.raises(KeyError):
            three_deep(rig)
        assert re.fullmatch(re.escape(NOT_FOUND) + " ref=[0-9a-f]{8}", errors.render())

    stats = rig.processor.stats()
    assert (1, 1, {}) == (stats.seen, stats.recorded, stats.lost)
    assert rig.provider.force_flush()
    spans = {span.name: span for span in rig.exporter.get_finished_spans()}
    assert {"execute_tool plan", "execute_tool search", "execute_tool look"} == set(spans)
    assert {StatusCode.ERROR} == {span.status.status_code for span in spans.values()}
    assert {True} == {(span.attributes or {})["error_hygiene.kept"] for span in spans.values()}
    assert ["execute_tool look"] == [n for n, span in spans.items() if "error_hygiene.line" in (span.attributes or {})]


def test_two_exceptions_through_two_boundaries_are_two_failures(rig: Rig) -> None:
    """An outer tool that raises its own is a failure of its own, even from the same cause."""

    @tool_call("look", tracer_provider=rig.provider)
    def look() -> None:
        raise KeyError("no such thing")

    @tool_call("plan", tracer_provider=rig.provider)
    def plan() -> None:
        try:
            look()
        except KeyError as error:
            raise RuntimeError("the plan fails") from error

    with conversation("a") as errors:
        with pytest.raises(RuntimeError):
            plan()
        assert ["look", "plan"] == [each.tool for each in errors.pending]
    assert 2 == rig.processor.stats().seen


def test_the_same_exception_raised_again_later_is_another_failure(rig: Rig) -> None:
    """A module-level exception object that two calls raise: the second call failed too."""
    shared = KeyError("no such thing")
    with conversation("a") as errors:
        for _ in range(2):
            with pytest.raises(KeyError), tool_call("look", tracer_provider=rig.provider):
                raise shared
        (summary,) = errors.pending
        assert 2 == summary.attempt
    assert 2 == rig.processor.stats().seen


@pytest.mark.parametrize(
    "kind",
    [asyncio.CancelledError, concurrent.futures.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit],
    ids=lambda kind: f"{kind.__module__}.{kind.__name__}",
)
def test_a_cancelled_call_tells_nothing_and_clears_nothing(rig: Rig, kind: type[BaseException]) -> None:
    """It is neither failure nor success; its span goes the way of its trace."""
    with conversation("a") as errors:
        with pytest.raises(KeyError), tool_call("look", call_id="c1", tracer_provider=rig.provider):
            raise KeyError("no such thing")
        before = errors.render()
        with pytest.raises(kind), tool_call("look", call_id="c1", tracer_provider=rig.provider) as call:
            raise kind
        assert call.summary is None
        assert f"{before} (1 turn ago)" == errors.render()
    assert 1 == rig.processor.stats().seen
    assert rig.provider.force_flush()
    cancelled = rig.exporter.get_finished_spans()[-1]
    assert "error_hygiene.line" not in (cancelled.attributes or {})


def test_the_exception_that_comes_out_is_untouched(rig: Rig) -> None:
    """The very object; nothing in its __dict__ or __notes__; its traceback is what Python makes without us."""

    class ToolError(Exception):
        """One with state."""

    def fail(error: ToolError) -> None:
        raise error

    def bare(error: ToolError) -> None:
        fail(error)

    def bounded(error: ToolError) -> None:
        with tool_call("look", tracer_provider=rig.provider):
            fail(error)

    seen = []
    for run in (bare, bounded):
        error = ToolError("why")
        error.code = 7  # type: ignore[attr-defined]
        error.add_note("a note")
        with pytest.raises(ToolError) as caught:
            run(error)
        assert error is caught.value
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]
        seen.append((frames[1:], error.__dict__, error.__cause__, error.__context__, error.args))
        assert run.__name__ == frames[0]
    assert seen[0] == seen[1]
    assert {"code": 7, "__notes__": ["a note"]} == seen[1][1]


@pytest.mark.parametrize("arguments", ["city=Paris", ["Paris"], 7])
def test_arguments_that_are_no_mapping_are_refused_with_what_would_be_right(arguments: Any) -> None:
    """A mistake in the code of the loop, so it is heard, before the tool runs."""
    with pytest.raises(ConfigurationError, match=r'"arguments" is a (str|list|int); it must be a mapping'):
        tool_call("look", arguments=arguments)


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    """Nothing could be told of a tool without a name."""
    with pytest.raises(ConfigurationError, match=r'"name" is .*; it must be the name of the tool'):
        tool_call(name)


@pytest.fixture
def unsampled(settings: Settings, request: pytest.FixtureRequest) -> Iterator[tuple[Rig, TracerProvider]]:
    """Give a rig, and a provider with its processor and a sampler that has nothing exported."""
    rig = Rig(settings)
    provider = TracerProvider(sampler=request.param, shutdown_on_exit=False)
    provider.add_span_processor(rig.processor)
    yield rig, provider
    provider.shutdown()


@pytest.mark.parametrize("unsampled", [ALWAYS_OFF, RecordOnly()], ids=["DROP", "RECORD_ONLY"], indirect=True)
@pytest.mark.parametrize("raises", [True, False])
def test_an_unsampled_failure_is_told_without_a_ref_and_counted_as_lost(
    unsampled: tuple[Rig, TracerProvider], raises: bool
) -> None:
    """Whether it raises or is data; its success prunes; nothing of it is exported."""
    rig, provider = unsampled

    def look() -> None:
        with tool_call("look", tracer_provider=provider) as call:
            if raises:
                raise KeyError("no such thing")
            call.fail(KeyError("no such thing"))

    with conversation("a") as errors:
        for times in (1, 2):
            with contextlib.suppress(KeyError):
                look()
            assert NOT_FOUND + (" x2" if times == 2 else "") == errors.render()
            stats = rig.processor.stats()
            assert (times, 0, {"unsampled": times}) == (stats.seen, stats.recorded, stats.lost)
        with tool_call("look", tracer_provider=provider):
            pass
        assert "[recovered] Previous tool errors resolved. Proceeding with task." == errors.render()
    assert rig.processor.force_flush()
    assert () == rig.exporter.get_finished_spans()


@pytest.mark.parametrize(
    "provider", [None, NoOpTracerProvider(), TracerProvider(shutdown_on_exit=False)], ids=["global", "noop", "bare"]
)
def test_without_a_processor_there_is_a_line_and_a_prune(provider: trace.TracerProvider | None) -> None:
    """An agent without telemetry, or with somebody else's only."""
    with conversation("no telemetry") as errors:
        errors.clear()
        with pytest.raises(KeyError), tool_call("look", tracer_provider=provider) as call:
            raise KeyError("no such thing")
        assert NOT_FOUND == errors.render() == str(call.summary)
        with tool_call("look", tracer_provider=provider) as call:
            call.result({"error": "403 Forbidden"})
        assert ["not_found", "auth"] == [each.error_class for each in errors.pending]
        errors.turn()
        with tool_call("look", tracer_provider=provider):
            pass
        assert () == errors.pending


@pytest.mark.parametrize("ours_first", [True, False])
def test_other_processors_still_get_the_exception_with_its_stack(
    settings: Settings, tmp_path: Path, ours_first: bool
) -> None:
    """A pipeline beside ours sees what ``record_exception`` would have given it, once, even for nested calls."""
    theirs = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    ours = ErrorHygieneSpanProcessor(None, settings=settings)
    for processor in (ours, SimpleSpanProcessor(theirs)) if ours_first else (SimpleSpanProcessor(theirs), ours):
        provider.add_span_processor(processor)

    def read() -> None:
        raise FileNotFoundError(2, "No such file", str(tmp_path))

    with pytest.raises(FileNotFoundError) as caught, tool_call("look", tracer_provider=provider):
        read()

    (span,) = theirs.get_finished_spans()
    (event,) = span.events
    values = event.attributes or {}
    assert ("exception", "FileNotFoundError", str(caught.value)) == (
        event.name,
        values["exception.type"],
        values["exception.message"],
    )
    stack = str(values["exception.stacktrace"]).splitlines()
    python_s = "".join(traceback.format_exception(caught.value)).splitlines()
    assert python_s[-3:-1] == stack[-3:-1]  # the raising frame and its source line, as Python writes them
    assert python_s[-1] == stack[-1]
    assert StatusCode.ERROR is span.status.status_code
    provider.shutdown()


@pytest.mark.faults
@pytest.mark.parametrize("broken", ["mask", "capture", "record", "canonical", "failure_in"])
def test_a_fault_inside_the_boundary_never_reaches_the_tool(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """The tool's value and its exception come out; the span ends; the context is clean; we log once a place."""

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(boundary, broken, fails)
    result = {"error": "403 Forbidden"}
    before = rig.processor.stats().internal_errors
    for _ in range(2):
        with tool_call("look", arguments={"city": "Oslo"}, tracer_provider=rig.provider) as call:
            call.result(result)
        with (
            pytest.raises(KeyError) as caught,
            tool_call("look", arguments={"city": "Oslo"}, tracer_provider=rig.provider),
        ):
            raise KeyError("no such thing")
        assert ("no such thing",) == caught.value.args
        assert trace.INVALID_SPAN is trace.get_current_span()

    assert before < rig.processor.stats().internal_errors
    said = [record.getMessage() for record in caplog.records if record.name == "otel_error_hygiene"]
    assert said
    assert len(set(said)) == len(said)
