"""Facts of one exception: every value judged by its type and range, whatever the library."""

from __future__ import annotations

import errno
import ssl
import subprocess
import sys
import urllib.error
from concurrent.futures import Future
from email.message import Message
from enum import Enum, IntEnum
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_error_hygiene import semconv
from otel_error_hygiene.capture.facts import facts_of, inner_of

STATUS = semconv.HTTP_STATUS_CODE
CODE = semconv.PROVIDER_CODE


class StrangeError(Exception):
    """An exception of a library that nobody knows."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("strange")
        self.__dict__.update(attributes)


def answered(status: int, headers: dict[str, str] | None = None, method: str = "GET") -> httpx.HTTPStatusError:
    """Return what httpx really raises for that answer."""
    transport = httpx.MockTransport(lambda request: httpx.Response(status, headers=headers, request=request))
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.HTTPStatusError) as caught:
        client.request(method, "https://api.example/v1").raise_for_status()
    return caught.value


@pytest.mark.parametrize(
    "attributes",
    [
        {"status_code": 404},
        {"status_code": "404"},
        {"status": 404},
        {"status": HTTPStatus.NOT_FOUND},
        {"http_status": 404},
        {"response_code": 404},
        {"code": 404},
        {"response": SimpleNamespace(status_code=404)},
        {"response": SimpleNamespace(status=404, headers=None)},
        {"resp": SimpleNamespace(status="404")},
        {"response": {"ResponseMetadata": {"HTTPStatusCode": 404}}},
        {"meta": SimpleNamespace(status=404)},
    ],
    ids=str,
)
def test_status_is_found_wherever_libraries_keep_it(attributes: dict[str, Any]) -> None:
    """Twelve homes of an HTTP status, one fact, an exact int."""
    status = facts_of(StrangeError(**attributes))[STATUS]
    assert 404 == status
    assert type(status) is int


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"code": "f405"}, "f405"),
        ({"status_code": "NOPERM"}, "NOPERM"),
        ({"status_code": "TIMEOUT"}, "TIMEOUT"),
        ({"code": -32602}, "-32602"),
        ({"code": 1008}, "1008"),
        ({"smtp_code": 535}, "535"),
        ({"error": SimpleNamespace(code="resource_missing")}, "resource_missing"),
        ({"error": "index_not_found_exception"}, "index_not_found_exception"),
        ({"response": {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {}}}, "SlowDown"),
        ({"args": (1146, "Table 'a.b' doesn't exist")}, "1146"),
    ],
    ids=str,
)
def test_false_friends_of_a_status_are_codes(attributes: dict[str, Any], code: str) -> None:
    """A text, or a number outside 100 to 599, is a provider's code and never a status."""
    error = StrangeError(**{k: v for k, v in attributes.items() if k != "args"})
    error.args = attributes.get("args", error.args)
    facts = facts_of(error)
    assert code == facts[CODE]
    assert STATUS not in facts


@pytest.mark.parametrize("value", [True, 99, 600, 42901, "4040", "٤٠٤", 404.0, None, object(), b"404"], ids=repr)
def test_what_is_no_status_by_type_and_range_is_none(value: object) -> None:
    """Booleans, floats, bytes, other digits and numbers out of range say nothing."""
    assert STATUS not in facts_of(StrangeError(status_code=value))


def test_prose_is_no_code() -> None:
    """A provider's code is one token; a sentence in its place is somebody's message."""
    assert {} == facts_of(StrangeError(code="see https://x.example for more", error="it went wrong"))


def test_httpx_error_tells_status_method_and_the_headers_of_retry_only() -> None:
    """A real answer: other headers and the body stay where they are."""
    error = answered(429, {"Retry-After": "30", "X-RateLimit-Reset": "1796063957", "Set-Cookie": "a=b"}, "POST")
    assert {
        STATUS: 429,
        semconv.HTTP_REQUEST_METHOD: "POST",
        semconv.HTTP_RESPONSE_HEADER + "retry-after": "30",
        semconv.HTTP_RESPONSE_HEADER + "x-ratelimit-reset": "1796063957",
    } == facts_of(error)


