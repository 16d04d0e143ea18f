"""Exceptions that are no failure: cancellations, and those by which a framework steers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import sys
from collections.abc import Mapping
from typing import Any

from ..model import Outcome

CANCELLED_TYPES = frozenset({
    "asyncio.exceptions.CancelledError", "asyncio.CancelledError", "CancelledError",
    "concurrent.futures._base.CancelledError", "concurrent.futures.CancelledError", "trio.Cancelled",
    "KeyboardInterrupt", "SystemExit", "GeneratorExit",
})  # fmt: skip
CONTROL_FLOW: Mapping[Any, Outcome] = {
    # LangGraph raises these to pause for a human, neither success nor failure, and to hand over, which is done.
    "langgraph.errors.GraphBubbleUp": Outcome.CANCELLED,
    "langgraph.errors.GraphInterrupt": Outcome.CANCELLED,
    "langgraph.errors.NodeInterrupt": Outcome.CANCELLED,
    "langgraph.errors.ParentCommand": Outcome.SUCCESS,
    # A call that waits for a human or for somebody else's work. ModelRetry is none of these: it is a failure.
    "pydantic_ai.exceptions.ApprovalRequired": Outcome.CANCELLED,
    "pydantic_ai.exceptions.CallDeferred": Outcome.CANCELLED,
    "pydantic_ai.exceptions.SkipToolExecution": Outcome.CANCELLED,
    "strands.interrupt.InterruptException": Outcome.CANCELLED,
    "workflows.runtime.types.results.WaitingForEvent": Outcome.CANCELLED,  # LlamaIndex
    "agno.exceptions.StopAgentRun": Outcome.CANCELLED,  # ends the run; RetryAgentRun is a failure, as ModelRetry
}
ASKS_AGAIN = frozenset({"pydantic_ai.exceptions.ModelRetry", "agno.exceptions.RetryAgentRun"})
"""Failures by which a tool's author tells the model what to do otherwise: their text is the advice."""
_NAMELESS = frozenset({"Exception", "BaseException", "builtins.Exception"})
_RAISED = re.compile(r"((?:[^\W\d]\w*\.)*[^\W\d]\w*)(?::|$)").match


def is_cancellation(error: BaseException) -> bool:
    """Tell a cancellation or an exit of the program from a failure.

    Exits (``SystemExit``, ``KeyboardInterrupt``, ``GeneratorExit``) and every other exception that is not an
    ``Exception`` count, groups when nothing in them is one.
    """
    if isinstance(error, BaseExceptionGroup):
        return not isinstance(error, Exception) and error.split(Exception)[0] is None
    return not isinstance(error, Exception) or isinstance(
        error, (asyncio.CancelledError, concurrent.futures.CancelledError)
    )


def kind_told(kind: Any, message: Any) -> Any:
    """Return the type that an exception event names, or, where it names none, the one that its text does.

    LangSmith calls every exception ``Exception`` and puts the whole traceback into the message.
    """
    if kind not in _NAMELESS or not isinstance(message, str):
        return kind
    _, traceback, tail = message.rpartition("Traceback (most recent call last)")
    if traceback:
        for line in tail.splitlines()[1:]:
            if line and not line[0].isspace():
                found = _RAISED(line)
                return found[1] if found is not None else kind
    return kind


def steered(kind: Any, live: BaseException | None) -> Outcome | None:
    """Return how a call ended that a framework's control flow or a cancellation left, None for any other.

    Types are known by module and class anywhere in their MRO, so a look-alike is none: of a live exception that of its
    class, of a recorded name that of the class if this process has loaded it.

    Args:
        kind: The type's whole name, as the span tells it.
        live: The exception itself, when that is certain; else None.
    """
    if live is not None and is_cancellation(live):
        return Outcome.CANCELLED
    if not isinstance(kind, str):
        kind = None
    if kind in CANCELLED_TYPES:
        return Outcome.CANCELLED
    found = CONTROL_FLOW.get(kind)
    if found is not None:
        return found
    try:
        cls = _class_named(kind) if live is None else type(live)
        for base in () if cls is None else cls.__mro__:
            name = f"{base.__module__}.{base.__qualname__}"
            found = CONTROL_FLOW.get(name) or (Outcome.CANCELLED if name in CANCELLED_TYPES else None)
            if found is not None:
                return found
    except Exception:  # a metaclass may do anything
        return None
    return None


def _class_named(kind: str | None) -> type | None:
    """Return the class of this name in a module that is loaded; nothing is imported."""
    module, _, name = (kind or "").rpartition(".")
    cls = getattr(sys.modules.get(module), name, None) if module else None
    return cls if isinstance(cls, type) and issubclass(cls, BaseException) else None
