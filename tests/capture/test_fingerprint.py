"""The fingerprint sets aside what differs from one occurrence of a failure to the next, and nothing else."""

from __future__ import annotations

import pytest

from otel_error_hygiene.capture import capture, fingerprint


def of(error: BaseException) -> str:
    """Return an exception's fingerprint."""
    return fingerprint(capture(error)[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 1001 not found", "order 77 not found"),
        ("request 8d4c0b6e-9d53-4b63-9f0e-2d6f4f1f9b11 failed", "request 01a22da7-0a95-72d6-9dd1-825541da2ba9 failed"),
        ("<Pool at 0x7f3a5c0d1e80> is closed", "<Pool at 0x10b4e2f> is closed"),
        ("at 2026-11-30T10:11:12Z", "at 2026-12-01T09:00:59Z"),
        ("no such file: /srv/a/1.txt", "no such file: /home/bob/other/report.txt"),
        ("no such file: C:\\users\\a\\1.txt", "no such file: D:\\data\\x\\2.txt"),
        ("10.0.0.7:8080 refused", "10.0.12.99:80 refused"),
        ("commit 3f2c1ab is unknown", "commit 9bd01ce is unknown"),
        ("req_011CSHoEeqs5C35K2UUqR7Fy", "req_019ABcdEFgh5C35K2UUqR7Zz"),
    ],
)
def test_ids_numbers_times_addresses_and_paths_do_not_count(one: str, other: str) -> None:
    """The same failure of another order, request, moment, object or file is the same failure."""
    assert of(ValueError(one)) == of(ValueError(other))


def test_words_types_and_causes_count() -> None:
    """Another message, another type or another cause is another failure."""
    caused = ValueError("no stock")
    caused.__cause__ = KeyError("sku")
    prints = {of(e) for e in (ValueError("no stock"), ValueError("no address"), TypeError("no stock"), caused)}
    assert 4 == len(prints)


def test_members_of_groups_count() -> None:
    """Every ``TaskGroup`` says the same words; what failed in it is what differs."""
    text = "unhandled errors in a TaskGroup"
    one, other = ExceptionGroup(text, [ValueError("a")]), ExceptionGroup(text, [ConnectionError("b")])
    assert of(one) != of(other)
    assert of(one) == of(ExceptionGroup(text, [ValueError("a")]))


def test_it_is_16_hex_digits_whatever_the_message() -> None:
    """Surrogates and megabytes included."""
    for text in ("", "\ud800", "x" * 5_000_000, "a" * 399 + "/" * 400, "\0"):
        assert 16 == len(of(ValueError(text)))
        assert int(of(ValueError(text)), 16) >= 0
