"""One call, one failure: what failed inside a span, remembered until the spans around it have ended.

Inner spans end first, so a failure is told when the innermost span of its call ends. From there it climbs: at each end
it moves to the parent of the span that ended, so that a span finds, when it ends, what failed inside of it. A process
in which nothing failed remembers nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind

from ..context import ContextBuffer
from ..model import ErrorSummary, ExceptionNode, ToolCall
from .lineage import Lineage, same_call

_MAX_SPANS = 4096
_MAX_PER_SPAN = 32
_MAX_TRACES = 1000
_NO_NODE = ExceptionNode.model_construct(type="")
"""Nobody asks those that have ended what it was, and a tree of exceptions may be large."""


class Known(NamedTuple):
    """A failure that was told or counted."""

    tool: str
    call_id: str | None
    node: ExceptionNode
    summary: ErrorSummary
    buffer: ContextBuffer | None
    """Who was told."""
    by_boundary: bool = False
    """A boundary told it, which knows by itself what passes through the boundaries around it."""
    distant: bool = False
    """The span of another call, or of an agent, stands between."""
    agent_failed: bool = False
    """An agent's span between failed, too."""

    def is_of(self, call: ToolCall) -> bool:
        """Tell whether a span around it stands for the same call."""
        return not self.distant and same_call(self.tool, self.call_id, call.tool, call.call_id)

    def beyond(self, call: ToolCall) -> Known:
        """Return it as it is known beyond the end of a call around it."""
        return self if self.is_of(call) else self._replace(distant=True)

    def pending(self) -> bool:
        """Tell whether its agent has not got over it."""
        return self.buffer is None or any(self.summary.span_id == each.span_id for each in self.buffer.pending)


class _Served(NamedTuple):
    parent_id: int
    start_ns: int
    end_ns: int
    known: Known


class Nested:
    """Failures on their way up, and the spans that ended failed. Bounded; the oldest go.

    Args:
        lineage: The open spans.
    """

    def __init__(self, lineage: Lineage) -> None:
        self._open = lineage.open
        self._lock = threading.Lock()
        self.climbing: OrderedDict[int, list[Known]] = OrderedDict()
        """Id of a span that has not ended -> what failed inside it."""
        self._served: OrderedDict[int, list[_Served]] = OrderedDict()
        """Trace -> failures of spans of a server, for a client whose spans between the two nobody sees."""
        self._ended: OrderedDict[int, Known] = OrderedDict()
        """Id of a tool span that ended failed -> its failure, for what ends late inside it."""

    def take(self, span_id: int) -> Sequence[Known]:
        """Return and forget what failed inside a span."""
        if span_id not in self.climbing:
            return ()
        with self._lock:
            return self.climbing.pop(span_id, ())

    def inside(self, span_id: int, call: ToolCall) -> Known | None:
        """Return the last failure of the same call inside a span that is open."""
        known = self.climbing.get(span_id, ())
        return next((each for each in reversed(known) if each.is_of(call)), None)

    def climb(self, span: ReadableSpan, known: Iterable[Known]) -> None:
        """Hand what is known on to the span around one that ended."""
        parent = span.parent
        if parent is None or (parent.is_remote and parent.span_id not in self._open):
            return
        with self._lock:
            there = self.climbing.setdefault(parent.span_id, [])
            there.extend(known)
            del there[:-_MAX_PER_SPAN]
            if len(self.climbing) > _MAX_SPANS:
                self.climbing.popitem(last=False)

    def failed(self, span: ReadableSpan, known: Known) -> None:
        """Remember that a tool's span ended failed."""
        known = known._replace(node=_NO_NODE)
        with self._lock:
            self._ended[span.context.span_id] = known
            if len(self._ended) > _MAX_SPANS:
                self._ended.popitem(last=False)
            if span.kind is SpanKind.SERVER and span.parent is not None:
                served = self._served.setdefault(span.context.trace_id, [])
                served.append(_Served(span.parent.span_id, span.start_time or 0, span.end_time or 0, known))
                del served[:-_MAX_PER_SPAN]
                if len(self._served) > _MAX_TRACES:
                    self._served.popitem(last=False)

    def served(self, span: ReadableSpan, call: ToolCall) -> Known | None:
        """Return the failure of the call of a client's span, told by its server's: same trace, within its time.

        For the parent of the server's span may be one that no processor sees. An open parent, or a common one, says
        that it is another call's.
        """
        served = self._served.get(span.context.trace_id) if span.kind is SpanKind.CLIENT else None
        if not served:
            return None
        parent = None if span.parent is None else span.parent.span_id
        start, end = span.start_time or 0, span.end_time or 0
        with self._lock:
            for item in served:
                within = start <= item.start_ns and item.end_ns <= end and item.parent_id != parent
                if within and item.parent_id not in self._open and item.known.is_of(call):
                    served.remove(item)
                    return item.known
        return None

    def late(self, span: ReadableSpan, call: ToolCall) -> Known | None:
        """Return the failure of the call around a span, when that ended before it: a client that gave up."""
        if not self._ended or span.parent is None:
            return None
        known = self._ended.get(span.parent.span_id)
        if known is None or not same_call(known.tool, known.call_id, call.tool, call.call_id):
            return None
        return known

    def recovered(self, above: Sequence[ReadableSpan], call: ToolCall) -> None:
        """Forget the failed tries of a call in the open spans around a try of it that succeeded."""
        with self._lock:
            for span in above:
                there = self.climbing.get(span.context.span_id)
                if there is not None:
                    there[:] = [each for each in there if not each.is_of(call)]


def with_root_cause(node: ExceptionNode, below: Sequence[Known], buffer: ContextBuffer | None) -> ExceptionNode:
    """Return what made a delegate's call fail: its own chain, and behind that what the child agent did not get over.

    That stands there only when the child is known to have failed: by its span, or by the words of the failure.
    """
    chain = [node]
    while chain[-1].cause is not None:
        chain.append(chain[-1].cause)
    for known in reversed(below):
        root = known.node
        if known.buffer is buffer:
            continue
        if any((each.type, each.message) == (root.type, root.message) for each in chain):
            # The very exception, whose own chain the inner span may know better.
            return node if len(chain) > 1 or root.cause is None else root
        blamed = known.agent_failed or (root.message != "" and any(root.message in each.message for each in chain))
        if blamed and known.pending():
            for each in reversed(chain):
                root = each.model_copy(update={"cause": root})
            return root
    return node
