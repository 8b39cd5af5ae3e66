"""What launches leave for the next ones: host and device memory that would cost more to make anew than a small kernel runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

KEPT_BYTES = 1 << 28  # of all that a device keeps; what was used longest ago goes first
KEPT_THINGS = 256


def nothing(thing: object) -> None:
    """What gives up a thing that goes by itself."""


@dataclass(slots=True)
class _Thing:
    """Something kept: its key, its size in bytes, and what gives it up."""

    key: Hashable
    content: Any
    nbytes: int
    drop: Callable[[Any], None]


class Kept:
    """Things by key, of each as many as were used at once.

    An exception of a signal's handler may come between any two steps: a number may then lie in one of the tables only,
    which later calls pass over.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: OrderedDict[int, _Thing] = OrderedDict()  # by when they came back
        self._by_key: dict[Hashable, list[int]] = {}
        self._returned = self._nbytes = 0

    def take(self, key: Hashable, make: Callable[[], T]) -> T:
        """A thing of this key that a launch gave back, or a new one; nobody else has it until it is given back."""
        with self._lock:
            numbers = self._by_key.get(key, [])
            while numbers:
                thing = self._things.pop(numbers.pop(), None)
                if thing is not None:
                    self._nbytes -= thing.nbytes
                    content: T = thing.content
                    return content
        return make()

    def give_back(self, key: Hashable, content: T, nbytes: int, drop: Callable[[T], None] = nothing) -> None:
        """Keep a thing for the next taker of the key; drop: what gives it up, once there is no room."""
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
        """What came back first, no longer kept; nothing of nothing."""
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
