"""From an exception in somebody's hands to a split: shared by the tool boundary and ``report_error``."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span, Tracer, TracerProvider

from .capture import Limits, capture, holds_stack, safe_str
from .context import ContextBuffer
from .forensics.segment import RecordKind
from .machine.current import Machine
from .machine.nouns import node_of_recorded
from .machine.processor import ErrorHygieneSpanProcessor
from .machine.splitter import Failed, Split
from .model import RecordedException, ToolCall


def text_of(error: BaseException | RecordedException) -> str:
    """Return the message of an exception, live or recorded."""
    return error.message if isinstance(error, RecordedException) else safe_str(error)


def limits_of(place: Machine) -> Limits:
    """Return the bounds of a capture."""
    settings = place.settings
    return Limits(settings.max_frames, settings.max_exceptions, settings.max_message_chars)


def failed_of(call: ToolCall, error: BaseException | RecordedException, place: Machine, *, escaped: bool) -> Failed:
    """Capture an error in somebody's hands."""
    if isinstance(error, RecordedException):
        node = node_of_recorded(error.type, error.message, error.stacktrace)
        # A message that is a traceback is kept whole: the node has its last line only.
        stack = error.stacktrace or (error.message if holds_stack(error.message) else "")
        return Failed(call, node, stack, escaped, truncated=False)
    node, truncated = capture(error, limits_of(place))
    return Failed(call, node, "", escaped, truncated)


def record(
    place: Machine,
    failed: Failed,
    span: Span,
    buffer: ContextBuffer | None,
    *,
    kind: RecordKind,
    lost: str | None = None,
) -> Split:
    """Split a failure whose span is at hand."""
    readable = span if isinstance(span, ReadableSpan) else None
    if readable is None or not span.get_span_context().trace_flags.sampled:
        lost = "unsampled"
    resource = None if readable is None else readable.resource
    return place.splitter.split(failed, readable, resource, buffer, kind=kind, lost=lost)


def record_alone(place: Machine, failed: Failed, parent: Span, buffer: ContextBuffer | None) -> Split:
    """Split a failure that has no span of its own: one without length is made for it."""
    context = parent.get_span_context()
    lost = "unsampled" if context.is_valid and not context.trace_flags.sampled else None
    resource = parent.resource if isinstance(parent, ReadableSpan) else _resource()
    plain = place.splitter.synthetic_span(failed, context if context.is_valid else None, resource)
    split = place.splitter.split(failed, plain, resource, buffer, lost=lost)
    place.recorded_outside(split, resource)
    return split


def _resource() -> Resource:
    resource = getattr(trace.get_tracer_provider(), "resource", None)
    return resource if isinstance(resource, Resource) else Resource.get_empty()


_last_tracer: tuple[TracerProvider, Tracer] | None = None


def tracer_of(provider: TracerProvider) -> Tracer:
    """Return our tracer of a provider."""
    # Getting a tracer costs as much as a span; providers change only in tests.
    global _last_tracer
    last = _last_tracer
    if last is None or last[0] is not provider:
        last = _last_tracer = (provider, provider.get_tracer("otel_error_hygiene"))
    return last[1]


def others_listen(provider: TracerProvider) -> bool:
    """Tell whether processors besides ours see the spans; when that cannot be known, they do."""
    processors = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", None)
    if not isinstance(processors, tuple):
        return True
    return any(not isinstance(processor, ErrorHygieneSpanProcessor) for processor in processors)
