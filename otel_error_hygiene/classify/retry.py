"""When to try again: seconds from headers, dates, resets and text. Garbage says nothing, the absurd is capped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

from .. import semconv
from ..model import Scalar

MAX_SECONDS: Final = 3600.0
"""Longer waits are capped: an agent's task does not outlive them."""

_NUMBER: Final = re.compile(r"\d{1,18}(?:\.\d{1,9})?", re.ASCII)
_UNITS: Final[Mapping[str, float]] = {
    "ms": 0.001,
    "millisecond": 0.001,
    "milliseconds": 0.001,
    "s": 1,
    "sec": 1,
    "secs": 1,
    "second": 1,
    "seconds": 1,
    "m": 60,
    "min": 60,
    "mins": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3600,
    "hour": 3600,
    "hours": 3600,
}
_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?([a-z]{1,12})", re.ASCII)
_DURATION: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})? ?(?:ms|h|m|s))+", re.ASCII)
_TEXT: Final = re.compile(
    r"(?:(?:retry|again|wait|reset|resets|available)(?:ing)?(?: again)?(?: after| in| for|:)?(?: about| at least)?"
    r"|['\"]?retry_?(?:after|delay|in)['\"]?\s?[:={]\s?(?:\{?\s*seconds:)?) ?['\"]?"
    r"((?:\d{1,9}(?:\.\d{1,9})? ?(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h)(?![a-z]) ?)+"
    r"|\d{1,9}(?:\.\d{1,9})?(?=['\"\s,})]|$))",
    re.IGNORECASE | re.ASCII,
)
_DRAFT_RESET: Final = re.compile(r"\bt=(\d{1,9})\b", re.ASCII)


def _capped(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_SECONDS)


def _duration(text: str) -> float | None:
    total, found = 0.0, False
    for number, unit in _PART.findall(text):
        if unit in _UNITS:
            total, found = total + float(number) * _UNITS[unit], True
    return total if found else None


def _moment(text: str, now: float) -> float | None:
    """Return the seconds until an HTTP date (RFC 9110, 5.6.7) or an RFC 3339 time."""
    try:
        when = datetime.fromisoformat(text) if text[:4].isdigit() else parsedate_to_datetime(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError, OSError):
        return None


def seconds_of(value: str, now: float, *, millis: bool = False) -> float | None:
    """Read the value of one header: a number, a duration, a date or an epoch.

    Args:
        value: What the header says.
        now: Seconds since the epoch.
        millis: True when the header's name says milliseconds.

    Returns:
        Seconds from ``now``, between 0 and 3600; None for garbage.
    """
    value = value.strip()
    if _NUMBER.fullmatch(value):
        number = float(value)
        if millis:
            number /= 1000
        if number > 1e11:
            number /= 1000  # an epoch in milliseconds
        return _capped(number - now if number > 1e9 else number)
    if _DURATION.fullmatch(value):
        seconds = _duration(value)
    elif draft := _DRAFT_RESET.search(value):
        seconds = float(draft[1])
    else:
        seconds = _moment(value, now) if 10 <= len(value) <= 64 else None
    return None if seconds is None else _capped(seconds)


def from_facts(facts: Mapping[str, Scalar], now: float) -> float | None:
    """Take the wait that facts name: an attribute, Retry-After, then the reset of an exhausted limit."""
    told = facts.get(semconv.RETRY_AFTER_SECONDS)
    if isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < 1e12:
        return _capped(told)
    prefix = semconv.HTTP_RESPONSE_HEADER
    headers = {key[len(prefix) :]: str(value) for key, value in facts.items() if key.startswith(prefix)}
    if not headers:
        return None
    for name, value in headers.items():
        if "retry-after" in name and (seconds := seconds_of(value, now, millis=name.endswith("-ms"))) is not None:
            return seconds
    waits: list[float] = []
    for name, value in headers.items():
        if "reset" not in name and name != "ratelimit":
            continue
        twin = name.replace("-reset-after", "-reset").replace("reset", "remaining")
        left = headers.get(twin) if twin != name else None
        seconds = seconds_of(value, now)
        if seconds is not None and left in (None, "0"):
            if left == "0":
                return seconds
            waits.append(seconds)
    return min(waits) if waits else None


@lru_cache(maxsize=512)
def from_text(message: str) -> float | None:
    """Find "retry in 20s", "try again in 120ms", ``retryDelay: 36s`` and their kin in a message."""
    found = _TEXT.search(message)
    if found is None:
        return None
    text = found[1].strip().lower()
    seconds = float(text) if _NUMBER.fullmatch(text) else _duration(text)
    return None if seconds is None else _capped(seconds)
