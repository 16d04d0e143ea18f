"""Shared by all tests: faults of ours are loud, and every test has a store of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings, _guard
from otel_error_hygiene.testing import strict_hygiene
from tests.backends import jaeger_binary

__all__ = ["jaeger_binary", "strict_hygiene"]


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Point the default store into the test's folder, and re-raise our faults unless the test is about them."""
    monkeypatch.setenv("OTEL_ERROR_HYGIENE_STORE_PATH", str(tmp_path / "store"))
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_guard, "_said", set())
    if request.node.get_closest_marker("faults") is None:
        request.getfixturevalue("strict_hygiene")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings whose store is the test's own, and whose back-off is short."""
    return Settings(store_path=tmp_path / "store", retry_initial_millis=20, retry_max_millis=200)


class Rig:
    """A provider with our processor over an in-memory exporter."""

    def __init__(self, settings: Settings) -> None:
        self.exporter = InMemorySpanExporter()
        self.processor = ErrorHygieneSpanProcessor(self.exporter, settings=settings)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("tests")


@pytest.fixture
def rig(settings: Settings) -> Iterator[Rig]:
    """Give a rig, and shut it down."""
    made = Rig(settings)
    yield made
    made.provider.shutdown()
