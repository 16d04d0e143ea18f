"""What typed codes mean: HTTP, SQLSTATE, gRPC, errno, JSON-RPC, WebSocket, SMTP, FTP, MySQL; each with its source."""

from __future__ import annotations

import errno as _errno
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..model import Bucket, ErrorClass, Recoverable


class Kind(NamedTuple):
    """What one piece of evidence says; the common currency of every table."""

    error_class: ErrorClass
    bucket: Bucket
    recoverable: Recoverable
    sent: bool = False
    """The request may have left; without an answer nobody knows whether it was applied."""
    vague: bool = False
    """Finer evidence of the same class, deeper in the chain or in the message, takes its place."""


_CONNECTIVITY, _BAD, _AUTH = ErrorClass.CONNECTIVITY, ErrorClass.BAD_REQUEST, ErrorClass.AUTH
_MISSING, _RATE, _UPSTREAM, _UNKNOWN = (
    ErrorClass.NOT_FOUND,
    ErrorClass.RATE_LIMIT,
    ErrorClass.UPSTREAM,
    ErrorClass.UNKNOWN,
)
_RETRY, _STRUCT, _FATAL, _NONE = Bucket.RETRYABLE, Bucket.STRUCTURAL, Bucket.FATAL, Bucket.NONE
_YES, _NO, _MAYBE = Recoverable.YES, Recoverable.NO, Recoverable.MAYBE

# --- connectivity: what matters is whether the request can have left -----------------------------
NOT_SENT: Final = Kind(_CONNECTIVITY, _RETRY, _YES)
CONNECT: Final = NOT_SENT._replace(vague=True)
"""A connect phase failed; its message may still say that TLS or the name was the reason."""
UNRESOLVED: Final = Kind(_CONNECTIVITY, _RETRY, _MAYBE)
UNANSWERED: Final = Kind(_CONNECTIVITY, _RETRY, _YES, sent=True)
CONNECTION: Final = UNANSWERED._replace(vague=True)
TIMEOUT: Final = CONNECTION
CLOSED_BEFORE: Final = Kind(_CONNECTIVITY, _RETRY, _MAYBE)
"""The connection had been closed before this call used it."""
TLS: Final = Kind(_CONNECTIVITY, _NONE, _NO)
# --- the request ---------------------------------------------------------------------------------
MALFORMED: Final = Kind(_BAD, _STRUCT, _MAYBE)
CONFLICT: Final = Kind(_BAD, _NONE, _MAYBE)
UPGRADE: Final = Kind(_BAD, _STRUCT, _NO)
# --- the caller ----------------------------------------------------------------------------------
DENIED: Final = Kind(_AUTH, Bucket.AUTH, _NO)
LEGAL: Final = Kind(_AUTH, _NONE, _NO)
# --- the thing asked for -------------------------------------------------------------------------
MISSING: Final = Kind(_MISSING, _NONE, _MAYBE)
MISNAMED: Final = Kind(_MISSING, _STRUCT, _MAYBE)
"""A part of the request names what is not there: a column, a function."""
GONE: Final = Kind(_MISSING, _NONE, _NO)
# --- the pace ------------------------------------------------------------------------------------
THROTTLED: Final = Kind(_RATE, _RETRY, _YES)
SPENT: Final = Kind(_RATE, _FATAL, _NO)
# --- the other side ------------------------------------------------------------------------------
UNAVAILABLE: Final = Kind(_UPSTREAM, _RETRY, _YES)
BROKEN: Final = Kind(_UPSTREAM, _RETRY, _MAYBE)
INTERNAL: Final = Kind(_UPSTREAM, _NONE, _MAYBE)
UNREADABLE: Final = Kind(_UPSTREAM, _STRUCT, _MAYBE)
INCAPABLE: Final = Kind(_UPSTREAM, _NONE, _NO)
# --- ourselves -----------------------------------------------------------------------------------
EXHAUSTED: Final = Kind(_UNKNOWN, _FATAL, _NO)
BUSY: Final = Kind(_UNKNOWN, _RETRY, _YES)
LOCKED: Final = Kind(_UNKNOWN, _RETRY, _MAYBE)
HOPELESS: Final = Kind(_UNKNOWN, _NONE, _NO)
UNKNOWN: Final = Kind(_UNKNOWN, _NONE, _MAYBE)

