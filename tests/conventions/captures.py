"""The captured spans of tests/data/spans."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan

from otel_error_hygiene.testing import spans_from_otlp_json

FOLDER = Path(__file__).parent.parent / "data" / "spans"
NAMES = sorted(path.name.removesuffix(".otlp.json.gz") for path in FOLDER.glob("*.otlp.json.gz"))


@cache
def captured(name: str) -> list[ReadableSpan]:
    """Return the spans of one capture, in the order in which they ended."""
    document = json.loads(gzip.decompress((FOLDER / f"{name}.otlp.json.gz").read_bytes()))
    return sorted(spans_from_otlp_json(document), key=lambda span: (span.end_time or 0, span.start_time or 0))
