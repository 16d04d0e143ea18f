"""The stock way for spans of healthy traces: the SDK's own batch processor, with honest results and a kept deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from .._guard import say_once
from ..forensics.proof import export_lock


class _Watched(SpanExporter):
    """The user's exporter; counts what it did not take, which the batch processor ignores."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.failed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            with export_lock(self._exporter):
                result = self._exporter.export(spans)
        except BaseException:
            self.failed += len(spans)
            raise
        if result is not SpanExportResult.SUCCESS:
            self.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """Nothing: the exporter is shared with the courier, and shut down after both."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class HealthyPath:
    """Batch and export as stock does (``OTEL_BSP_*``).

    Args:
        exporter: The user's exporter; owned from now on.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._watched = _Watched(exporter)
        self._batch = BatchSpanProcessor(self._watched)
        self._failed_before = 0
        self.on_end = self._batch.on_end

    def force_flush(self, timeout_seconds: float) -> bool:
        """Export all that is queued; True when the exporter took everything since the last call, within the time."""
        # The SDK's own force_flush ignores its timeout (open-telemetry/opentelemetry-python#4568).
        try:
            flushed = _within(timeout_seconds, self._batch.force_flush, "otel-error-hygiene-flush")
        except RuntimeError:  # the interpreter is shutting down and starts no threads any more
            return False
        before, self._failed_before = self._failed_before, self._watched.failed
        return flushed and self._watched.failed == before

    def shutdown(self, timeout_seconds: float) -> None:
        """Export what the time allows, then shut the exporter down."""
        inner = getattr(self._batch, "_batch_processor", None)
        try:
            # The public shutdown() waits up to 30 s and takes no argument.
            inner.shutdown(timeout_millis=timeout_seconds * 1000)  # type: ignore[union-attr]
        except (AttributeError, TypeError):
            say_once("layout:batch", "unknown layout of BatchSpanProcessor: exit may take as long as its own shutdown")
            self._batch.shutdown()  # type: ignore[no-untyped-call]
        self._exporter.shutdown()


def _within(timeout_seconds: float, work: Callable[[], object], name: str) -> bool:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    thread.join(min(timeout_seconds, threading.TIMEOUT_MAX))
    return not thread.is_alive()
