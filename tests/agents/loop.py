"""A hand-written agent loop with a scripted model; says on stdout, as JSON lines, what its prompts held.

usage: python -m tests.agents.loop [--then-die | --healthy]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

from opentelemetry import trace

import otel_error_hygiene as hygiene
from tests.agents.tools import ForecastError, get_average, get_forecast

CONVERSATION = "trip-7"


def say(**what: Any) -> None:
    """Write one line for the test that started this process."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def run(*, fails: bool, dies: bool) -> None:
    """Run the turns of one conversation."""
    with (
        hygiene.conversation(CONVERSATION) as errors,
        trace.get_tracer("agent").start_as_current_span("invoke_agent travel") as root,
    ):
        say(trace=f"{root.get_span_context().trace_id:032x}")
        if fails:
            try:
                with hygiene.tool_call("get_forecast", call_id="call-1", arguments={"city": "Oslo"}):
                    get_forecast("Oslo")
            except ForecastError:
                say(prompt=errors.render())
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
        with hygiene.tool_call("get_average", call_id="call-2", arguments={"city": "Oslo"}) as call:
            call.result(get_average("Oslo"))
        say(prompt=errors.render())


def main() -> None:
    """Parse the arguments, run, deliver, and say what became of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--then-die", action="store_true", help="SIGKILL right after the failure")
    parser.add_argument("--healthy", action="store_true", help="no tool fails")
    parser.add_argument("--deliver-millis", type=float, default=0)
    arguments = parser.parse_args()

    processor = hygiene.install()
    run(fails=not arguments.healthy, dies=arguments.then_die)
    delivered = processor.deliver(arguments.deliver_millis)
    say(delivered=delivered, stats=processor.stats().model_dump(mode="json"))


if __name__ == "__main__":
    main()
