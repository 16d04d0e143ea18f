"""Recognise: is this span a tool call, whose, and how did it end? Decided in ``on_end``, for many tell late."""

from __future__ import annotations

from . import own
from ._table import Convention, Kind
from .arguments import canonical, digest
from .outcome import Evidence, outcome_of
from .own import register_convention, unregister_convention, with_conversation
from .recognise import (
    NAME_HINT,
    agent_of,
    call_of,
    conversation_of,
    recognise,
    recognise_span,
    results_are_fine,
    unmarked,
    unnamed,
    untroubled,
)

__all__ = [
    "NAME_HINT",
    "Convention",
    "Evidence",
    "Kind",
    "agent_of",
    "call_of",
    "canonical",
    "conversation_of",
    "digest",
    "outcome_of",
    "own",
    "recognise",
    "recognise_span",
    "register_convention",
    "results_are_fine",
    "unmarked",
    "unnamed",
    "unregister_convention",
    "untroubled",
    "with_conversation",
]
