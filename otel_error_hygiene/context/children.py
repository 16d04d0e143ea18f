"""The views of child agents in one conversation: bounded, those longest not used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Children(Generic[T]):
    """One of each name, made when it is asked for first. Guarded by the lock of the parent."""

    def __init__(self, max_children: int) -> None:
        self._max_children = max_children
        self._kept: OrderedDict[str, T] = OrderedDict()
        # One that had to go while somebody holds it, such as an open span, stays the one of its name.
        self._living: WeakValueDictionary[str, T] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str, make: Callable[[], T]) -> T:
        """Return the child of a name."""
        found = self._kept.get(name)
        if found is not None:
            self._kept.move_to_end(name)
            return found
        if self._living is None:
            self._living = WeakValueDictionary()
        found = self._living.get(name)
        if found is None:
            found = self._living[name] = make()
        self._kept[name] = found
        if len(self._kept) > self._max_children:
            self._kept.popitem(last=False)
        return found
