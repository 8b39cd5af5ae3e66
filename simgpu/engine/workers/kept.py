"""Resources that launches leave for the next ones: memory whose allocation takes longer than a small kernel runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

KEPT_BYTES = 1 << 28  # most bytes that a device keeps; the least recently used go first
KEPT_THINGS = 256  # most resources


def no_release(thing: object) -> None:
    """Does nothing: the `drop` of a resource that needs no action."""


@dataclass(slots=True)
class _Thing:
    """A kept resource."""

    key: Hashable
    content: Any
    nbytes: int
    drop: Callable[[Any], None]  # frees `content`


class ReusePool:
    """Pool of resources by key.

    A signal handler's exception may come between any two steps. A number may then be in only one of the tables, and later calls
    skip it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: OrderedDict[int, _Thing] = OrderedDict()  # by number, in the order of their return
        self._by_key: dict[Hashable, list[int]] = {}  # numbers of kept resources
        self._returned = self._nbytes = 0

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """Removes and returns a resource of this key, or makes a new one."""
        with self._lock:
            numbers = self._by_key.get(key, [])
            while numbers:
                thing = self._things.pop(numbers.pop(), None)
                if thing is not None:
                    self._nbytes -= thing.nbytes
                    content: T = thing.content
                    return content
        return make()

    def give_back(self, key: Hashable, content: T, nbytes: int, drop: Callable[[T], None] = no_release) -> None:
        """Keeps a resource for the next `take` of its key. drop: frees it when there is no room."""
        dropped = []
        with self._lock:
            self._returned += 1
            self._things[self._returned] = _Thing(key, content, nbytes, drop)
            self._by_key.setdefault(key, []).append(self._returned)
            self._nbytes += nbytes
            while self._nbytes > KEPT_BYTES or len(self._things) > KEPT_THINGS:
                dropped += self._oldest()
        for thing in dropped:
            thing.drop(thing.content)

    def _oldest(self) -> list[_Thing]:
        """Removes and returns the resource that was given back first; [] if there is none."""
        if not self._things:
            self._nbytes = 0
            return []
        number, thing = self._things.popitem(last=False)
        numbers = self._by_key.get(thing.key, [])
        if number in numbers:
            numbers.remove(number)
        if not numbers:
            self._by_key.pop(thing.key, None)
        self._nbytes -= thing.nbytes
        return [thing]
