"""Context: what the model is told, for as long as it matters."""

from __future__ import annotations

from .attempts import Attempt
from .buffer import ContextBuffer
from .entry import Cleared, Taken, Told
from .rules import Rules
from .scope import Conversations, bound_buffer

__all__ = ["Attempt", "Cleared", "ContextBuffer", "Conversations", "Rules", "Taken", "Told", "bound_buffer"]
