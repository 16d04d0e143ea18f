"""How a call ended: every rule of the design's section on outcome, each span the smallest that shows it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import Event
from opentelemetry.trace import StatusCode

from otel_error_hygiene.conventions import outcome_of
from otel_error_hygiene.conventions.control import is_cancellation
from otel_error_hygiene.conventions.genai import CONVENTION as GENAI
from otel_error_hygiene.conventions.mcp import CONVENTION as MCP
from otel_error_hygiene.conventions.openinference import CONVENTION as OPENINFERENCE
from otel_error_hygiene.conventions.openllmetry import CONVENTION as OPENLLMETRY
from otel_error_hygiene.model import Outcome

OK, ERROR, UNSET = StatusCode.OK, StatusCode.ERROR, StatusCode.UNSET
SUCCESS, FAILURE, CANCELLED = Outcome.SUCCESS, Outcome.FAILURE, Outcome.CANCELLED


def exception(kind: str, message: str = "m") -> Event:
    """Return an exception event."""
    return Event("exception", {"exception.type": kind, "exception.message": message})


TRACEBACK = 'Traceback (most recent call last):\n\n\n  File "tools.py", line 7, in look\n    raise it\n\n\n'
NOTE = Event("gen_ai.tool.message", {"content": "{}"})

RULES: list[tuple[str, Outcome, StatusCode, list[Event], dict[str, Any]]] = [
    ("nothing said", SUCCESS, UNSET, [], {}),
    ("status OK", SUCCESS, OK, [], {}),
    ("ERROR with no event is a failure", FAILURE, ERROR, [], {}),
    ("UNSET with an event is a failure", FAILURE, UNSET, [exception("ValueError")], {}),
    ("an exception event outweighs status OK", FAILURE, OK, [exception("ValueError")], {}),
    ("an event of another name is none", SUCCESS, OK, [NOTE], {}),
    ("the exception stands among other events", FAILURE, OK, [NOTE, exception("ValueError"), NOTE], {}),
    ("an exception event without a type", FAILURE, UNSET, [Event("exception", {})], {}),
    ("error.type=tool_error", FAILURE, UNSET, [], {"error.type": "tool_error"}),
    ("error.type=timeout", FAILURE, UNSET, [], {"error.type": "timeout"}),
    ("an MCP error's number", FAILURE, ERROR, [], {"error.type": "-32001"}),
    ("an empty error.type says nothing", SUCCESS, UNSET, [], {"error.type": ""}),
    ("gen_ai.tool.status=error", FAILURE, UNSET, [], {"gen_ai.tool.status": "error"}),
    ("gen_ai.tool.status=success", SUCCESS, UNSET, [], {"gen_ai.tool.status": "success"}),
    ("haystack.tool.error", FAILURE, UNSET, [], {"haystack.tool.error": True}),
    ("haystack.tool.error=false", SUCCESS, UNSET, [], {"haystack.tool.error": False}),
    ("langfuse.observation.level=ERROR", FAILURE, UNSET, [], {"langfuse.observation.level": "ERROR"}),
    ("langfuse.observation.level=WARNING", SUCCESS, UNSET, [], {"langfuse.observation.level": "WARNING"}),
    ("prose about errors in a result", SUCCESS, OK, [], {"output.value": "Error: HTTP 404 is explained here"}),
    ("an asyncio cancellation", CANCELLED, ERROR, [exception("asyncio.exceptions.CancelledError")], {}),
    ("a cancellation by its bare name", CANCELLED, UNSET, [exception("CancelledError")], {}),
    ("a cancellation of trio", CANCELLED, ERROR, [exception("trio.Cancelled")], {}),
    ("a cancellation in error.type", CANCELLED, ERROR, [], {"error.type": "CancelledError"}),
    ("Ctrl-C", CANCELLED, ERROR, [exception("KeyboardInterrupt")], {}),
    ("the program's end", CANCELLED, ERROR, [exception("SystemExit")], {}),
    ("a generator's end", CANCELLED, ERROR, [exception("GeneratorExit")], {}),
    ("a look-alike of a cancellation", FAILURE, ERROR, [exception("orders.CancelledError")], {}),
    ("a pause for a human is no failure, and clears nothing", CANCELLED, ERROR,
     [exception("langgraph.errors.GraphInterrupt")], {}),
    ("an interrupt of a node", CANCELLED, OK, [exception("langgraph.errors.NodeInterrupt")], {}),
    ("a hand-over is done", SUCCESS, ERROR, [exception("langgraph.errors.ParentCommand")], {}),
    ("an interrupt in error.type", CANCELLED, ERROR, [], {"error.type": "langgraph.errors.GraphInterrupt"}),
    ("a call that waits for an approval", CANCELLED, ERROR, [exception("pydantic_ai.exceptions.ApprovalRequired")], {}),
    ("a call that waits for a human", CANCELLED, ERROR, [exception("strands.interrupt.InterruptException")], {}),
    ("LangSmith's name for every exception, the real one in its text", CANCELLED, OK,
     [exception("Exception", f"GraphInterrupt(()){TRACEBACK}langgraph.errors.GraphInterrupt: ()\nDuring task x")], {}),
    ("the same of a hand-over", SUCCESS, ERROR,
     [exception("Exception", f"ParentCommand(x){TRACEBACK}langgraph.errors.ParentCommand: Command(goto='b')")], {}),
    ("the same of a cancellation", CANCELLED, ERROR,
     [exception("Exception", f"CancelledError(){TRACEBACK}asyncio.exceptions.CancelledError")], {}),
    ("the same of a failure", FAILURE, OK,
     [exception("Exception", f"KeyError('x'){TRACEBACK}KeyError: 'langgraph.errors.GraphInterrupt'")], {}),
    ("a repr alone proves nothing", FAILURE, ERROR, [exception("Exception", "GraphInterrupt(())")], {}),
    ("a result that is data and says so", FAILURE, OK, [], {"gen_ai.tool.call.result": '{"error": "403 Forbidden"}',
     "output.value": '{"error": "403 Forbidden"}', "traceloop.entity.output": '{"isError": true}'}),
    ("a result that is data and says nothing", SUCCESS, OK, [],
     {"gen_ai.tool.call.result": '{"error": null}', "output.value": '{"exit_code": 1}'}),
    ("gen_ai.task.status=failure", FAILURE, UNSET, [], {"gen_ai.task.status": "failure"}),
    ("a look-alike of control flow", FAILURE, OK, [exception("shop.GraphInterrupt")], {}),
    ("a retry that the tool asked for is a failure", FAILURE, ERROR,
     [exception("pydantic_ai.exceptions.ToolRetryError")], {}),
    ("two events of one exception", FAILURE, ERROR, [exception("ValueError"), exception("ValueError")], {}),
    ("the last of several exceptions stands for the call", CANCELLED, ERROR,
     [exception("ValueError"), exception("asyncio.exceptions.CancelledError")], {}),
]  # fmt: skip


@pytest.mark.parametrize("convention", [GENAI, MCP, OPENINFERENCE, OPENLLMETRY], ids=lambda c: c.name)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
def test_rules_hold_for_every_convention(rule: tuple[Any, ...], convention: Any) -> None:
    """Whoever made the span, the same signs mean the same."""
    _, expected, status, events, attributes = rule
    assert expected is outcome_of(convention, attributes, events, status, None).outcome


def test_the_event_that_stands_for_a_failure_is_the_last() -> None:
    """Where one exception was recorded twice, both say the same; of several, the last ended the call."""
    events = [exception("ValueError", "first"), NOTE, exception("ValueError", "last"), NOTE]
    assert events[2] is outcome_of(GENAI, {}, events, ERROR, None).event
    assert outcome_of(GENAI, {"error.type": "x"}, [], ERROR, None).event is None


class OwnCancelled(asyncio.CancelledError):
    """A subclass, whose name tells nothing."""


@pytest.mark.parametrize(
    "live",
    [asyncio.CancelledError(), OwnCancelled(), concurrent.futures.CancelledError(), KeyboardInterrupt(), SystemExit(1)],
)
@pytest.mark.parametrize("events", [[], [exception("tests.OwnCancelled")]])
@pytest.mark.parametrize("status", [UNSET, ERROR])
def test_a_live_cancellation_is_cancelled(live: BaseException, events: list[Event], status: StatusCode) -> None:
    """Of a live exception the class itself is known, whatever the span says of it."""
    assert CANCELLED is outcome_of(GENAI, {}, events, status, live).outcome


def test_a_live_exception_is_no_failure_by_itself() -> None:
    """A fallback tool that runs inside an ``except`` did not fail."""
    assert SUCCESS is outcome_of(GENAI, {}, [], UNSET, ValueError("handled further out")).outcome


def test_a_subclass_of_control_flow_is_known_when_it_is_live() -> None:
    """Module and class anywhere in the MRO."""
    interrupt = type("GraphInterrupt", (Exception,), {"__module__": "langgraph.errors"})
    own = type("AskHuman", (interrupt,), {"__module__": "shop"})
    assert CANCELLED is outcome_of(GENAI, {}, [exception("shop.AskHuman")], ERROR, own()).outcome
    assert CANCELLED is outcome_of(GENAI, {"error.type": "shop.AskHuman"}, [], ERROR, own()).outcome
    lookalike = type("GraphInterrupt", (Exception,), {"__module__": "shop"})
    assert FAILURE is outcome_of(GENAI, {}, [exception("shop.GraphInterrupt")], ERROR, lookalike()).outcome


def test_a_recorded_name_is_known_by_the_class_that_this_process_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass of control flow or of a cancellation, though only its name is on the span; nothing is imported."""
    interrupt = type("GraphInterrupt", (Exception,), {"__module__": "langgraph.errors"})
    module = ModuleType("shop")
    module.AskHuman = type("AskHuman", (interrupt,), {"__module__": "shop"})  # type: ignore[attr-defined]
    module.Stopped = type("Stopped", (asyncio.CancelledError,), {"__module__": "shop"})  # type: ignore[attr-defined]
    module.GraphInterrupt = type("GraphInterrupt", (Exception,), {"__module__": "shop"})  # type: ignore[attr-defined]
    module.number = 7  # type: ignore[attr-defined]
    for loaded in (False, True):
        if loaded:
            monkeypatch.setitem(sys.modules, "shop", module)
        expected = CANCELLED if loaded else FAILURE
        for name in ("AskHuman", "Stopped"):
            assert expected is outcome_of(GENAI, {}, [exception(f"shop.{name}")], ERROR, None).outcome
        for name in ("GraphInterrupt", "number", "absent"):
            assert FAILURE is outcome_of(GENAI, {}, [exception(f"shop.{name}")], ERROR, None).outcome


