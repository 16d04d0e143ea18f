"""Send spans and tell what the answer proves.

An exporter's ``SUCCESS`` is not proof: OTLP over HTTP takes a redirect and a partial success for one.

OTLP exporters are asked through their own connection (session, headers, compression, TLS), which stands in private
fields that moved between releases; an exporter with an unknown layout falls back to its public ``export``.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from enum import Enum
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from .._guard import say_once
from ..redact import mask

_REFUSED_STATUSES = frozenset({400, 413, 422})
"""RFC 9110: the content itself is at fault. Everything else may be mended on the server's side or in its settings."""
_REFUSED_CODES = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"})
_MAX_WORDS = 300


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


_ACCEPTED = Answer(Verdict.ACCEPTED)


class Sender(Protocol):
    """Send a batch within a time."""

    destination: str
    """Name of the destination's folder in the store."""
    label: str
    """What a human calls it: the endpoint, without credentials."""
    proven: bool
    """Whether an acceptance is the backend's own word."""

    def send(self, spans: Sequence[ReadableSpan], timeout_seconds: float) -> Answer:
        """Send, and judge the answer. Raises what encoding raises; never a transport's error."""


def sender_for(exporter: SpanExporter) -> Sender:
    """Return the sender that gets the most proof out of an exporter."""
    kind = f"{type(exporter).__module__}.{type(exporter).__qualname__}"
    for module, make in (
        ("opentelemetry.exporter.otlp.proto.http.trace_exporter", _HttpSender.of),
        ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", _GrpcSender.of),
    ):
        # An exporter that overrides export() does more than sending; going around it would be wrong.
        if type(exporter).export.__module__ == module:
            sender: Sender | None = make(exporter)
            if sender is not None:
                return sender
            say_once(f"layout:{kind}", "unknown layout of %s: its success counts as acknowledged, without proof", kind)
    return _PlainSender(exporter, kind)


