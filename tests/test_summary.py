"""Hints and briefs: the exact templates, and never advice that is false."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_error_hygiene.model import Bucket, Classification, ErrorClass, Recoverable
from otel_error_hygiene.summary import brief_of, hint_of, summary_of

TEMPLATES = {
    ErrorClass.CONNECTIVITY: "Retrying with same parameters.",
    ErrorClass.BAD_REQUEST: "Check parameter format.",
    ErrorClass.AUTH: "Escalate to human — credentials needed.",
    ErrorClass.NOT_FOUND: "Try broader search or different category.",
    ErrorClass.RATE_LIMIT: "Wait and retry.",
    ErrorClass.UPSTREAM: "Fallback to alternative data source.",
    ErrorClass.UNKNOWN: "Log for investigation; continue with available data.",
}
USUAL = {
    ErrorClass.CONNECTIVITY: Recoverable.YES,
    ErrorClass.BAD_REQUEST: Recoverable.MAYBE,
    ErrorClass.AUTH: Recoverable.NO,
    ErrorClass.NOT_FOUND: Recoverable.MAYBE,
    ErrorClass.RATE_LIMIT: Recoverable.YES,
    ErrorClass.UPSTREAM: Recoverable.YES,
    ErrorClass.UNKNOWN: Recoverable.MAYBE,
}


def classified(
    error_class: ErrorClass,
    recoverable: Recoverable | None = None,
    seconds: float | None = None,
    *,
    unanswered: bool = False,
    status: int | None = None,
) -> Classification:
    """Return a classification with the usual recoverable of its class."""
    return Classification(error_class, Bucket.NONE, recoverable or USUAL[error_class], seconds, status, unanswered)


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_each_class_has_its_template_word_for_word(error_class: ErrorClass) -> None:
    """The seven templates of the design."""
    assert TEMPLATES[error_class] == hint_of(classified(error_class))


@pytest.mark.parametrize(("seconds", "shown"), [(30.0, 30), (0.12, 1), (0.0, 1), (7.08, 8), (3600.0, 3600)])
def test_known_seconds_are_rounded_up_and_at_least_one(seconds: float, shown: int) -> None:
    """Waiting too short would be refused again."""
    assert f"Wait {shown} seconds and retry." == hint_of(classified(ErrorClass.RATE_LIMIT, seconds=seconds))


def test_a_request_that_may_have_been_applied_is_not_repeated() -> None:
    """Retrying would be false advice after a POST without an answer."""
    said = hint_of(classified(ErrorClass.CONNECTIVITY, Recoverable.MAYBE, unanswered=True))
    assert "May have been applied; check before repeating." == said


@pytest.mark.parametrize("recoverable", [Recoverable.MAYBE, Recoverable.NO])
def test_a_connection_that_repeating_cannot_mend_says_so(recoverable: Recoverable) -> None:
    """Neither the template, nor that something was applied: nothing was sent."""
    said = hint_of(classified(ErrorClass.CONNECTIVITY, recoverable))
    assert said != TEMPLATES[ErrorClass.CONNECTIVITY]
    assert "applied" not in said


def test_a_spent_quota_is_not_waited_for() -> None:
    """No wait helps against a bill."""
    assert "Quota is used up; escalate to human." == hint_of(classified(ErrorClass.RATE_LIMIT, Recoverable.NO, 5.0))


def test_brief_names_status_and_seconds_in_our_own_words() -> None:
    """Numbers and table words only."""
    said = brief_of(classified(ErrorClass.RATE_LIMIT, seconds=29.5, status=429))
    assert "too many requests, HTTP 429, wait 30 s" == said


@given(
    st.builds(
        Classification,
        st.sampled_from(ErrorClass),
        st.sampled_from(Bucket),
        st.sampled_from(Recoverable),
        st.none() | st.floats(0, 3600),
        st.none() | st.integers(100, 599),
        st.booleans(),
    )
)
def test_hint_and_brief_are_one_bounded_line_for_every_classification(classification: Classification) -> None:
    """Short enough that the line keeps its hint whole."""
    for said, bound in ((hint_of(classification), 80), (brief_of(classification), 80)):
        assert 0 < len(said) <= bound
        assert said.isprintable()


def test_only_the_two_classes_whose_advice_can_be_false_replace_it() -> None:
    """Elsewhere the template's advice is never lost."""
    changed = {
        error_class
        for error_class, recoverable in product(ErrorClass, Recoverable)
        if hint_of(classified(error_class, recoverable)) != TEMPLATES[error_class]
    }
    assert {ErrorClass.CONNECTIVITY, ErrorClass.RATE_LIMIT} == changed


def test_summary_carries_everything_into_the_line() -> None:
    """The line of the design, with status, count and reference."""
    summary = summary_of(
        classified(ErrorClass.RATE_LIMIT, seconds=30.0, status=429),
        tool="search",
        error="HTTPStatusError",
        attempt=3,
        impact=None,
        timestamp=datetime(2026, 11, 30, 18, 0, tzinfo=UTC),
        trace_id="0" * 31 + "1",
        span_id="0" * 15 + "2",
        ref="3f9a2c1d",
    )
    assert "[error] search: rate_limit. Wait 30 seconds and retry. (HTTP 429) x3 ref=3f9a2c1d" == str(summary)
    assert ("HTTPStatusError", Bucket.NONE, Recoverable.YES) == (summary.error, summary.bucket, summary.recoverable)
    assert "too many requests, HTTP 429, wait 30 s" == summary.message
