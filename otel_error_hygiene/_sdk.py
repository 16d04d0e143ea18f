"""Short cuts into the SDK's objects, which fall back to their public side.

The public properties wrap a mapping twice and take a lock for each key; on the tool's thread that costs more than all
that we do with the values (measured: docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping_of(attributes: Any) -> Mapping[str, Any]:
    """Return attributes of a span, an event, a link or a scope as the mapping that holds them; {} for None."""
    try:
        found: Mapping[str, Any] = attributes._dict  # noqa: SLF001
    except AttributeError:
        return attributes or {}
    return found


def span_attributes(span: Any) -> Mapping[str, Any]:
    """Return a span's attributes as the mapping that holds them."""
    try:
        found: Mapping[str, Any] = span._attributes._dict  # noqa: SLF001
    except AttributeError:
        return span.attributes or {}
    return found
