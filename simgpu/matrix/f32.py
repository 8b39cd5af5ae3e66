"""f32 matrix instructions: D[i][j] = fma(A[i][k], B[k][j], ...) over ascending k, from C.

For each group of 16 lanes of D and each k, the elements of A and B that the lanes multiply are a broadcast, a run of lanes, or
a fixed shuffle, straight from the registers. A host that multiplies twice a clock can hardly load twice a clock beside it, so
what was loaded serves several accumulators: of one D, or of several with the same A where instructions run as a tile
(`f32_chains`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from simgpu.hardware import mfma
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import Sums
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.values import F32, I32, I64, Value, any_special, default_nan, fma
from simgpu.matrix.fragments import GROUP, elements, outputs_of
from simgpu.memory.whole_wave.prefetch import Queue

BATCH = 16  # accumulators that stay in host registers, 16 lanes each
VECTOR = ir.VectorType(F32, GROUP)

# Slots of the instructions of a tile.
NEXT_SLOT = 2  # bytes to the record that comes next
TABLE_SLOT = 3  # in the first's: host address of the table



class Operands(NamedTuple):
    """What one instruction on each D multiplies."""

    a: Any  # pointer to the registers of A
    b: Sequence[Any]  # the same of B, for each D
    records: Callable[[int], Any]  # emits the record (i64) of the instruction on D number so


# (step, values, whether few lines of code matter more than time): the values after step(operands, values) for all operands in order
Steps = Callable[[Callable[[Operands, list[Any]], list[Any]], list[Any], bool], Sequence[Any]]


class FloatTile:
    """Code for one f32 matrix instruction, or for several that share A step by step and have a D each."""

    def __init__(self, frame: Frame, row: Any, mods: dict[str, int]) -> None:
        """mods: cbsz, abid and blgp."""
        self.frame = frame
        self.row = row
        self.outputs = outputs_of(row)
        self.a_map = row.map("A", cbsz=mods["cbsz"], abid=mods["abid"])
        self.b_map = row.map("B", blgp=mods["blgp"])

    def emit(self, ds: Sequence[Any], initial: Callable[[int, int], Any], steps: Steps) -> None:
        """ds: pointers to the registers of each D; initial(number, offset): the 16 lanes of C that D `number` has there."""
        places = [(f, g) for f in range(self.row.registers("D")) for g in range(LANES // GROUP)]
        size = max(1, BATCH // len(ds))
        for start in range(0, len(places), size):
            batch = [(d, f, g) for f, g in places[start : start + size] for d in range(len(ds))]
            values = [initial(d, self._offset(f, g)) for d, f, g in batch]
            sums = steps(functools.partial(self._step, batch), values, False)
            if any(check.sums for check in self.frame.hooks):
                with self.frame.build.if_then(any_special(sums), likely=False):
                    again = [initial(d, self._offset(f, g)) for d, f, g in batch]
                    steps(functools.partial(self._told, batch), again, True)
            for (d, f, g), value in zip(batch, sums, strict=True):
                ds[d].at(self._offset(f, g)).store(default_nan(value), 64)

    def _offset(self, f: int, g: int) -> int:
        return f * ROW + g * 4 * GROUP

    def _step(self, batch: Sequence[tuple[int, int, int]], operands: Operands, values: Sequence[Any]) -> list[Any]:
        """The accumulators of `batch` (D, register, group of lanes) after one instruction on each D."""
        values = list(values)
        for k in range(self.row.k):
            for number, place in enumerate(batch):
                values[number] = fma(*self._factors(operands, place, k), values[number])
        return values

    def _told(self, batch: Sequence[tuple[int, int, int]], operands: Operands, values: Sequence[Any]) -> list[Any]:
        """The same, and tells hooks of what is not finite."""
        following = self._step(batch, operands, values)
        for place, old, new in zip(batch, values, following, strict=True):
            with self.frame.build.if_then(any_special([new])):
                zeros = old.aligned(0.0)[1]  # 0 where all factors are finite, as in `any_special`
                for factor in (factor for k in range(self.row.k) for factor in self._factors(operands, place, k)):
                    zeros = fma(factor, 0.0, zeros)
                d, f, g = place
                number = self.frame.value(ir.Constant(I64, f * (LANES // GROUP) + g))
                for check in (check for check in self.frame.hooks if check.sums):
                    check.summed(self.frame, Sums(number, new, old, operands.records(d), zeros.is_nan()))
        return following

    def _factors(self, operands: Operands, place: tuple[int, int, int], k: int) -> tuple[Value, Value]:
        """What the lanes of `place` multiply at k."""
        d, f, g = place
        i, j, block = (self.outputs[f, g * GROUP : (g + 1) * GROUP, axis] for axis in range(3))
        owners = self.a_map[block, i, k], self.b_map[block, k, j]
        a, b = (owner[:, 0].astype(np.int64) * LANES + owner[:, 1] for owner in owners)
        return elements(operands.a, a, F32), elements(operands.b[d], b, F32)


def selections(inst: Instruction) -> dict[str, int]:
    """The modifiers that say whose elements a lane takes."""
    return {name: int(inst.mods.get(name, 0)) for name in ("cbsz", "abid", "blgp")}


def emit_tile(frame: Frame, inst: Instruction, count: int, steps: int) -> None:
    """The first instruction of a tile of `count` D's, which `f32_chains.Tile.table` describes.

    steps: how many of the tile's steps are done at a time; their number is a multiple of it.
    """
    row = mfma.find(inst.mnemonic, inst.target)
    table = frame.slot(TABLE_SLOT, I64).pointer()

    def register(number: int, base: Any = table) -> Any:
        return frame.at(frame.wave, base.at(4 * number).load(I32))

    def record(records: Any, d: int) -> Value:
        return records.at(4 * d).load(I32).zext(I64)

    ds = [register(1 + number) for number in range(count)]
    entry = 1 + 2 * count  # words of a step

    def accumulate(step: Any, values: list[Any], short: bool) -> list[Any]:
        together = 1 if short else steps

        def several(number: Any, *values: Any) -> Sequence[Any]:
            if not short:
                Queue(frame).fetch(GROUP * len(values) * row.k * steps)
            base = table.at(number * (4 * entry))
            for at in range(1 + count, 1 + count + together * entry, entry):
                a, *bs = (register(at + part, base) for part in range(1 + count))
                values = step(Operands(a, bs, functools.partial(record, base.at(4 * (at + 1 + count)))), values)
            return values

        return frame.loop(table.load(I32).zext(I64), several, values, step=together)

    FloatTile(frame, row, selections(inst)).emit(ds, lambda d, offset: ds[d].at(offset).load(VECTOR, 64), accumulate)
    pass_over(frame)


def pass_over(frame: Frame) -> None:
    """Go on behind the instructions that follow and have nothing left to do."""
    frame.jump_record(frame.at(frame.record, frame.slot(NEXT_SLOT)))
