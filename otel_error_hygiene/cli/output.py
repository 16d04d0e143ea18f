"""What commands print: text that cannot steer the terminal, times, sizes, JSON, and how they end."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from .._guard import logger
from ..settings import Settings


class Exit(IntEnum):
    """The table in the package's docstring."""

    DONE = 0
    INCOMPLETE = 1
    USAGE = 2
    STORE = 3


EXIT_CODES = (
    "Exit codes: 0 done; 1 not everything done (still pending or quarantined, no match, or several matches); "
    "2 wrong usage or configuration; 3 the store cannot be read."
)

# C0 and C1 controls except newline and tab, bidirectional and invisible marks, separators, tags, lone surrogates.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean(text: object, *, lines: bool = False) -> str:
    """Return text in which what could steer a terminal is written as an escape.

    Args:
        text: Anything that came from a failure, a backend or a file.
        lines: Keep line ends; otherwise they are escaped too.
    """
    kept = _STEERING.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), str(text))
    kept = kept.expandtabs(4)
    return kept if lines else kept.replace("\n", "\\n")


def console(*, stderr: bool = False) -> Console:
    """Return a console that takes text as it is: no markup, no emoji codes, no highlighting."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def say(*parts: object, style: str = "") -> None:
    """Print one paragraph to stdout; the parts are cleaned and joined."""
    console().print(Text("".join(clean(part) for part in parts), style=style))


def note(*parts: object) -> None:
    """Print one paragraph to stderr."""
    console(stderr=True).print(Text("".join(clean(part) for part in parts)))


def failed(code: Exit, *parts: object) -> typer.Exit:
    """Say on stderr what was wrong, and return what is to be raised to exit with a code."""
    console(stderr=True).print(Text("error: ", style="bold red") + Text("".join(clean(part) for part in parts)))
    return typer.Exit(code)


def emit_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document to stdout, in ASCII, whatever the text in it holds."""
    sys.stdout.write(json.dumps(_plain(document), indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def iso(at_ns: int | None) -> str | None:
    """Return a moment for machines: ISO 8601, UTC, microseconds."""
    if at_ns is None:
        return None
    return datetime.fromtimestamp(at_ns // 1000 / 1e6, UTC).isoformat(timespec="microseconds")


def moment(at_ns: int) -> str:
    """Return a moment for humans: local time with its offset, and how long ago."""
    there = datetime.fromtimestamp(at_ns / 1e9, UTC).astimezone()
    return f"{there:%Y-%m-%d %H:%M:%S %z} ({ago(at_ns)})"


def short_moment(at_ns: int) -> str:
    """Return a moment in 14 characters, local time; the retention is days, so the year goes without saying."""
    return f"{datetime.fromtimestamp(at_ns / 1e9, UTC).astimezone():%m-%d %H:%M:%S}"


def ago(at_ns: int) -> str:
    """Return how long ago a moment is, in its two largest units at most."""
    seconds = int(max(time.time() - at_ns / 1e9, 0))
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // below} {small} ago"
    return f"{seconds} s ago"


def size(count: int) -> str:
    """Return a number of bytes in binary units."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):  # noqa: B007  (the last one is used after the loop)
        if value < 1024:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def calls(count: int) -> str:
    """Return a count in the unit of all our counts."""
    return f"{count} failed tool call" + ("" if count == 1 else "s")


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        console(stderr=True).print(Text("warning: ", style="yellow") + Text(clean(record.getMessage())))
        if record.exc_info:
            console(stderr=True).print(Text(clean(logging.Formatter().formatException(record.exc_info), lines=True)))


def warnings_to_stderr() -> None:
    """Print the package's own warnings to stderr, cleaned: they may quote a backend or a file."""
    if not any(isinstance(each, _Warnings) for each in logger.handlers):
        logger.addHandler(_Warnings())


def other_spans(count: int) -> str:
    """Return a count of other spans as the end of a phrase; "" for none."""
    return "" if not count else f" and {count} other span" + ("" if count == 1 else "s")


@contextlib.contextmanager
def opened(path: Path | None) -> Iterator[Settings]:
    """Yield settings whose store can be read; a store that nobody wrote yet is an empty one.

    Args:
        path: The store's folder; None: as ``OTEL_ERROR_HYGIENE_STORE_PATH`` says.
    """
    try:
        settings = Settings() if path is None else Settings(store_path=path)
    except ValidationError as error:
        problems = "; ".join(
            f'"{".".join(map(str, each["loc"]))}" is {each["input"]!r}: {each["msg"]}' for each in error.errors()
        )
        raise failed(Exit.USAGE, problems, ". Set OTEL_ERROR_HYGIENE_<NAME> right, or unset it.") from None
    root = settings.store_path
    try:
        if root.exists() and not root.is_dir():
            raise failed(Exit.STORE, f'the store "{root}" is a file; it must be a folder')
        if root.exists():
            with os.scandir(root):  # the outbox passes over what it cannot read; a person wants to know
                pass
        yield settings
    except BrokenPipeError:
        raise
    except OSError as error:
        raise failed(Exit.STORE, f'the store "{root}" cannot be read: {error}') from None
