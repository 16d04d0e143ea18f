"""Every capture, span by span, against tables that were written by reading them."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_error_hygiene.conventions import Convention, Kind, agent_of, call_of, outcome_of, recognise
from otel_error_hygiene.model import Outcome
from tests.conventions.captures import WHOLE, captured, names_in
from tests.conventions.replays import BOUNDARIES, FACTS, OUTCOMES, Facts

NAMES = names_in(WHOLE)
SIGN = {Outcome.SUCCESS: "", Outcome.FAILURE: "!", Outcome.CANCELLED: "~"}


def spans_of(name: str, kind: Kind) -> list[tuple[ReadableSpan, Convention]]:
    """Return the spans of one kind, each with its convention."""
    found = []
    for span in captured(name, WHOLE):
        known = recognise(span.attributes or {}, span.name)
        if known is not None and known[0] is kind:
            found.append((span, known[1]))
    return found


def told(span: ReadableSpan, convention: Convention) -> str:
    """Return the word for a tool span, as the tables have it."""
    attributes, status = span.attributes or {}, span.status
    evidence = outcome_of(convention, attributes, span.events, status.status_code, None, status.description)
    return call_of(convention, span.name, attributes, span.events).tool + SIGN[evidence.outcome]


def test_every_capture_has_its_rows() -> None:
    """No capture goes unread."""
    assert NAMES == sorted(OUTCOMES) == sorted(BOUNDARIES)
    assert [name for name in NAMES if OUTCOMES[name]] == sorted(FACTS)


@pytest.mark.parametrize("name", NAMES)
def test_tools_and_outcomes(name: str) -> None:
    """Every tool call, no other span, each with the name that the model knows and its outcome."""
    assert OUTCOMES[name].split() == [told(span, convention) for span, convention in spans_of(name, Kind.TOOL)]


@pytest.mark.parametrize("name", FACTS)
def test_call_id_arguments_conversation_and_agent(name: str) -> None:
    """Whatever the instrumentation wraps around them."""
    spans = spans_of(name, Kind.TOOL)
    calls = [
        call_of(convention, span.name, span.attributes or {}, span.events)
        for span, convention in (spans[0], spans[2], spans[3])
    ]
    assert FACTS[name] == tuple(Facts(c.call_id, c.arguments, c.conversation, c.agent) for c in calls)


@pytest.mark.parametrize("name", NAMES)
def test_model_calls_and_agents(name: str) -> None:
    """Model calls are turn boundaries, agents are scopes; both are known in every convention that has them."""
    models, agents = spans_of(name, Kind.MODEL), spans_of(name, Kind.AGENT)
    named = {agent_of(convention, span.attributes or {}, span.name) for span, convention in agents}
    assert BOUNDARIES[name] == (len(models), len(agents), named)


def test_the_captures_are_small() -> None:
    """They live in the repository."""
    assert sum(path.stat().st_size for path in WHOLE.parent.rglob("*.*")) < 600_000
