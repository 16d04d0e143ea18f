"""``show``: one failure in full, as a tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from rich.text import Text
from rich.tree import Tree

from .. import semconv
from ..capture import format_node
from ..forensics.recall import matching
from ..forensics.store import writers
from ..model import ExceptionNode, ForensicRecord
from ..redact import mask
from ..settings import Settings
from .listing import styled
from .output import Exit, clean, console, emit_json, failed, iso, moment

_LINKS = re.compile(
    r"\n*(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):\n\n"
)


def show(settings: Settings, key: str, *, as_json: bool) -> None:
    """Print all failures that a reference names, the newest first."""
    try:
        found = matching(writers(settings.store_path), key)
    except ValidationError as error:
        what = f'a record of "{key}" cannot be read: another version of this package wrote it: '
        raise failed(Exit.STORE, what, "; ".join(each["msg"] for each in error.errors())) from None
    if as_json:
        emit_json({"ref": key, "records": [_as_json(each) for each in found]})
    if not found:
        raise failed(
            Exit.INCOMPLETE,
            f'no failed tool call in "{settings.store_path}" has the ref, record id or span id "{key}"; ',
            "it may be of another store (--store), or its retention has ended. `list` prints all.",
        )
    if as_json:
        return
    out = console()
    for number, each in enumerate(found):
        if number:
            out.print()
        out.print(tree_of(each))


def _as_json(found: ForensicRecord) -> dict[str, Any]:
    moments = {
        "recorded_at": iso(found.recorded_at_ns),
        "told_at": iso(found.told_at_ns),
        "pruned_at": iso(found.pruned_at_ns),
    }
    return found.model_dump() | moments


def tree_of(found: ForensicRecord) -> Tree:
    """Return a failure as a tree for a console that takes text as it is."""
    tree = Tree(Text(clean(found.line), style="bold"), guide_style="dim")
    _fields(tree, "what became of it", _fate(found))
    _fields(tree, "call", _call(found))
    _chain(tree, found)
    _fields(tree, "trace", _trace(found))
    _fields(tree, "attributes", found.attributes)
    for event in found.events:
        if event["name"] not in (semconv.EXCEPTION_EVENT, semconv.TOLD_EVENT):
            _fields(tree, f"event {clean(event['name'])}", event["attributes"])
    _fields(tree, "resource", found.resource)
    return tree


def _fields(tree: Tree, title: str, fields: Mapping[str, Any]) -> None:
    shown = {key: value for key, value in fields.items() if value is not None}
    if not shown:
        return
    branch = tree.add(Text(title, style="bold cyan"))
    for key, value in shown.items():
        text = value if isinstance(value, Text) else Text(clean(value, lines=True))
        branch.add(Text(f"{clean(key)}: ", style="dim") + text)


def _fate(found: ForensicRecord) -> dict[str, Any]:
    state = styled(found.state)
    if found.reason:
        state = state + Text(f": {clean(found.reason)}", style="")
    told = "nobody: no conversation was known"
    if found.told_at_ns is not None:
        told = f'{moment(found.told_at_ns)}, conversation "{found.conversation}"'
    pruned = "not yet: no success has resolved it"
    if found.pruned_at_ns is not None:
        pruned = f"{moment(found.pruned_at_ns)}, by a success of {found.pruned_by}"
    return {
        "state": state,
        "recorded": f"{moment(found.recorded_at_ns)}, by process {found.pid}",
        "the agent was told": told,
        "pruned": pruned if found.told_at_ns is not None else None,
    }


def _call(found: ForensicRecord) -> dict[str, Any]:
    summary, call = found.summary, found.call
    wait = summary.retry_after_seconds
    return {
        "tool": call.tool,
        "call id": call.call_id,
        "agent": call.agent,
        "arguments": call.arguments,
        "class": f"{summary.error_class}, bucket {summary.bucket}, recoverable {summary.recoverable}",
        "attempt": summary.attempt,
        "HTTP status": summary.http_status,
        "retry after": None if wait is None else f"{wait:g} s",
        "impact": summary.impact,
        "fingerprint": found.fingerprint,
    }


def _trace(found: ForensicRecord) -> dict[str, Any]:
    length = f"{(found.end_time_ns - found.start_time_ns) / 1e6:.1f} ms"
    return {
        "span": found.name,
        "trace id": found.trace_id,
        "span id": found.span_id,
        "parent span id": found.parent_span_id,
        "started": moment(found.start_time_ns),
        "finished": f"yes, after {length}" if found.finished else "no: recorded before its span ended, no end came yet",
        "record id": found.record_id,
    }


# --- the exceptions ----------------------------------------------------------------------------


def _chain(tree: Tree, found: ForensicRecord) -> None:
    top = found.exception or ExceptionNode.model_construct(type=found.exception_type, message=found.exception_message)
    blocks = [block for block in _LINKS.split(found.exception_stacktrace) if block.strip()]
    nodes = list(_links(top))
    # A recorded stack text has the root cause first. Where it does not fit the captured chain it is shown as it is.
    fits = len(blocks) == len(nodes) and not any(node.group for _, node in nodes)
    for number, (title, node) in enumerate(nodes):
        _exception(tree, title, node, blocks[-1 - number] if fits else "")
    if not fits and not any(node.frames for _, node in nodes) and found.exception_stacktrace.strip():
        stack = tree.add(Text("stack as recorded", style="bold cyan"))
        stack.add(Text(clean(found.exception_stacktrace.rstrip(), lines=True)))


def _links(node: ExceptionNode) -> Iterator[tuple[str, ExceptionNode]]:
    title, step = "exception", node
    while True:
        yield title, step
        before = step.cause if step.cause is not None else step.context
        if before is None:
            return
        title, step = "caused by" if step.cause is not None else "while handling", before


def _exception(tree: Tree, title: str, node: ExceptionNode, block: str) -> None:
    head = Text(f"{title} ", style="bold cyan") + Text(clean(node.type), style="bold red")
    if node.message:
        head += Text(f": {clean(node.message, lines=True)}", style="")
    branch = tree.add(head)
    for text in node.notes:
        branch.add(Text("note: ", style="dim") + Text(clean(text, lines=True)))
    for key, value in node.facts.items():
        branch.add(Text(f"{clean(key)} = {clean(value)}"))
    if node.frames:
        alone = node.model_copy(update={"cause": None, "context": None, "group": ()})
        block = mask(format_node(alone))
    for frame in frames_of(block):
        place, *source = frame
        branch.add(Text("\n").join([Text(clean(place)), *(Text(clean(line), style="dim") for line in source)]))
    for number, member in enumerate(node.group, 1):
        for link, (inner, each) in enumerate(_links(member)):
            _exception(branch, f"member {number}" if link == 0 else f"member {number} {inner}", each, "")


def frames_of(block: str) -> list[list[str]]:
    """Return the frames of one exception's stack text: each its place, then what stands below it, unindented."""
    frames: list[list[str]] = []
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("Traceback (") or "Exception Group Traceback (" in line:
            break
    for line in lines:
        if not line.startswith("  "):
            break
        if line.startswith("    ") and frames:
            frames[-1].append(line[2:])
        else:
            frames.append([line[2:]])
    return frames
