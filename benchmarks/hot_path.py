"""What our processor costs on the tool's thread, beside the stock SDK in the same run.

    python benchmarks/hot_path.py [--quick]

Rounds of stock and ours take turns, so that a machine whose speed drifts slows both. Each call is timed alone; the
table gives the ratio of the 10th percentiles and of the medians, which survive a noisy machine; single times do not.
Background work (export, delivery) is done between the rounds, for both. The exporter takes everything and does nothing.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import sys
import tempfile
import threading
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings, _guard, conversation, tool_call
from otel_error_hygiene._sdk import span_attributes
from otel_error_hygiene.conventions import recognise_span

# No two failures say the same: what is remembered of a message must not help.
_PORTS = itertools.count(10_000)
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "call_1"}


class Sink(SpanExporter):
    """Takes everything."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


class Setup(NamedTuple):
    """A provider and how to let its background work finish."""

    provider: TracerProvider
    settle: Callable[[], object]


def stock() -> Setup:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Sink(), schedule_delay_millis=3_600_000, max_queue_size=100_000))
    return Setup(provider, provider.force_flush)


def ours(folder: Path, *, beside_another: bool = False) -> Setup:
    provider = TracerProvider(shutdown_on_exit=False)
    processor = ErrorHygieneSpanProcessor(Sink(), settings=Settings(store_path=folder, store_max_bytes=1 << 30))
    provider.add_span_processor(processor)
    if beside_another:
        provider.add_span_processor(BatchSpanProcessor(Sink(), schedule_delay_millis=3_600_000, max_queue_size=100_000))

    def settle() -> None:
        provider.force_flush()
        processor.conversation("bench").clear()

    return Setup(provider, settle)


def _f01(n: int) -> None:
    _f02(n)


def _f02(n: int) -> None:
    _f03(n)


def _f03(n: int) -> None:
    _f04(n)


def _f04(n: int) -> None:
    if n:
        _f01(n - 1)
    else:
        raise ConnectionError(f"connection to 127.0.0.1 port {next(_PORTS)} refused")


def fail_deep() -> None:
    """Raise through 32 frames, wrapped once on the way: 16 frames each, no two neighbours alike."""
    try:
        _f01(6)
    except ConnectionError as error:
        _wrap(error)


def _wrap(error: ConnectionError) -> None:
    raise RuntimeError("the search backend failed") from error


def ok_span(setup: Setup) -> Callable[[], None]:
    tracer = setup.provider.get_tracer("bench")

    def run() -> None:
        with tracer.start_as_current_span("work", attributes={"a": 1}):
            pass

    return run


def ok_tool(setup: Setup) -> Callable[[], None]:
    tracer = setup.provider.get_tracer("bench")

    def run() -> None:
        with tracer.start_as_current_span("execute_tool search", attributes=TOOL):
            pass

    return run


def failed_span(setup: Setup, depth: int = 1) -> Callable[[], None]:
    tracer = setup.provider.get_tracer("bench")

    def nested(left: int) -> None:
        with tracer.start_as_current_span("execute_tool search", attributes=TOOL):
            if left > 1:
                nested(left - 1)
            else:
                fail_deep()

    return lambda: _swallow(lambda: nested(depth))


def failed_call(setup: Setup, depth: int = 1) -> Callable[[], None]:
    def nested(left: int) -> None:
        with tool_call("search", call_id="call_1", tracer_provider=setup.provider):
            if left > 1:
                nested(left - 1)
            else:
                fail_deep()

    return lambda: _swallow(lambda: nested(depth))


def _swallow(run: Callable[[], None]) -> None:
    try:
        run()
    except RuntimeError:
        return


