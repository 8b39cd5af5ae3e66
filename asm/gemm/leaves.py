"""Leaves of a GEMM (`operators.gemm.leaves`): on the tiles of A on their way to LDS, on a row's sums, and on the products.

A work-item applies the leaves to the chunks of A that it holds, right before it writes them to LDS. A vector's elements at these k
are loaded with the chunks of A: into one set of registers for the next tile, which is copied to another when that tile is written.

After the loop, the parts of a row's sums go through LDS to the work-item of that row's number. It adds them in order, so that
results do not depend on the waves' timing, computes the row's values and leaves them in LDS, where the store finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import buffer_at
from simgpu.asm.parts.expressions import Computation
from simgpu.asm.parts.lanes import Narrowing, unpack
from simgpu.asm.parts.staging import Staging, StagingUnit
from simgpu.hardware.errors import ResourceError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.expressions import Value
from simgpu.operators.gemm.layout import TileLayout
from simgpu.operators.gemm.leaves import PRODUCT, Leaves, row_value, staging_range, sum_range
from simgpu.operators.gemm.plan import GemmPlan

TOGETHER = 4  # parts of a sum that a work-item reads at once


@dataclass(frozen=True)
class LoadPlaces:
    """Places of a work-item's loads of A: rows whose sums it has parts of, and k whose vectors it needs."""

    layout: TileLayout

    def _numbers(self, axis: int) -> list[int]:
        """Returns for each load the number of its rows (axis 0) or k (1): equal if these are the same in all work-items."""
        layout, threads = self.layout, np.arange(self.layout.threads)
        known: dict[bytes, int] = {}
        places = (layout.staged_element(threads, load)[axis].tobytes() for load in range(layout.loads))
        return [known.setdefault(place, len(known)) for place in places]

    @cached_property
    def sum_of(self) -> list[int]:
        """For each load, the number of its sum."""
        return self._numbers(0)

    @cached_property
    def place_of(self) -> list[int]:
        """For each load, the number of its place in k."""
        return self._numbers(1)

    @cached_property
    def first_of_place(self) -> list[int]:
        """For each place in k, its first load."""
        return [self.place_of.index(place) for place in range(max(self.place_of) + 1)]

    @property
    def sums(self) -> int:
        """Sums of a work-item."""
        return max(self.sum_of) + 1

    @property
    def parts(self) -> int:
        """Parts of the sum of each row."""
        return self.sums * self.layout.threads // self.layout.rows


class MatrixStaging(Staging):
    """Elements of a matrix like A, where A's chunks are, in registers."""

    def __init__(self, k: KernelBuilder, name: str, pointer: Reg, a: MappedStaging) -> None:
        self.k, self.layout, self.bits, self.length, self.transposition = k, replace(a.layout, name=name), 0, a.length, None
        self.units, self.step, self.rows_left = a.units, a.step, a.rows_left
        self.resource, self.staged = k.s.alloc(f"{name} buffer", 4), k.array(staging_range(name), a.layout.staged_words)
        first, of_a = self.resource, a.pointers["A"]
        buffer_at(k, first, pointer, name)
        for low, high, other in (("s_add_u32", "s_addc_u32", a.resource), ("s_sub_u32", "s_subb_u32", of_a)):
            k.emit(low, first[0], first[0], other[0], note=f"{name}: as far from its beginning as A's buffer")
            k.emit(high, first[1], first[1], other[1])


