"""For tests, ours and those of users: make our own faults loud, and keep a test's store to itself.

# conftest.py
from otel_error_hygiene.testing import strict_hygiene
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import _guard


@pytest.fixture
def strict_hygiene(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Re-raise a fault inside our hooks, which production counts and keeps from the agent."""
    monkeypatch.setattr(_guard, "reraise", True)
    before = _guard.faults()
    yield
    assert before == _guard.faults(), "a fault inside otel_error_hygiene was counted during this test"
