"""Redact: hide secrets in what goes to the trace, and make text safe for the context.

Trace policy: ``mask`` keeps the text and hides the secret. Context policy: ``sanitize`` lets
through one physical line of plain words. ``mask`` works line by line and remembers lines, because the
lines of stack texts repeat: a text of known lines costs one look-up for each of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

HIDDEN: Final = "[redacted]"

_MAX_KNOWN_LINES: Final = 8192
_MAX_KNOWN_CHARS: Final = 500
_MARGIN_CHARS: Final = 4096

_CUT: Final = r"(?=…|\Z)"
"""Where a text was cut off, and a secret with it: what is left of it is hidden, however short."""
_KEY_NAMES: Final = (
    r"(?:api|access|account|client|private|secret|shared|signing|encryption|master|auth|subscription|ssh)[_-]?key"
    r"(?:[_-]?id)?|secret|passw(?:or)?d|passphrase|pwd|(?<![a-z])pass|token|credentials?|x-amz-signature"
)
_SUFFIXES: Final = r"(?:[_-]?(?:value|hash|string|confirm|old|new|\d{1,3}))?"
_ASSIGNED: Final = r"\\{0,8}[\"']?\s{0,8}(?:=>|:=|[:=])\s{0,8}"
_QUOTED: Final = r"(?P<quote>\\{0,8}[\"'])(?:\\.|[^\\]|\\\Z)*?(?:(?P=quote)|\Z)"
# A quote inside a word belongs to it; one before a comma, a bracket or the end closes something outside.
_UNQUOTED: Final = r"(?:[^\s,;&)}\]'\"\\]|['\"\\](?=\w))+"
_PLAIN_WORDS: Final = r"(?![A-Za-z]?[a-z]+(?:[-_/.][a-z]+)*[.,:;!?]?(?![\w~+/=.-]))"


def _hide(match: re.Match[str]) -> str:
    value = match["value"]
    if value.startswith(HIDDEN[:-1]) or _NO_SECRET.fullmatch(value):
        return match[0]
    if match["name"].lower() == "pwd" and value.startswith(("/", "~")):  # the working directory, in an environment
        return match[0]
    quote = match["quote"]
    if quote is None:
        return f"{match['before']}{HIDDEN}"
    inner = value.removeprefix(quote).removesuffix(quote)
    if not inner or _NO_SECRET.fullmatch(inner) or inner == HIDDEN:
        return match[0]
    return f"{match['before']}{quote}{HIDDEN}{quote}"


_NO_SECRET: Final = re.compile(
    # Words of prose, and what stands for a value in the source lines of a stack: a variable's name is not its value.
    r"(?:none|null|true|false|nil|undefined|expired|invalid|missing|required|not|is|was|must|please|the|a|no|\*+|%s)"
    r"|(?:[a-z]\w*_)?(?:api_?key|token|secret|password|passwd|pwd|credentials?)"
    r"|(?:self|cls|os|env|settings|config|args|kwargs|options|params|request|response|ctx|context)\.[a-z_][\w.]*[(\[]?"
    r"|os\.(?:environ|getenv)\S*|\$?\{\w*\}?|\$\w+|str|int|bytes|Optional\[str",
    re.IGNORECASE,
)
_PATTERNS: Final = (
    # Each with words, in lower case, of which a line has one if the pattern can find anything in it: a look for a word
    # costs a hundredth of a search.
    # RFC 3986 section 3.2.1: user information in a URI. Cut off before the "@", a password stands where a port does.
    (
        ("://",),
        re.compile(
            r"(?<=://)([^\s:/@'\"]{0,64}):(?!\[redacted\])"
            r"(?:[^\s/@'\"]{1,256}(?=@)|(?!\d{1,5}(?:…|\Z))[^\s:/@'\"?#]{1,256}" + _CUT + ")"
        ),
        rf"\1:{HIDDEN}",
    ),
    # RFC 9110 section 11.6.2 and RFC 6265: header fields that carry credentials, with their scheme.
    (
        ("authorization",),
        re.compile(
            rf"(?i)(?P<before>(?P<name>authorization){_ASSIGNED})"
            rf"(?P<value>{_QUOTED}|(?-i:{_PLAIN_WORDS})[^\s'\"]+(?:[ \t]+[^\s'\",]+)?)"
        ),
        _hide,
    ),
    (
        ("cookie",),
        re.compile(rf"(?i)(?P<before>(?P<name>cookie){_ASSIGNED})(?P<value>{_QUOTED}|(?=[^\s=]{{1,256}}=)[^'\"]+)"),
        _hide,
    ),
    # name=value, name: value, "name": "value", and the same inside a quoted text.
    (
        ("key", "secret", "pass", "pwd", "token", "credential", "signature"),
        re.compile(rf"(?i)(?P<before>(?P<name>{_KEY_NAMES}){_SUFFIXES}{_ASSIGNED})(?P<value>{_QUOTED}|{_UNQUOTED})"),
        _hide,
    ),
    (("sig=", "signature="), re.compile(r"(?i)([?&]sig(?:nature)?=)[^\s&'\"\[]+"), rf"\1{HIDDEN}"),
    # RFC 6750, RFC 7617: credentials behind their scheme, where no header's name stands before it.
    (
        ("bearer", "basic", "token"),
        re.compile(
            rf"\b((?i:bearer|basic|token)[ \t]{{1,8}}){_PLAIN_WORDS}"
            rf"(?:[A-Za-z0-9._~+/=-]{{8,}}|[A-Za-z0-9._~+/=-]{{4,}}{_CUT})"
        ),
        rf"\1{HIDDEN}",
    ),
    # RFC 7519: a JSON web token begins with the base64 of '{"'.
    (("eyj",), re.compile(rf"\beyJ(?:[\w-]{{8,}}(?:\.[\w-]*){{0,2}}|[\w-]{{2,}}{_CUT})"), HIDDEN),
    # Prefixes that the issuers publish for secret scanners.
    (
        ("sk-", "sk_", "rk-", "rk_", "pk-", "pk_", "gh", "xox", "akia", "asia", "glpat-", "aiza", "hf_", "npm_"),
        re.compile(
            r"(?<![A-Za-z0-9])(?:"
            rf"[srp]k[-_](?=[\w-]{{0,60}}\d)[\w-]{{12,}}|[srp]k[-_](?:live|test|proj|ant|svcacct|or)[-_][\w-]{{0,200}}{_CUT}"
            rf"|gh[pousr]_(?:\w{{16,}}|\w{{4,}}{_CUT})|github_pat_\w{{4,}}|xox[a-z]-(?:[\w-]{{8,}}|[\w-]{{3,}}{_CUT})"
            rf"|(?:AKIA|ASIA)(?:[A-Z0-9]{{12,}}|[A-Z0-9]{{4,}}{_CUT})|glpat-[\w-]{{4,}}"
            rf"|AIza(?:[\w-]{{30,}}|[\w-]{{4,}}{_CUT})|(?:hf|npm)_(?=[A-Za-z]{{0,40}}\d)[A-Za-z0-9]{{20,}})"
        ),
        HIDDEN,
    ),
)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
_END_OF_PRIVATE_KEY: Final = re.compile(
    r"(?:^[\w+/=]{1,100}\r?\n){0,200}-----END [A-Z ]{0,40}PRIVATE KEY-----", re.MULTILINE
)

_clean: set[str] = set()
"""Lines that hold no secret. Swapped for a new one when full, so that no lock is needed."""


def mask(text: str) -> str:
    """Return ``text`` with its obvious secrets hidden; idempotent; types, frames and ordinary words stay.

    Args:
        text: Anything that may go to a trace or a disk; any length, any characters.
    """
    clean = _clean
    lines = text.split("\n")
    if clean.issuperset(lines):
        return text
    if "PRIVATE KEY" in text:
        text = _END_OF_PRIVATE_KEY.sub(HIDDEN, _PRIVATE_KEY.sub(HIDDEN, text))
        lines = text.split("\n")
    masked = "\n".join([line if line in clean else _mask_line(line) for line in lines])
    return text if masked == text else masked


def mask_start(text: str, max_chars: int) -> str:
    """Mask ``text`` and keep its start, in that order: a cut through a secret would leave a half that nobody knows."""
    if len(text) <= max_chars:
        return mask(text)
    masked = mask(text[: max_chars + _MARGIN_CHARS])
    return f"{masked[: max_chars - 40]}… ({len(text)} characters in all)"


def mask_end(text: str, max_chars: int) -> str:
    """Mask ``text`` and keep its end, from the start of a line on where there is one."""
    if len(text) <= max_chars:
        return mask(text)
    tail = text[-max_chars - _MARGIN_CHARS :]
    masked = mask(tail.partition("\n")[2] or tail)[-max_chars + 40 :]
    return f"({len(text)} characters in all) …{masked}"


def _mask_line(line: str) -> str:
    global _clean
    if len(line) > _MAX_KNOWN_CHARS:
        return _hide_in(line)
    masked = _hide_in_known(line)
    if masked == line:
        if len(_clean) >= _MAX_KNOWN_LINES:
            _clean = set()
        _clean.add(line)
    return masked


def _hide_in(line: str) -> str:
    lower = line.lower()
    for words, pattern, hidden in _PATTERNS:
        for word in words:
            if word in lower:
                line = pattern.sub(hidden, line)
                break
    return line


_hide_in_known = lru_cache(maxsize=1024)(_hide_in)


def mask_value(value: Any) -> Any:
    """Mask the text in an attribute value: a string, or a sequence or mapping of them."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, (list, tuple)):
        return tuple(mask_value(item) for item in value)
    if isinstance(value, Mapping):
        return {str(key): _mask_named(str(key), item) for key, item in value.items()}
    return value


