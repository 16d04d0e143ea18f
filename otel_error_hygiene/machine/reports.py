"""Pair reports with spans: a failure may be told by a hook and by a span, in either order; it is one failure."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import NamedTuple

from ..model import ErrorSummary, ExceptionNode
from .splitter import Report

_MAX_OPEN = 10_000
_MAX_RECENT = 1000
_MAX_PER_CALL = 32
_RECENT_SECONDS = 60.0


class _Recent(NamedTuple):
    by_report: bool
    call_id: str | None
    type: str
    message: str
    summary: ErrorSummary
    at: float


class Reports:
    """Reports whose span is still open, and failures that were told lately. Bounded; the oldest go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.open: OrderedDict[int, Report] = OrderedDict()
        """Span id -> the report that waits for the span's end."""
        self._recent: OrderedDict[tuple[int, str], list[_Recent]] = OrderedDict()

    def wait(self, span_id: int, report: Report) -> None:
        """Remember a report until its span ends."""
        with self._lock:
            self.open[span_id] = report
            if len(self.open) > _MAX_OPEN:
                self.open.popitem(last=False)

    def waiting(self, span_id: int) -> Report | None:
        """Return the report that waits for a span, which goes on waiting."""
        return self.open.get(span_id)

    def take(self, span_id: int) -> Report | None:
        """Return and forget the report that waited for a span."""
        return self.open.pop(span_id, None)

    def told(
        self,
        trace_id: int,
        tool: str,
        call_id: str | None,
        node: ExceptionNode,
        summary: ErrorSummary,
        *,
        by_report: bool,
    ) -> None:
        """Remember a failure that was told, for the other side that may come yet."""
        if not trace_id:
            return
        with self._lock:
            recents = self._recent.setdefault((trace_id, tool), [])
            recents.append(_Recent(by_report, call_id, node.type, node.message, summary, time.monotonic()))
            del recents[:-_MAX_PER_CALL]
            self._recent.move_to_end((trace_id, tool))
            if len(self._recent) > _MAX_RECENT:
                self._recent.popitem(last=False)

    def other_side(
        self, trace_id: int, tool: str, call_id: str | None, node: ExceptionNode, *, by_report: bool
    ) -> ErrorSummary | None:
        """Return and forget what the other side told of this very failure, or None.

        Same trace and tool, and the same call id; where an id is unknown, the same exception within a minute.
        """
        recents = self._recent.get((trace_id, tool))
        if not recents:
            return None
        with self._lock:
            since = time.monotonic() - _RECENT_SECONDS
            for recent in recents:
                if recent.by_report is by_report or recent.at < since:
                    continue
                if call_id is not None and recent.call_id is not None:
                    same = call_id == recent.call_id
                else:
                    same = (node.type, node.message) == (recent.type, recent.message)
                if same:
                    recents.remove(recent)
                    return recent.summary
        return None
