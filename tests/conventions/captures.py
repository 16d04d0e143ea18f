"""The captured spans of tests/data: a few calls of each in ``spans``, with all texts; all calls in ``captures``."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan

from otel_error_hygiene.testing import spans_from_otlp_json

_DATA = Path(__file__).parent.parent / "data"
FOLDER = _DATA / "spans"
WHOLE = _DATA / "captures"


def names_in(folder: Path) -> list[str]:
    """Return the names of the captures in a folder."""
    return sorted(path.name.removesuffix(".otlp.json.gz") for path in folder.glob("*.otlp.json.gz"))


NAMES = names_in(FOLDER)


@cache
def captured(name: str, folder: Path = FOLDER) -> list[ReadableSpan]:
    """Return the spans of one capture, in the order in which they ended."""
    document = json.loads(gzip.decompress((folder / f"{name}.otlp.json.gz").read_bytes()))
    return sorted(spans_from_otlp_json(document), key=lambda span: (span.end_time or 0, span.start_time or 0))