class VectorStaging(Staging):
    """Elements of a vector at the k of A's chunks, in registers: `staged` for the next tile, `current` for this one."""

    def __init__(self, k: KernelBuilder, name: str, pointer: Reg, a: MappedStaging) -> None:
        self.k, self.layout, self.bits, self.length, self.name = k, a.layout, 0, a.length, name
        self.resource, self.write_key_of_a = k.s.alloc(f"{name} buffer", 4), a.write_key
        self.read_addresses, self.transposition, self.step = (), None, a.step
        buffer_at(k, self.resource, pointer, name)
        loads = a.parts.first_of_place
        words = len(loads) * a.layout.unit_words
        self.staged, self.current = k.array(staging_range(name), words), k.array(name, words)
        offsets = k.array(f"{name} offsets", len(loads))
        self.units = []
        for number, load in enumerate(loads):
            unit = a.units[load]
            k.set(offsets[number], (of(unit.k) + unit.k_step) * a.layout.element)
            self.units.append(StagingUnit(unit.row, unit.k, 0, unit.k_step, offsets[number]))

    @property
    def write_key(self) -> tuple[object, ...]:
        return self.write_key_of_a

    def writes(self, address: Reg) -> list[Callable[[], None]]:
        """Returns calls, one a place in k, that make the loaded elements the current ones."""
        return [partial(self._take, number) for number in range(len(self.units))]

    def _take(self, number: int) -> None:
        first, count = number * self.layout.unit_words, self.layout.unit_words
        self.k.move(self.current[first : first + count], self.staged[first : first + count], note=f"{self.name} of this tile")

    def fragments(self, turn: int) -> list[Any]:
        """Returns nothing: matrix instructions do not read a vector."""
        return []


