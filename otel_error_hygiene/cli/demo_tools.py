"""The demo's tools, and the local HTTP server that they really call.

The server limits the rate of one path, refuses one document, and answers the rest. The tools are
written as an agent's tools are: none of them knows of this package.
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import HTTPError

from pydantic import BaseModel, Field

RETRY_AFTER_SECONDS: Final = 2
"""How long the server refuses ``/orders`` after it was asked first; it says so in ``Retry-After``."""
_PARENTS: Final = {
    "policies/acme": "policies/acme-europe",
    "policies/acme-europe": "policies/europe",
    "policies/europe": "policies/retail",
    "policies/retail": "policies/trade",
    "policies/trade": "policies/base",
}
_ANSWERS: Final[Mapping[str, Any]] = {
    "orders": {"orders": ["A-17", "A-18"]},
    "refunds": {"refund": "R-1", "status": "booked"},
    "receipts": {"sent": True},
} | {path: {"extends": parent} for path, parent in _PARENTS.items()}


class _Handler(BaseHTTPRequestHandler):
    """Answer one request."""

    server: DemoServer

    def do_GET(self) -> None:
        """Answer a GET."""
        path = self.path.strip("/").partition("?")[0]
        if path == "orders" and not self.server.orders_open():
            self._answer(429, {"error": "rate limit"}, {"Retry-After": str(RETRY_AFTER_SECONDS)})
        elif path == "policies/base":
            self._answer(503, {"error": "storage is down"}, {})
        elif path in _ANSWERS:
            self._answer(200, _ANSWERS[path], {})
        else:
            self._answer(404, {"error": "no such path"}, {})

    def do_POST(self) -> None:
        """Answer a POST; its body is read and not looked at."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def _answer(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(payload)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name is http.server's)
        """Say nothing: the demo's output is the demo's."""


class DemoServer(ThreadingHTTPServer):
    """An HTTP server on a free port of the loopback interface, for as long as the ``with`` block lasts."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._lock = threading.Lock()
        self._opens_at: float | None = None
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="demo-server", daemon=True)

    def server_bind(self) -> None:
        """Bind without the look-up of the own host name, which may take seconds where there is no network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def orders_open(self) -> bool:
        """Tell whether the rate limit lets a request pass; the first request starts the clock."""
        with self._lock:
            if self._opens_at is None:
                self._opens_at = time.monotonic() + RETRY_AFTER_SECONDS
            return time.monotonic() >= self._opens_at

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class DocumentUnavailable(Exception):
    """A document of the policy store could not be read."""


class PolicyError(Exception):
    """A policy cannot be used."""


class Refund(BaseModel):
    """What a refund needs."""

    order_id: str
    amount_cents: int = Field(gt=0)
    policy: str = "standard"


class _Http:
    """JSON over HTTP, as a small client of a service has it."""

    def __init__(self, url: str) -> None:
        self._url = url
        # A proxy of the environment has no business with the loopback interface.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> Any:
        """Return the JSON that stands at a path."""
        return self._read(f"{self._url}/{path}", None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send JSON, and return the JSON that comes back."""
        return self._read(f"{self._url}/{path}", json.dumps(body).encode())

    def _read(self, url: str, body: bytes | None) -> Any:
        try:
            with self._opener.open(url, body, timeout=5) as response:
                return json.load(response)
        except HTTPError as error:
            error.close()
            raise


class _Policies:
    """Policies that extend one another, each a document of its own."""

    def __init__(self, http: _Http) -> None:
        self._http = http

    def load(self, path: str) -> dict[str, Any]:
        """Return a policy with all that it inherits."""
        return self._merge(self._fetch(path))

    def _fetch(self, path: str) -> dict[str, Any]:
        try:
            document: dict[str, Any] = self._http.get(path)
        except HTTPError as error:
            raise DocumentUnavailable(f"document {path!r} cannot be read") from error
        return document

    def _merge(self, document: dict[str, Any]) -> dict[str, Any]:
        return {**self._inherit(document.get("extends")), **document}

    def _inherit(self, parent: str | None) -> dict[str, Any]:
        return {} if parent is None else self._resolve(parent)

    def _resolve(self, parent: str) -> dict[str, Any]:
        return self.load(parent)


class Tools:
    """What the demo's agent can do."""

    def __init__(self, url: str) -> None:
        self._http = _Http(url)

    def search_orders(self, customer: str) -> Any:
        """Find the orders of a customer."""
        return self._http.get(f"orders?customer={customer}")

    def load_policy(self, name: str) -> Any:
        """Load a refund policy with all that it inherits."""
        try:
            return _Policies(self._http).load(f"policies/{name}")
        except DocumentUnavailable as error:
            raise PolicyError(f"policy {name!r} is incomplete") from error

    def issue_refund(self, **arguments: Any) -> Any:
        """Pay money back."""
        refund = Refund.model_validate(arguments)
        return self._http.post("refunds", refund.model_dump())

    def send_receipt(self, refund: str) -> Any:
        """Send a receipt."""
        return self._http.post("receipts", {"refund": refund})
