"""Conventions of the user's own: asked first, guarded, and free of cost when there are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_error_hygiene import ConfigurationError, Kind, Outcome, ToolCall, register_convention
from otel_error_hygiene.conventions import own, unregister_convention
from tests.conftest import Rig

DOCUMENT = Path(__file__).parents[2] / "docs" / "conventions.md"
CALL = ToolCall(tool="acme-look", call_id="a1", arguments='{"q":1}', conversation="a")


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    """Forget what a test registered."""
    yield
    for reader in own.readers:
        unregister_convention(reader)


def end(rig: Rig, name: str = "work", status: StatusCode = StatusCode.UNSET, **attributes: Any) -> None:
    """Let a span end, dots in the keys written as double underscores."""
    with rig.tracer.start_as_current_span(name) as span:
        span.set_attributes({key.replace("__", "."): value for key, value in attributes.items()})
        span.set_status(status)


def test_a_call_that_a_reader_knows_is_told_to_its_conversation(rig: Rig) -> None:
    """Its outcome is decided by our rules: status, events, flags, results that are data."""
    register_convention(lambda span: CALL if span.name == "acme" else None)
    end(rig, "acme", StatusCode.ERROR)
    assert "[error] acme-look: unknown." in rig.processor.conversation("a").render()
    end(rig, "acme")
    assert "[error]" not in rig.processor.conversation("a").render()
    end(rig, "acme", gen_ai__tool__call__result='{"error": "404 Not Found"}')
    assert "[error] acme-look: not_found." in rig.processor.conversation("a").render()


@pytest.mark.parametrize(
    ("status", "outcome", "seen"),
    [
        (StatusCode.UNSET, Outcome.FAILURE, 1), (StatusCode.OK, Outcome.FAILURE, 1),
        (StatusCode.ERROR, Outcome.SUCCESS, 0), (StatusCode.ERROR, Outcome.CANCELLED, 0),
        (StatusCode.UNSET, "cancelled", 0),
    ],
)  # fmt: skip
def test_a_reader_that_tells_the_outcome_has_the_last_word(
    rig: Rig, status: StatusCode, outcome: Any, seen: int
) -> None:
    """Whatever the span itself says."""
    register_convention(lambda _: (CALL, outcome))
    end(rig, "acme", status)
    assert seen == rig.processor.stats().seen


def test_users_are_asked_in_their_order_and_before_ours(rig: Rig) -> None:
    """The first answer counts; ``Kind.OTHER`` keeps a span from all others."""
    asked: list[str] = []

    def first(span: ReadableSpan) -> Any:
        asked.append("first")
        return Kind.OTHER if span.name == "execute_tool nothing" else None

    @register_convention
    def second(_: ReadableSpan) -> Any:
        asked.append("second")

    unregister_convention(second)
    for reader in (first, second, first):
        register_convention(reader)
    end(rig, "execute_tool nothing", StatusCode.ERROR, gen_ai__operation__name="execute_tool")
    assert (["first"], 0) == (asked, rig.processor.stats().seen)
    end(rig, "execute_tool look", StatusCode.ERROR, gen_ai__operation__name="execute_tool")
    assert (["first", "first", "second"], 1) == (asked, rig.processor.stats().seen)


def test_a_model_call_of_the_users_is_a_turn_boundary(rig: Rig) -> None:
    """What had failed before it, the model knew; so a later success of any tool resolves it."""
    known: dict[str, Any] = {
        "model": Kind.MODEL,
        "acme": CALL,
        "other": CALL.model_copy(update={"tool": "other", "call_id": "a2"}),
    }
    register_convention(lambda span: known.get(span.name))
    errors = rig.processor.conversation("a")
    end(rig, "model", gen_ai__conversation__id="a")
    end(rig, "acme", StatusCode.ERROR)
    end(rig, "other")
    assert "[error] acme-look" in errors.render()
    end(rig, "model", gen_ai__conversation__id="a")
    end(rig, "other")
    assert "[error]" not in errors.render()


@pytest.mark.faults
@pytest.mark.parametrize("answer", ["acme", (CALL, "maybe"), (CALL,), Kind.TOOL, 7, RuntimeError("broken")])
def test_a_bad_reader_is_passed_over_and_counted(rig: Rig, answer: Any) -> None:
    """The next one is asked, the span goes its way, and the tool never hears of it."""

    def bad(_: ReadableSpan) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    register_convention(bad)
    register_convention(lambda _: CALL)
    before = rig.processor.stats().internal_errors
    end(rig, "acme", StatusCode.ERROR)
    assert (1, before + 1) == (rig.processor.stats().seen, rig.processor.stats().internal_errors)


def test_what_is_no_callable_is_refused() -> None:
    """A registration is set-up, and set-up raises."""
    with pytest.raises(ConfigurationError, match='"reader" is 7; it must be a callable'):
        register_convention(7)  # type: ignore[arg-type]
    unregister_convention(lambda _: None)
    assert () == own.readers


def test_the_example_of_the_document_runs(rig: Rig) -> None:
    """As it is pasted (STYLE, habit 11)."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert 1 == len(blocks)
    exec(compile(blocks[0], str(DOCUMENT), "exec"), {})  # noqa: S102 - the example is ours
    end(rig, acme__tool="look", acme__chat="a")
    assert 0 == rig.processor.stats().seen
    end(rig, acme__tool="look", acme__chat="a", acme__verdict="rejected")
    assert rig.processor.conversation("a").render().startswith("[error] look: ")