class MappedStaging(Staging):
    """Staging of A with leaves: sums grow and elements are mapped right before a chunk is written to LDS."""

    def __init__(self, *given: Any, leaves: Leaves, pointers: dict[str, Reg], dtype: str, **more: Any) -> None:
        super().__init__(*given, **more)
        self.leaves, self.pointers, self.dtype, self.parts = leaves, pointers, dtype, LoadPlaces(self.layout)
        self.vectors: list[VectorStaging] = []
        self.matrices: list[MatrixStaging] = []
        self.sums = [self.k.array(sum_range(name), self.parts.sums) for name, _ in leaves.sums]
        for array in self.sums:
            self.k.move(array[0 : self.parts.sums], 0)
        self.narrowing = Narrowing(self.k, dtype) if self.layout.element < WORD else None

    def prepare_loads(self) -> None:
        """Emits the offsets of A, which its matrices share, then the buffers of matrices and vectors."""
        super().prepare_loads()
        self.matrices = [MatrixStaging(self.k, name, self.pointers[name], self) for name in self.leaves.matrices]
        self.vectors = [VectorStaging(self.k, name, self.pointers[name], self) for name in self.leaves.vectors]

    def loads(self) -> list[list[Callable[[], None]]]:
        """Returns calls that emit the next tile's loads, by unit: of A, and of the matrices."""
        every = [super().loads(), *(matrix.loads() for matrix in self.matrices)]
        return [[load for loads in unit for load in loads] for unit in zip(*every, strict=True)]

    def load_clipped(self, k_left: Reg) -> None:
        super().load_clipped(k_left)
        for matrix in self.matrices:
            matrix.load_clipped(k_left)

    def move_ends(self, k_left: Reg) -> None:
        super().move_ends(k_left)
        for matrix in self.matrices:
            matrix.move_ends(k_left)

    def advance(self) -> None:
        super().advance()
        for matrix in self.matrices:
            matrix.advance()

    def writes(self, address: Reg) -> list[Callable[[], None]]:
        """Returns calls that apply the leaves to a chunk and write it to LDS."""
        return [partial(self._map_and_write, load, write) for load, write in enumerate(super().writes(address))]

    def _map_and_write(self, load: int, write: Callable[[], None]) -> None:
        data = self._target(load, 0, 0, self.layout.vec)
        first = self.parts.place_of[load] * self.layout.unit_words
        for word in range(data.count):
            others = (matrix._target(load, 0, word * self.layout.pack, self.layout.pack) for matrix in self.matrices)
            held = [data[word], *others, *(vector.current[first + word] for vector in self.vectors)]
            if self.narrowing is None:
                self._element(load, held, data[word])
            else:
                self._pair(load, held, data[word])
        write()

    def _element(self, load: int, held: Sequence[Reg], target: Reg) -> None:
        """Applies the leaves to one element, except those on packed elements. held: f32 registers of A's, the matrices' and the
        vectors'."""
        k, left_operand = self.k, self.leaves.left_operand
        left = [(_factors(value), sums) for (_, value), sums in zip(self.leaves.sums, self.sums, strict=True)
                if not self.leaves.packs(value, self.dtype)]  # fmt: skip
        mapped = self.leaves.maps and not self.leaves.packs(left_operand, self.dtype)
        given = dict(zip(self.leaves.of_element, held, strict=True))
        work = Computation(k, [*(one for summand, _ in left for one in summand), *[left_operand] * mapped], given)
        for summand, sums in left:
            total, found = sums[self.parts.sum_of[load]], [work.value(one) for one in summand]
            if len(found) == 2:
                k.v_fmac_f32(total, *found)
            else:
                k.v_add_f32(total, found[0], total)
            for one in summand:
                work.done(one)
        if mapped:
            work.register(left_operand, target)

    def _pair(self, load: int, held: Sequence[Reg], target: Reg) -> None:
        """Applies the leaves to the two elements of a register. held: packed registers of A's, the matrices' and the vectors'.

        Products of two f16 elements need no conversion: they are added, or rounded, by instructions on f16.
        """
        k, leaves = self.k, self.leaves
        packed = dict(zip(leaves.of_element, held, strict=True))
        for (_, value), sums in zip(leaves.sums, self.sums, strict=True):
            if leaves.packs(value, self.dtype):
                total, (x, y) = sums[self.parts.sum_of[load]], (packed[one.name] for one in value.operands)
                for half in range(2):
                    k.v_fma_mix_f32(total, x, y, total, op_sel=f"[{half},{half},0]", op_sel_hi="[1,1,0]")
        if any(not leaves.packs(value, self.dtype) for value in leaves.changes):
            self._converted_pair(load, held, target)
        if leaves.maps and leaves.packs(leaves.left_operand, self.dtype):
            k.v_pk_mul_f16(target, *(packed[one.name] for one in leaves.left_operand.operands))

    def _converted_pair(self, load: int, held: Sequence[Reg], target: Reg) -> None:
        """Applies the leaves that are not on packed elements to the two elements of a register."""
        k = self.k
        pairs = [(k.v.alloc("low"), k.v.alloc("high")) for _ in held]
        for packed, (low, high) in zip(held, pairs, strict=True):
            unpack(k, self.dtype, low, high, packed)
        for half in range(2):
            self._element(load, [pair[half] for pair in pairs], pairs[0][half])
        if self.leaves.maps and not self.leaves.packs(self.leaves.left_operand, self.dtype):
            assert self.narrowing is not None
            scratch = k.v.alloc("rounding")
            self.narrowing.pack(target, *pairs[0], scratch)
            k.v.free(scratch)
        k.v.free(*(each for pair in pairs for each in pair))


def _factors(value: Value) -> tuple[Value, ...]:
    """Returns the two factors of a summand that is a product, which one instruction adds; else the summand."""
    both = value.op == "multiply" and all(one.op != "constant" for one in value.operands)
    return value.operands if both else (value,)


