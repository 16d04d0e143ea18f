"""Write a captured tree as the text that Python itself would print, source lines included.

Runs on the courier's thread or in another process: source lines come from the files as they are
now, and are left out where a file is gone. What differs from CPython: the markers below a source line
are not kept, a ``SyntaxError`` shows no source of its own, no group is cut for its width or depth, and
what ``raise ... from`` did not say but a wrapper keeps (``inner_of``) stands as the cause.
"""

from __future__ import annotations

import linecache
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path

from ..model import ExceptionNode

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_MAX_FILE_BYTES = 8 * 1024 * 1024
_MAX_SOURCE_CHARS = 1000


def format_node(node: ExceptionNode) -> str:
    """Return the text of a chain, the root cause first, as ``traceback.format_exception`` lays it out."""
    return "".join(_Text().chain(node))


class _Text:
    """One text in the making: how deep in groups it is, and whether the innermost group still wants its last rule."""

    def __init__(self) -> None:
        self._depth = 0
        self._open = False
        self._sources: dict[str, bool] = {}

    def chain(self, node: ExceptionNode) -> Iterator[str]:
        # Iterative along the chain: a chain may be longer than Python's recursion allows.
        steps: list[tuple[str, ExceptionNode]] = []
        step: ExceptionNode | None = node
        while step is not None:
            before, link = (step.cause, _CAUSE) if step.cause is not None else (step.context, _CONTEXT)
            steps.append((link if before is not None else "", step))
            step = before
        for link, step in reversed(steps):
            if link:
                yield self._indented(link)
            yield from self._group(step) if step.group else self._single(step)

    def _single(self, node: ExceptionNode) -> Iterator[str]:
        if node.frames:
            yield self._indented("Traceback (most recent call last):\n")
            yield from self._frames(node)
        yield from self._ending(node)

    def _group(self, node: ExceptionNode) -> Iterator[str]:
        outermost = self._depth == 0
        self._depth += outermost
        if node.frames:
            header = "Exception Group Traceback (most recent call last):\n"
            yield self._indented(header, "+" if outermost else "|")
            yield from self._frames(node)
        yield from self._ending(node)
        for number, member in enumerate(node.group, 1):
            # The last member's own group, if it is one, draws the rule for both.
            self._open = number == len(node.group)
            yield f"{'  ' * self._depth}{'+-' if number == 1 else '  '}+---------------- {number} ----------------\n"
            self._depth += 1
            yield from self.chain(member)
            if number == len(node.group) and self._open:
                yield f"{'  ' * self._depth}+------------------------------------\n"
                self._open = False
            self._depth -= 1
        self._depth -= outermost

    def _ending(self, node: ExceptionNode) -> Iterator[str]:
        kind = node.type.removeprefix("__main__.")
        yield self._indented(f"{kind}: {node.message}\n" if node.message else f"{kind}\n")
        for note in node.notes:
            for line in note.split("\n"):
                yield self._indented(f"{line}\n")

    def _frames(self, node: ExceptionNode) -> Iterator[str]:
        entries = [
            traceback.FrameSummary(filename, lineno, function, lookup_line=False, line=self._source(filename, lineno))
            for filename, lineno, function in node.frames
        ]
        if not node.frames_dropped:
            yield from map(self._indented, traceback.StackSummary.from_list(entries).format())
            return
        head = min(10, len(entries) // 2)
        yield from map(self._indented, traceback.StackSummary.from_list(entries[:head]).format())
        yield self._indented(f"  [{node.frames_dropped} frames left out]\n")
        yield from map(self._indented, traceback.StackSummary.from_list(entries[head:]).format())

    def _indented(self, text: str, margin: str = "|") -> str:
        if not self._depth:
            return text
        return textwrap.indent(text, f"{'  ' * self._depth}{margin} ", lambda _: True)

    def _source(self, filename: str, lineno: int) -> str:
        try:
            known = self._sources.get(filename)
            if known is None:
                known = self._sources[filename] = _readable(filename)
            return linecache.getline(filename, lineno).strip()[:_MAX_SOURCE_CHARS] if known else ""
        except Exception:  # any file may be anything
            return ""


def _readable(filename: str) -> bool:
    """Tell whether the source of a frame can be looked up: what Python remembers, or a plain file of a sane size."""
    linecache.checkcache(filename)
    if filename in linecache.cache:
        return True
    path = Path(filename)
    return not filename.startswith("<") and path.is_file() and path.stat().st_size <= _MAX_FILE_BYTES
