"""How a tool call ended. The status alone does not tell: see the rules in the docstring of ``outcome_of``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import Event
from opentelemetry.trace import StatusCode

from .. import semconv
from .._sdk import mapping_of
from ..model import Outcome, RecordedException
from ._table import Convention
from .control import CANCELLED_TYPES, kind_told, steered
from .wrapping import failure_told, text_told


class Evidence(NamedTuple):
    """How a span says it ended."""

    outcome: Outcome
    event: Event | None = None
    """The last exception event, which stands for the failure."""
    told: RecordedException | None = None
    """Without such an event: what the result on the span says of the failure."""


_SUCCESS = Evidence(Outcome.SUCCESS)
_MAX_CHARS = 32_768


def outcome_of(
    convention: Convention,
    attributes: Mapping[str, Any],
    events: Sequence[Event],
    status: StatusCode,
    live: BaseException | None,
    description: str | None = None,
) -> Evidence:
    """Decide how a tool call ended.

    An exception event outweighs status OK, except control flow and cancellation; ERROR with no event is a failure;
    ``error.type`` or a flag of the convention is a failure; so is a result that is data and says so (see ``result``);
    prose about errors is not. Control flow is known by the type's whole name, in the event, in ``error.type`` and
    anywhere in the type's MRO: a look-alike is none. A span that says nothing while a cancellation passes through it is
    cancelled.

    Args:
        convention: The convention of the span.
        attributes: Its attributes.
        events: Its events.
        status: Its status code.
        live: The exception that is passing through the span's end, when that is certain; else None.
        description: Its status description.
    """
    event = next((e for e in reversed(events) if e.name == semconv.EXCEPTION_EVENT), None) if events else None
    outcome = convention.ended
    kind = None
    if outcome is None:
        kind = _kind(event, attributes, description)
        outcome = None if kind is None and live is None else steered(kind, live)
    if outcome is not None and outcome is not Outcome.FAILURE:
        return Evidence(outcome)
    if event is not None:
        return Evidence(Outcome.FAILURE, event)
    if outcome is not None or status is StatusCode.ERROR or kind or _flagged(convention, attributes):
        return Evidence(Outcome.FAILURE, None, _told(convention, attributes, description))
    for key in convention.result_keys:
        if key in attributes and (told := failure_told(attributes[key])) is not None:
            return Evidence(Outcome.FAILURE, None, told)
    return _SUCCESS


def _kind(event: Event | None, attributes: Mapping[str, Any], description: str | None) -> Any:
    """Return the type of what ended the call, as the span names it."""
    if event is not None:
        values = mapping_of(event.attributes)
        return kind_told(values.get(semconv.EXCEPTION_TYPE), values.get(semconv.EXCEPTION_MESSAGE))
    kind = attributes.get(semconv.ERROR_TYPE)
    if not kind and description is not None and (only := description.rstrip(": ")) in CANCELLED_TYPES:
        return only  # all that Langfuse says
    return kind


def _flagged(convention: Convention, attributes: Mapping[str, Any]) -> bool:
    return any(attributes.get(key) == value for key, value in convention.failure_flags)


def _told(convention: Convention, attributes: Mapping[str, Any], description: str | None) -> RecordedException | None:
    """Return what the result says of a failure: as data, or, where the status has no words, in its own."""
    error_type = attributes.get(semconv.ERROR_TYPE)
    for key in convention.result_keys:
        if key not in attributes:
            continue
        told = failure_told(attributes[key])
        if told is None and not description and (text := text_told(attributes[key])):
            told = RecordedException(type=semconv.MCP_TOOL_ERROR, message=text[:_MAX_CHARS])
        if told is not None:
            return told if not error_type else told.model_copy(update={"type": str(error_type)[:200]})
    return None