def _destination(endpoint: str, headers: Mapping[str, str]) -> str:
    told = sorted((key.lower(), value) for key, value in headers.items() if key.lower() not in _OWN_HEADERS)
    return blake2b(repr((endpoint, told)).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


_OWN_HEADERS = frozenset({"user-agent", "content-type", "content-encoding", "accept", "accept-encoding", "connection"})
"""Headers of the exporter's own, which change with its version and not with the destination."""


class _PlainSender:
    """Any exporter, by its public method."""

    proven = False

    def __init__(self, exporter: SpanExporter, kind: str) -> None:
        self._exporter = exporter
        endpoint = getattr(exporter, "_endpoint", None) or getattr(exporter, "endpoint", "")
        headers = getattr(exporter, "_headers", None) or getattr(exporter, "headers", None) or {}
        self.destination = _destination(f"{kind} {endpoint}", dict(headers) if isinstance(headers, Mapping) else {})
        self.label = mask(f"{kind} {endpoint}".strip())

    def send(self, spans: Sequence[ReadableSpan], timeout_seconds: float) -> Answer:
        del timeout_seconds  # SpanExporter.export has no way to take it
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            return _ACCEPTED
        return Answer(Verdict.LATER, f"{type(self._exporter).__name__} returned {result!r}")


Post = Callable[[bytes, float], tuple[int, Mapping[str, str], bytes]]


class _HttpSender:
    """OTLP over HTTP (opentelemetry.io/docs/specs/otlp, section OTLP/HTTP)."""

    proven = True

    def __init__(self, post: Post, endpoint: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        self._post = post
        self._timeout_seconds = timeout_seconds
        self.destination = _destination(endpoint, headers)
        self.label = mask(endpoint)

    @classmethod
    def of(cls, exporter: Any) -> _HttpSender | None:
        """Return a sender over the exporter's own connection; None when its layout is unknown."""
        try:
            return cls._of_client(exporter) if hasattr(exporter, "_client") else cls._of_session(exporter)
        except AttributeError:
            return None

    @classmethod
    def _of_client(cls, exporter: Any) -> _HttpSender:  # 1.45
        client = exporter._client
        request, compress, headers = client._transport.request, client._compress, client._headers

        def post(body: bytes, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
            result = request("POST", client._endpoint, headers=headers, data=compress(body), timeout=timeout)
            if result.status_code is None:
                raise ConnectionError(str(result.error)) from result.error
            return result.status_code, result.headers(), result.content()

        return cls(post, client._endpoint, headers, float(client._timeout))

    @classmethod
    def _of_session(cls, exporter: Any) -> _HttpSender:  # 1.39 to 1.44
        session, endpoint = exporter._session, exporter._endpoint
        compress = _COMPRESS.get(str(exporter._compression.value).lower(), bytes)

        def post(body: bytes, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
            response = session.post(
                url=endpoint,
                data=compress(body),
                verify=exporter._certificate_file,
                cert=exporter._client_cert,
                timeout=timeout,
                allow_redirects=False,
            )
            return response.status_code, response.headers, response.content

        return cls(post, endpoint, exporter._headers, float(exporter._timeout))

    def send(self, spans: Sequence[ReadableSpan], timeout_seconds: float) -> Answer:
        body = encode_spans(spans).SerializeToString()
        try:
            status, headers, content = self._post(body, min(timeout_seconds, self._timeout_seconds))
        except Exception as error:  # any transport's any error: it did not get there
            return Answer(Verdict.LATER, f"{type(error).__name__}: {error}"[:_MAX_WORDS])
        if 200 <= status < 300:
            return _judge_body(content, str(headers.get("content-type", "")))
        words = f"HTTP {status} {content[:_MAX_WORDS].decode('utf-8', 'replace')}".strip()
        if status in _REFUSED_STATUSES:
            return Answer(Verdict.REFUSED, words)
        setup = 300 <= status < 500 and status not in (408, 425, 429)
        return Answer(Verdict.LATER, words, _retry_after(headers.get("retry-after")), setup=setup)


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


def _judge_body(content: bytes, content_type: str) -> Answer:
    try:
        return _judge(ExportTraceServiceResponse.FromString(content))
    except DecodeError:
        pass
    try:
        return _judge(ParseDict(json.loads(content), ExportTraceServiceResponse(), ignore_unknown_fields=True))
    except (ValueError, ParseError):
        if "html" not in content_type:
            return _ACCEPTED
        # A page for humans did not come from an OTLP receiver: a proxy's login, a wrong port.
        return Answer(Verdict.LATER, f"2xx with a page of HTML: {content[:80]!r}", setup=True)


def _judge(response: Any) -> Answer:
    partial = response.partial_success
    if partial.rejected_spans:
        return Answer(Verdict.REFUSED, f"{partial.rejected_spans} spans rejected: {partial.error_message}"[:_MAX_WORDS])
    return _ACCEPTED


def _retry_after(value: str | None) -> float | None:
    """Read RFC 9110 section 10.2.3: seconds, or an HTTP date; None for anything else."""
    if value is None:
        return None
    try:
        return max(float(value.strip()), 0.0) if value.strip().isdigit() else _until(value)
    except (TypeError, ValueError):
        return None


def _until(date: str) -> float:
    return max(parsedate_to_datetime(date).timestamp() - time.time(), 0.0)


class _GrpcSender:
    """OTLP over gRPC, by the exporter's own stub."""

    proven = True

    def __init__(self, exporter: Any) -> None:
        self._exporter = exporter
        self._timeout_seconds = float(exporter._timeout)
        self.destination = _destination(f"grpc {exporter._endpoint}", dict(exporter._headers))
        self.label = mask(f"grpc {exporter._endpoint}")

    @classmethod
    def of(cls, exporter: Any) -> _GrpcSender | None:
        """Return a sender over the exporter's own stub; None when its layout is unknown."""
        try:
            exporter._client.Export  # noqa: B018  (only whether it is there)
            return cls(exporter)
        except (AttributeError, TypeError, ValueError):
            return None

    def send(self, spans: Sequence[ReadableSpan], timeout_seconds: float) -> Answer:
        request = encode_spans(spans)
        try:
            response = self._exporter._client.Export(
                request=request,
                metadata=self._exporter._headers,
                timeout=min(timeout_seconds, self._timeout_seconds),
            )
        except Exception as error:  # grpc.RpcError, or a channel that is being replaced
            return self._judge_error(error)
        return _judge(response)

    def _judge_error(self, error: Exception) -> Answer:
        code = getattr(error, "code", None)
        name = getattr(code() if callable(code) else None, "name", type(error).__name__)
        details = getattr(error, "details", None)
        words = f"{name}: {details() if callable(details) else error}"[:_MAX_WORDS]
        if name in _REFUSED_CODES or (name == "RESOURCE_EXHAUSTED" and "larger than max" in words):
            return Answer(Verdict.REFUSED, words)
        if name == "UNAVAILABLE" and hasattr(self._exporter, "_initialize_channel_and_stub"):
            # gRPC itself waits up to two minutes before it dials again.
            before = self._exporter._channel
            self._exporter._initialize_channel_and_stub()
            before.close()
        return Answer(
            Verdict.LATER,
            words,
            _retry_info(error),
            setup=name in ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND"),
        )


def _retry_info(error: Any) -> float | None:
    try:
        from google.rpc.error_details_pb2 import RetryInfo

        packed = dict(error.trailing_metadata()).get("google.rpc.retryinfo-bin")
        if packed is None:
            return None
        delay = RetryInfo.FromString(packed).retry_delay
        return float(delay.seconds + delay.nanos / 1e9)
    except Exception:  # a hint only; without it the back-off serves
        return None