class RowValues:
    """A row's values, computed from its sums: `emit` after the loop, `read` by each lane for the rows of its products."""

    def __init__(self, k: KernelBuilder, plan: GemmPlan, staging: MappedStaging) -> None:
        self.k, self.rows, self.leaves, self.staging = k, plan.tile_m, staging.leaves, staging
        layout, parts, leaves = staging.layout, staging.parts, staging.leaves
        need = max(parts.sums * layout.threads, len(leaves.row_values) * self.rows) * WORD
        if leaves.sums and need > plan.resources.lds_bytes:
            raise ResourceError(
                f"{leaves.name}: rows' sums take {need} bytes of LDS, the tiles leave {plan.resources.lds_bytes}: use larger tiles"
            )

    def emit(self) -> None:
        """Emits the exchange of the sums and the rows' values. All of LDS is free; afterwards the values are at its start."""
        k, leaves = self.k, self.leaves
        if not leaves.sums:
            return
        k.comment("leaves: parts of a row's sums to the work-item of its number, and back as the row's values")
        addresses, own = self._addresses(), k.vector("parts of the own row", of(k.work_item) * (self.staging.parts.parts * WORD))
        mine = k.s.alloc("lanes with a row", 2)
        k.s_mov_b64(mine, k.v_cmp_gt_i32("vcc", self.rows, k.work_item))
        totals = []
        for sums in self.staging.sums:
            k.s_barrier(note="LDS is free")
            for number, address in enumerate(addresses):
                k.ds_write_b32(address, sums[number])
            k.s_barrier(note="a sum's parts are in LDS")
            k.v.free(sums, listed=True)
            totals.append(self._total(own, mine))
        k.s_barrier(note="the parts are read")
        self._values(dict(zip((name for name, _ in leaves.sums), totals, strict=True)), mine)
        k.s_barrier(note="the rows' values are in LDS")
        k.free(*addresses, own, *totals, mine)

    def _addresses(self) -> list[Reg]:
        """Returns the LDS addresses of the parts that a work-item has: those of a row are adjacent."""
        k, layout, parts, found = self.k, self.staging.layout, self.staging.parts, []
        units = layout.row_chunks * layout.chunk // layout.vec  # of a row, in a line of LDS
        for number in range(parts.sums):
            index = of(k.work_item, layout.threads) + number * layout.threads
            line, unit = index // units, index % units
            block, row = line // layout.rows, line % layout.rows
            found.append(k.vector("LDS address of a part", (row * parts.parts + block * units + unit) * WORD))
        return found

    def _total(self, own: Reg, mine: Reg) -> Reg:
        """Returns a VGPR with the sum of the own row, its parts added in order."""
        k, count = self.k, self.staging.parts.parts
        total = k.v.alloc("sum of a row")
        with k.lanes(mine, note="work-items with a row"):
            for first in range(0, count, TOGETHER):
                taken = [k.v.alloc("part") for _ in range(min(TOGETHER, count - first))]
                for place, part in enumerate(taken, first):
                    k.ds_read_b32(part, own, offset=place * WORD)
                for place, part in enumerate(taken, first):
                    k.v_add_f32(total, part, total) if place else k.v_mov_b32(total, part)
                k.v.free(*taken)
        return total

    def _values(self, totals: dict[str, Reg], mine: Reg) -> None:
        k, values = self.k, self.leaves.row_values
        address = k.vector("address of the row's values", of(k.work_item) * WORD)
        with k.lanes(mine):
            work = Computation(k, values, totals)
            for number, value in enumerate(values):
                result = work.value(value)
                k.ds_write_b32(address, result, offset=number * self.rows * WORD, note=f"{value}")
                work.done(value)
        k.v.free(address)

    def read(self, first: Reg, rows: Sequence[int]) -> dict[str, list[Reg]]:
        """Returns each row value of a lane's rows, by its argument's name. first: VGPR, the first of `rows` that the lane has."""
        k, address = self.k, self.k.vector("address of rows' values", of(first) * WORD)
        found: dict[str, list[Reg]] = {}
        for number, value in enumerate(self.leaves.row_values):
            registers = found[row_value(number)] = [k.v.alloc("row value") for _ in rows]
            for row, register in zip(rows, registers, strict=True):
                k.ds_read_b32(register, address, offset=(number * self.rows + row) * WORD, note=f"{value}, row {row}")
        k.v.free(address)
        return found


@dataclass(frozen=True)
class StoredLeaf:
    """Leaf on products, for the store."""

    values: RowValues
    columns: dict[str, Reg]  # buffers at the tile's first column

    def apply(self, k: KernelBuilder, product: Reg, given: dict[str, Reg]) -> None:
        """Emits product = result. given: row values and columns of its row and column."""
        result = self.values.leaves.result_of_row
        Computation(k, [result], {PRODUCT: product, **given}).register(result, product)
