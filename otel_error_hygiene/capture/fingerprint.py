"""Two failures are the same when type and message agree after ids, numbers, addresses and paths are set aside."""

from __future__ import annotations

import re
from hashlib import blake2b

from ..model import ExceptionNode

_VARYING = re.compile(
    r"0x[0-9a-fA-F]+"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{13,}\b"  # UUID
    r"|\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{6,}\b"  # hashes, short request ids
    r"|\b(?=[\w-]*\d)[\w-]{12,}\b"
    r"|(?:\b[A-Za-z]:)?(?:[\w.-]{0,100}[/\\]){2,}[\w.-]*"  # paths
    r"|\d+"
)
_MAX_CHARS = 400
_MAX_NODES = 8


def _steady(message: str) -> str:
    # Word by word: most words have nothing that varies, and the pattern would try each of their letters.
    return " ".join([word if word.isalpha() else _VARYING.sub("#", word) for word in message.split(" ")])


def fingerprint(node: ExceptionNode) -> str:
    """Return 16 hex digits for the kind of failure that ``node`` is.

    Args:
        node: The failure. Up to 8 exceptions count, the chain before the members of groups (whose own messages are
            often all the same), each with the first 400 characters of its message.
    """
    parts: list[str] = []
    waiting = [node]
    while waiting and len(parts) < 2 * _MAX_NODES:
        step: ExceptionNode | None = waiting.pop(0)
        while step is not None and len(parts) < 2 * _MAX_NODES:
            parts += (step.type, _steady(step.message[:_MAX_CHARS]))
            waiting += step.group[:_MAX_NODES]
            step = step.cause or step.context
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
