"""Rebuild the sample of real exceptions as live objects, without the libraries that raised them."""

from __future__ import annotations

import builtins
import errno
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SAMPLE = Path(__file__).parent / "data" / "errors.jsonl"


def _builtin(name: str) -> type | None:
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) else None


@cache
def _class(mro: tuple[str, ...], text: str) -> type[BaseException]:
    """Make a class of that name with those bases below Python's own, whose ``str()`` is the text."""
    known = [kind for name in mro if (kind := _builtin(name)) is not None and issubclass(kind, BaseException)]
    made: type[BaseException] = known[0] if known else Exception
    for name in reversed([name for name in mro if _builtin(name) is None]):
        module, _, simple = name.rpartition(".")
        made = type(simple, (made,), {"__module__": module or "made"})
    own = {"__str__": lambda _self: text, "__module__": made.__module__, "__qualname__": made.__qualname__}
    return type(made.__name__, (made,), own)


def _attribute(name: str, value: Any) -> Any:
    if name == "errno" and isinstance(value, str):
        return getattr(errno, value)
    if name == "response" and isinstance(value, dict) and "ResponseMetadata" not in value:
        return SimpleNamespace(**value)
    return value


def _exception(mro: list[str], text: str, attributes: dict[str, Any], members: list[BaseException]) -> BaseException:
    kind = _class(tuple(mro), text)
    error = kind(text, members) if issubclass(kind, BaseExceptionGroup) else kind.__new__(kind)
    for name, value in attributes.items():
        if not (name == "message" and members):
            setattr(error, name, _attribute(name, value))
    return error


def sample() -> Iterator[tuple[dict[str, Any], BaseException]]:
    """Yield each row of the sample with its exception."""
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        links = [
            (c["rel"], _exception([c["type"]], c["message"], c["attrs"], []))
            for c in row["chain"]
            if c["type"] != "ExceptionGroup"
        ]
        members = [error for rel, error in links if rel == "group"]
        error = _exception(
            row["mro"] if members or "ExceptionGroup" not in row["mro"] else ["Exception"],
            row["message"],
            row["attrs"],
            members,
        )
        outer = error
        for rel, inner in links:
            if rel == "cause":
                outer.__cause__ = inner
            elif rel == "context":
                outer.__context__ = inner
            outer = inner if rel != "group" else outer
        yield row, error
