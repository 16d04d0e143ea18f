"""Canonical arguments: the same call gives the same text, whatever the order of its keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

_MAX_CHARS = 65_536


def canonical(arguments: Any) -> str | None:
    """Return arguments as JSON with sorted keys and no spaces; text that is no JSON stays as it is.

    Args:
        arguments: A mapping, the JSON text of one, any other value, or None when nobody told.

    Returns:
        At most 65 536 characters, or None for None. Never raises: what JSON cannot hold is named by its type.
    """
    if arguments is None:
        return None
    try:
        if isinstance(arguments, str):
            if len(arguments) > _MAX_CHARS or arguments[:1] not in '{["':
                return arguments[:_MAX_CHARS]
            arguments = json.loads(arguments)
        elif isinstance(arguments, Mapping):
            arguments = {str(key): value for key, value in arguments.items()}
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_named)
        return text[:_MAX_CHARS]
    except (ValueError, TypeError, RecursionError):
        return arguments[:_MAX_CHARS] if isinstance(arguments, str) else f"<{type(arguments).__name__}>"


def digest(arguments: str | None) -> str | None:
    """Return a short key for canonical arguments, or None when they are unknown."""
    if arguments is None:
        return None
    return blake2b(arguments.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _named(value: object) -> str:
    return f"<{type(value).__module__}.{type(value).__qualname__}>"
