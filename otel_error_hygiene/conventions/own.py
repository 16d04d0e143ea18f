"""Conventions of the user's own: a callable that reads a span, asked before ours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from .. import semconv
from .._guard import fault
from ..errors import ConfigurationError
from ..model import Outcome, ToolCall
from ._table import Convention, Kind

Reading = ToolCall | tuple[ToolCall, Outcome] | Kind | None
"""What a reader may say of a span: a tool call, whose outcome our rules decide; a tool call and how it ended;
``Kind.MODEL`` or ``Kind.AGENT`` for a model call or an agent; ``Kind.OTHER`` for a span that is nothing of these,
whatever our conventions say; None for a span that it does not know."""
Reader = Callable[[ReadableSpan], Reading]

readers: tuple[Reader, ...] = ()
"""Asked in this order; swapped as a whole, so that asking needs no lock."""
_lock = threading.Lock()


def register_convention(reader: Reader) -> Reader:
    """Recognise spans of a convention that we do not know; also a decorator.

    ``reader`` is called on the tool's thread for every span that ends, so it should look at one attribute and return
    None at once for the spans that are not its own. Those registered first are asked first, and ours last; the first
    answer that is not None counts. One that raises, or answers with anything else, is passed over: the fault is counted
    in ``stats().internal_errors`` and logged once.

        @register_convention
        def legacy(span):
            name = span.attributes.get("acme.tool")
            return None if name is None else ToolCall(tool=name, conversation=span.attributes.get("acme.chat"))

    Args:
        reader: Takes the ended span; returns a ``ToolCall``, a ``(ToolCall, Outcome)``, a ``Kind``, or None.

    Returns:
        ``reader`` itself. Registering it twice changes nothing.

    Raises:
        ConfigurationError: ``reader`` is not callable.
    """
    global readers
    if not callable(reader):
        raise ConfigurationError(f'"reader" is {reader!r}; it must be a callable that takes a span')
    with _lock:
        if reader not in readers:
            readers = (*readers, reader)
    return reader


def unregister_convention(reader: Reader) -> None:
    """Ask ``reader`` no more; nothing happens when it was never registered."""
    global readers
    with _lock:
        readers = tuple(known for known in readers if known != reader)


def read_own(span: ReadableSpan, base: Convention) -> tuple[Kind, Convention] | None:
    """Ask the user's conventions; None when none of them knows the span.

    Args:
        span: The ended span.
        base: What decides the outcome where the reader leaves it to our rules.
    """
    for reader in readers:
        try:
            reading = reader(span)
            if reading is not None:
                return _understood(reading, base)
        except Exception as error:
            fault("convention", error)
    return None


def with_conversation(attributes: Mapping[str, Any], convention: Convention) -> Mapping[str, Any]:
    """Return the attributes as if they named the conversation of a call that a convention of the user's has read."""
    call = convention.given
    if call is None or call.conversation is None:
        return attributes
    return {**attributes, semconv.GEN_AI_CONVERSATION_ID: call.conversation}


def _understood(reading: Any, base: Convention) -> tuple[Kind, Convention]:
    if isinstance(reading, ToolCall):
        return Kind.TOOL, base._replace(given=reading)
    if isinstance(reading, tuple) and len(reading) == 2 and isinstance(reading[0], ToolCall):
        return Kind.TOOL, base._replace(given=reading[0], ended=Outcome(reading[1]))
    if isinstance(reading, Kind) and reading is not Kind.TOOL:
        return reading, base
    raise ConfigurationError(f"a convention's reader returned {reading!r}; a ToolCall, a pair, a Kind or None is right")
