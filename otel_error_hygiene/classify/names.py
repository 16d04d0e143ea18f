"""What a type's name or a provider's code means, split into words: ``NoSuchKey`` is ``no such key``.

Every row stands for a meaning, not for a library: it also holds for libraries that nobody here has seen. Sources: the
names of PEP 249 and of Python's own exceptions, the reason phrases of RFC 9110, the error codes of OAuth 2.0
(RFC 6749, 5.2), and the habits of AWS, Google, Azure and Elasticsearch in naming theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from . import tables as t
from .tables import Kind


class NameRule(NamedTuple):
    """A meaning of a name."""

    kind: Kind
    pattern: re.Pattern[str]
    """Searched in the words of the name: lower case, one space between them and at both ends."""
    firm: bool
    """False: a hint at most, which any other evidence of the chain overrules."""


def _firm(kind: Kind, pattern: str) -> NameRule:
    return NameRule(kind, re.compile(f" (?:{pattern})"), firm=True)


def _weak(kind: Kind, pattern: str) -> NameRule:
    return NameRule(kind, re.compile(f" (?:{pattern})"), firm=False)


NAME_RULES: Final[tuple[NameRule, ...]] = (
    _firm(t.UNANSWERED, r"(?:soft |hard )?time ?limit|server selection timeout"),
    _firm(t.MALFORMED, r"(?:unicode|idna) (?:de|en)code"),
    _firm(t.GONE, r"module not found|no such module|import (?:error|failure)|profile not found"),
    _firm(
        t.UNRESOLVED,
        r"(?:server|host|hostname) not found|nxdomain|gaierror|herror|name resolution|(?:name"
        r"|host) not resolved",
    ),
    _firm(t.UNRESOLVED, r"\w* ?dns |no nameservers|unknown host"),
    _firm(t.SPENT, r"insufficient quota|billing|budget exceeded|payment required|quota exhausted|credit"),
    _firm(t.THROTTLED, r"too many (?:requests|connections|clients|calls)|max(?:imum)? connections|pool exhausted"),
    _firm(
        t.THROTTLED,
        r"(?:api |secondary |usage )?rate ?limit|ratelimit|throttl|slow ?down|flood(?: wait)?|retry after"
        r"|backoff",
    ),
    _firm(t.THROTTLED, r"(?:\w+ )*(?:throughput|quota|request limit|usage limit|call limit|limit) exceeded"),
    _firm(t.THROTTLED, r"exceeded (?:the )?(?:quota|limit)|quota|resource exhausted|rejected execution"),
    _firm(t.TLS, r"(?:ssl|tls)(?: |$)|sslv?\d?|(?:\w+ )*certificat|(?:bad )?host key|cert "),
    _firm(
        t.DENIED,
        r"authenti|unauthenti|un ?authori[sz]|authori[sz]ation|not authori[sz]ed|forbidden|access denied"
        r"|auth |oauth",
    ),
    _firm(
        t.DENIED,
        r"(?:\w+ )*(?:permission|permissions|privilege|privileges|access rights)(?: |$)|noperm|noauth"
        r"|wrongpass|denied|security",
    ),
    _firm(
        t.DENIED,
        r"(?:\w+ )*(?:credential|password|login)|(?:invalid|missing|expired|bad|no"
        r"|wrong) (?:\w+ )?(?:api ?key|access key|token|grant)",
    ),
    _firm(
        t.DENIED,
        r"(?:invalid|expired|bad|mismatched) (?:signature|audience|issuer|client|jwt)|signature (?:expired"
        r"|does not match|invalid)",
    ),
    _firm(
        t.DENIED,
        r"(?:token|session|key|grant) (?:has )?(?:been )?(?:expired|revoked|invalid)|immature signature"
        r"|unrecognized client",
    ),
    _firm(
        t.DENIED,
        r"account (?:inactive|disabled|suspended)|missing scope|insufficient scope|logged out|bind error"
        r"|refresh error",
    ),
    _firm(t.NOT_SENT, r"(?:\w+ )*(?:new connection|connect(?:ion)? ?refused|endpoint connection|connection creation)"),
    _firm(
        t.NOT_SENT,
        r"(?:pool|acquire|connect|connection|connector|open|dial) time(?:d )?out|(?:no|valid) (?:host|hosts"
        r"|brokers?|servers?)(?: available| error| $)",
    ),
    _firm(
        t.CONNECT,
        r"no valid connections|(?:\w+ )*connector|connect (?:error|exception|failed|failure)|(?:socket"
        r"|port) open|unreachable|server down",
    ),
    _firm(
        t.UNANSWERED,
        r"(?:read|socket read|write|network|request|response|keepalive|ping|execution|query) time(?:d )?out",
    ),
    _firm(t.TIMEOUT, r"timeout|timed out|time out|deadline|query cancel"),
    _firm(
        t.CONNECTION,
        r"(?:connection|channel|stream|transport|socket) (?:closed|lost|reset|aborted|broken|dropped"
        r"|interrupted)",
    ),
    _firm(
        t.UNANSWERED,
        r"(?:remote |server |client )?disconnect|broken pipe|incomplete (?:read|payload|body)|stream (?:lost"
        r"|closed)|chunked encoding",
    ),
    _firm(
        t.UNANSWERED,
        r"remote protocol|read error|write error|payload error|auto ?reconnect|premature|unexpected eof",
    ),
    _firm(
        t.BROKEN,
        r"internal (?:server|service|error|failure|exception)|bad gateway|fatal error|(?<=^ )(?:api "
        r"|http )?server error $",
    ),
    _firm(
        t.UNAVAILABLE,
        r"(?:\w+ )*unavailable|not available|overload|gateway timeout|try again|capacity|transient"
        r"|maintenance|(?:\w+ )+down(?: |$)|busy|loading",
    ),
    _firm(
        t.UNAVAILABLE,
        r"deadlock|serialization failure|transaction rollback|lock(?:ed)? (?:not available|timeout|wait)"
        r"|locked|circuit break|shutdown",
    ),
    _firm(
        t.UNAVAILABLE,
        r"worker lost|not (?:leader|primary|master)|leader|rebalance|aborted|broken (?:process|thread"
        r"|executor)",
    ),
    _firm(t.BUSY, r"lock error|lock acquire"),
    _firm(t.INCAPABLE._replace(bucket=t.EXHAUSTED.bucket), r"out of memory|oom "),
    # a database's name for its server's disk
    _firm(t.INCAPABLE, r"(?:\w+ )*disk full"),
    _firm(t.EXHAUSTED, r"disk quota|no space|(?:sqlite )?full |memory error"),
    _firm(t.CONFLICT, r"read ?only"),
    _firm(t.INTERNAL, r"too many redirects|redirect (?:limit|loop)|redirect missing"),
    _firm(
        t.UNREADABLE,
        r"(?:bad|invalid|unknown) (?:status(?: line)?|response|http response)|invalid chunk|content (?:type"
        r"|decod)|decoding",
    ),
    _firm(
        t.MISSING,
        r"(?:\w+ )*(?:not found|no such|does ?n[o']?t exist|do not exist|not exist|not registered|nosuch)",
    ),
    _firm(
        t.MISSING,
        r"(?:no|unknown) (?:answer|object|result|results|row|rows|data|element|script|matching|section|option"
        r"|topic|table|tool|resource|entity|record|service|model|index|key|node|user|page|file|bucket|queue"
        r"|stream|member|channel|database)(?: |$)",
    ),
    _firm(
        t.MISSING,
        r"noscript|nogroup|undefined (?:table|object|file|schema|database)|(?:resource|object|entity|item"
        r"|model|record) missing|gone|catalog",
    ),
    _firm(t.MISNAMED, r"undefined (?:column|function)|unknown (?:column|function|field)"),
    _firm(t.GONE, r"unimplemented|unsupported operation|method not found"),
    _firm(
        t.CONFLICT,
        r"already (?:exists|registered)|(?:\w+ )*exists|conflict|precondition|conditional (?:check|request)"
        r"|version mismatch|busygroup",
    ),
    _firm(t.CONFLICT, r"stale|modified|duplicate index"),
    _firm(
        t.MALFORMED,
        r"bad request|validation|duplicate|(?:un)?processable|malformed|missing (?:\w+ )?(?:schema|argument"
        r"|arguments|parameter|field|header|property)",
    ),
    _firm(
        t.MALFORMED,
        r"(?:\w+ )*(?:integrity|violation|constraint|idempotency|syntax|argument|arguments|parameter|param"
        r"|params|mismatch)(?: |$)",
    ),
    _firm(
        t.MALFORMED,
        r"invalid (?:url|uri|schema|header|proxy|query|argument|parameter|params|input|value|type|name|data"
        r"|format|selector|date|text)",
    ),
    _firm(
        t.MALFORMED,
        r"(?:unsupported|not supported|not acceptable|method not allowed|disallowed|usage error|encode"
        r"|encoder|context (?:window|length))",
    ),
    _firm(
        t.MALFORMED,
        r"(?:location|query|expression|url|date|xml|json|yaml|template|input|output|argument) ?pars|parser"
        r"|parsing|scanner|constructor|tokeniz",
    ),
    _firm(
        t.MALFORMED,
        r"(?:\w+ )*(?:too (?:large|long|big|small|short)|out of (?:range|bounds))|is a directory"
        r"|not a directory|entity too",
    ),
    _firm(
        t.MALFORMED,
        r"data error|conversion|pickl|bad zip|bad gzip|unidentified|corrupt|wrong ?type|binder"
        r"|undefined error|serializ(?:er|ation error)",
    ),
    _weak(t.CONNECTION, r"http (?:\w+ )?proxy|proxy"),
    _weak(
        t.MALFORMED,
        r"(?:\w+ )*(?:invalid|illegal|bad|wrong|unexpected keyword|refused)(?: |$)|decode|pars(?:e|ing)"
        r"|schema|format",
    ),
    _weak(t.MALFORMED, r"programming error|config|not supported|type mismatch|encoding"),
    _weak(t.MISSING, r"missing|undefined|unresolvable|lookup"),
    _weak(t.CONNECTION, r"(?:\w+ )*(?:transport|protocol)(?: |$)|eof"),
    _weak(t.INTERNAL, r"internal"),
)
"""First match wins."""

VAGUE_RULE: Final = _firm(t.CONNECTION, r"(?:\w+ )*(?:connection|connect|network|socket|amqp)(?: |$)")
"""Tried after the firm rules, before the others: the message and the causes may say more."""

WEAK_NAMES: Final[Mapping[str, Kind]] = {
    # Python's own names, "Built-in Exceptions": what they mean when nothing else speaks.
    "ValueError": t.MALFORMED,
    "KeyError": t.MISSING,
    "SyntaxError": t.MALFORMED,
    "NotImplementedError": t.HOPELESS,
    "RecursionError": t.HOPELESS,
    "ImportError": t.GONE,
    "EOFError": t.CONNECTION,
}
SILENT_NAMES: Final = frozenset(
    # Say nothing of the cause, or only that somebody's code has a fault: the chain and the message may say more.
    (
        *("object", "BaseException", "Exception", "OSError", "RuntimeError", "TypeError", "IndexError", "LookupError"),
        *("AttributeError", "ArithmeticError", "ZeroDivisionError", "AssertionError", "StopIteration", "NameError"),
        *("UnboundLocalError", "ExceptionGroup", "BaseExceptionGroup", "Warning", "ABC", "Generic", "RetryError"),
        *("Error", "DatabaseError", "OperationalError", "InterfaceError"),
    )
)
PEP249_NAMES: Final = frozenset(
    ("DatabaseError", "OperationalError", "ProgrammingError", "IntegrityError", "InterfaceError")
)