@pytest.mark.parametrize(
    ("description", "outcome"),
    [("CancelledError", CANCELLED), ("CancelledError: ", CANCELLED), ("KeyboardInterrupt", CANCELLED),
     ("CancelledError: the order was cancelled", FAILURE), ("the call got a CancelledError", FAILURE), (None, FAILURE)],
)  # fmt: skip
def test_a_status_whose_whole_text_is_a_cancellation(description: str | None, outcome: Outcome) -> None:
    """Langfuse says no more of it."""
    assert outcome is outcome_of(GENAI, {}, [], ERROR, None, description).outcome


@pytest.mark.parametrize(
    ("attributes", "description", "told"),
    [
        ({"gen_ai.tool.call.result": '{"error": "gone"}'}, None, ("tool_error", "gone")),
        ({"gen_ai.tool.call.result": '{"error": "gone"}', "error.type": "GoneError"}, "x", ("GoneError", "gone")),
        ({"gen_ai.tool.call.result": "Error: gone", "error.type": "tool_error"}, None, ("tool_error", "Error: gone")),
        ({"gen_ai.tool.call.result": "Error: gone"}, "the status has words", None),
        ({"error.type": "tool_error"}, None, None),
    ],
)
def test_what_a_result_says_of_a_failure(
    attributes: dict[str, str], description: str | None, told: tuple[str, str] | None
) -> None:
    """As data always; in its own words where the status has none."""
    found = outcome_of(GENAI, attributes, [], ERROR, None, description).told
    assert told == (None if found is None else (found.type, found.message))


def test_a_class_that_tells_nothing_is_judged_by_the_span() -> None:
    """A metaclass may raise whatever it is asked."""

    class Silent(type):
        def __getattribute__(cls, name: str) -> Any:
            raise RuntimeError(name)

    kind: Any = Silent("Kind", (Exception,), {})
    assert FAILURE is outcome_of(GENAI, {}, [exception("Kind")], ERROR, kind()).outcome


def test_groups_are_cancellations_when_nothing_in_them_is_an_exception() -> None:
    """One real failure among the cancellations of its siblings is a failure."""
    assert is_cancellation(BaseExceptionGroup("g", [asyncio.CancelledError(), KeyboardInterrupt()]))
    assert not is_cancellation(BaseExceptionGroup("g", [asyncio.CancelledError(), ValueError()]))
    assert not is_cancellation(ExceptionGroup("g", [ValueError()]))
