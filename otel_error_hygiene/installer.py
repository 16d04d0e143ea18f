"""One line: provider, exporter and processor from ``OTEL_*`` variables."""

from __future__ import annotations

import os
import threading
from typing import Any, Literal

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from .errors import ConfigurationError
from .machine.processor import ErrorHygieneSpanProcessor
from .settings import Settings

_lock = threading.Lock()


def install(
    exporter: SpanExporter | Literal["auto"] | None = "auto", *, settings: Settings | None = None
) -> ErrorHygieneSpanProcessor:
    """Add the processor to the global tracer provider, which is made from ``OTEL_*`` when there is none.

    Args:
        exporter: "auto": an OTLP exporter from ``OTEL_EXPORTER_OTLP_*`` when an endpoint is configured and the provider
            does not export already, else none. None: keep the local store and the buffers, export nothing.
        settings: Settings; None reads ``OTEL_ERROR_HYGIENE_*``.

    Returns:
        The processor. Calling it again returns the one that is installed.

    Raises:
        ConfigurationError: ``exporter`` is neither an exporter nor "auto" nor None, the protocol is unknown, or the
            global provider takes no span processors.
    """
    if exporter is not None and exporter != "auto" and not callable(getattr(exporter, "export", None)):
        raise ConfigurationError(f'"exporter" is {exporter!r}; it must be a SpanExporter, "auto" or None')
    with _lock:
        provider = _provider()
        for processor in _processors(provider):
            if isinstance(processor, ErrorHygieneSpanProcessor):
                return processor
        if exporter == "auto":
            chosen = None if _exports(_processors(provider)) else exporter_from_environment()
        else:
            chosen = exporter
        made = ErrorHygieneSpanProcessor(chosen, settings=settings)
        provider.add_span_processor(made)
        return made


def _provider() -> TracerProvider:
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        made = TracerProvider()
        trace.set_tracer_provider(made)
        return made
    if not callable(getattr(provider, "add_span_processor", None)):
        raise ConfigurationError(
            f"the global tracer provider is a {type(provider).__name__}, which takes no span processors; "
            "it must be an opentelemetry.sdk.trace.TracerProvider"
        )
    return provider  # type: ignore[return-value]


def _processors(provider: Any) -> tuple[SpanProcessor, ...]:
    found = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ())
    return tuple(found)


def _exports(processors: tuple[SpanProcessor, ...]) -> bool:
    """Tell whether a processor hands spans to an exporter: it holds one, itself or in what it wraps."""
    return any(_holds_exporter(processor, 3) for processor in processors)


def _holds_exporter(thing: Any, depth: int) -> bool:
    if callable(getattr(thing, "export", None)) or getattr(thing, "span_exporter", None) is not None:
        return True
    if depth == 0:
        return False
    values = getattr(thing, "__dict__", {}).values()
    inner = [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
    return any(_holds_exporter(item, depth - 1) for item in inner if hasattr(item, "shutdown"))


def exporter_from_environment() -> SpanExporter | None:
    """Return the OTLP exporter that ``OTEL_EXPORTER_OTLP_*`` describes, or None when no endpoint is configured.

    Raises:
        ConfigurationError: The protocol is not one that OTLP has.
    """
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not endpoint or "otlp" not in wanted:
        return None
    protocol = (
        os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        return HttpExporter()
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter()
    raise ConfigurationError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; it must be 'http/protobuf' or 'grpc'")
