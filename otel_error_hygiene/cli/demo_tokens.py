"""Count tokens with the user's own tokenizer, if there is one that works without a network."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

_ENCODINGS: Final = ("o200k_base", "cl100k_base")


class Tokenizer(NamedTuple):
    """A way to count."""

    name: str
    count: Callable[[str], int]


def find_tokenizer() -> Tokenizer | None:
    """Return tiktoken with the newest encoding that it already has on this machine, or None.

    tiktoken loads a vocabulary over the network at its first use; that way is closed while we ask.
    """
    try:
        tiktoken: Any = import_module("tiktoken")
        loader: Any = import_module("tiktoken.load")
    except ImportError:
        return None
    open_way = loader.read_file
    loader.read_file = _refuse
    try:
        encoding = next(filter(None, (_found(tiktoken, name) for name in _ENCODINGS)), None)
        if encoding is None:
            return None
        return Tokenizer(f"tiktoken {encoding.name}", lambda text: len(encoding.encode(text, disallowed_special=())))
    finally:
        loader.read_file = open_way


def _found(tiktoken: Any, name: str) -> Any:
    try:
        return tiktoken.get_encoding(name)
    except Exception:  # its vocabulary is not on this machine
        return None


def _refuse(*_: Any) -> bytes:
    raise OSError("the demo uses no network")
