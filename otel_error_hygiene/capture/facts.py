"""Read the typed facts of one live exception: statuses, codes, numbers, and when to retry.

Libraries keep them under a few dozen names. A name proves nothing (``status_code`` may hold ``"NOPERM"``, ``code`` may
be a method or a documentation key), so every value is judged by its type and range, never by the library. Reading is
guarded one by one: an attribute or a property may raise anything. Bodies and streams are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from .. import semconv
from ..model import Scalar

_Seen = dict[str, Any]
"""What the attributes of interest hold; absent ones, None and those that raised are left out."""

_MAX_TEXT: Final = 200
_MAX_HEADERS: Final = 100
_STATUS_NAMES: Final = (
    "status_code",
    "status",
    "http_status",
    "http_status_code",
    "response_code",
    "statusCode",
    "http_code",
)
_RESPONSE_NAMES: Final = ("response", "resp", "http_response", "raw_response")
_CODE_NAMES: Final = ("code", "error_code", "smtp_code", "sqlite_errorname", "errorCode", "full_code", "reply_code")
_MAYBE_STATUS: Final = frozenset({"code", "error_code"})
_STATE_NAMES: Final = ("sqlstate", "pgcode")
_RETRY_NAMES: Final = ("retry_after", "retry_after_seconds", "retry_delay", "retryDelay", "retry_in", "backoff")
_RETRY_HEADER: Final = re.compile(
    r"(?:x-)?(?:ms-)?retry-after(?:-ms)?|(?:[a-z]+-)*rate-?limit(?:-[a-z]+)*-(?:reset|remaining)(?:-[a-z]+)*|ratelimit"
)
_GRPC_NAMES: Final = frozenset(
    (
        *("CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
        *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
    )
)
_STATE: Final = re.compile(r"(?=.*\d)[0-9A-Z]{5}", re.ASCII)
_CODE: Final = re.compile(r"[A-Za-z][\w.\-/:]{1,79}", re.ASCII)
_METHOD: Final = re.compile(r"[A-Za-z]{3,12}", re.ASCII)
_SECONDS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?s?|retry_delay ?\{\s*seconds: ?(\d{1,9})\s*\}", re.ASCII)
_RETRY_INFO: Final = b"type.googleapis.com/google.rpc.RetryInfo"
_OTHER_NUMBERS: Final = frozenset({"SSLError", "gaierror", "herror"})
"""Subclasses of OSError whose ``errno`` is not a system error number (``ssl``, ``socket``)."""


def _quietly(read: Callable[..., Any], *args: Any) -> Any:
    """Return what ``read`` returns, or None where it raises: the attributes of a stranger may raise anything."""
    try:
        return read(*args)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _get(thing: Any, name: str) -> Any:
    return _quietly(getattr, thing, name, None)


def _int(value: Any) -> int | None:
    return int.__int__(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _str(value: Any) -> str | None:
    return str.__str__(value)[:_MAX_TEXT] if isinstance(value, str) else None


def _status(value: Any) -> int | None:
    """Return an HTTP status, known by type and range: an int, or exactly three digits."""
    number = _int(value)
    if number is None and (text := _str(value)) is not None and len(text) == 3 and text.isascii() and text.isdigit():
        number = int(text)
    return number if number is not None and 100 <= number <= 599 else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < 1e12 else None
    text = _str(value)
    if text is None:
        total = _get(value, "total_seconds")  # a timedelta
        return _seconds(total()) if callable(total) and type(value).__name__ == "timedelta" else None
    found = _SECONDS.fullmatch(text.strip())
    return float(found[1] or found[2]) if found else None


def _item(thing: Any, key: Any) -> Any:
    return thing.get(key) if isinstance(thing, Mapping) else None


def _field(thing: Any, key: str) -> Any:
    return thing.get(key) if isinstance(thing, Mapping) else None if thing is None else _get(thing, key)


def _read_headers(headers: Any, facts: dict[str, Scalar]) -> None:
    items = _get(headers, "items")
    if not callable(items):
        return
    for name, value in islice(items(), _MAX_HEADERS):
        key, text = _str(name), _str(value)
        if key is not None and text is not None and _RETRY_HEADER.fullmatch(key := key.lower()):
            facts.setdefault(semconv.HTTP_RESPONSE_HEADER + key, text)


def _read_response(seen: _Seen, facts: dict[str, Scalar]) -> None:
    for name in _RESPONSE_NAMES:
        response = seen.get(name)
        if response is None:
            continue
        if (meta := _field(response, "ResponseMetadata")) is not None:  # botocore keeps the parsed answer
            _note_status(_field(meta, "HTTPStatusCode"), facts)
            _note_code(_field(_field(response, "Error"), "Code"), facts)
            _read_headers(_field(meta, "HTTPHeaders"), facts)
            continue
        for status in ("status_code", "status"):
            _note_status(_get(response, status), facts)
        _read_headers(_get(response, "headers"), facts)
        _note_method(_get(_get(response, "request"), "method"), facts)


def _note_status(value: Any, facts: dict[str, Scalar]) -> None:
    if semconv.HTTP_STATUS_CODE not in facts and (status := _status(value)) is not None:
        facts[semconv.HTTP_STATUS_CODE] = status


def _note_method(value: Any, facts: dict[str, Scalar]) -> None:
    method = _str(value)
    if method is not None and semconv.HTTP_REQUEST_METHOD not in facts and _METHOD.fullmatch(method):
        facts[semconv.HTTP_REQUEST_METHOD] = method.upper()


def _note_code(value: Any, facts: dict[str, Scalar]) -> None:
    number = _int(value)
    text = str(number) if number is not None and abs(number) < 1e12 else _str(value)
    if text is None or semconv.PROVIDER_CODE in facts:
        return
    if text in _GRPC_NAMES:
        facts.setdefault(semconv.RPC_GRPC_STATUS, text)
    elif number is not None or _CODE.fullmatch(text):
        facts[semconv.PROVIDER_CODE] = text


def _read_statuses(seen: _Seen, facts: dict[str, Scalar]) -> None:
    for name in _STATUS_NAMES:
        value = seen.get(name)
        if value is not None:
            _note_status(value, facts)
            if isinstance(value, str):
                _note_code(value, facts)  # "NOPERM", "TIMEOUT", "UNAVAILABLE"
    if (meta := seen.get("meta")) is not None:
        _note_status(_get(meta, "status"), facts)


def _read_code(seen: _Seen, facts: dict[str, Scalar]) -> None:
    for name in _CODE_NAMES:
        value = seen.get(name)
        if value is not None and not callable(value) and not (name in _MAYBE_STATUS and _is_status(value, facts)):
            _note_rpc(value, facts)
            _note_code(value, facts)
    code = seen.get("code")
    if callable(code) and callable(seen.get("details")) and callable(seen.get("trailing_metadata")):
        _note_rpc(code(), facts)  # a gRPC call: only such an object has all three
    _note_rpc(seen.get("grpc_status_code"), facts)
    for holder in (seen.get("error"), _item(seen.get("body"), "error"), seen.get("body")):
        if isinstance(holder, str):
            _note_code(holder, facts)
        else:
            for key in ("code", "type"):
                _note_code(_field(holder, key), facts)


def _is_status(value: Any, facts: dict[str, Scalar]) -> bool:
    """Take a code for the HTTP status if it is one by type and range, and no other is known."""
    number = _int(value)
    if number is None or not 400 <= number <= 599:
        return False
    return facts.setdefault(semconv.HTTP_STATUS_CODE, number) == number


def _note_rpc(value: Any, facts: dict[str, Scalar]) -> None:
    name = _field(value, "name")
    if isinstance(name, str) and name in _GRPC_NAMES:
        facts.setdefault(semconv.RPC_GRPC_STATUS, str(name))


def _read_state(seen: _Seen, facts: dict[str, Scalar]) -> None:
    for name in _STATE_NAMES:
        _note_state(seen.get(name), facts)
    _read_args(seen.get("args"), facts)
    if (orig := seen.get("orig")) is not None:  # a wrapper of a database driver's error
        for name in _STATE_NAMES:
            _note_state(_get(orig, name), facts)
        _read_args(_get(orig, "args"), facts)


def _read_args(args: Any, facts: dict[str, Scalar]) -> None:
    """Read the arguments of database drivers: (number, text) of MySQL's, (state, text) of ODBC's."""
    if isinstance(args, tuple) and len(args) >= 2 and isinstance(args[1], str | bytes):
        _note_code(_int(args[0]), facts)
        _note_state(args[0], facts)


def _note_state(value: Any, facts: dict[str, Scalar]) -> None:
    state = _str(value)
    if state is not None and _STATE.fullmatch(state):
        facts.setdefault(semconv.SQLSTATE, state)


def _read_retry(seen: _Seen, facts: dict[str, Scalar]) -> None:
    values: list[Any] = [seen.get(name) for name in _RETRY_NAMES]
    for holder in (seen.get("data"), seen.get("body")):
        if isinstance(holder, Mapping):
            values += [holder.get(name) for name in _RETRY_NAMES]
    details = seen.get("details")
    for detail in islice(details, 20) if isinstance(details, list | tuple) else ():
        # google.rpc.RetryInfo as JSON or as a message's text
        values.append(_item(detail, "retryDelay") if isinstance(detail, Mapping) else _text_of_retry(detail))
    for value in values:
        if value is not None and (seconds := _seconds(value)) is not None:
            facts[semconv.RETRY_AFTER_SECONDS] = seconds
            return
    _read_trailers(seen, facts)


def _text_of_retry(detail: Any) -> Any:
    delay = _get(detail, "retry_delay")
    return detail if delay is None else _get(delay, "seconds")


def _read_trailers(seen: _Seen, facts: dict[str, Scalar]) -> None:
    trailers = seen.get("trailing_metadata")
    if callable(trailers):
        if not callable(seen.get("details")):
            return
        trailers = trailers()
    if not isinstance(trailers, Iterable):
        return
    for key, value in islice(trailers, _MAX_HEADERS):
        name = _str(key)
        if name == "grpc-status-details-bin":
            raw = value if isinstance(value, bytes) else str(value)[:4096].encode("latin-1", "replace")
            if (seconds := _retry_info(raw[:4096])) is not None:
                facts[semconv.RETRY_AFTER_SECONDS] = seconds
        elif name is not None and _RETRY_HEADER.fullmatch(name) and (text := _str(value)) is not None:
            facts.setdefault(semconv.HTTP_RESPONSE_HEADER + name, text)


def _retry_info(raw: bytes) -> float | None:
    """Return the seconds of a google.rpc.RetryInfo inside a serialised google.rpc.Status (protobuf wire format)."""
    _, found, rest = raw.partition(_RETRY_INFO)
    # Any.value (field 2) holds RetryInfo.retry_delay (field 1) holds Duration.seconds (field 1, varint).
    if not found or len(rest) < 6 or rest[0] != 0x12 or rest[2] != 0x0A or rest[4] != 0x08:
        return None
    seconds = 0
    for index, byte in enumerate(rest[5:10]):
        seconds |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return float(seconds)
    return None


def _read_method(seen: _Seen, facts: dict[str, Scalar]) -> None:
    for name in ("request", "request_info"):
        if (request := seen.get(name)) is not None:
            _note_method(_get(request, "method"), facts)


def _read_own_headers(seen: _Seen, facts: dict[str, Scalar]) -> None:
    if (headers := seen.get("headers")) is not None:
        _read_headers(headers, facts)


_READERS: Final = (
    _read_statuses,
    _read_response,
    _read_code,
    _read_state,
    _read_own_headers,
    _read_retry,
    _read_method,
)
_NAMES: Final = frozenset(
    (
        *(*_STATUS_NAMES, *_RESPONSE_NAMES, *_CODE_NAMES, *_STATE_NAMES, *_RETRY_NAMES),
        *("meta", "details", "trailing_metadata", "grpc_status_code", "error", "body", "orig", "data"),
        *("request", "request_info", "headers"),
    )
)


@lru_cache(maxsize=512)
def _class_names(kind: Hashable) -> frozenset[str]:
    """Return the names that instances may have beside their ``__dict__``; all, if the class computes them."""
    found: set[str] = set()
    for base in getattr(kind, "__mro__", ()):
        if base.__module__ != "builtins":
            if "__getattr__" in base.__dict__ or "__getattribute__" in base.__dict__:
                return _NAMES
            found |= _NAMES & base.__dict__.keys()
    return frozenset(found)


def _read_errno(error: BaseException, facts: dict[str, Scalar]) -> None:
    number = _int(error.errno) if isinstance(error, OSError) else None
    if number is not None and not any(c.__name__ in _OTHER_NUMBERS for c in type(error).__mro__):
        facts[semconv.ERRNO] = number


def _seen_of(error: BaseException) -> _Seen:
    kind: Any = type(error)  # hashable, whatever the stubs of BaseException say
    names = _class_names(kind) | (_NAMES & error.__dict__.keys())
    seen = {name: value for name in names if (value := _get(error, name)) is not None}
    if not isinstance(error, OSError) and len(error.args) >= 2:
        seen["args"] = error.args
    return seen


def facts_of(error: BaseException) -> dict[str, Scalar]:
    """Read the typed facts of one exception, not of its chain.

    Args:
        error: Any exception; its attributes may raise.

    Returns:
        Facts under the keys of ``semconv``; texts have at most 200 characters. Empty when there are none.
    """
    facts: dict[str, Scalar] = {}
    _quietly(_read_errno, error, facts)
    seen = _quietly(_seen_of, error)
    if seen is None:  # a class may compute even its ``__dict__``
        seen = {name: value for name in _NAMES if (value := _get(error, name)) is not None}
    if seen:
        for read in _READERS:  # what one cannot read must not hide what the others can
            _quietly(read, seen, facts)
    return facts


def inner_of(error: BaseException) -> BaseException | None:
    """Return the exception that a wrapper keeps outside its chain: the last attempt of a retry (tenacity), or None."""
    attempt = _get(error, "last_attempt")
    if attempt is None:
        return None
    done = _get(attempt, "done")
    if callable(done) and not _quietly(done):
        return None  # a future's exception() would wait
    inner = _quietly(_get(attempt, "exception"))
    return inner if isinstance(inner, BaseException) and inner is not error else None
