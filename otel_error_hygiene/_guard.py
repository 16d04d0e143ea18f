"""Keep our own failures from the agent: catch, count, log once. Loud in tests.

``reraise`` is switched on by the fixture in ``otel_error_hygiene.testing``; in production a fault
of ours must never become the tool's fault (a raising span processor replaces the user's exception).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

logger = logging.getLogger("otel_error_hygiene")

reraise = False
"""True only under our tests and under those of users who ask for it."""

_lock = threading.Lock()
_said: set[str] = set()
_faults: Counter[str] = Counter()
_MAX_SAID = 1000


def fault(where: str, error: BaseException) -> None:
    """Count a fault of ours and log it the first time; re-raise it where tests ask for it.

    Args:
        where: The hook or worker that failed, a constant of the code.
        error: What it raised.
    """
    with _lock:
        _faults[where] += 1
    say_once(
        f"fault:{where}:{type(error).__name__}", "internal fault in %s, the agent is not affected", where, exc=error
    )
    if reraise:
        raise error


def faults() -> int:
    """Count of all faults so far in this process."""
    with _lock:
        return sum(_faults.values())


def say_once(key: str, text: str, *args: object, exc: BaseException | None = None) -> None:
    """Log a WARNING the first time that ``key`` is seen in this process."""
    with _lock:
        if key in _said or len(_said) >= _MAX_SAID:
            return
        _said.add(key)
    logger.warning(text, *args, exc_info=exc)
