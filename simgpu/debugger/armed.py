"""Puts points at a program's records: data for the handlers of `native.points`, which may stop a wave there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.native.points import HIT, TABLE_SLOT, dispatcher

if TYPE_CHECKING:
    from simgpu.engine.program import Program


class Point:
    """A possible stop before an instruction.

    test: address of a function `void (wave, point)` that decides. wave: the only wave that it stops, -1 for all. words: int64: hit
    flag, wave, and the test's own data.
    """

    def __init__(self, test: int, wave: int = -1, own: tuple[int, ...] = ()) -> None:
        self.test = test
        self.words = np.array((0, wave, *own), np.int64)
        self.address = int(self.words.ctypes.data)

    @property
    def hit(self) -> bool:
        """True if it stopped the wave."""
        return bool(self.words[HIT])


class ArmedPoints:
    """Points at the records of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.address = program.address
        self._handlers = program.records.view(np.uint64)[:, 0]
        self._table = np.zeros((program.count + 1, 2), np.uint64)  # the replaced handler; address of the points
        self._lists: dict[int, np.ndarray] = {}
        self._points: dict[int, list[Point]] = {}
        self._only: Point | None = None  # point of `arm_once`
        self._dispatcher = program.compiler.address("debugger dispatcher", dispatcher)
        program.records[program.count, TABLE_SLOT : TABLE_SLOT + 2].view(np.uint64)[0] = self._table.ctypes.data

    def at(self, record: int) -> list[Point]:
        """Returns the points at a record."""
        return self._points.get(record, [])

    def add(self, record: int, point: Point) -> None:
        """Adds a point that is tested before the record's instruction, which must be lowered."""
        self._set(record, [*self.at(record), point])

    def remove(self, record: int, point: Point) -> None:
        """Removes a point of a record."""
        self._set(record, [other for other in self.at(record) if other is not point])

    def arm_once(self, record: int, point: Point) -> bool:
        """Puts a point at a record until `disarm`. Does nothing and returns False if the record has other points."""
        if record in self._points:
            return False
        if self._only is not point:
            self._only = point
            self._only_list = np.array((1, point.test, point.address), np.uint64)
        self._table[record] = self._handlers[record], self._only_list.ctypes.data
        self._handlers[record] = self._dispatcher
        return True

    def disarm(self, record: int) -> None:
        """Removes the point that `arm_once` armed."""
        self._handlers[record] = self._table[record, 0]

    def _set(self, record: int, points: list[Point]) -> None:
        handlers = self._handlers
        if points:
            flat = [len(points)]
            for point in points:
                flat += [point.test, point.address]
            self._lists[record] = held = np.array(flat, np.uint64)
            if record not in self._points:
                self._table[record, 0] = handlers[record]
            self._table[record, 1] = held.ctypes.data
            self._points[record] = points
            handlers[record] = self._dispatcher
        elif record in self._points:
            handlers[record] = self._table[record, 0]
            del self._points[record], self._lists[record]
