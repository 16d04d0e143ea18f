"""``otel-error-hygiene demo``: an agent's tools fail, the agent gets a line, the engineer gets everything.

No key and no network: the tools call a server that the demo starts on the loopback interface. The
records go into the user's own store, so that ``list`` and ``show`` find them afterwards; with
``OTEL_EXPORTER_OTLP_ENDPOINT`` they go to that backend too.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from ..context.buffer import RECOVERED
from ..errors import HygieneError
from ..forensics.store import label_of
from ..installer import exporter_from_environment
from ..machine.processor import ErrorHygieneSpanProcessor
from ..model import ForensicRecord
from ..settings import Settings
from ..verbs import recall
from .demo_agent import Run, run_agent
from .demo_tokens import find_tokenizer
from .demo_tools import DemoServer, Tools
from .demo_view import View, count_frames

USUAL_JAEGER_URL: Final = "http://localhost:16686"
_DELIVER_MILLIS: Final = 3000
_MIN_FRAMES: Final = 30
_DATE: Final = re.compile(r" \(\d+ turns? ago\)$")


def run_demo(
    console: Console, *, naive: bool = True, jaeger_url: str | None = None, settings: Settings | None = None
) -> int:
    """Run the agent and show what it saw, what was kept, and what was sent.

    Args:
        console: Where to print.
        naive: Show a naive agent's prompt beside ours.
        jaeger_url: Where Jaeger's page is; None: ``JAEGER_URL``, else Jaeger's usual address.
        settings: Settings; None reads ``OTEL_ERROR_HYGIENE_*``.

    Returns:
        0; 1 when the run itself did not do what it shows; 2 when the configuration is unusable. A backend that does
        not answer is said, and is no failure of the run: the records wait in the store.
    """
    begun = time.monotonic()
    try:
        usual = Settings()
        exporter = exporter_from_environment()
    except (HygieneError, ValidationError) as error:
        console.print(Text(str(error)))
        return 2
    view = View(console, naive=naive, tokenizer=find_tokenizer())
    processor = ErrorHygieneSpanProcessor(exporter, settings=settings or usual)
    provider = TracerProvider(sampler=ALWAYS_ON, resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    try:
        with DemoServer() as server:
            view.intro(server.url)
            run = run_agent(Tools(server.url), provider, view.turn)
        if exporter is not None:
            processor.deliver(_DELIVER_MILLIS)
        found = [recall(told.ref) for told in run.failures if told.ref is not None]
        records = [record for record in found if record is not None]
        for record in records[:2]:
            view.record(record)
        view.totals(run, len(records))
        if exporter is not None:
            _say_backend(view, processor, run, jaeger_url)
        if records:
            path = processor.settings.store_path
            option = "" if path == usual.store_path else f" --store {shlex.quote(str(path))}"
            view.store(str(path), records[:2][-1].ref, option, exported=exporter is not None)
        view.took(time.monotonic() - begun, sum(turn.waited_seconds for turn in run.turns))
        problems = [*_problems_of_run(run), *_problems_of_records(run, records)]
        if problems:
            view.problems(problems)
        return 1 if problems else 0
    finally:
        provider.shutdown()


def _resource() -> Resource:
    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: "otel-error-hygiene-demo"}))
    return found


def _say_backend(view: View, processor: ErrorHygieneSpanProcessor, run: Run, jaeger_url: str | None) -> None:
    base = jaeger_url or os.environ.get("JAEGER_URL")
    stats = processor.stats()
    label = "The backend"
    if processor.folder is not None:
        label = label_of(processor.settings.store_path, processor.folder.parent.name)
    view.backend(
        label,
        acknowledged=stats.delivered,
        recorded=stats.recorded,
        link=f"{(base or USUAL_JAEGER_URL).rstrip('/')}/trace/{run.trace_id}",
        guessed=base is None,
    )


def _problems_of_run(run: Run) -> Iterator[str]:
    """Compare what happened with what was to happen."""
    pending: list[str] = []
    for turn in run.turns:
        where = f"Turn {turn.number}"
        lines = [_DATE.sub("", line) for line in turn.ours.splitlines() if line != RECOVERED]
        if lines != pending:
            yield f"{where}: the prompt holds {lines}, and {pending} was pending."
        if (RECOVERED in turn.ours.splitlines()) != (turn.number > 1 and bool(run.turns[turn.number - 2].pruned)):
            yield f"{where}: the note of the recovery stands in the wrong prompt."
        if turn.step is None:
            continue
        if turn.step.fails != (turn.error is not None):
            yield f"{where}: {turn.step.tool} was to {'fail' if turn.step.fails else 'succeed'} and did not."
        if turn.step.fails and turn.told is None:
            yield f"{where}: the agent was not told."
        if turn.error is None:
            pending = []
        elif turn.told is not None:
            pending.append(str(turn.told))
    naive = sum(len(raw.text) for turn in run.turns for raw in turn.naive)
    ours = sum(len(turn.ours) for turn in run.turns)
    if naive <= ours:
        yield f"The naive prompts hold {naive} characters about errors, ours {ours}."


def _problems_of_records(run: Run, records: Sequence[ForensicRecord]) -> Iterator[str]:
    by_ref = {record.ref: record for record in records}
    for told in run.failures:
        record = by_ref.get(told.ref or "")
        if record is None:
            yield f"{told.tool}: its record cannot be recalled. Is the store writable, and OTEL_SDK_DISABLED not set?"
        elif record.line != str(told):
            yield f"{told.tool}: the record says that the agent was told {record.line!r}; it was told {str(told)!r}."
        elif record.pruned_at_ns is None:
            yield f"{told.tool}: its record does not say what resolved it."
    if records and max(count_frames(record.exception_stacktrace) for record in records) < _MIN_FRAMES:
        yield f"No record has a stack of {_MIN_FRAMES} frames."


if __name__ == "__main__":
    getattr(sys.stdout, "reconfigure", lambda **_: None)(errors="backslashreplace")  # as the command line does
    sys.exit(run_demo(Console()))
