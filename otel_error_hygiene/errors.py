"""What the package raises, and only where a mistake of the caller must be heard: constructors, settings, the CLI.

Nothing that runs beside a tool raises (promise P5 of the design).
"""

from __future__ import annotations


class HygieneError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigurationError(HygieneError, ValueError):
    """A constructor or a setting was given something unusable; the text says what would be right."""
