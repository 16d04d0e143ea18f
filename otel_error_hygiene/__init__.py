"""Full trace to the backend, one line to the agent.

    import otel_error_hygiene as hygiene

    hygiene.install()
    with hygiene.conversation("support-42") as errors:
        ...
        prompt = errors.render()

Everything public stands here; it is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .boundary import tool_call
    from .context import ContextBuffer
    from .conventions import Kind, register_convention
    from .errors import ConfigurationError, HygieneError
    from .installer import install
    from .machine.processor import ErrorHygieneSpanProcessor
    from .model import (
        Bucket,
        ErrorClass,
        ErrorSummary,
        ForensicRecord,
        Outcome,
        RecordedException,
        Recoverable,
        Stats,
        ToolCall,
    )
    from .settings import Settings
    from .verbs import conversation, recall, report_error, summarize

__version__ = "0.1.0"

_HOME = {
    "Bucket": "model",
    "ConfigurationError": "errors",
    "ContextBuffer": "context",
    "ErrorClass": "model",
    "ErrorHygieneSpanProcessor": "machine.processor",
    "ErrorSummary": "model",
    "ForensicRecord": "model",
    "HygieneError": "errors",
    "Kind": "conventions",
    "Outcome": "model",
    "RecordedException": "model",
    "Recoverable": "model",
    "Settings": "settings",
    "Stats": "model",
    "ToolCall": "model",
    "conversation": "verbs",
    "install": "installer",
    "recall": "verbs",
    "register_convention": "conventions",
    "report_error": "verbs",
    "summarize": "verbs",
    "tool_call": "boundary",
}

__all__ = [
    "Bucket",
    "ConfigurationError",
    "ContextBuffer",
    "ErrorClass",
    "ErrorHygieneSpanProcessor",
    "ErrorSummary",
    "ForensicRecord",
    "HygieneError",
    "Kind",
    "Outcome",
    "RecordedException",
    "Recoverable",
    "Settings",
    "Stats",
    "ToolCall",
    "conversation",
    "install",
    "recall",
    "register_convention",
    "report_error",
    "summarize",
    "tool_call",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
