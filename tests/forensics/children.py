"""Agents in processes of their own, over OTLP/HTTP."""

from __future__ import annotations

from pathlib import Path

from otel_error_hygiene import Settings
from otel_error_hygiene.forensics.segment import RecordKind, State
from otel_error_hygiene.forensics.store import writers
from tests.forensics.agents import Child

_FAILING = """
import os, sys, time
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from otel_error_hygiene import ErrorHygieneSpanProcessor, Settings, report_error
local = os.environ.get("LOCAL")
exporter = None if local else OTLPSpanExporter()
provider = TracerProvider()
provider.add_span_processor(ErrorHygieneSpanProcessor(exporter, settings=Settings(retry_initial_millis=60_000)))
tracer = provider.get_tracer("child")
def fail(tool):
    try:
        with tracer.start_as_current_span(f"execute_tool {tool}", attributes={
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}):
            raise ConnectionError("refused")
    except ConnectionError:
        pass
for tool in sys.argv[1:]:
    if tool.startswith("report:"):
        span = tracer.start_span(f"execute_tool {tool[7:]}", attributes={
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool[7:]})
        from opentelemetry.trace import use_span
        with use_span(span, end_on_exit=False):
            report_error(ConnectionError("refused"), tool=tool[7:])
    else:
        fail(tool)
print("failed", flush=True)
if os.environ.get("STAY"):
    time.sleep(30)
"""


def child(settings: Settings, endpoint: str, *tools: str, **environment: str) -> Child:
    """Start an agent in a process of its own, and wait until its tools have failed."""
    variables = {
        "OTEL_ERROR_HYGIENE_STORE_PATH": str(settings.store_path),
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint,
        **environment,
    }
    started = Child(_FAILING, *tools, **variables)
    assert "failed" == started.line(), started.wait()[1]
    return started


def pending_in(root: Path) -> int:
    """Count what is pending in a store, other spans included."""
    count = 0
    for writer in writers(root):
        for reader in writer.segments():
            count += sum(h.state is State.PENDING and h.kind is not RecordKind.RESOURCE for h in reader.live())
        writer.close()
    return count
