"""Resources that launches leave for the next ones: memory that costs more to make than a small kernel takes to run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

KEPT_BYTES = 1 << 28  # most bytes that a device keeps; the least recently used go first
KEPT_THINGS = 256


def no_release(thing: object) -> None:
    """Drops a thing that needs no action."""


@dataclass(slots=True)
class _Thing:
    """A kept thing."""

    key: Hashable
    content: Any
    nbytes: int  # bytes
    drop: Callable[[Any], None]  # frees it


class ReusePool:
    """Things by key, as many of each as were used at the same time.

    An exception of a signal's handler may come between any two steps. Then a number may be in only one of the tables; later
    calls skip it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: OrderedDict[int, _Thing] = OrderedDict()  # in the order of their return
        self._by_key: dict[Hashable, list[int]] = {}
        self._returned = self._nbytes = 0

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns a thing of this key that a launch gave back, or a new one. Nobody else has it until it is given back."""
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
        """Keeps a thing for the next taker of the key. drop: frees it, once there is no room."""
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
        """Removes the thing that came back first; [] if there is none."""
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