HTTP_STATUS: Final[Mapping[int, Kind]] = {
    # RFC 9110, section 15, unless said otherwise.
    401: DENIED,
    402: HOPELESS,
    403: DENIED,
    404: MISSING,
    407: DENIED,
    408: NOT_SENT,  # 15.5.9: the request did not arrive whole; the client may repeat it
    409: CONFLICT,
    410: GONE,
    418: UNKNOWN,
    421: CONFLICT,
    423: LOCKED,  # RFC 4918, 11.3
    424: CONFLICT,  # RFC 4918, 11.4
    425: BUSY,  # RFC 8470, 5.2: too early, may be repeated
    426: UPGRADE,
    429: THROTTLED,  # RFC 6585, 4
    451: LEGAL,  # RFC 7725
    499: UNRESOLVED,  # nginx: the client closed the request
    500: BROKEN,
    501: INCAPABLE,
    505: INCAPABLE,
    506: INCAPABLE,  # RFC 2295
    507: INTERNAL,  # RFC 4918, 11.5
    508: INTERNAL,  # RFC 5842
    510: INCAPABLE,  # RFC 2774
    511: DENIED,  # RFC 6585, 6: a captive portal
    526: TLS,  # Cloudflare: the origin's certificate is invalid
}
HTTP_STATUS_CLASS: Final[Mapping[int, Kind]] = {
    # RFC 9110, section 15: an unknown code counts as the x00 code of its class.
    3: UNKNOWN,
    4: MALFORMED,
    5: UNAVAILABLE,
}
COARSE_STATUS: Final[Mapping[int, frozenset[ErrorClass]]] = {
    # Statuses that services use for more than they mean, and the classes that a provider code or the type's name
    # may put in their place: AWS JSON protocols answer 400 to throttling, expired tokens and missing tables, S3
    # answers 503 to SlowDown, GitHub 403 to its rate limits, OpenAI 429 to a spent quota.
    400: frozenset({_RATE, _AUTH, _MISSING, _BAD, _UPSTREAM}),
    402: frozenset({_RATE}),
    403: frozenset({_RATE}),
    409: frozenset({_BAD, _RATE}),
    422: frozenset({_RATE, _AUTH, _MISSING}),
    429: frozenset({_RATE}),
    500: frozenset({_RATE, _AUTH, _MISSING, _BAD}),
    503: frozenset({_RATE}),
}

GRPC_STATUS: Final[Mapping[str, Kind]] = {
    # https://grpc.github.io/grpc/core/md_doc_statuscodes.html
    "CANCELLED": UNKNOWN,
    "UNKNOWN": INTERNAL,
    "INVALID_ARGUMENT": MALFORMED,
    "DEADLINE_EXCEEDED": UNANSWERED,
    "NOT_FOUND": MISSING,
    "ALREADY_EXISTS": CONFLICT,
    "PERMISSION_DENIED": DENIED,
    "RESOURCE_EXHAUSTED": THROTTLED,
    "FAILED_PRECONDITION": MALFORMED,
    "ABORTED": UNAVAILABLE,
    "OUT_OF_RANGE": MALFORMED,
    "UNIMPLEMENTED": GONE,
    "INTERNAL": BROKEN,
    "UNAVAILABLE": UNAVAILABLE,
    "DATA_LOSS": INCAPABLE,
    "UNAUTHENTICATED": DENIED,
}
GRPC_FINER: Final[Mapping[str, frozenset[ErrorClass]]] = {
    # UNAVAILABLE is also what a channel says that never connected; RESOURCE_EXHAUSTED also a message over its size.
    "UNAVAILABLE": frozenset({_CONNECTIVITY}),
    "RESOURCE_EXHAUSTED": frozenset({_BAD}),
}

