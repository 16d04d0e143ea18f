"""Receivers for the tests of the forensics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.otlp_server import GrpcReceiver, HttpReceiver, Receiver


@pytest.fixture
def http() -> Iterator[HttpReceiver]:
    """Give a receiver of OTLP over HTTP."""
    with HttpReceiver() as receiver:
        yield receiver


@pytest.fixture(params=[HttpReceiver, GrpcReceiver], ids=["http", "grpc"])
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    """Give a receiver of either protocol."""
    made: type[Receiver] = request.param
    with made() as running:
        yield running
