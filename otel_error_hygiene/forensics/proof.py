"""Send spans and tell what the answer proves.

An exporter's ``SUCCESS`` is not proof: OTLP over HTTP takes a redirect and a partial success for one.

OTLP exporters are asked through their own connection (session, headers, compression, TLS), which stands in private
fields that moved between releases; an exporter with an unknown layout falls back to its public ``export``.
"""

from __future__ import annotations

import gzip
import os
import threading
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Protocol

from google.protobuf.message import EncodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from .._guard import say_once
from ..redact import mask
from .answer import ACCEPTED, Answer, Verdict, in_words, of_grpc_error, of_http, of_response

__all__ = ["Answer", "Sender", "Verdict", "export_lock", "sender_for"]


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
    plain = _PlainSender(exporter, kind)
    for module, make in (
        ("opentelemetry.exporter.otlp.proto.http.trace_exporter", _HttpSender),
        ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", _GrpcSender),
    ):
        if _is_stock(exporter, module):
            try:
                return make(exporter, plain)
            except (AttributeError, TypeError, ValueError):
                _say_unknown(kind)
    return plain


def _is_stock(exporter: SpanExporter, module: str) -> bool:
    """Tell whether an exporter sends as the stock class of a module does: to go around an override would be wrong."""
    if getattr(type(exporter).export, "__module__", None) != module:
        return False
    stock = next(cls for cls in type(exporter).__mro__ if cls.__module__ == module)
    subclasses = type(exporter).__mro__[: type(exporter).__mro__.index(stock)]
    own = {name for cls in subclasses for name in vars(cls)} | set(vars(exporter))
    # A new constructor changes what is sent to where, which stands in the fields; the others change how.
    return not any(callable(getattr(stock, name, None)) for name in own if name not in _HARMLESS)


_HARMLESS: Final = frozenset({"__init__", "__new__", "__doc__", "__module__", "shutdown", "force_flush"}) | set(
    vars(object)
)


def _say_unknown(kind: str) -> None:
    say_once(f"layout:{kind}", "unknown layout of %s: its success counts as acknowledged, without proof", kind)


