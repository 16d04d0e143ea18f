"""Say of a failure what class it is, what may mend it, and how long to wait: facts first, then names, then words.

The evidence, strongest first: typed facts and type names of an exception, of its causes and of its group's members
(an outer exception with a signal of its own wins, a wrapper without one takes its cause's); then statuses, codes and
phrases in the messages, outer first; then names that hint at most, such as ``ValueError``. Pure: no clock, no
settings, no state but bounded caches of pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from .. import semconv
from ..model import Bucket, Classification, ErrorClass, ExceptionNode, Recoverable, Scalar
from . import tables as t
from . import words as w
from .names import NAME_RULES, PEP249_NAMES, SILENT_NAMES, VAGUE_RULE, WEAK_NAMES
from .retry import from_facts, from_text
from .tables import Kind

_MAX_CHAIN: Final = 64
_MAX_MEMBERS: Final = 50
_MAX_DEPTH: Final = 6
_MAX_NAME_CHARS: Final = 200
_MAX_TEXT_CHARS: Final = 1000
_SPLIT: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z']+|[A-Z]+|\d+")
_SPACED: Final = (("_", " "), ("-", " "), ("\n", " "), ("\t", " "), ("\u2019", "'"))
_TELLING: Final = frozenset({ErrorClass.RATE_LIMIT, ErrorClass.AUTH, ErrorClass.NOT_FOUND})
_AGAINST_VAGUE: Final = frozenset({ErrorClass.RATE_LIMIT, ErrorClass.AUTH, ErrorClass.UPSTREAM})
_Phrases = tuple[tuple[Kind, tuple[str, ...]], ...]
_ASCII_PHRASES: Final[_Phrases] = tuple((kind, tuple(p for p in group if p.isascii())) for kind, group in w.PHRASES)
_THREE_DIGITS: Final = re.compile(r"(?<![\d.])[1-5]\d\d(?!\d|\.\d)", re.ASCII)
_REFINED_BY_WORDS: Final[Mapping[Kind, _Phrases]] = {
    t.CONNECTION: w.CONNECTIVITY_PHRASES,
    t.CONNECT: w.CONNECTIVITY_PHRASES[:3],
    t.NOT_SENT: w.CONNECTIVITY_PHRASES[:2],
    t.THROTTLED: (w.SPENT_PHRASES,),
}


class _Finding(NamedTuple):
    kind: Kind
    status: int | None
    retry: float | None
    method: str | None
    writing: bool
    """The type's name says that the failure came while sending."""


class _Name(NamedTuple):
    firm: Kind | None
    vague: Kind | None
    weak: Kind | None
    spaces: tuple[Mapping[str, Kind], ...]
    writing: bool


@lru_cache(maxsize=2048)
def _words_of(name: str) -> str:
    return f" {' '.join(_SPLIT.findall(name)).lower()} "


def _rule(words: str, firm: bool) -> Kind | None:
    for rule in NAME_RULES:
        if rule.firm is firm and rule.pattern.search(words):
            return rule.kind
    return None


@lru_cache(maxsize=2048)
def _name(qualified: str) -> _Name:
    """Return what one class name means, split into words."""
    simple = qualified.rpartition(".")[2]
    low = qualified.lower()
    pep249 = simple in PEP249_NAMES
    spaces = tuple(codes for word, codes in t.CODE_SPACES if word in low or (word == "dberror" and pep249))
    if simple in SILENT_NAMES:
        return _Name(None, None, None, spaces, False)
    words = _words_of(simple)
    firm = _rule(words, True) if simple not in WEAK_NAMES else None
    if len(simple) == 3 and simple.isascii() and simple.isdecimal():
        firm = _by_status(int(simple), {}, None)  # semantic conventions put a status into error.type
    vague = VAGUE_RULE.kind if firm is None and VAGUE_RULE.pattern.search(words) else None
    weak = WEAK_NAMES.get(simple) or (None if firm or vague else _rule(words, False))
    return _Name(firm, vague, weak, spaces, " write " in words)


