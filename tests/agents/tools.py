"""The tools of the agents: one fails through thirty frames and a chain, one reads what is not there."""

from __future__ import annotations

import errno
from pathlib import Path

FRAMES_BELOW = 14
FRAMES_ABOVE = 14


class ForecastError(RuntimeError):
    """What the tool's own layer makes of a failed connection."""


def connect_to_station() -> str:
    """Raise as a socket does when nobody listens."""
    raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")  # the raising line


def ask_station(depth: int) -> str:
    """Pass through one frame for each step of depth."""
    return ask_station(depth - 1) if depth else connect_to_station()


def ask_service(depth: int) -> str:
    """Pass through one frame for each step of depth, and wrap what the station raises."""
    if depth:
        return ask_service(depth - 1)
    try:
        return ask_station(FRAMES_BELOW)
    except OSError as error:
        raise ForecastError("no forecast for the city") from error


def get_forecast(city: str) -> str:
    """Fail, thirty frames and two exceptions deep."""
    return f"{city}: {ask_service(FRAMES_ABOVE)}"


def get_average(city: str) -> str:
    """Succeed from data that is at hand."""
    return f"{city}: 14 °C in October"


def read_notes(path: str) -> str:
    """Read a file; the agents ask for one that is not there."""
    return Path(path).read_text(encoding="utf-8")
