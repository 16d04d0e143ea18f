"""Two failures are the same when type and message agree after ids, numbers, addresses and paths are set aside."""

from __future__ import annotations

import re
from hashlib import blake2b

from ..model import ExceptionNode

_VARYING = re.compile(
    r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{13,}\b|\b(?=\w*\d)[\w-]{12,}\b|(?:[\w.-]*[/\\]){2,}[\w.-]*|\d+"
)
_MAX_CHARS = 400
_MAX_NODES = 8


def fingerprint(node: ExceptionNode) -> str:
    """Return 16 hex digits for the kind of failure that ``node`` is."""
    parts: list[str] = []
    step: ExceptionNode | None = node
    while step is not None and len(parts) < 2 * _MAX_NODES:
        parts += (step.type, _VARYING.sub("#", step.message[:_MAX_CHARS]))
        step = step.cause or step.context
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
