"""Policies: of what the model knew, what a success resolves; the failure of its own call, always."""

from __future__ import annotations

import logging
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from otel_error_hygiene import Settings, _guard, conversation
from otel_error_hygiene.context import ContextBuffer, Rules, Told, policies
from otel_error_hygiene.context.policies import POLICIES, Success
from otel_error_hygiene.errors import ConfigurationError
from otel_error_hygiene.model import Recoverable
from otel_error_hygiene.settings import PolicyName
from tests.conftest import Rig
from tests.context.told import fail

KEPT = {
    "any_later_success": set(),
    "same_tool": {"other", "locked"},
    "same_call": {"other", "locked", "search"},
    "keep_unrecoverable": {"locked"},
    "never": {"other", "locked", "search"},
}
"""Policy -> tools whose failures stay after a success of ``search`` with other arguments."""


def known_failures(buffer: ContextBuffer) -> None:
    """Tell of three failures, and let the model know of them."""
    fail(buffer, "other", ended_ns=1, arguments="a")
    fail(buffer, "locked", ended_ns=2, arguments="a", recoverable=Recoverable.NO)
    fail(buffer, "search", ended_ns=3, arguments="a", call_id="c1")
    buffer.model_called(5)


def tools(buffer: ContextBuffer) -> set[str]:
    """Return the tools of what is pending."""
    return {summary.tool for summary in buffer.pending}


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_keeps_what_its_name_says(policy: str) -> None:
    """By its name, and given as the callable itself."""
    for chosen in (policy, POLICIES[policy]):
        buffer = ContextBuffer("c", prune_policy=chosen)
        known_failures(buffer)
        buffer.resolve("search", "b", "c2", 10)
        assert KEPT[policy] == tools(buffer)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("own", [("search", "a", None), ("search", None, "c1"), ("search", "b", "c1")])
def test_a_success_of_the_same_call_resolves_its_failure_under_every_policy(
    policy: str, own: tuple[str, str | None, str | None]
) -> None:
    """The same id, or the same tool and arguments; also in the same batch, which the model knew nothing of."""
    buffer = ContextBuffer("c", prune_policy=policy)
    buffer.model_called(1)
    fail(buffer, "search", ended_ns=3, arguments="a", call_id="c1")
    assert 1 == len(buffer.resolve(*own, 2))
    assert set() == tools(buffer)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_resolves_what_the_model_did_not_know(policy: str) -> None:
    """The turn-boundary rule comes first: a later call of the same batch hides nothing."""
    buffer = ContextBuffer("c", prune_policy=policy)
    buffer.model_called(1)
    fail(buffer, "search", ended_ns=3, arguments="a")
    assert [] == buffer.resolve("search", "b", None, 10)


def test_the_default_is_any_later_success() -> None:
    """What the sources of the design do."""
    assert policies.any_later_success is Rules().policy is Rules.of(Settings()).policy


def test_a_callable_of_ones_own_decides() -> None:
    """It is told of the failure and of the success, and of nothing that the model did not know."""
    asked: list[tuple[Any, ...]] = []

    def mine(failure: Told, success: Success) -> bool:
        asked.append((failure.tool, failure.arguments, failure.call_id, failure.ended_ns, success))
        return failure.tool == "other"

    buffer = ContextBuffer("c", prune_policy=mine)
    known_failures(buffer)
    fail(buffer, "unknown", ended_ns=7)
    buffer.resolve("search", "b", "c2", 10)
    assert {"locked", "search", "unknown"} == tools(buffer)
    success = Success("search", "b", "c2", 10)
    assert [
        ("other", "a", None, 1, success),
        ("locked", "a", None, 2, success),
        ("search", "a", "c1", 3, success),
    ] == asked


def test_a_callable_runs_without_the_lock() -> None:
    """It may look at the buffer, and what another thread resolved meanwhile is resolved once."""

    def mine(failure: Told, success: Success) -> bool:
        del failure, success
        buffer.clear()
        return not buffer.pending

    buffer = ContextBuffer("c", prune_policy=mine)
    known_failures(buffer)
    assert [] == buffer.resolve("search", "b", None, 10)


@pytest.mark.faults
def test_a_policy_that_raises_resolves_by_the_default(caplog: pytest.LogCaptureFixture) -> None:
    """The tool goes on, the fault is counted each time and logged once."""

    class Answer:
        def __bool__(self) -> bool:
            raise RuntimeError("no answer")

    def broken(failure: Told, success: Success) -> Any:
        del success
        if failure.tool == "other":
            return Answer()
        raise ValueError(failure.tool)

    buffer = ContextBuffer("c", prune_policy=broken)
    known_failures(buffer)
    before = _guard.faults()
    with caplog.at_level(logging.WARNING):
        assert 3 == len(buffer.resolve("search", "b", None, 10))
    assert set() == tools(buffer)
    assert 3 == _guard.faults() - before
    assert 2 == sum("prune_policy" in record.getMessage() for record in caplog.records)


def test_a_callable_that_cannot_be_hashed_is_a_policy_too() -> None:
    """An object with ``__call__`` and ``__eq__``."""

    class Mine:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return self is other

        def __call__(self, failure: Told, success: Success) -> bool:
            return failure.tool == success.tool

    buffer = ContextBuffer("c", prune_policy=Mine())
    known_failures(buffer)
    buffer.resolve("search", "b", None, 10)
    assert {"other", "locked"} == tools(buffer)


def test_a_scope_has_the_rules_of_its_parent() -> None:
    """The settings hold for every agent of a conversation."""
    child = ContextBuffer("c", prune_policy="never").scope("child")
    known_failures(child)
    assert [] == child.resolve("other", "b", None, 10)


def test_the_names_of_the_settings_are_those_of_the_policies() -> None:
    """One list in two floors."""
    assert tuple(POLICIES) == get_args(PolicyName)


def test_settings_choose_by_name_by_variable_and_by_callable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable takes the names."""
    assert policies.same_tool is Rules.of(Settings(prune_policy="same_tool")).policy
    assert policies.never is Rules.of(Settings(prune_policy=policies.never)).policy
    monkeypatch.setenv("OTEL_ERROR_HYGIENE_PRUNE_POLICY", "keep_unrecoverable")
    assert policies.keep_unrecoverable is Rules.of(Settings()).policy


@pytest.mark.parametrize("wrong", ["some_tool", "", None, 3, ["never"]])
def test_a_name_that_does_not_exist_is_a_clear_error(wrong: Any) -> None:
    """It names the value and what would be right."""
    expected = (
        r"\"prune_policy\" is .*; it must be one of 'any_later_success', 'same_tool', 'same_call', "
        r"'keep_unrecoverable', 'never', or a callable"
    )
    with pytest.raises(ValidationError, match=expected) as raised:
        Settings(prune_policy=wrong)
    assert 1 == raised.value.error_count()
    with pytest.raises(ConfigurationError, match=expected):
        ContextBuffer("c", prune_policy=wrong)


def test_the_processor_keeps_to_the_policy_of_its_settings(settings: Settings) -> None:
    """From settings to the buffer of a conversation."""
    rig = Rig(settings.model_copy(update={"prune_policy": "never"}))
    with conversation("c") as errors:
        for text in ("down", None):
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a" if text else "b"}
            with rig.tracer.start_as_current_span("execute_tool", attributes=attributes) as span:
                if text:
                    span.record_exception(ConnectionError(text))
        assert {"a"} == tools(errors)
    rig.provider.shutdown()