def test_httpx_request_that_was_never_set_is_no_obstacle() -> None:
    """Reading ``request`` raises RuntimeError there; the facts are empty, not an error."""
    error = httpx.ReadTimeout("timed out")
    with pytest.raises(RuntimeError):
        _ = error.request
    assert {} == facts_of(error)


def test_urllib_error_tells_its_status() -> None:
    """The standard library keeps it as ``code`` and the headers on the error itself."""
    headers = Message()
    headers["Retry-After"] = "11"
    error = urllib.error.HTTPError("https://api.example", 429, "Too Many Requests", headers, None)
    try:
        assert {STATUS: 429, semconv.HTTP_RESPONSE_HEADER + "retry-after": "11"} == facts_of(error)
    finally:
        error.close()


def test_errno_is_a_system_number_only() -> None:
    """OpenSSL and the resolver number their errors on their own."""
    assert {semconv.ERRNO: errno.ENOENT} == facts_of(FileNotFoundError(errno.ENOENT, "gone"))
    assert {} == facts_of(ssl.SSLError(1, "[SSL] wrong"))
    assert {} == facts_of(OSError("no number"))
    assert semconv.ERRNO not in facts_of(StrangeError(errno=3))


def test_sqlstate_is_read_from_drivers_and_their_wrappers() -> None:
    """PostgreSQL's drivers, ODBC's arguments, and the original inside a wrapper."""
    assert {semconv.SQLSTATE: "42P01"} == facts_of(StrangeError(sqlstate="42P01"))
    assert {semconv.SQLSTATE: "23505"} == facts_of(StrangeError(pgcode="23505"))
    assert {semconv.SQLSTATE: "40001", CODE: "f405"} == facts_of(
        StrangeError(code="f405", orig=StrangeError(sqlstate="40001"))
    )
    odbc = StrangeError()
    odbc.args = ("42S02", "[42S02] invalid object")
    assert {semconv.SQLSTATE: "42S02"} == facts_of(odbc)


class _Grpc(Enum):
    RESOURCE_EXHAUSTED = (8, "resource exhausted")


class _CallError(Exception):
    def code(self) -> _Grpc:
        return _Grpc.RESOURCE_EXHAUSTED

    def details(self) -> str:
        return "too many calls"

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        delay = b"\x08\x0c"  # google.protobuf.Duration: field 1, varint 12
        info = b"\x0a" + bytes([len(delay)]) + delay
        any_ = b"\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12" + bytes([len(info)]) + info
        return (("grpc-status-details-bin", b"\x08\x08\x1a" + bytes([len(any_)]) + any_),)


def test_grpc_call_tells_its_status_and_the_delay_of_its_trailer() -> None:
    """``code`` is a method there; google.rpc.RetryInfo travels as protobuf in the trailing metadata."""
    assert {semconv.RPC_GRPC_STATUS: "RESOURCE_EXHAUSTED", semconv.RETRY_AFTER_SECONDS: 12.0} == facts_of(_CallError())


def test_a_method_named_code_is_not_called_on_strangers() -> None:
    """Only an object that also has gRPC's other methods is asked."""

    class Launching(Exception):
        def code(self) -> int:
            raise AssertionError("called")

    assert {} == facts_of(Launching())


@pytest.mark.parametrize(
    ("attributes", "seconds"),
    [
        ({"retry_after": 14}, 14.0),
        ({"retry_after": "7"}, 7.0),
        ({"data": {"retry_after": 13}}, 13.0),
        ({"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36s"}]}, 36.0),
        ({"details": ["retry_delay {\n  seconds: 27\n}\n"]}, 27.0),
    ],
    ids=str,
)
def test_retry_attributes_are_seconds(attributes: dict[str, Any], seconds: float) -> None:
    """Attributes, JSON-RPC data and google.rpc.RetryInfo in its two spellings."""
    assert {semconv.RETRY_AFTER_SECONDS: seconds} == facts_of(StrangeError(**attributes))