def sample(run: Callable[[], None], calls: int) -> list[int]:
    """Time each of ``calls`` calls, in nanoseconds."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(calls):
        begun = clock()
        run()
        times.append(clock() - begun)
    return times


def percentile(times: list[int], percent: int) -> float:
    """Return a percentile, in nanoseconds."""
    return float(sorted(times)[min(len(times) * percent // 100, len(times) - 1)])


class Row(NamedTuple):
    name: str
    goal: str
    a: tuple[Setup, Callable[[], None]]
    b: tuple[Setup, Callable[[], None]]
    calls: int


def compare(row: Row, rounds: int) -> str:
    """Run one row, and return its line."""
    ours_times: list[int] = []
    stock_times: list[int] = []
    for number in range(rounds + 1):
        for (setup, run), all_times in ((row.b, stock_times), (row.a, ours_times)):
            gc.collect()
            gc.disable()
            found = sample(run, row.calls)
            gc.enable()
            setup.settle()
            if number:  # the first round warms up
                all_times.extend(found)
    p10 = percentile(ours_times, 10) / percentile(stock_times, 10)
    median = statistics.median(ours_times) / statistics.median(stock_times)
    return f"{row.name:<52} {p10:>6.2f} {median:>8.2f}   {row.goal}"


def on_end_latency(folder: Path, rounds: int, *, busy: bool) -> str:
    """Time ``on_end`` alone for failed spans; beside one thread that never lets go of the interpreter if ``busy``."""
    setup = ours(folder)
    processor = setup.provider._active_span_processor._span_processors[0]
    times: list[int] = []
    inner = processor.on_end

    def timed(span: ReadableSpan) -> None:
        begun = time.perf_counter_ns()
        inner(span)
        times.append(time.perf_counter_ns() - begun)

    processor.on_end = timed  # type: ignore[method-assign]
    stop = threading.Event()
    spinner = threading.Thread(target=lambda: _spin(stop), daemon=True)
    if busy:
        spinner.start()
    run = failed_span(setup)
    for _ in range(rounds):
        sample(run, 50)
        if not busy:
            setup.settle()
    stop.set()
    if busy:
        spinner.join()
    setup.settle()
    setup.provider.shutdown()
    where = "beside one CPU-bound thread" if busy else "idle interpreter"
    p50, p99 = percentile(times, 50) / 1e6, percentile(times, 99) / 1e6
    return f"on_end of a failed span, {where:<28} p50 {p50:.3f} ms, p99 {p99:.3f} ms"


def recognition(calls: int) -> list[str]:
    """Time ``recognise_span`` alone, of spans that are no tool calls, warm."""
    spans: dict[str, dict[str, str | int]] = {
        "a span of nothing that we know": {"http.request.method": "GET", "url.full": "http://127.0.0.1/x", "n": 1},
        "a model call": {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"},
        "a step of OpenInference": {"openinference.span.kind": "CHAIN", "input.value": "{}"},
    }
    tracer, lines = TracerProvider(shutdown_on_exit=False).get_tracer("bench"), []
    for name, attributes in spans.items():
        span = tracer.start_span("GET /x", attributes=attributes)
        span.end()
        assert isinstance(span, ReadableSpan)
        held = span_attributes(span)
        best = min(timeit.repeat(lambda span=span, held=held: recognise_span(span, held), number=calls, repeat=5))  # type: ignore[misc]
        lines.append(f"recognise {name:<52} {best / calls * 1e6:.2f} us   <= 1.00")
    return lines


def _spin(stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        for _ in range(10_000):
            number = (number * 31 + 7) % 1_000_003


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a few rounds only")
    rounds = 5 if parser.parse_args().quick else 40
    _guard.reraise = True
    with tempfile.TemporaryDirectory() as name, conversation("bench"):
        folder = Path(name)
        base, alone, beside = stock(), ours(folder / "alone"), ours(folder / "beside", beside_another=True)
        rows = [
            Row("ok span, no tool", "<= 1.10", (alone, ok_span(alone)), (base, ok_span(base)), 400),
            Row("ok tool span", "<= 1.10", (alone, ok_tool(alone)), (base, ok_tool(base)), 400),
            Row(
                "failed tool span, 32-frame chain",
                "<= 1.20",
                (alone, failed_span(alone)),
                (base, failed_span(base)),
                40,
            ),
            Row(
                "the same through tool_call, beside another processor",
                "<= 1.00",
                (beside, failed_call(beside)),
                (base, failed_span(base)),
                40,
            ),
            Row(
                "the same through tool_call, ours alone",
                "<= 0.35",
                (alone, failed_call(alone)),
                (base, failed_span(base)),
                40,
            ),
            Row(
                "three nested, one failure, tool_call, ours alone",
                "<= 0.50",
                (alone, failed_call(alone, 3)),
                (base, failed_span(base, 3)),
                20,
            ),
            Row(
                "three nested, one failure, tool_call, beside another",
                "<= 0.50",
                (beside, failed_call(beside, 3)),
                (base, failed_span(base, 3)),
                20,
            ),
        ]
        print(f"Python {sys.version.split()[0]}; ratio ours / stock, same run\n")
        print(f"{'':<52} {'p10':>6} {'median':>8}   goal")
        for row in rows:
            print(compare(row, rounds), flush=True)
        print()
        print(*recognition(rounds * 5000), sep="\n", flush=True)
        for busy in (False, True):
            print(on_end_latency(folder / f"latency{busy}", max(rounds // 2, 4), busy=busy), flush=True)
        for setup in (base, alone, beside):
            setup.provider.shutdown()


if __name__ == "__main__":
    main()
