"""Canonical arguments: the same call gives the same text, whatever the order of its keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import PurePath
from typing import Any
from uuid import UUID

_MAX_CHARS = 65_536
_PLAIN = (date, time, timedelta, Decimal, UUID, PurePath)
"""Types whose ``str`` is their value."""
_OPAQUE = "\ufffc"
"""OBJECT REPLACEMENT CHARACTER: before the name of a type whose value is not known."""


def canonical(arguments: Any) -> str | None:
    """Return arguments as JSON with sorted keys and no spaces; text that is no JSON stays as it is.

    Args:
        arguments: A mapping, the JSON text of one, any other value, or None when nobody told.

    Returns:
        At most 65 536 characters, or None for None. Never raises: what JSON cannot hold is named by its type, behind
        U+FFFC; such arguments are equal to no others, not even to the same text.
    """
    if arguments is None:
        return None
    try:
        if isinstance(arguments, str):
            text = arguments.strip()
            if len(text) > _MAX_CHARS or not text.startswith(("{", "[", '"')):
                return _bounded(arguments)
            arguments = json.loads(text)
        elif isinstance(arguments, Mapping):
            arguments = {str(key): value for key, value in arguments.items()}
        return _bounded(
            json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_named)
        )
    except Exception:  # recursion, keys that have no order, a mapping or a `__str__` that raises
        return _bounded(arguments) if isinstance(arguments, str) else _named(arguments)


def digest(arguments: str | None) -> str | None:
    """Return a short key for canonical arguments; None when they are unknown, or known in part."""
    if arguments is None or _OPAQUE in arguments:
        return None
    return blake2b(arguments.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _bounded(text: str) -> str:
    # What was cut off still tells one call from another.
    if len(text) <= _MAX_CHARS:
        return text
    rest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: _MAX_CHARS - 17]}…{rest}"


def _named(value: object) -> str:
    if isinstance(value, _PLAIN):
        return str(value)
    return f"{_OPAQUE}{type(value).__module__}.{type(value).__qualname__}"[:200]
