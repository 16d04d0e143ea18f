"""An agent whose spans are made by the OpenTelemetry API alone: it knows nothing of us but the line that installs."""

from __future__ import annotations

import json
import sys

from opentelemetry import trace

import otel_error_hygiene as hygiene
from tests.agents.tools import ForecastError, get_average, get_forecast, read_notes


def attributes(tool: str, call_id: str) -> dict[str, str]:
    """Return what the GenAI conventions put on the span of a tool call."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.conversation.id": "plain-3",
    }


def main() -> None:
    """Fail twice and succeed once, in one trace."""
    processor = hygiene.install()
    errors = processor.conversation("plain-3")
    tracer = trace.get_tracer("agent")
    prompts = [errors.render()]
    with tracer.start_as_current_span("invoke_agent plain") as root:
        try:
            with tracer.start_as_current_span("execute_tool get_forecast", attributes=attributes("get_forecast", "c1")):
                get_forecast("Oslo")
        except ForecastError:
            prompts.append(errors.render())
        try:
            with tracer.start_as_current_span("execute_tool read_notes", attributes=attributes("read_notes", "c2")):
                read_notes("/nowhere/notes.txt")
        except FileNotFoundError:
            prompts.append(errors.render())
        with tracer.start_as_current_span("execute_tool get_average", attributes=attributes("get_average", "c3")):
            get_average("Oslo")
        prompts.append(errors.render())
    delivered = processor.deliver(10_000)
    told = {"trace": f"{root.get_span_context().trace_id:032x}", "prompts": prompts, "delivered": delivered}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
