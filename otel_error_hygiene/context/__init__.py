"""Context: what the model is told, for as long as it matters."""

from __future__ import annotations

from .buffer import Cleared, ContextBuffer, Told
from .scope import Conversations, bound_buffer

__all__ = ["Cleared", "ContextBuffer", "Conversations", "Told", "bound_buffer"]
