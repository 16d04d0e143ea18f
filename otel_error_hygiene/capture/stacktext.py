"""Write a captured tree as the text that Python itself would print, source lines included.

Runs on the courier's thread or in another process: source lines come from the files as they are
now, and are left out where a file is gone.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator

from ..model import ExceptionNode

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def format_node(node: ExceptionNode) -> str:
    """Return the text of a chain, the root cause first, as ``traceback.format_exception`` lays it out."""
    return "".join(_chain(node, 0))


def _chain(node: ExceptionNode, depth: int) -> Iterator[str]:
    # Iterative along the chain: a chain may be longer than Python's recursion allows.
    chain: list[tuple[ExceptionNode, str]] = []
    step: ExceptionNode | None = node
    while step is not None:
        before, link = (step.cause, _CAUSE) if step.cause is not None else (step.context, _CONTEXT)
        chain.append((step, link if before is not None else ""))
        step = before
    for link_node, link in reversed(chain):
        yield link
        yield from _one(link_node, depth)


def _one(node: ExceptionNode, depth: int) -> Iterator[str]:
    if node.frames:
        yield (
            "Exception Group Traceback (most recent call last):\n"
            if node.group
            else "Traceback (most recent call last):\n"
        )
        yield from _frames(node)
    yield f"{node.type}: {node.message}\n" if node.message else f"{node.type}\n"
    for note in node.notes:
        yield f"{note}\n"
    for number, member in enumerate(node.group, 1):
        indent = "  " * (depth + 1)
        yield f"{indent}+---------------- {number} ----------------\n"
        text = "".join(_chain(member, depth + 1))
        yield "".join(f"{indent}| {line}\n" for line in text.splitlines())
    if node.group:
        yield "  " * (depth + 1) + "+------------------------------------\n"


def _frames(node: ExceptionNode) -> Iterator[str]:
    entries = [
        traceback.FrameSummary(filename, lineno, function, line=_source(filename, lineno))
        for filename, lineno, function in node.frames
    ]
    if not node.frames_dropped:
        yield from traceback.StackSummary.from_list(entries).format()
        return
    head = min(10, len(entries) // 2)
    yield from traceback.StackSummary.from_list(entries[:head]).format()
    yield f"  [{node.frames_dropped} frames left out]\n"
    yield from traceback.StackSummary.from_list(entries[head:]).format()


def _source(filename: str, lineno: int) -> str:
    try:
        return linecache.getline(filename, lineno).strip()
    except Exception:  # any file may be anything
        return ""
