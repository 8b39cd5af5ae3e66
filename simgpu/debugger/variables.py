"""Variables of a kernel's source as arrays of elements, for code objects with marks (`marks`).

The value of a variable at a moment is that of the last assignment by the current wave: say, its n-th. Elements in other waves are
those of their n-th assignments, even if these waves make them only after the moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.armed import Point
from simgpu.debugger.marks import Mark, marks
from simgpu.debugger.native.capturing import LANES_ON, RETIRED, ROWS, VISITS, capture_test
from simgpu.hardware.errors import LaunchError
from simgpu.machine.layout import LANES, ROW

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger

ALWAYS = 1 << 62  # number of visits


@dataclass(frozen=True)
class Variable:
    """A variable at a moment."""

    name: str
    kind: str  # Triton's type of an element
    line: int  # line of the assignment
    times: int  # number of assignments there so far
    values: np.ma.MaskedArray  # its elements, masked if no wave has them


@dataclass
class _KeptMarks:
    """Registers of waves, captured at marks of the same elements of a variable: one mark, or its copies in unrolled code."""

    marks: list[Mark]
    waves: int
    wanted: int = ALWAYS  # visits of a wave after which its capture stays
    blocks: np.ndarray = field(init=False, repr=False)  # bytes, a row a wave: see `capturing`

    def __post_init__(self) -> None:
        self.blocks = np.zeros((self.waves, ROWS + ROW * (self.rows + self.indexed)), np.uint8)

    @property
    def rows(self) -> int:
        return self.marks[0].value.reg.count

    @property
    def indexed(self) -> bool:
        return self.marks[0].index is not None

    def word(self, wave: int, at: int) -> int:
        """Returns VISITS, RETIRED or LANES_ON of a wave."""
        return int(self.blocks[wave, at : at + 8].view(np.uint64)[0])

    def index(self, wave: int) -> np.ndarray:
        """Returns the elements' numbers by lane; () for a scalar."""
        return self.blocks[wave, ROWS : ROWS + ROW * self.indexed].view(np.uint32)

    def values(self, wave: int, dtype: np.dtype) -> np.ndarray:
        """Returns the elements by lane."""
        rows = self.blocks[wave, ROWS + ROW * self.indexed :].view(np.uint32).reshape(self.rows, LANES)
        raw = rows.T.copy().view(np.uint64 if self.rows == 2 else np.uint32).reshape(LANES)
        return raw.astype(bool) if dtype == np.bool_ else raw.astype(f"u{dtype.itemsize}").view(dtype)

    def lanes(self, wave: int) -> np.ndarray:
        """Returns the lanes that were active."""
        on = self.word(wave, LANES_ON)
        return np.array([bool(on >> lane & 1) for lane in range(LANES)])


@dataclass(frozen=True)
class _Assignment:
    """Last assignment of a variable by the current wave."""

    kept: tuple[_KeptMarks, ...]
    wave: int
    times: int

    @cached_property
    def last_retired(self) -> int:
        """Count of retired instructions at the last assignment."""
        complete = [each for each in self.kept if each.word(self.wave, VISITS) == self.times]
        return max(each.word(self.wave, RETIRED) for each in complete)


def variables(debugger: Debugger, names: Iterable[str]) -> list[Variable]:
    """Returns the values of variables at this moment in the current wave.

    Raises LaunchError for a variable that the code object does not know, or that this wave has not assigned yet.
    """
    known, wanted = _marks_by_variable(debugger), list(names)
    for name in wanted:
        if name not in known:
            raise LaunchError(f"no variable {name}: there are {', '.join(known)}")
    made = _last_assignments(debugger, [mark for name in wanted for mark in known[name]])
    for name in wanted:
        if name not in made:
            lines = ", ".join(map(str, sorted({mark.line for mark in known[name]})))
            raise LaunchError(f"{name} has no value yet in wave {debugger.wave}: it is assigned at line {lines}")
    return _values(debugger, made)