def test_a_plain_exception_has_no_facts() -> None:
    """Nothing is read out of a message."""
    assert {} == facts_of(ValueError("HTTP 429, retry after 3 seconds"))


def test_texts_are_bounded() -> None:
    """A header of a megabyte becomes 200 characters, a code of a megabyte nothing."""
    facts = facts_of(StrangeError(headers={"retry-after": "9" * 1_000_000}, code="x" * 1_000_000))
    assert {semconv.HTTP_RESPONSE_HEADER + "retry-after": "9" * 200} == facts


def test_body_and_stream_are_never_touched() -> None:
    """Reading them may block, or consume what the agent still wants."""

    class Response:
        status_code = 500
        headers: dict[str, str] = {}  # noqa: RUF012

        def __getattr__(self, name: str) -> Any:
            if name in {"text", "content", "json", "read", "stream", "body", "data"}:
                raise AssertionError(name)
            raise AttributeError(name)

    touched: list[str] = []

    class Watching(Exception):
        response = Response()

        def __getattribute__(self, name: str) -> Any:
            touched.append(name)
            return super().__getattribute__(name)

    assert {STATUS: 500} == facts_of(Watching())
    assert not {"text", "content", "json", "read"} & set(touched)


class _Nasty(Exception):
    thrown: type[BaseException] = RecursionError

    def __getattribute__(self, name: str) -> Any:
        raise object.__getattribute__(self, "thrown")(name)


@pytest.mark.parametrize("thrown", [ValueError, RecursionError, SystemExit, MemoryError, GeneratorExit])
def test_attributes_that_raise_are_absent(thrown: type[BaseException]) -> None:
    """Whatever a property raises is the stranger's business."""
    error = _Nasty()
    object.__setattr__(error, "thrown", thrown)
    assert {} == facts_of(error)
    assert inner_of(error) is None


def test_an_interrupt_passes() -> None:
    """The user's Ctrl-C is not swallowed."""
    error = _Nasty()
    object.__setattr__(error, "thrown", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        facts_of(error)


class _OddInt(IntEnum):
    ODD = 503


_HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.builds(_Nasty)
    | st.sampled_from([_OddInt.ODD, object(), int, _CallError(), iter("ab")]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from(
    [
        *("status_code", "status", "code", "response", "headers", "error", "body", "details", "trailing_metadata"),
        *("orig", "retry_after", "data", "sqlstate", "request", "meta", "grpc_status_code", "last_attempt"),
    ]
)


@given(st.dictionaries(_NAMES, _HOSTILE, max_size=6), st.lists(_HOSTILE, max_size=3))
def test_facts_are_scalars_and_bounded_whatever_the_attributes(attributes: dict[str, Any], args: list[Any]) -> None:
    """Never raises; plain values only; texts of at most 200 characters."""
    error = StrangeError(**attributes)
    error.args = tuple(args)
    for key, value in facts_of(error).items():
        assert type(value) in {str, int, float, bool}, key
        assert not isinstance(value, str) or len(value) <= 200
    assert inner_of(error) is None


def test_last_attempt_of_a_retry_is_the_inner_exception() -> None:
    """What tenacity's RetryError keeps: a finished future."""
    failed: Future[None] = Future()
    failed.set_exception(cause := TimeoutError())
    assert inner_of(StrangeError(last_attempt=failed)) is cause


def test_an_attempt_that_is_still_running_is_not_waited_for() -> None:
    """``Future.exception()`` would block until the attempt ends."""
    assert inner_of(StrangeError(last_attempt=Future())) is None
    assert inner_of(StrangeError(last_attempt=None)) is None
    assert inner_of(ValueError()) is None


def test_reading_facts_imports_no_client_library() -> None:
    """Libraries are recognised by their values, so none is loaded."""
    program = "import sys, otel_error_hygiene.capture.facts; print([m for m in ('httpx', 'grpc') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