def _destination(endpoint: str, headers: Mapping[str, str]) -> str:
    told = sorted((key.lower(), value) for key, value in headers.items() if key.lower() not in _OWN_HEADERS)
    return blake2b(repr((endpoint, told)).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


_OWN_HEADERS: Final = frozenset(
    {"user-agent", "content-type", "content-encoding", "accept", "accept-encoding", "connection"}
)
"""Headers of the exporter's own, which change with its version and not with the destination."""


# --- any exporter ------------------------------------------------------------------------------

_export_locks: weakref.WeakKeyDictionary[SpanExporter, threading.Lock] = weakref.WeakKeyDictionary()
_any_export_lock = threading.Lock()
_locks_lock = threading.Lock()


def export_lock(exporter: SpanExporter) -> threading.Lock:
    """Return what to hold around ``export``, which by the specification is never called concurrently."""
    with _locks_lock:
        try:
            return _export_locks.setdefault(exporter, threading.Lock())
        except TypeError:  # neither hashable nor weakly referable: these share one
            return _any_export_lock


def _forget_locks() -> None:
    # In a forked child: they may be held by threads that are not here.
    global _locks_lock, _any_export_lock
    _locks_lock, _any_export_lock = threading.Lock(), threading.Lock()
    _export_locks.clear()


os.register_at_fork(after_in_child=_forget_locks)


class _PlainSender:
    """Any exporter, by its public method."""

    proven = False

    def __init__(self, exporter: SpanExporter, kind: str) -> None:
        self._exporter = exporter
        self.kind = kind
        endpoint = getattr(exporter, "_endpoint", None) or getattr(exporter, "endpoint", "")
        headers = getattr(exporter, "_headers", None) or getattr(exporter, "headers", None) or {}
        self.destination = _destination(f"{kind} {endpoint}", dict(headers) if isinstance(headers, Mapping) else {})
        self.label = mask(f"{kind} {endpoint}".strip())

    def send(self, spans: Sequence[ReadableSpan], timeout_seconds: float) -> Answer:
        # SpanExporter.export has no way to take the time; it bounds the wait for one's turn only.
        lock = export_lock(self._exporter)
        if not lock.acquire(timeout=min(max(timeout_seconds, 0), threading.TIMEOUT_MAX)):
            return Answer(Verdict.LATER, "the exporter is busy with other spans")
        try:
            result = self._exporter.export(spans)
        except OSError as error:  # also what HTTP clients raise for a connection
            return Answer(Verdict.LATER, in_words(f"{type(error).__name__}: {error}"))
        except (TypeError, ValueError, EncodeError):  # encoding: the spans are at fault
            raise
        except Exception as error:
            return Answer(Verdict.LATER, in_words(f"{type(error).__name__}: {error}"))
        finally:
            lock.release()
        if result is SpanExportResult.SUCCESS:
            return ACCEPTED
        return Answer(Verdict.LATER, f"{type(self._exporter).__name__} returned {result!r}")


# --- OTLP --------------------------------------------------------------------------------------


class _OtlpSender:
    """What both protocols share: a private layout that turns out to be another one is given up for ``export``."""

    def __init__(self, plain: _PlainSender, destination: str, label: str) -> None:
        self.proven = True
        self.destination = destination
        self.label = mask(label)
        self._plain = plain

    def send(self, spans: Sequence[ReadableSpan], timeout_seconds: float) -> Answer:
        if not self.proven:
            return self._plain.send(spans, timeout_seconds)
        request = encode_spans(spans)
        try:
            return self._ask(request, timeout_seconds)
        except (AttributeError, TypeError):
            self.proven = False
            _say_unknown(self._plain.kind)
            return self._plain.send(spans, timeout_seconds)

    def _ask(self, request: Any, timeout_seconds: float) -> Answer:
        raise NotImplementedError


_Reply = tuple[int, Mapping[str, str], bytes]


class _HttpSender(_OtlpSender):
    """OTLP over HTTP (opentelemetry.io/docs/specs/otlp, section OTLP/HTTP)."""

    def __init__(self, exporter: Any, plain: _PlainSender) -> None:
        read = _client_of_1_45 if hasattr(exporter, "_client") else _session_of_1_39
        self._post, self._renew, endpoint, headers, self._timeout_seconds = read(exporter)
        self._pid = os.getpid()
        super().__init__(plain, _destination(endpoint, dict(headers)), endpoint)

    def _ask(self, request: Any, timeout_seconds: float) -> Answer:
        if self._pid != os.getpid():
            # A forked child must not speak on its parent's connections (opentelemetry-python#4994).
            self._pid = os.getpid()
            self._renew()
        body = request.SerializeToString()
        try:
            status, headers, content = self._post(body, min(timeout_seconds, self._timeout_seconds))
        except (AttributeError, TypeError):
            raise
        except Exception as error:  # any transport's any error: it did not get there
            return Answer(Verdict.LATER, in_words(f"{type(error).__name__}: {error}"))
        return of_http(status, headers, content)


_Layout = tuple[Callable[[bytes, float], _Reply], Callable[[], None], str, Mapping[str, str], float]


def _client_of_1_45(exporter: Any) -> _Layout:
    client = exporter._client
    transport, endpoint, compress, headers = client._transport, client._endpoint, client._compress, client._headers
    request = transport.request

    def post(body: bytes, timeout: float) -> _Reply:
        result = request("POST", endpoint, headers=headers, data=compress(body), timeout=timeout)
        if result.status_code is None:
            raise ConnectionError(str(result.error)) from result.error
        return result.status_code, result.headers(), result.content()

    # A transport of somebody else's may not come back from a close.
    stock = type(transport).__module__.startswith("opentelemetry.")
    return post, transport.close if stock else lambda: None, endpoint, headers, float(client._timeout)


def _session_of_1_39(exporter: Any) -> _Layout:
    session, endpoint = exporter._session, exporter._endpoint
    verify, cert = exporter._certificate_file, exporter._client_cert
    compress = _COMPRESS[str(exporter._compression.value).lower()]

    def post(body: bytes, timeout: float) -> _Reply:
        response = session.post(
            url=endpoint, data=compress(body), verify=verify, cert=cert, timeout=timeout, allow_redirects=False
        )
        return response.status_code, response.headers, response.content

    return post, session.close, endpoint, exporter._headers, float(exporter._timeout)


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "gzip": gzip.compress, "deflate": zlib.compress}


class _GrpcSender(_OtlpSender):
    """OTLP over gRPC, by the exporter's own stub."""

    def __init__(self, exporter: Any, plain: _PlainSender) -> None:
        exporter._client.Export  # noqa: B018  (only whether it is there)
        self._exporter = exporter
        self._timeout_seconds = float(exporter._timeout)
        label = f"grpc {exporter._endpoint}"
        super().__init__(plain, _destination(label, dict(exporter._headers)), label)

    def _ask(self, request: Any, timeout_seconds: float) -> Answer:
        timeout = min(timeout_seconds, self._timeout_seconds)
        exporter = self._exporter
        try:
            response = exporter._client.Export(request=request, metadata=exporter._headers, timeout=timeout)
        except (AttributeError, TypeError):
            raise
        except Exception as error:  # grpc.RpcError, or a channel that is being replaced
            answer, unavailable = of_grpc_error(error)
            if unavailable:
                self._dial_again()
            return answer
        return of_response(response)

    def _dial_again(self) -> None:
        # gRPC itself waits up to two minutes before it dials again. The exporter of 1.39 cannot be helped.
        exporter = self._exporter
        if hasattr(exporter, "_initialize_channel_and_stub") and not getattr(exporter, "_shutdown", False):
            before = exporter._channel
            exporter._initialize_channel_and_stub()
            before.close()
