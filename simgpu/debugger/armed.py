"""Puts points at a program's records: data for the handlers of `native.points`, which may stop a wave there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.native.points import HIT, TABLE_SLOT, WAVE, always_test, dispatcher

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
        self._dispatcher = program.compiler.address("debugger dispatcher", dispatcher)
        program.records[program.count, TABLE_SLOT : TABLE_SLOT + 2].view(np.uint64)[0] = self._table.ctypes.data
        # For steps: a point, its list, direct successors by record, and fast access to the arrays.
        self._stepper = Point(always_test(program.compiler))
        self._steps = np.array((1, self._stepper.test, self._stepper.address), np.uint64)
        self._steps_at = int(self._steps.ctypes.data)
        self._next: dict[int, tuple[int, ...]] = {}
        self._slots, self._entries, self._step_words = self._handlers.data, self._table.reshape(-1).data, self._stepper.words.data

    def at(self, record: int) -> list[Point]:
        """Returns the points at a record."""
        return self._points.get(record, [])

    def add(self, record: int, point: Point) -> None:
        """Adds a point that is tested before the record's instruction, which must be lowered."""
        self._set(record, [*self.at(record), point])

    def remove(self, record: int, point: Point) -> None:
        """Removes a point of a record."""
        self._set(record, [other for other in self.at(record) if other is not point])

    def arm_next(self, record: int, wave: int) -> tuple[int, ...]:
        """Makes a wave at a record stop after one instruction. Returns the records to `disarm`: its direct successors.

        It does nothing and returns () if one of them has points or is not lowered, or if there is none.
        """
        after = self._next.get(record) or self._successors(record)
        self._step_words[WAVE] = wave
        for at in after:
            self._entries[2 * at], self._entries[2 * at + 1] = self._slots[at], self._steps_at
            self._slots[at] = self._dispatcher
        return after

    def disarm(self, after: tuple[int, ...]) -> None:
        """Undoes `arm_next`."""
        for at in after:
            self._slots[at] = self._entries[2 * at]

    def _successors(self, record: int) -> tuple[int, ...]:
        program = self.program
        after = tuple(program.following(record))
        if record in after or any(at in self._points or at not in program.instructions for at in after):
            return ()
        self._next[record] = after
        return after

    def _set(self, record: int, points: list[Point]) -> None:
        handlers = self._handlers
        self._next.clear()
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
