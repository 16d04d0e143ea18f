"""``python -m otel_error_hygiene.cli``."""

from __future__ import annotations

from . import main

main()
