"""Scriptable OTLP receivers on loopback, over real sockets: HTTP and gRPC, one set of behaviours for both."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import socket
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from google.protobuf.any_pb2 import Any as PackedAny
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_HANG_SECONDS = 30.0
"""Nothing here outlives this."""
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
}


@dataclass(frozen=True)
class Span:
    """One span as it arrived."""

    name: str
    trace_id: int
    span_id: int
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    links: tuple[tuple[int, int, Mapping[str, Any]], ...]
    resource: Mapping[str, Any]
    scope: str
    status: tuple[int, str]
    start: int
    end: int


@dataclass(frozen=True)
class Reply:
    """What a receiver does with one request."""

    status: int = 200
    words: str = ""
    """Of an error's body, or of a partial success."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Instead of the ``ExportTraceServiceResponse``."""
    rejected: frozenset[int] = frozenset()
    """Span ids; the rest of the request is accepted."""
    retry_seconds: float | None = None
    """``Retry-After``, and ``RetryInfo`` in the details of a gRPC status."""
    hang: bool = False
    close: bool = False


Behaviour = Callable[[list[Span]], Reply]


def ok(spans: list[Span]) -> Reply:
    """Accept."""
    del spans
    return Reply()


def status(code: int, words: str = "", **more: Any) -> Behaviour:
    """Answer with a status and accept nothing."""
    return lambda _: Reply(code, words, **more)


def warning(words: str) -> Behaviour:
    """Accept all, with words: OTLP's partial success that rejects nothing."""
    return lambda _: Reply(words=words)


def rejecting(name_part: str, words: str) -> Behaviour:
    """Accept, other than spans whose name contains a text: OTLP's partial success."""
    return lambda spans: Reply(words=words, rejected=frozenset(s.span_id for s in spans if name_part in s.name))


def refusing(name_part: str, code: int = 400, words: str = "poison is not welcome") -> Behaviour:
    """Refuse any request that holds a span whose name contains a text."""
    return lambda spans: Reply(code, words) if any(name_part in s.name for s in spans) else Reply()


def body(content: bytes, content_type: str) -> Behaviour:
    """Answer 200 with a body of one's own."""
    return lambda _: Reply(body=content, headers={"Content-Type": content_type})


def hang(spans: list[Span]) -> Reply:
    """Take the request and say nothing."""
    del spans
    return Reply(hang=True)


def hang_up(spans: list[Span]) -> Reply:
    """Take the request and close the connection."""
    del spans
    return Reply(close=True)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Receiver:
    """What both receivers share.

    Args:
        port: Port on loopback; 0: any that is free.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.script: deque[Behaviour] = deque()
        """Behaviours of the next requests, one each; then comes ``default``."""
        self.default: Behaviour = ok
        self.accepted: list[Span] = []
        self.requests: list[list[Span]] = []
        self.headers: list[Mapping[str, str]] = []
        self.times: list[float] = []
        """When each request came, seconds of ``time.monotonic``."""
        self._released = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> Self:
        """Listen."""
        raise NotImplementedError

    def stop(self) -> None:
        """Close, and let go of what hangs."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def names(self) -> list[str]:
        """Return the names of the spans accepted so far, sorted, each once: delivery is at least once."""
        return sorted({span.name for span in self.accepted})

    def one(self, name: str) -> Span:
        """Return the accepted span of that name."""
        return next(span for span in self.accepted if span.name == name)

    def wait_for(self, condition: Callable[[], bool], timeout_seconds: float = 10.0) -> bool:
        """Wait until a condition holds."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def take(self, request: ExportTraceServiceRequest, headers: Mapping[str, str]) -> Reply:
        """Decide on one request, and keep it."""
        spans = list(_spans(request))
        with self._lock:
            behaviour = self.script.popleft() if self.script else self.default
            reply = behaviour(spans)
            self.requests.append(spans)
            self.headers.append(headers)
            self.times.append(time.monotonic())
            if reply.status // 100 == 2 and not reply.close and not reply.hang and reply.body is None:
                self.accepted += [span for span in spans if span.span_id not in reply.rejected]
        if reply.hang:
            self._released.wait(_HANG_SECONDS)
        return reply


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for per_resource in request.resource_spans:
        for per_scope in per_resource.scope_spans:
            for span in per_scope.spans:
                yield Span(
                    span.name,
                    int.from_bytes(span.trace_id),
                    int.from_bytes(span.span_id),
                    _plain(span.attributes),
                    tuple((event.name, _plain(event.attributes)) for event in span.events),
                    tuple(
                        (int.from_bytes(link.trace_id), int.from_bytes(link.span_id), _plain(link.attributes))
                        for link in span.links
                    ),
                    _plain(per_resource.resource.attributes),
                    per_scope.scope.name,
                    (span.status.code, span.status.message),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )


def _plain(attributes: Any) -> dict[str, Any]:
    def value(each: Any) -> Any:
        kind = each.WhichOneof("value")
        if kind == "array_value":
            return [value(item) for item in each.array_value.values]
        return None if kind is None else getattr(each, kind)

    return {pair.key: value(pair.value) for pair in attributes}


def _response(reply: Reply) -> ExportTraceServiceResponse:
    response = ExportTraceServiceResponse()
    if reply.rejected or reply.words:
        response.partial_success.rejected_spans = len(reply.rejected)
        response.partial_success.error_message = reply.words
    return response


_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress, "": bytes}


class HttpReceiver(Receiver):
    """OTLP over HTTP, protobuf."""

    @property
    def endpoint(self) -> str:
        """The traces URL."""
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def start(self) -> Self:
        """Listen."""
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver._connections.add(self.connection)

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                unpack = _UNPACK[self.headers.get("Content-Encoding", "")]
                request = ExportTraceServiceRequest.FromString(unpack(content))
                reply = receiver.take(request, {key.lower(): value for key, value in self.headers.items()})
                if reply.close or reply.hang:
                    self.close_connection = True
                    return
                good = reply.status // 100 == 2
                sent = _response(reply).SerializeToString() if good else reply.words.encode()
                sent = sent if reply.body is None else reply.body
                self.send_response(reply.status)
                told = {"Content-Type": "application/x-protobuf" if good else "text/plain"} | dict(reply.headers)
                if reply.retry_seconds is not None:
                    told["Retry-After"] = f"{reply.retry_seconds:g}"
                for key, value in told.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
                """Say nothing."""

        self._released = threading.Event()
        self._connections: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close, and let go of what hangs."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error here."""


class GrpcReceiver(Receiver):
    """OTLP over gRPC."""

    @property
    def endpoint(self) -> str:
        """The URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Listen."""
        self._released = threading.Event()
        self._pool = ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Servicer(self), self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()
        return self

    def stop(self) -> None:
        """Close, and let go of what hangs."""
        self._released.set()
        self._server.stop(0).wait(5)
        self._pool.shutdown(wait=True)


class _Servicer(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, receiver: GrpcReceiver) -> None:
        self._receiver = receiver

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
        reply = self._receiver.take(request, dict(context.invocation_metadata()))
        if reply.status // 100 != 2 or reply.close or reply.hang:
            code = _CODES.get(reply.status, grpc.StatusCode.UNAVAILABLE)
            if reply.retry_seconds is not None:
                seconds = int(reply.retry_seconds)
                delay = Duration(seconds=seconds, nanos=int((reply.retry_seconds - seconds) * 1e9))
                packed = PackedAny()
                packed.Pack(RetryInfo(retry_delay=delay))
                details = Status(code=code.value[0], message=reply.words, details=[packed])
                context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),))
            context.abort(code, reply.words)
        return _response(reply)