def assigned_variables(debugger: Debugger) -> list[Variable]:
    """Returns all variables that the wave in focus has assigned. Raises LaunchError if the code object knows none."""
    every = [mark for held in _marks_by_variable(debugger).values() for mark in held]
    return _values(debugger, _last_assignments(debugger, every))


def _marks_by_variable(debugger: Debugger) -> dict[str, list[Mark]]:
    """Returns the marks by variable."""
    known = defaultdict(list)
    for mark in marks(debugger.kernel.module.code):
        known[mark.name].append(mark)
    if not known:
        raise LaunchError("the code object knows no variables: `simgpu debug --variables` has a Triton script's compiled with them")
    return known


def _last_assignments(debugger: Debugger, wanted: Sequence[Mark]) -> dict[str, _Assignment]:
    """Returns, by variable, the last assignment of the wave in focus before this moment."""
    wave = debugger.wave
    kept = [_KeptMarks([mark], len(debugger.replay)) for mark in wanted]
    _run(debugger, kept, wave)
    sites: dict[tuple[str, int], dict[bytes, list[_KeptMarks]]] = defaultdict(lambda: defaultdict(list))
    for each in kept:
        if each.word(wave, VISITS):
            mark = each.marks[0]
            sites[mark.name, mark.site][each.index(wave).tobytes()].append(each)
    found: dict[str, _Assignment] = {}
    for (name, _), copies in sites.items():
        times = min(sum(each.word(wave, VISITS) for each in group) for group in copies.values())
        merged = tuple(_merge(group, wave) for group in copies.values())
        made = _Assignment(merged, wave, times)
        if name not in found or made.last_retired > found[name].last_retired:
            found[name] = made
    return found


def _merge(group: list[_KeptMarks], wave: int) -> _KeptMarks:
    """Merges captures of the same elements: the sum of their visits, and the contents of the latest capture."""
    last = max(group, key=lambda each: each.word(wave, RETIRED))
    total = sum(each.word(wave, VISITS) for each in group)
    merged = _KeptMarks([mark for each in group for mark in each.marks], last.waves)
    merged.blocks[:] = last.blocks
    merged.blocks[wave, VISITS : VISITS + 8].view(np.int64)[0] = total
    return merged


def _values(debugger: Debugger, assignments: dict[str, _Assignment]) -> list[Variable]:
    """Runs until all waves have made as many assignments as the one in focus, and joins their elements."""
    kept = {name: [_KeptMarks(each.marks, each.waves, made.times) for each in made.kept] for name, made in assignments.items()}
    _run(debugger, [each for held in kept.values() for each in held])
    found = []
    for name, held in kept.items():
        mark, times = held[0].marks[0], assignments[name].times
        flat = np.ma.masked_all(int(np.prod(mark.shape, dtype=np.int64)), mark.dtype)
        for each in held:
            for wave in range(each.waves):
                if each.word(wave, VISITS) == times:
                    lanes = each.lanes(wave)
                    where = each.index(wave)[lanes] if each.indexed else np.zeros(lanes.sum(), np.int64)
                    flat[where] = each.values(wave, mark.dtype)[lanes]
        found.append(Variable(name, mark.kind, mark.line, times, flat.reshape(mark.shape)))
    return found


def _run(debugger: Debugger, kept: Sequence[_KeptMarks], wave: int | None = None) -> None:
    """Runs the workgroup from its beginning: up to this moment for `wave`, else until all waves have made the wanted visits."""
    replay, compiler = debugger.replay, debugger.replay.device.compiler
    left = np.array([sum(each.waves for each in kept) if wave is None else ALWAYS], np.int64)
    armed = []
    for each in kept:
        test = capture_test(compiler, each.rows, each.indexed)
        for mark in each.marks:
            record = debugger.code.record(mark.address)
            index = mark.index.span[0] if mark.index is not None else 0
            own = (each.blocks.ctypes.data, each.blocks.shape[1], each.wanted, left.ctypes.data, record, replay.launch.entry,
                   mark.value.span[0], index)  # fmt: skip
            armed.append((record, Point(test, -1 if wave is None else wave, own)))
    debugger.rerun(armed, None if wave is None else debugger.stop.place)