_SECRET_NAME: Final = re.compile(
    rf"(?i)[\w-]{{0,64}}?(?:{_KEY_NAMES}|(?:proxy-)?authorization|(?:set-)?cookie){_SUFFIXES}"
)


def _mask_named(name: str, value: Any) -> Any:
    if isinstance(value, (str, list, tuple)) and _is_secret_name(name):
        # Not the numbers of `gen_ai.usage.input_tokens` and its kin; only text is hidden by name.
        texts = isinstance(value, str) or any(isinstance(item, str) for item in value)
        return HIDDEN if texts else value
    return mask_value(value)


@lru_cache(maxsize=2048)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name.rpartition(".")[2]) is not None


def mask_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Mask the values of an attribute mapping; a text under a name such as ``password`` is hidden whole."""
    return {
        key: _mask_named(key, value) if isinstance(value, (str, list, tuple, dict)) else value
        for key, value in attributes.items()
    }


_MARKERS: Final = re.compile(r"\[\s*(?=(?:error|recovered|escalate|retry|halt|step_failed|resolved)\b)", re.IGNORECASE)
_MARKUP: Final = str.maketrans({"<": "‹", ">": "›", "`": "'", "{": "(", "}": ")", "\uff3b": "(", "\uff3d": ")"})
# ECMA-48 section 5.4 and 5.6: control sequences and control strings, 7 and 8 bit.
_TERMINAL: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
)
# Invisible, though Unicode counts them as letters, marks or symbols: fillers, joiners, selectors that can spell bytes.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def sanitize(text: str, max_chars: int) -> str:
    """Make text of our own process safe for the context: one physical line, bounded, no markup, no forged marker.

    Args:
        text: Text of a trusted, local source (a tool's name, a class name, a caller's sentence).
        max_chars: Bound in characters; cut on a word where there is one.
    """
    text = text[: max_chars * 8]
    if not (text.isascii() and text.isprintable()):
        text = _INVISIBLE.sub("", _TERMINAL.sub("", text))
        text = "".join([" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C"])
    line = text
    for _ in range(4):  # what a cut leaves may need hiding again; then there is nothing left to cut
        before, line = line, _cut(_safe(line), max_chars)
        if line == before:
            break
    return line


def _safe(line: str) -> str:
    return _MARKERS.sub("(", mask(" ".join(line.split()).translate(_MARKUP)))


def _cut(line: str, max_chars: int) -> str:
    if len(line) <= max_chars:
        return line
    kept = line[: max_chars - 1]
    head, _, _ = kept.rpartition(" ")
    return (head or kept) + "…"


def sanitize_name(name: str, max_chars: int = 64) -> str:
    """Make a tool's or a class's name safe for the context; ``tool`` when nothing is left of it."""
    return _sanitized_name(name[: max_chars * 8], max_chars)


@lru_cache(maxsize=2048)
def _sanitized_name(name: str, max_chars: int) -> str:
    return sanitize(name, max_chars) or "tool"
