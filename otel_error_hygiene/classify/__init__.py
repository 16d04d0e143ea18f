"""Classify: from the evidence of a failure to its class, its bucket, whether it can recover, and how long to wait."""

from __future__ import annotations

from .decide import classify

__all__ = ["classify"]
