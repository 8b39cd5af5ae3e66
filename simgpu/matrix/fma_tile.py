"""Emits f32 and f64 matrix instructions: D[i][j] = fma(A[i][k], B[k][j], ...) over ascending k, from C.

For each group of 16 lanes of D and each k, the elements of A and B that the lanes multiply are a broadcast, consecutive lanes, or
a fixed shuffle. f32 elements come straight from the registers, f64 elements from a copy that joins an element's two registers. A
host multiplies faster than it loads, so loaded elements serve several accumulators: of one D, or of several D's with the same A
if instructions run as a tile (`tiles`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from simgpu.hardware import mfma
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.accesses import LaneSums
from simgpu.machine.frame import Frame, Hooks
from simgpu.machine.host import host
from simgpu.machine.intrinsics import any_special, fma
from simgpu.machine.layout import LANES, SLOT_INDEX
from simgpu.machine.values import I32, I64, IrValue, default_nan, where
from simgpu.matrix.element_registers import hold, mirror, owns_mirror, refresh
from simgpu.matrix.fragments import GROUP, elements, outputs_of, stack
from simgpu.matrix.lane_groups import LANE_GROUPS
from simgpu.matrix.ring import copy_rows, lanes_of
from simgpu.memory.whole_wave.prefetch import PrefetchQueue

MOST_SPREAD = 8
WIDEST = 2  # most D's of a tile
# Most host instructions that multiply or add in straight-line code. Twice as many, with their loads, do not fit a host's cache of
# decoded instructions: 36 ns a matrix instruction instead of 21 (Zen 3, docs/notes/2026-11-27-ring.md).
MOST_ARITHMETIC = 512

# Slots of a tile's instructions.
NEXT_SLOT = 2  # bytes to the next record
TABLE_SLOT = 3  # in the first record: host address of the table
APART_SLOT = 5  # in the first record, with checks that test tiles: bytes to a record where the tile's instructions run one by one


def accumulators() -> int:
    """Returns the accumulators of 64 bytes that stay in host registers beside the factors: 32 of 64 bytes, or 16 of 32."""
    return 16 if host().vector_bits == 512 else 4


def places_together(registers: int, count: int) -> int:
    """Returns how many groups of 16 lanes of each of `count` D's are summed at a time. registers: of an element."""
    return max(1, accumulators() // (registers * count))


def arithmetic(inst: Instruction, ring: bool) -> int:
    """Returns the number of host instructions that multiply and add for one matrix instruction; in a ring an fma is two of them."""
    row = mfma.find(inst.mnemonic, inst.target)
    return row.registers("D") * LANES * 32 * row.k // host().vector_bits * (1 + ring)


def widest(inst: Instruction, ring: bool) -> int:
    """Returns the most D's of a tile: as many as make the loads of factors fewest, unless the code becomes too long."""
    registers = LANE_GROUPS[mfma.find(inst.mnemonic, inst.target).cd_type].registers
    vectors = registers * 32 * GROUP // host().vector_bits  # of 16 lanes of B

    def loads(count: int) -> int:
        return places_together(registers, count) + count * vectors

    best = min(range(WIDEST, 0, -1), key=loads)
    return min(best, max(1, MOST_ARITHMETIC // arithmetic(inst, ring)))


class TileFactors(NamedTuple):
    """Factors of one instruction on each D."""

    a: Any  # pointer to the elements of A: registers, or for f64 rows of `LaneGroups`
    b: Sequence[Any]  # pointers to the elements of B, for each D
    records: Callable[[int], Any]  # emits the record (i64) of the instruction on D number d


# Emits step(operands, values) for all operands in order; returns the last values. Arguments: step, values, and True to fetch lines.
Steps = Callable[[Callable[[TileFactors, list[Any]], list[Any]], list[Any], bool], Sequence[Any]]


class FloatTile:
    """Code for one f32 or f64 matrix instruction, or for several that share A at each step and have a D each."""

    def __init__(self, frame: Frame, inst: Instruction) -> None:
        self.frame = frame
        self.row = row = mfma.find(inst.mnemonic, inst.target)
        self.lanes = lanes_of(frame, row.cd_type)
        self.negated = negated_operands(inst)
        self.outputs = outputs_of(row)
        mods = selections(inst)
        if row.cd_type == "f64":
            mods = dict.fromkeys(mods, 0)  # BLGP's field holds the signs
        self.a_map = row.map("A", cbsz=mods["cbsz"], abid=mods["abid"])
        self.b_map = row.map("B", blgp=mods["blgp"])

    def emit(self, ds: Sequence[Any], initial: Callable[[int, int, int], Any], steps: Steps) -> None:
        """Emits the sums. ds: pointers to the registers of each D, or in ring mode to memory for its elements.

        initial(number, row, group): returns the 16 lanes of C for D `number`.
        """
        places = [(f, g) for f in range(len(self.outputs)) for g in range(LANES // GROUP)]
        places.sort(key=lambda place: tuple(self.outputs[place[0], place[1] * GROUP, 1:]))  # those with the same B together
        size = places_together(self.lanes.registers, len(ds))
        for start in range(0, len(places), size):
            batch = [(d, f, g) for f, g in places[start : start + size] for d in range(len(ds))]
            values = [initial(*place) for place in batch]
            sums = steps(functools.partial(self._step, batch), values, True)
            if not self.frame.ring and any(check.sums for check in self.frame.hooks):
                with self.frame.build.if_then(any_special(sums), likely=False):
                    again = [initial(*place) for place in batch]
                    steps(functools.partial(self._step_with_hooks, batch), again, False)
            for (d, f, g), value in zip(batch, sums, strict=True):
                self.lanes.summed.store(ds[d], f, g, value if self.frame.ring else default_nan(value))

    def areas(self, ds: Sequence[Any]) -> list[Any]:
        """Returns where `emit` writes D: the registers, or memory for elements of a ring."""
        return [stack(self.frame, len(self.outputs) * self.lanes.row) for _ in ds] if self.frame.ring else list(ds)

    def load(self, ds: Sequence[Any], areas: Sequence[Any]) -> None:
        """Copies D's registers to its areas."""
        for d, area in zip(ds, areas, strict=True) if self.frame.ring else ():
            copy_rows(self.frame, d, self.lanes, area, self.lanes.summed, len(self.outputs))

    def store(self, ds: Sequence[Any], areas: Sequence[Any]) -> None:
        """Copies areas to D's registers."""
        for d, area in zip(ds, areas, strict=True) if self.frame.ring else ():
            copy_rows(self.frame, area, self.lanes.summed, d, self.lanes, len(self.outputs))

    def spread(self, a: Any, b: Sequence[Any], rows: Any) -> None:
        """Joins the registers of f64 elements in memory at `rows`: of A, then of the B of each D."""
        for number, registers in enumerate((a, *b)):
            self.lanes.spread(self.frame, registers, rows.at(number * self.lanes.row), self.negated >> min(number, 1) & 1)

    def spread_bytes(self, count: int) -> int:
        """Returns the bytes that `spread` fills for `count` D's."""
        return (1 + count) * self.lanes.row

    def from_spread(self, rows: Any, count: int, records: Callable[[int], Any]) -> TileFactors:
        """Returns the factors that `spread` stored."""
        return TileFactors(rows, [rows.at((1 + number) * self.lanes.row) for number in range(count)], records)

    def _addends(self, values: Sequence[Any]) -> list[Any]:
        """Returns C with the sign that is added."""
        return [-value if self.negated & 4 else value for value in values]

    def _step(self, batch: Sequence[tuple[int, int, int]], operands: TileFactors, values: Sequence[Any]) -> list[Any]:
        """Returns the accumulators of `batch` (D, row, group of lanes) after one instruction on each D."""
        values = self._addends(values)
        for k in range(self.row.k):
            for number, place in enumerate(batch):
                values[number] = self.lanes.multiply_add(*self._factors(operands, place, k), values[number])
        return values

    def _step_with_hooks(self, batch: Sequence[tuple[int, int, int]], operands: TileFactors, values: Sequence[Any]) -> list[Any]:
        """Does the same as `_step`, and calls hooks for results that are not finite."""
        following = self._step(batch, operands, values)
        for place, old, new in zip(batch, self._addends(values), following, strict=True):
            with self.frame.build.if_then(any_special([new])):
                zeros = old.align_shapes(0.0)[1]  # a lane stays 0 if all its factors are finite, as in `any_special`
                for factor in (factor for k in range(self.row.k) for factor in self._factors(operands, place, k)):
                    zeros = fma(factor, 0.0, zeros)
                d, f, g = place
                number = self.frame.value(ir.Constant(I64, f * (LANES // GROUP) + g))
                new, old, zeros = (self.lanes.in_order(value) for value in (new, old, zeros))
                for check in (check for check in self.frame.hooks if check.sums):
                    check.on_sums(self.frame, LaneSums(number, new, old, operands.records(d), zeros.is_nan()))
        return following

    def _factors(self, operands: TileFactors, place: tuple[int, int, int], k: int) -> tuple[IrValue, IrValue]:
        """Returns the factors of the lanes of `place` at k."""
        d, f, g = place
        lanes = [g * GROUP + lane for lane in self.lanes.order]
        i, j, block = (self.outputs[f, lanes, axis] for axis in range(3))
        a, b = (self.lanes.places(owners) for owners in (self.a_map[block, i, k], self.b_map[block, k, j]))
        return elements(operands.a, a, self.lanes.scalar), elements(operands.b[d], b, self.lanes.scalar)


def selections(inst: Instruction) -> dict[str, int]:
    """Returns the modifiers that select a lane's elements."""
    return {name: int(inst.mods.get(name, 0)) for name in ("cbsz", "abid", "blgp")}


def negated_operands(inst: Instruction) -> int:
    """Returns the operands whose sign f64 instructions change: bit 0 A, 1 B, 2 C."""
    return inst.src_mods.neg | int(inst.mods.get("neg", 0))


def emit_one(frame: Frame, inst: Instruction, d: Any, a: Any, b: Any, initial: Callable[[int, int, int], Any]) -> None:
    """Emits one instruction. d, a, b: pointers to registers, initial: as for `FloatTile.emit`. A and B of f64 may overlap D."""
    tile = FloatTile(frame, inst)

    def record(_: int) -> IrValue:
        return frame.slot(SLOT_INDEX).zext(I64)

    if not tile.lanes.spreads:
        operands = TileFactors(a, [b], record)
    else:
        rows = stack(frame, tile.spread_bytes(1))
        tile.spread(a, [b], rows)
        operands = tile.from_spread(rows, 1, record)
    areas = tile.areas([d])
    tile.emit(areas, initial, lambda step, values, _: step(operands, values))
    tile.store([d], areas)


def keeps_elements(inst: Instruction, ring: bool) -> bool:
    """True if a tile's D's hold elements of a ring after it (`element_registers`)."""
    return ring and mfma.find(inst.mnemonic, inst.target).cd_type == "f32"


class TileTable:
    """Reads the table of a tile of `count` D's (`tiles.Tile.table`), whose registers are offsets into the wave."""

    def __init__(self, frame: Frame, count: int) -> None:
        self.frame, self.count = frame, count
        self.pointer = frame.slot(TABLE_SLOT, I64).pointer()
        self.steps = self.pointer.load(I32).zext(I64)
        self.entry = 1 + 2 * count  # words of a step
        self.first = 1 + count  # word of the first step

    def sums(self) -> list[Any]:
        """Returns pointers to the registers of each D."""
        return [self.frame.at(self.frame.wave, self._word(self.pointer, 1 + number)) for number in range(self.count)]

    def step(self, number: Any) -> Any:
        """Returns a base for `factors` and `record`: step `number` (i64)."""
        return self.pointer.at(number * (4 * self.entry))

    def factors(self, base: Any) -> list[IrValue]:
        """Returns the registers of A and each B, i64."""
        return [self._word(base, self.first + part) for part in range(1 + self.count)]

    def pointers(self, base: Any) -> tuple[Any, list[Any]]:
        """Returns pointers to the registers of A, and of each B."""
        a, *bs = (self.frame.at(self.frame.wave, offset) for offset in self.factors(base))
        return a, bs

    def record(self, base: Any, d: int) -> IrValue:
        """Returns the record of the instruction on D number `d`."""
        return self._word(base, self.first + 1 + self.count + d)

    def _after(self) -> Any:
        """Returns a pointer to the words after the last step."""
        return self.step(self.steps).at(4 * self.first)

    def register_blocks(self) -> tuple[IrValue, IrValue]:
        """Returns a pointer to the entries of `tiles.register_blocks`, and their number (i64)."""
        after = self._after()
        return after.at(4), after.load(I32).zext(I64)

    def refresh(self) -> None:
        """Converts factors to elements of a ring: those of `tiles.factor_lists`."""
        after = self._after()
        owns = owns_mirror(self.frame, after.at(8).load(I32) != 0)
        wanted = after.at(where(owns, ir.Constant(I64, 4), 0)).load(I32).zext(I64)

        def refresh_one(number: IrValue) -> tuple[()]:
            refresh(self.frame, after.at(12).at(number * 4).load(I32).zext(I64))
            return ()

        with self.frame.build.if_then(wanted != 0):
            self.frame.loop(wanted, refresh_one)

    def _word(self, base: Any, number: int) -> IrValue:
        found: IrValue = base.at(4 * number).load(I32).zext(I64)
        return found


FactorsOf = Callable[[Any], TileFactors]  # returns the factors of a step, by its number (i64)


def _factors_of(tile: FloatTile, table: TileTable, mirrored: bool) -> FactorsOf:
    """Emits copies of the factors, where they are needed. Returns where a step's factors are."""
    frame = table.frame
    spread, size = None, tile.spread_bytes(table.count)
    if mirrored:
        table.refresh()
    elif tile.lanes.spreads:
        spread = stack(frame, MOST_SPREAD * size)

        def spread_one(number: Any) -> tuple[()]:
            tile.spread(*table.pointers(table.step(number)), spread.at(number * size))
            return ()

        frame.loop(table.steps, spread_one)

    def factors(number: Any) -> TileFactors:
        base = table.step(number)
        records = functools.partial(table.record, base)
        if mirrored:
            a, *bs = (mirror(frame, offset) for offset in table.factors(base))
            return TileFactors(a, bs, records)
        if spread is not None:
            return tile.from_spread(spread.at(number * size), table.count, records)
        return TileFactors(*table.pointers(base), records)

    return factors


def emit_tile(
    frame: Frame, inst: Instruction, count: int, ring: bool = False, tests: Sequence[Hooks] = ()
) -> None:
    """Emits the first instruction of a tile of `count` D's, which `tiles.Tile.table` describes.

    tests: checks that test the tile's registers; the instructions run one by one unless it passes all.
    """
    frame.ring = ring
    tile, table, mirrored = FloatTile(frame, inst), TileTable(frame, count), keeps_elements(inst, ring)
    for check in tests:
        with frame.build.if_then(~frame.value(check.passes_tile(frame, table)), likely=False):
            frame.jump_record(frame.at(frame.record, frame.slot(APART_SLOT)))
    ds = table.sums()
    factors = _factors_of(tile, table, mirrored)

    def accumulate(step: Any, values: list[Any], fetches: bool) -> list[Any]:
        def accumulate_step(number: Any, *values: Any) -> list[Any]:
            if fetches:
                PrefetchQueue(frame).fetch(tile.lanes.registers * GROUP * len(values) * tile.row.k)
            following: list[Any] = step(factors(number), values)
            return following

        return frame.loop(table.steps, accumulate_step, values)

    areas = list(ds) if mirrored else tile.areas(ds)
    if mirrored:
        for d in ds:
            hold(frame, d, len(tile.outputs))
    else:
        tile.load(ds, areas)
    tile.emit(areas, lambda d, f, g: tile.lanes.summed.load(areas[d], f, g), accumulate)
    if not mirrored:
        tile.store(ds, areas)
    pass_over(frame)


def pass_over(frame: Frame) -> None:
    """Continues after the next instructions of tiles, whose work is done."""
    frame.jump_record(frame.at(frame.record, frame.slot(NEXT_SLOT).sext(I64)))
