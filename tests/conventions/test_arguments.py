"""The same call gives the same canonical arguments, and different calls never do."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_error_hygiene.conventions import canonical, digest

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": [2]}, '{"b": [2], "a": 1}'),
        ({"a": {"x": 1, "y": 2}}, OrderedDict(a=OrderedDict(y=2, x=1))),
        ({"a": (1, 2)}, '  {"a":[1,2]}\n'),
        ({1: "a"}, '{"1":"a"}'),
        ({"day": datetime(2026, 11, 30, tzinfo=UTC)}, {"day": "2026-11-30 00:00:00+00:00"}),
        ({"a": Decimal("1.5"), "p": PurePosixPath("/x"), "u": UUID(int=1)},
         {"a": "1.5", "p": "/x", "u": "00000000-0000-0000-0000-000000000001"}),
    ],
)  # fmt: skip
def test_order_of_keys_and_spaces_do_not_matter(one: Any, other: Any) -> None:
    """A mapping and its JSON text are the same arguments."""
    assert canonical(one) == canonical(other)
    assert digest(canonical(one)) is not None


def test_text_that_is_no_json_stays() -> None:
    """Some instrumentations write the bare value of a single argument."""
    assert ("lamp", "{'a': 1}", "", "{broken") == (
        canonical("lamp"), canonical("{'a': 1}"), canonical(""), canonical("{broken"),
    )  # fmt: skip


def test_unknown_arguments_are_none() -> None:
    """And so is their key: unknown never equals unknown."""
    assert (None, None) == (canonical(None), digest(None))


class Opaque:
    """A value whose content nobody can tell."""


@pytest.mark.parametrize("value", [{"a": Opaque()}, {"a": {1: 2, "b": 3}}, {"a": {1, 2}}, {"a": b"x"}, Opaque()])
def test_arguments_that_are_known_in_part_equal_nothing(value: Any) -> None:
    """Two data frames are not the same call because both are data frames."""
    assert canonical(value) is not None
    assert digest(canonical(value)) is None


def test_long_arguments_are_cut_and_still_told_apart() -> None:
    """Two texts that differ after the bound are two calls."""
    one, other = ({"text": "x" * 100_000 + end} for end in "ab")
    assert 65_536 >= len(str(canonical(one)))
    assert canonical(one) != canonical(other)
    assert canonical("x" * 100_000 + "a") != canonical("x" * 100_000 + "b")
    assert canonical(one) == canonical(dict(one))


class HostileMapping(Mapping[str, Any]):
    """Raises when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise OSError(key)

    def __iter__(self) -> Iterator[str]:
        raise OSError

    def __len__(self) -> int:
        return 1


def test_whatever_cannot_be_read_is_named() -> None:
    """Arguments come from the agent; a value of theirs must not break the tool."""
    endless: dict[str, Any] = {}
    endless["self"] = endless
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    for value in (HostileMapping(), endless, {"a": deep}, {"\ud800": "\ud800"}, "[" * 100_000, {"a": float("nan")}):
        text = canonical(value)
        assert text is not None
        digest(text)


@given(arguments=st.dictionaries(st.text(max_size=5), _JSON, max_size=4))
def test_json_text_of_any_mapping_is_the_same_arguments(arguments: dict[str, Any]) -> None:
    """Whoever serialised them."""
    expected = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert expected == canonical(arguments) == canonical(json.dumps(arguments, indent=2))