SQLSTATE: Final[Mapping[str, Kind]] = {
    # PostgreSQL, appendix A; 42S02, 42S22, HYT00, HYT01 and IM002 are ODBC's.
    "08004": THROTTLED,
    "25P03": UNANSWERED,
    "3D000": GONE,
    "42501": DENIED,
    "42703": MISNAMED,
    "42704": MISSING,
    "42710": CONFLICT,
    "42883": MISNAMED,
    "42P01": MISSING,
    "42P04": CONFLICT,
    "42P06": CONFLICT,
    "42P07": CONFLICT,
    "42S01": CONFLICT,
    "42S02": MISSING,
    "42S22": MISNAMED,
    "53100": INCAPABLE,
    "53200": BROKEN,
    "53300": THROTTLED,
    "55000": CONFLICT,
    "57014": UNANSWERED,
    "57P01": UNANSWERED,
    "57P02": UNANSWERED,
    "57P04": GONE,
    "57P05": UNANSWERED,
    "HYT00": UNANSWERED,
    "HYT01": CONNECT,
    "IM002": GONE,
    "P0001": UNKNOWN,
    "P0002": MISSING,
}
SQLSTATE_CLASS: Final[Mapping[str, Kind]] = {
    # ISO/IEC 9075, table 38, and PostgreSQL, appendix A: the first two characters.
    "02": MISSING,
    "08": CONNECTION,
    "0A": MALFORMED,
    "0L": DENIED,
    "0P": DENIED,
    "20": MALFORMED,
    "21": MALFORMED,
    "22": MALFORMED,
    "23": MALFORMED,
    "24": CONFLICT,
    "25": CONFLICT,
    "26": MISNAMED,
    "28": DENIED,
    "34": MISNAMED,
    "3F": MISSING,
    "40": UNAVAILABLE,
    "42": MALFORMED,
    "44": MALFORMED,
    "53": UNAVAILABLE,
    "54": MALFORMED,
    "55": UNAVAILABLE,
    "57": UNAVAILABLE,
    "58": INTERNAL,
    "F0": INTERNAL,
    "HV": INTERNAL,
    "XX": INTERNAL,
}

_ERRNO_NAMES: Final[Mapping[str, Kind]] = {
    # POSIX.1-2017, <errno.h>; numbers differ between systems, names do not.
    "EPERM": DENIED,
    "EACCES": DENIED,
    "ENOENT": MISSING,
    "ESRCH": MISSING,
    "ECHILD": MISSING,
    "EEXIST": CONFLICT,
    "ENOTEMPTY": CONFLICT,
    "EISDIR": MALFORMED,
    "ENOTDIR": MALFORMED,
    "EINVAL": MALFORMED,
    "ENAMETOOLONG": MALFORMED,
    "ELOOP": MALFORMED,
    "E2BIG": MALFORMED,
    "ENOSPC": EXHAUSTED,
    "EDQUOT": EXHAUSTED,
    "EROFS": EXHAUSTED,
    "EFBIG": EXHAUSTED,
    "EMFILE": EXHAUSTED,
    "ENFILE": EXHAUSTED,
    "ENOMEM": EXHAUSTED,
    "EIO": EXHAUSTED,
    "EADDRINUSE": HOPELESS,
    "EADDRNOTAVAIL": HOPELESS,
    "EAGAIN": BUSY,
    "EBUSY": BUSY,
    "ETXTBSY": BUSY,
    "EDEADLK": BUSY,
    "ECONNREFUSED": NOT_SENT,
    "ENETUNREACH": NOT_SENT,
    "EHOSTUNREACH": NOT_SENT,
    "ENETDOWN": NOT_SENT,
    "EHOSTDOWN": NOT_SENT,
    "ECONNRESET": UNANSWERED,
    "ECONNABORTED": UNANSWERED,
    "ENETRESET": UNANSWERED,
    "EPIPE": UNANSWERED,
    "ESHUTDOWN": UNANSWERED,
    "ETIMEDOUT": TIMEOUT,
    "ENOTCONN": CLOSED_BEFORE,
}
ERRNO: Final[Mapping[int, Kind]] = {
    number: kind for name, kind in _ERRNO_NAMES.items() if (number := getattr(_errno, name, None)) is not None
}

