"""Who stands above a span: the open spans of the process by id, and what they say at this moment.

The SDK gives an ended span its parent's id and nothing more. Many instrumentations write their attributes after the
start, so the spans are asked when a call below them ends, not when they start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple
from weakref import ref

from opentelemetry.sdk.trace import ReadableSpan

from .._sdk import span_attributes
from ..conventions import Convention, Kind, agent_of, call_of, recognise, unmarked
from ..model import ToolCall

MAX_OPEN = 100_000
_MAX_DEPTH = 128
_INVOKE_AGENT = "invoke_agent "


class Said(NamedTuple):
    """What an open span says of itself."""

    kind: Kind | None
    name: str | None
    """Of an agent, where it states one."""
    convention: Convention | None


class Lineage:
    """The open spans, by id. Held weakly: a span that never ends is its owner's to keep. Bounded; the oldest go.

    Plain dictionary operations are atomic in CPython, so only what evicts takes the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.open: dict[int, ref[ReadableSpan]] = {}
        """Span id -> span; whoever hears of a start writes it here, and takes it out at the end."""

    def make_room(self) -> None:
        """Forget the oldest, when there are too many."""
        with self._lock:
            # A tenth at once: taking the first of a dictionary again and again walks over all that went before.
            if len(self.open) > MAX_OPEN:
                for span_id in list(self.open)[: MAX_OPEN // 10]:
                    self.open.pop(span_id, None)

    def above(self, span: ReadableSpan) -> Iterator[ReadableSpan]:
        """Yield the open spans above a span, the nearest first, up to the first one that is not known."""
        for _ in range(_MAX_DEPTH):
            parent = span.parent
            found = None if parent is None else self.open.get(parent.span_id)
            above = None if found is None else found()
            if parent is None or above is None or above.context.trace_id != parent.trace_id:
                return
            yield above
            span = above

    def call_above(self, span: ReadableSpan, call: ToolCall) -> tuple[ReadableSpan, ToolCall] | None:
        """Return the outermost open span that stands for the same call, and what it says of the call; or None."""
        outermost = None
        for above in self.above(span):
            said = said_by(above)
            if said.kind is Kind.AGENT:
                break
            if said.kind is Kind.TOOL and said.convention is not None:
                other = call_of(said.convention, above.name, span_attributes(above))
                if not same_call(call.tool, call.call_id, other.tool, other.call_id):
                    break
                outermost = above, other
        return outermost


def said_by(span: ReadableSpan) -> Said:
    """Tell what a span stands for; an agent that has not written its attributes yet is known by the span's name."""
    attributes = span_attributes(span)
    found = None if unmarked(attributes) else recognise(attributes, span.name)
    if found is None:
        if span.name.startswith(_INVOKE_AGENT):
            return Said(Kind.AGENT, span.name.removeprefix(_INVOKE_AGENT), None)
        return Said(None, None, None)
    kind, convention = found
    if kind is not Kind.AGENT:
        return Said(kind, None, convention)
    name = agent_of(convention, attributes)
    if name is None and span.name.startswith(_INVOKE_AGENT):
        # Other names of such spans may be a workflow's or a graph node's: they open no view of their own.
        name = span.name.removeprefix(_INVOKE_AGENT)
    return Said(kind, name, convention)


def same_call(tool: str, call_id: str | None, other_tool: str, other_id: str | None) -> bool:
    """Tell whether two nested spans, with no other call between them, stand for one call.

    The tool is the same (an MCP client may prefix it: ``mcp__server__tool``), and no ids say otherwise.
    """
    if tool != other_tool and not tool.endswith("__" + other_tool) and not other_tool.endswith("__" + tool):
        return False
    return call_id == other_id or not _is_id(call_id) or not _is_id(other_id)


def _is_id(call_id: str | None) -> bool:
    return call_id is not None and call_id != "<not specified>"  # google-adk, of every call that raises
