"""What a backend's answer proves, by the OTLP specification (opentelemetry.io/docs/specs/otlp) and RFC 9110."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from .._guard import logger
from ..redact import mask

_REFUSED_STATUSES: Final = frozenset({400, 413, 422})
"""RFC 9110: the content itself is at fault. Everything else may be mended on the server's side or in its settings."""
_SETUP_CODES: Final = frozenset(
    {"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND", "FAILED_PRECONDITION"}
)
_MAX_WORDS: Final = 300
_LONGEST_WAIT_SECONDS: Final = 24 * 3600.0
"""A server's slip of the pen must not silence a process for ever."""


class Verdict(Enum):
    """What an answer proves."""

    ACCEPTED = "accepted"
    LATER = "later"
    """Not now: try again."""
    REFUSED = "refused"
    """Something in this content is unacceptable."""


class Answer(NamedTuple):
    """The backend's answer."""

    verdict: Verdict
    words: str = ""
    """What it said, for a human; "" for accepted."""
    retry_after_seconds: float | None = None
    setup: bool = False
    """The endpoint or the credentials look wrong: a human should know."""
    stumbled: bool = False
    """Later, but the content may have been what the server fell over."""


ACCEPTED: Final = Answer(Verdict.ACCEPTED)


def of_http(status: int, headers: Mapping[str, str], content: bytes) -> Answer:
    """Judge an answer over HTTP.

    Args:
        status: The status code.
        headers: The headers, found whatever the case of the key.
        content: The body, decoded as ``Content-Encoding`` says.
    """
    if 200 <= status < 300:
        return _of_body(content, str(headers.get("content-type", "")))
    words = in_words(f"HTTP {status} {content[:_MAX_WORDS].decode('utf-8', 'replace')}")
    if status in _REFUSED_STATUSES:
        return Answer(Verdict.REFUSED, words)
    setup = 300 <= status < 500 and status not in (408, 425, 429)
    return Answer(Verdict.LATER, words, _retry_after(headers.get("retry-after")), setup=setup, stumbled=status == 500)


def of_response(response: Any) -> Answer:
    """Judge an ``ExportTraceServiceResponse``: rejected spans are no acceptance, a warning without them is one."""
    partial = response.partial_success
    if partial.rejected_spans:
        return Answer(Verdict.REFUSED, in_words(f"{partial.rejected_spans} spans rejected: {partial.error_message}"))
    if partial.error_message:
        logger.debug("the backend accepted, with a warning: %s", in_words(partial.error_message))
    return ACCEPTED


def of_grpc_error(error: Exception) -> tuple[Answer, bool]:
    """Judge what a gRPC call raised; the second value tells whether there was no connection."""
    code = getattr(error, "code", None)
    name = getattr(code() if callable(code) else None, "name", type(error).__name__)
    details = getattr(error, "details", None)
    words = in_words(f"{name}: {details() if callable(details) else error}")
    if name == "INVALID_ARGUMENT" or (name == "RESOURCE_EXHAUSTED" and "larger than max" in words):
        return Answer(Verdict.REFUSED, words), False
    stumbled = name in ("INTERNAL", "UNKNOWN")
    answer = Answer(Verdict.LATER, words, _retry_info(error), setup=name in _SETUP_CODES, stumbled=stumbled)
    return answer, name == "UNAVAILABLE"


def in_words(text: str) -> str:
    """Return what a backend or a transport said, on one line, masked and bounded."""
    return mask(" ".join(text.split()))[:_MAX_WORDS]


def _of_body(content: bytes, content_type: str) -> Answer:
    kind = content_type.lower()
    if "json" not in kind:
        try:
            return of_response(ExportTraceServiceResponse.FromString(content))
        except DecodeError:
            pass
    try:
        parsed = json.loads(content)
        if isinstance(parsed, dict):
            return of_response(ParseDict(parsed, ExportTraceServiceResponse(), ignore_unknown_fields=True))
    except (ValueError, ParseError, RecursionError):
        pass
    if "html" in kind or content.lstrip()[:1] == b"<":
        # A page for humans did not come from an OTLP receiver: a proxy's login, a wrong port.
        return Answer(Verdict.LATER, in_words(f"2xx with a page of HTML: {content[:80]!r}"), setup=True)
    return ACCEPTED


def _retry_after(value: str | None) -> float | None:
    """Read RFC 9110 section 10.2.3: seconds, or an HTTP date; None for anything else."""
    if value is None:
        return None
    text = value.strip()
    try:
        seconds = float(text) if text.isdecimal() else _until(text)
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT_SECONDS)


def _until(date: str) -> float:
    moment = parsedate_to_datetime(date)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - time.time()


def _retry_info(error: Any) -> float | None:
    """Read ``RetryInfo``: in the details of the status, where the OTLP specification has it, or as its own trailer."""
    try:
        from google.rpc.error_details_pb2 import RetryInfo
        from google.rpc.status_pb2 import Status

        trailers = dict(error.trailing_metadata() or ())
        found = [RetryInfo.FromString(trailers[key]) for key in ("google.rpc.retryinfo-bin",) if key in trailers]
        for detail in Status.FromString(trailers.get("grpc-status-details-bin", b"")).details:
            info = RetryInfo()
            if detail.Unpack(info):
                found.append(info)
        if not found:
            return None
        delay = found[-1].retry_delay
        return min(max(float(delay.seconds + delay.nanos / 1e9), 0.0), _LONGEST_WAIT_SECONDS)
    except Exception:  # a hint only; without it the back-off serves
        return None
