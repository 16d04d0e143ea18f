"""Capture: everything that is known of an exception, as data, bounded, without ever raising."""

from __future__ import annotations

from .fingerprint import fingerprint
from .parse import holds_stack, parse_stack, unfolded
from .stacktext import format_node
from .tree import Limits, capture, qualified_name, safe_str

__all__ = [
    "Limits",
    "capture",
    "fingerprint",
    "format_node",
    "holds_stack",
    "parse_stack",
    "qualified_name",
    "safe_str",
    "unfolded",
]
