"""What the demo prints. Every number is measured in the run that it shows."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, Final, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..model import ExceptionNode, ForensicRecord
from .demo_agent import TURNS, Raw, Run, Turn
from .demo_tokens import Tokenizer

_FRAME: Final = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')


def count_frames(stacktrace: str) -> int:
    """Return the frames of a stack text, those of its whole chain."""
    return sum(1 for line in stacktrace.splitlines() if _FRAME.fullmatch(line))


class View:
    """Print a run.

    Args:
        console: Where to.
        naive: Show the naive agent's prompt beside ours.
        tokenizer: Counts tokens; None: characters only.
    """

    def __init__(self, console: Console, *, naive: bool = True, tokenizer: Tokenizer | None = None) -> None:
        self._console = console
        self._naive = naive
        self._tokenizer = tokenizer
        self._overflow: Literal["crop", "ellipsis"] = "crop" if console.options.ascii_only else "ellipsis"
        self._excerpted = 0
        """How many tracebacks were quoted; those are only named from then on."""

    # --- the pieces, from top to bottom -------------------------------------------------------

    def intro(self, url: str) -> None:
        """Say what will be seen."""
        self._say(
            "An agent refunds an order. Its model is a script; its tools, their failures and the prompts are real. "
            f"The tools call a local server at {url}."
        )
        if self._naive:
            self._say(
                "Before each model call you see what the prompt holds about errors: on the left in a naive agent, "
                "which appends each traceback to its history; on the right with otel-error-hygiene."
            )

    def turn(self, turn: Turn) -> None:
        """Show one turn: what the prompt held, what the model asked for, what became of it."""
        self._heading(f"Turn {turn.number} of {TURNS}")
        self._prompts(turn)
        if turn.step is None:
            self._label("model", "answers the user.")
            return
        arguments = ", ".join(f"{name}={value!r}" for name, value in turn.step.arguments.items())
        waits = f"waits {turn.waited_seconds} s, as its prompt says, and " if turn.waited_seconds else ""
        self._label("model", f"{waits}calls {turn.step.tool}({arguments})")
        if turn.error is None:
            self._label("tool", f"ok: {turn.result}")
        else:
            self._label("tool", f"raised {turn.error}")
        if turn.told is not None:
            self._label("agent", "is told this line; the full record is stored:")
            self._verbatim(str(turn.told))
        if turn.pruned:
            refs = ", ".join(f"{summary.tool} ref={summary.ref}" for summary in turn.pruned)
            self._label("pruned", f"this success resolves {refs}")

    def record(self, record: ForensicRecord) -> None:
        """Show one whole record."""
        self._heading(f"Record {record.ref} of {record.summary.tool}, recalled after the prune")
        self._label("told", f"{_clock(record.told_at_ns)}, in these words:")
        self._verbatim(record.line)
        self._label("pruned", f"{_clock(record.pruned_at_ns)}, by {record.pruned_by}")
        summary = record.summary
        self._label(
            "class", f"{summary.error_class}, bucket {summary.bucket}, recoverable by the agent: {summary.recoverable}"
        )
        self._label("trace", f"{record.trace_id}, span {record.span_id}")
        for where, facts in _facts(record.exception):
            self._label("facts", f"{_pairs(facts)} ({where})")
        shown = {key: value for key, value in record.attributes.items() if key.startswith(("gen_ai.", "error."))}
        self._label("attributes", _pairs(shown))
        self._label("stack", f"{count_frames(record.exception_stacktrace)} frames, the root cause first:")
        for line in _stack_lines(record.exception_stacktrace):
            self._console.print(Text(line), no_wrap=True, overflow=self._overflow, crop=False)

    def totals(self, run: Run, recalled: int) -> None:
        """Show what errors cost over the run."""
        self._heading(f"Totals: errors in the {len(run.turns)} prompts of this run")
        table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
        table.add_column("")
        if self._naive:
            table.add_column("naive agent", justify="right")
        table.add_column("otel-error-hygiene", justify="right")
        for unit, count in self._units():
            naive = sum(count(raw.text) for turn in run.turns for raw in turn.naive)
            ours = sum(count(turn.ours) for turn in run.turns)
            self._row(table, f"{unit}, all prompts", naive, ours)
        last = run.turns[-1]
        self._row(table, "characters, last prompt", sum(len(raw.text) for raw in last.naive), len(last.ours))
        self._console.print(table)
        if self._naive:
            self._say("Each prompt is sent whole, so what stays in the history is paid for at every turn.")
        self._say(f"{recalled} of {len(run.failures)} failures can be recalled in full.")

    def backend(self, label: str, *, acknowledged: int, recorded: int, link: str, guessed: bool) -> None:
        """Say what the backend has proven, and where to look."""
        self._heading("Backend")
        if recorded and acknowledged == recorded:
            self._say(f"{label} acknowledged all {recorded} failures. The failing trace in Jaeger:")
        else:
            self._say(
                f"{label} acknowledged {acknowledged} of {recorded} failures. Nothing is lost: the rest waits in the "
                "store, and this sends it once the backend is there:"
            )
            self._verbatim(f"{_command()} deliver")
            self._say("The failing trace in Jaeger, once it has arrived:")
        self._verbatim(link)
        if guessed:
            self._say("(The address is a guess, Jaeger's usual one; JAEGER_URL names another.)")

    def store(self, path: str, ref: str, option: str, *, exported: bool) -> None:
        """Say where the records are, and how to see them again."""
        self._heading("See for yourself")
        if not exported:
            self._say(
                "No OTEL_EXPORTER_OTLP_ENDPOINT is set, so nothing left this machine. "
                "The records stand in the local store:"
            )
        else:
            self._say("The records also stand in the local store:")
        self._verbatim(path)
        self._verbatim(f"{_command()} list{option}")
        self._verbatim(f"{_command()} show {ref}{option}")

    def problems(self, found: Sequence[str]) -> None:
        """Say what did not happen as shown."""
        self._heading("This run did not do what it shows")
        for words in found:
            self._say(f"- {words}")

    def took(self, seconds: float, waited: float) -> None:
        """Say how long it took."""
        self._say(f"It took {seconds:.1f} s, {waited:.0f} s of them the wait that the server had asked for.")

    # --- how ----------------------------------------------------------------------------------

    def _units(self) -> Iterator[tuple[str, Callable[[str], int]]]:
        yield "characters", len
        if self._tokenizer is not None:
            yield f"tokens ({self._tokenizer.name})", self._tokenizer.count

    def _row(self, table: Table, what: str, naive: int, ours: int) -> None:
        table.add_row(what, *([f"{naive:,}"] if self._naive else []), f"{ours:,}")

    def _prompts(self, turn: Turn) -> None:
        if not turn.ours and not (self._naive and turn.naive):
            self._label("prompt", "holds nothing about errors.")
            return
        table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, show_footer=True, expand=True)
        if self._naive:
            size = self._size([raw.text for raw in turn.naive])
            table.add_column("naive agent's prompt", footer=size, ratio=1, overflow=self._overflow, no_wrap=True)
        table.add_column("with otel-error-hygiene", footer=self._size([turn.ours]), ratio=1, overflow="fold")
        ours = Text(turn.ours or "(nothing)", style="" if turn.ours else "dim")
        table.add_row(*([Text("\n").join(self._excerpts(turn.naive))] if self._naive else []), ours)
        self._console.print(table)

    def _excerpts(self, naive: Sequence[Raw]) -> Iterator[Text]:
        """Quote the first line of each new traceback and its error; name those that were quoted before."""
        for number, raw in enumerate(naive):
            if number < self._excerpted:
                yield Text(f"[{raw.error}, {len(raw.text):,} characters]", style="dim")
                continue
            yield Text(raw.text.partition("\n")[0])
            yield Text(f"  ... {len(raw.text.splitlines()) - 2} more lines ...", style="dim")
            yield Text(raw.headline)
        self._excerpted = len(naive)

    def _size(self, texts: Sequence[str]) -> str:
        return ", ".join(f"{sum(map(count, texts)):,} {unit.partition(' ')[0]}" for unit, count in self._units())

    def _heading(self, words: str) -> None:
        self._console.print()
        self._console.rule(Text(words, style="bold"), align="left", characters="-")

    def _label(self, label: str, words: str) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=10, style="bold")
        grid.add_column(overflow="fold")
        grid.add_row(Text(label), Text(words))
        self._console.print(grid)

    def _say(self, words: str) -> None:
        self._console.print(Text(words))

    def _verbatim(self, words: str) -> None:
        """Print what may be copied: never wrapped."""
        self._console.print(Text(f"  {words}", style="green"), soft_wrap=True)


def _facts(node: ExceptionNode | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    while node is not None:
        if node.facts:
            yield node.type.rpartition(".")[2], node.facts
        node = node.cause or node.context


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _stack_lines(stacktrace: str) -> Iterator[str]:
    """Lay a stack text out with one line for each frame: place, function, source line."""
    rows: list[tuple[str, str, str] | str] = []
    lines = stacktrace.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        frame = _FRAME.fullmatch(line)
        if frame is not None:
            path = PurePath(frame["file"])
            source = following.strip() if following.startswith("    ") else ""
            rows.append((f"{path.parent.name}/{path.name}:{frame['line']}", frame["function"], source))
        elif line and not line.startswith(("    ", "Traceback ")):
            rows.append(line)
    places = max((len(row[0]) for row in rows if isinstance(row, tuple)), default=0)
    functions = max((len(row[1]) for row in rows if isinstance(row, tuple)), default=0)
    for row in rows:
        if isinstance(row, str):
            yield f"  {row}"
        else:
            yield f"    {row[0]:<{places}}  {row[1]:<{functions}}  {row[2]}"


def _clock(at_ns: int | None) -> str:
    if at_ns is None:
        return "never"
    return f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%H:%M:%S.%f}"[:-3] + " UTC"


def _command() -> str:
    """Return what to type for our command: its path where it was started by one and the shell would not find it."""
    name = "otel-error-hygiene"
    started = Path(sys.argv[0])
    if started.name != name or shutil.which(name) is not None:
        return name
    return os.path.relpath(started)