@lru_cache(maxsize=2048)
def _code(code: str) -> Kind | None:
    """Return what a provider's own code means, split into words; a number means nothing on its own."""
    return _rule(_words_of(code), True)


def _names(node: ExceptionNode) -> tuple[_Name, ...]:
    return _names_of(node.class_names or (node.type,))


@lru_cache(maxsize=1024)
def _names_of(class_names: tuple[str, ...]) -> tuple[_Name, ...]:
    return tuple(_name(name[-_MAX_NAME_CHARS:]) for name in class_names[:32])


def _spoken(names: tuple[_Name, ...]) -> Kind | None:
    return next((n.firm or n.vague for n in names if n.firm or n.vague), None)


def _by_code(code: str, names: tuple[_Name, ...]) -> Kind | None:
    if code.lstrip("-").isdecimal():
        return next((space[code] for name in names for space in name.spaces if code in space), None)
    return t.GRPC_STATUS.get(code) or _code(code)


def _by_status(status: int, facts: Mapping[str, Scalar], other: Kind | None) -> Kind | None:
    """Return what a status means, or a finer code or name that may take its place; None where it says nothing."""
    if status < 300:
        return None
    own = t.HTTP_STATUS.get(status) or t.HTTP_STATUS_CLASS[min(status // 100, 5)]
    if status == 403 and _limited(facts):
        return t.THROTTLED
    if other is not None and other.error_class in t.COARSE_STATUS.get(status, ()):
        return own if other.error_class is own.error_class and other.vague else other
    return None if status < 400 and other is not None else own


def _limited(facts: Mapping[str, Scalar]) -> bool:
    for key, value in facts.items():
        if key.startswith(semconv.HTTP_RESPONSE_HEADER) and (
            "retry-after" in key or ("remaining" in key and value == "0")
        ):
            return True
    return False


def _own(node: ExceptionNode, names: tuple[_Name, ...]) -> Kind | None:
    """Return the signal of one exception by its facts and its type, message aside."""
    spoken = _spoken(names)
    if node.facts:
        return _by_facts(node, names, spoken) or spoken
    if spoken is not None and not node.class_names and spoken.error_class is ErrorClass.UPSTREAM:
        # Of text alone: the name of an answer (``InternalServerError``) is coarser than the status beside it.
        status = _status_in(_bounded(node.message))
        return spoken if status is None else _by_status(status, {}, spoken) or spoken
    return spoken


def _by_facts(node: ExceptionNode, names: tuple[_Name, ...], spoken: Kind | None) -> Kind | None:
    facts = node.facts
    code = facts.get(semconv.PROVIDER_CODE)
    coded = None if code is None else _by_code(str(code), names)
    state = str(facts.get(semconv.SQLSTATE, ""))
    kind = t.SQLSTATE.get(state) or t.SQLSTATE_CLASS.get(state[:2])
    status = facts.get(semconv.HTTP_STATUS_CODE)
    if kind is None and isinstance(status, int):
        kind = _by_status(status, facts, coded or spoken)
    rpc = str(facts.get(semconv.RPC_GRPC_STATUS, ""))
    if kind is None and rpc in t.GRPC_STATUS:
        kind = _by_grpc(rpc, node.message)
    number = facts.get(semconv.ERRNO)
    if (kind or coded) is None and isinstance(number, int) and (spoken is None or spoken.vague):
        kind = t.ERRNO.get(number)
    return kind or coded


def _by_grpc(rpc: str, message: str) -> Kind:
    finer = t.GRPC_FINER.get(rpc)
    said = _by_phrase(_bounded(message)) if finer else None
    return said if said is not None and finer and said.error_class in finer else t.GRPC_STATUS[rpc]


def _bounded(message: str) -> str:
    # Cut before the cache: a key of megabytes would stay in it.
    return _without_noise(message[:_MAX_TEXT_CHARS])


@lru_cache(maxsize=512)
def _without_noise(text: str) -> str:
    if text.startswith("<unprintable"):
        return ""  # our own words for a message that could not be read
    for mark in w.NOISE_MARKS:
        if mark in text:
            return w.NOISE.sub(" ", text)
    return text


@lru_cache(maxsize=512)
def _by_phrase(text: str, refining: Kind | None = None) -> Kind | None:
    """Return what a phrase in a text says; ``refining``: only by the phrases that refine that kind."""
    low = text.lower()
    for mark, space in _SPACED:
        low = low.replace(mark, space)
    phrases = _REFINED_BY_WORDS.get(refining) if refining else None
    phrases = phrases or (_ASCII_PHRASES if low.isascii() else w.PHRASES)
    for kind, group in phrases:
        for phrase in group:
            if phrase in low:
                if kind is t.MISSING and w.ROLE_MISSING.search(low):
                    return t.DENIED
                return t.NOT_SENT if kind is t.MISSING and w.SOCKET_MISSING.search(low) else kind
    return None


@lru_cache(maxsize=512)
def _status_in(text: str) -> int | None:
    if _THREE_DIGITS.search(text) is None or (found := w.STATUS_IN_TEXT.search(text)) is None:
        return None
    return int(next(g for g in found.groups() if g)[:3])


def _by_words(message: str) -> Kind | None:
    """Return what a message says: a status, a code or an errno in its place, then phrases."""
    return _said(_bounded(message))


@lru_cache(maxsize=512)
def _said(text: str) -> Kind | None:
    if not text or text.isspace():
        return None
    coded = _code_in(text)
    if (status := _status_in(text)) is not None and (kind := _by_status(status, {}, coded)):
        return kind
    if coded is not None and not coded.vague:
        return coded
    return _number_in(text) or _by_phrase(text) or coded or _by_camel(text)


def _code_in(text: str) -> Kind | None:
    for mark in w.CODE_MARKS:
        if mark in text:
            break
    else:
        return None
    found = w.CODE_IN_TEXT.search(text)
    if found is None:
        return None
    name = next(g for g in found.groups() if g)
    said = _name(name)
    return said.firm or said.vague or _code(name)


def _number_in(text: str) -> Kind | None:
    """Read the codes that messages print in one shape only: gRPC's and the system's."""
    if (
        ("StatusCode." in text or text[0] in "45")
        and (found := w.GRPC_IN_TEXT.search(text))
        and (rpc := found[1] or found[2]) in t.GRPC_STATUS
    ):
        return _by_grpc(rpc, text)
    found = w.ERRNO_IN_TEXT.search(text)
    return None if found is None else t.ERRNO.get(int(found[1]))


def _by_camel(text: str) -> Kind | None:
    kinds = (_code(found[0]) for found in islice(w.CAMEL_IN_TEXT.finditer(text), 8))
    return next((k for k in kinds if k is not None and k.error_class in _TELLING), None)


def _chain(node: ExceptionNode) -> list[ExceptionNode]:
    chain = [node]
    while len(chain) < _MAX_CHAIN and (below := chain[-1].cause or chain[-1].context) is not None:
        chain.append(below)
    return chain


def _group(node: ExceptionNode, now: float, depth: int) -> _Finding | None:
    """Return the gravest of a group's members; of equals, the one that waits longest."""
    if depth >= _MAX_DEPTH:
        return None
    found = [f for m in node.group[:_MAX_MEMBERS] if (f := _decide(m, now, depth + 1)) is not None]
    for error_class, bucket in t.GRAVITY:
        grave = [f for f in found if f.kind.error_class is error_class and bucket in (None, f.kind.bucket)]
        if grave:
            unsure = next((f for f in grave if f.kind.sent and f.method not in t.IDEMPOTENT_METHODS and f.method), None)
            return unsure or max(grave, key=lambda f: -1.0 if f.retry is None else f.retry)
    return None


def _refined(kind: Kind, chain: list[ExceptionNode], start: int, named: list[tuple[_Name, ...]]) -> Kind:
    """Take finer evidence of the same class from deeper down, then from the messages."""
    if kind.vague:
        for node, names in zip(chain[start + 1 :], named[start + 1 :], strict=True):
            own = _own(node, names)
            if own is not None and own.error_class is kind.error_class and (not own.vague or kind is t.CONNECTION):
                kind = own
                if not own.vague:
                    break
    if kind in _REFINED_BY_WORDS:
        for node in chain[start:]:
            if node.message and (said := _by_phrase(_bounded(node.message), kind)) is not None:
                return said
    return kind


def _outweighs(said: Kind, message: str) -> bool:
    """Say whether the words of a message are plainer than a vague name such as ``ConnectionError``."""
    return said.error_class in _AGAINST_VAGUE or _status_in(_bounded(message)) is not None


def _decide(node: ExceptionNode, now: float, depth: int = 0) -> _Finding | None:
    chain = _chain(node)
    named = [_names(n) for n in chain]
    kind, at = None, 0
    for index, (link, names) in enumerate(zip(chain, named, strict=True)):
        if link.group and (member := _group(link, now, depth)) is not None:
            return member
        if (own := _own(link, names)) is not None:
            said = _by_words(link.message) if own.vague else None
            outweighed = said is not None and _outweighs(said, link.message)
            kind, at = (said if outweighed else _refined(own, chain, index, named)), index
            break
    if kind is None:
        kind, at = _by_messages_or_hints(chain, named)
    if kind is None:
        return None
    order = chain[at:] + chain[:at]
    retry = _retry_of(order, now) if kind.bucket is Bucket.RETRYABLE else None
    method = next((str(m).upper() for n in chain if (m := n.facts.get(semconv.HTTP_REQUEST_METHOD))), None)
    writing = any(name.writing for name in named[at])
    return _Finding(kind, _status_of(kind, order), retry, method, writing)


def _by_messages_or_hints(chain: list[ExceptionNode], named: list[tuple[_Name, ...]]) -> tuple[Kind | None, int]:
    for index, link in enumerate(chain):
        if link.message and (said := _by_words(link.message)) is not None:
            return said, index
    weak = ((name.weak, index) for index, names in enumerate(named) for name in names if name.weak)
    return next(weak, (None, 0))


def _status_of(kind: Kind, order: list[ExceptionNode]) -> int | None:
    """Return the status of the deciding exception, or of another one that says the same class."""
    for node in order:
        status = node.facts.get(semconv.HTTP_STATUS_CODE)
        if isinstance(status, int) and 300 <= status <= 599:
            same = node is order[0] or (own := _own(node, _names(node))) is None or own.error_class is kind.error_class
            return status if same else None
    if any(n.facts for n in order):
        return None
    said = (_status_in(_bounded(n.message)) for n in order if n.message)
    return next((status for status in said if status is not None and status >= 300), None)


def _retry_of(order: list[ExceptionNode], now: float) -> float | None:
    for node in order:
        if node.facts and (seconds := from_facts(node.facts, now)) is not None:
            return seconds
    return next((s for n in order if n.message and (s := from_text(_bounded(n.message))) is not None), None)


def classify(node: ExceptionNode, *, now: float) -> Classification:
    """Classify a failure by its evidence.

    Args:
        node: The exception with its causes and members; of text alone (no names, no facts) type and message
            decide.
        now: Seconds since the epoch, for HTTP dates and resets.

    Returns:
        Class, bucket and recoverable, the seconds to wait when somebody named them, and the HTTP status when there is
        one. ``unanswered`` when a request that is not idempotent (RFC 9110, 9.2.2) was sent and not answered.
    """
    finding = _decide(node, now)
    if finding is None:
        kind, status, retry, method, writing = t.UNKNOWN, None, None, None, False
    else:
        kind, status, retry, method, writing = finding
    unanswered = kind.sent and (writing if method is None else method not in t.IDEMPOTENT_METHODS)
    recoverable = Recoverable.MAYBE if unanswered else kind.recoverable
    return Classification(kind.error_class, kind.bucket, recoverable, retry, status, unanswered)
