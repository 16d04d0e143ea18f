"""Recognise: is this span a tool call, whose, and how did it end? Decided in ``on_end``, for many tell late."""

from __future__ import annotations

from ._table import Convention, Kind
from .arguments import canonical, digest
from .outcome import Evidence, outcome_of
from .recognise import call_of, conversation_of, recognise, unmarked, unnamed, untroubled

__all__ = [
    "Convention",
    "Evidence",
    "Kind",
    "call_of",
    "canonical",
    "conversation_of",
    "digest",
    "outcome_of",
    "recognise",
    "unmarked",
    "unnamed",
    "untroubled",
]
