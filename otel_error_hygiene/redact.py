"""Redact: hide secrets in what goes to the trace, and make text safe for the context.

Trace policy: ``mask`` keeps the text and hides the secret. Context policy: ``sanitize`` lets
through one physical line of plain words. Masking is memoised per line because the lines of stack
texts repeat; a whole text without any of the tell-tales is passed on after a few substring searches.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

HIDDEN: Final = "[redacted]"

_TELL_TALES: Final = (
    "key", "Key", "KEY", "oken", "OKEN", "ecret", "ECRET", "assw", "ASSW", "pwd", "PWD", "://", "earer",
    "uthorization", "AUTHORIZATION", "ookie", "sk-", "gh", "xox", "AKIA", "ASIA", "eyJ", "glpat-", "AIza",
    "ignature", "redential", "sig=",
)  # fmt: skip

_NAMES: Final = (
    r"(?:[\w-]*(?:api[_-]?key|access[_-]?key|secret|password|passwd|token|credential|signature)[\w-]*"
    r"|pwd|sig|authorization|proxy-authorization|cookie|set-cookie|x-api-key)"
)
_SECRETS: Final = (
    # RFC 3986 section 3.2.1: user information in a URI; the password is the secret.
    (re.compile(r"(?<=://)([^\s:/@'\"]{0,64}):([^\s/@'\"]{1,256})(?=@)"), r"\1:" + HIDDEN),
    # RFC 6750 and RFC 7617: credentials of an Authorization header.
    (re.compile(r"\b(Bearer|Basic|Token)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), r"\1 " + HIDDEN),
    # RFC 7519: a JSON web token begins with the base64 of '{"'.
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}"), HIDDEN),
    # Prefixes that the issuers publish for secret scanners.
    (
        re.compile(
            r"\b(?:sk-[A-Za-z0-9_-]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|xox[a-z]-[A-Za-z0-9-]{8,}"
            r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|glpat-[\w-]{16,}|AIza[\w-]{30,})"
        ),
        HIDDEN,
    ),
    # name=value, name: value, "name": "value"; the value may carry a scheme (already hidden above).
    (
        re.compile(rf"(?i)({_NAMES}['\"]?\s*[:=]\s*)(?!{re.escape(HIDDEN)})(\"[^\"]*\"|'[^']*'|[^\s,;&)}}\]'\"]+)"),
        lambda match: match[1] + _hide(match[2]),
    ),
)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_SOURCE_NAME: Final = re.compile(r"[A-Za-z_]\D{0,30}")


def _hide(value: str) -> str:
    if value[:1] in "\"'":
        return f"{value[0]}{HIDDEN}{value[0]}" if len(value) > 2 else value
    # A source line of a stack, `token=self.token`: the name of a variable is not its value.
    return value if "." in value and _SOURCE_NAME.fullmatch(value) else HIDDEN


@lru_cache(maxsize=4096)
def _mask_line(line: str) -> str:
    for pattern, hidden in _SECRETS:
        line = pattern.sub(hidden, line)
    return line


def mask(text: str) -> str:
    """Return ``text`` with its obvious secrets hidden; idempotent; types, frames and ordinary words stay.

    Args:
        text: Anything that may go to a trace or a disk; any length, any characters.
    """
    if not any(word in text for word in _TELL_TALES):
        return text
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(HIDDEN, text)
    if "\n" not in text:
        return _mask_short(text)
    return "\n".join([_mask_short(line) if line else line for line in text.split("\n")])


def _mask_short(line: str) -> str:
    # Long lines are rare and would fill the cache with megabytes.
    return _mask_line(line) if len(line) <= 1000 else _mask_line.__wrapped__(line)


def mask_value(value: Any) -> Any:
    """Mask the text in an attribute value: a string, or a sequence or mapping of them."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, (list, tuple)):
        return tuple(mask_value(item) for item in value)
    if isinstance(value, Mapping):
        return {str(key): _mask_named(str(key), item) for key, item in value.items()}
    return value


_SECRET_NAME: Final = re.compile(rf"(?i)\A{_NAMES}\Z")


def _mask_named(name: str, value: Any) -> Any:
    if isinstance(value, str) and _is_secret_name(name):
        return HIDDEN
    return mask_value(value)


@lru_cache(maxsize=2048)
def _is_secret_name(name: str) -> bool:
    # Not `gen_ai.usage.input_tokens` and its kin, which are numbers; only text is hidden by name.
    return _SECRET_NAME.match(name.rpartition(".")[2]) is not None


def mask_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Mask the values of an attribute mapping; a text under a name such as ``password`` is hidden whole."""
    return {
        key: _mask_named(key, value) if isinstance(value, (str, list, tuple, dict)) else value
        for key, value in attributes.items()
    }


_MARKERS: Final = re.compile(r"\[\s*(?=(?:error|recovered|escalate|retry|halt|step_failed|resolved)\b)", re.IGNORECASE)
_MARKUP: Final = str.maketrans({"<": "‹", ">": "›", "`": "'", "{": "(", "}": ")"})


def sanitize(text: str, max_chars: int) -> str:
    """Make text of our own process safe for the context: one physical line, bounded, no markup, no forged marker.

    Args:
        text: Text of a trusted, local source (a tool's name, a class name, a caller's sentence).
        max_chars: Bound in characters; cut on a word where there is one.
    """
    text = text[: max_chars * 8]
    kept = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    line = _MARKERS.sub("(", mask(" ".join(kept.split())).translate(_MARKUP))
    if len(line) <= max_chars:
        return line
    head, _, _ = line[: max_chars - 1].rpartition(" ")
    return (head or line[: max_chars - 1]) + "…"


@lru_cache(maxsize=2048)
def sanitize_name(name: str, max_chars: int = 64) -> str:
    """Make a tool's or a class's name safe for the context; ``tool`` when nothing is left of it."""
    return sanitize(name, max_chars) or "tool"