CODE_SPACES: Final[tuple[tuple[str, Mapping[str, Kind]], ...]] = (
    # (word in a name of the type's MRO, "" for every type; what its numeric code means).
    (
        "websocket",  # RFC 6455, 7.4.1 and the IANA registry of close codes
        {
            "1000": CLOSED_BEFORE,
            "1001": UNANSWERED,
            "1002": INTERNAL,
            "1003": MALFORMED,
            "1006": UNANSWERED,
            "1007": MALFORMED,
            "1008": DENIED,
            "1009": MALFORMED,
            "1010": MALFORMED,
            "1011": BROKEN,
            "1012": UNAVAILABLE,
            "1013": UNAVAILABLE,
            "1014": UNAVAILABLE,
            "1015": TLS,
            "3000": DENIED,
            "3003": DENIED,
            "3008": UNANSWERED,
        },
    ),
    (
        "smtp",  # RFC 5321, 4.2.3 and RFC 4954, 6
        {
            "421": UNAVAILABLE,
            "450": UNAVAILABLE,
            "451": UNAVAILABLE,
            "452": UNAVAILABLE,
            "454": UNAVAILABLE,
            "500": MALFORMED,
            "501": MALFORMED,
            "503": MALFORMED,
            "504": MALFORMED,
            "530": DENIED,
            "534": DENIED,
            "535": DENIED,
            "538": DENIED,
            "550": MISSING,
            "551": MISSING,
            "552": INTERNAL,
            "553": MALFORMED,
            "554": MALFORMED,
        },
    ),
    (
        "ftp",  # RFC 959, 4.2
        {
            "421": UNAVAILABLE,
            "425": CONNECT,
            "426": UNANSWERED,
            "450": UNAVAILABLE,
            "451": BROKEN,
            "452": INTERNAL,
            "500": MALFORMED,
            "501": MALFORMED,
            "502": INCAPABLE,
            "503": MALFORMED,
            "504": MALFORMED,
            "530": DENIED,
            "532": DENIED,
            "550": MISSING,
            "552": INTERNAL,
            "553": MALFORMED,
        },
    ),
    (
        "dberror",  # PEP 249 error classes; numbers of the MySQL error reference (server 1xxx and 3xxx, client 2xxx)
        {
            "1040": THROTTLED,
            "1044": DENIED,
            "1045": DENIED,
            "1046": MALFORMED,
            "1049": GONE,
            "1050": CONFLICT,
            "1054": MISNAMED,
            "1062": MALFORMED,
            "1064": MALFORMED,
            "1114": INCAPABLE,
            "1142": DENIED,
            "1143": DENIED,
            "1146": MISSING,
            "1203": THROTTLED,
            "1205": UNAVAILABLE,
            "1213": UNAVAILABLE,
            "1226": THROTTLED,
            "1227": DENIED,
            "1305": MISNAMED,
            "1317": UNANSWERED,
            "1698": DENIED,
            "2002": NOT_SENT,
            "2003": NOT_SENT,
            "2005": UNRESOLVED,
            "2006": UNANSWERED,
            "2013": UNANSWERED,
            "2026": TLS,
            "3024": UNANSWERED,
        },
    ),
    (
        "",  # JSON-RPC 2.0, 5.1; -32001 and -32002 are MCP's (request timed out, resource not found)
        {
            "-32700": MALFORMED,
            "-32600": MALFORMED,
            "-32601": GONE,
            "-32602": MALFORMED,
            "-32603": INTERNAL,
            "-32001": UNANSWERED,
            "-32002": MISSING,
        },
    ),
)

IDEMPOTENT_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"})
"""RFC 9110, 9.2.2; QUERY by its draft. Everything else may not be repeated blindly."""

GRAVITY: Final[tuple[tuple[ErrorClass, Bucket | None], ...]] = (
    # Of the members of a group, the gravest speaks: what no agent can mend first, then what waits longest.
    (_UNKNOWN, _FATAL),
    (_RATE, _FATAL),
    (_AUTH, None),
    (_RATE, None),
    (_CONNECTIVITY, None),
    (_UPSTREAM, None),
    (_BAD, None),
    (_MISSING, None),
    (_UNKNOWN, None),
)
