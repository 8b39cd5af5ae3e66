"""Scales of blocks of k: their way from memory through LDS to registers, and products that are scaled before they are added.

A tile's work-items each load the scale of one row of A in the block of k that the tile lies in, and that of the block of op(B),
multiply them and leave the products in LDS, a row of them for each block of columns, in the order in which a wave's atoms have the
rows. A lane then reads the four rows of an atom's elements at once. Matrix instructions of an atom begin a turn at 0 and end in a
small pool; `add` multiplies these by the scales into the sums a few instructions later. Two atoms take turns to go through their
steps, and what adds the products of one pair is spread evenly under the matrix instructions of the next: their pool is that of the
pair behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.prologue import Place, tile_buffer
from simgpu.asm.gemm.store import Accumulators
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lds_tile import TileLayout
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.limits import POOL_ATOMS, SCALE_ROWS, scale_columns
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import SCALE_BLOCK

LATER = 3  # matrix instructions behind an atom's last one at which its products are there


class BlockScales:
    """Emits what block scales take beside A's and B's tiles. Made where the tile's regions of LDS are made: a stage of each."""

    def __init__(self, k: KernelBuilder, plan: GemmPlan, rows: TileLayout, arguments: dict[str, Reg], place: Place) -> None:
        self.k, self.plan, self.rows = k, plan, rows
        self.columns = scale_columns(plan.tiling)
        self.region = k.region("block scales, stage 0", self.columns * SCALE_ROWS * WORD)
        self.per_atom = plan.atom.acc_registers
        self.pool = k.array("products to be scaled", POOL_ATOMS * self.per_atom)
        self.scales = k.array("block scales", rows.atoms * self.per_atom)
        self.of_a, self.product = k.v.alloc("scale of A"), k.v.alloc("scale of A times B's")
        self.of_b = [k.v.alloc("scale of B") for _ in range(self.columns)]
        self.at = k.v.alloc("block scale's offset")
        self.buffers = k.s.alloc("A's scales' buffer", 4), k.s.alloc("B's scales' buffer", 4)
        self.k_loaded, self.stride = k.s.alloc("k of the scales to load"), k.s.alloc("bytes of a row of scales")
        k.comment(f"block scales: one of A a work-item and tile, {self.columns} of B")
        k.s_mov_b32(self.k_loaded, place.k0)
        self._blocks(self.stride, arguments["k"])
        k.s_lshl_b32(self.stride, self.stride, log2(WORD), note="bytes of a row of scales")
        self._find(arguments, place)
        self.row_offset = self._row_offset()
        self.write_address = k.v.alloc("block scales' LDS address to write")
        k.v_lshlrev_b32(self.write_address, log2(WORD), k.work_item)
        k.v_add_u32(self.write_address, self.region.offset, self.write_address)
        self.read_address = self._read_address(place)

    def _blocks(self, target: Reg, size: Reg) -> None:
        """target = blocks of SCALE_BLOCK in size."""
        self.k.s_add_u32(target, size, SCALE_BLOCK - 1)
        self.k.s_lshr_b32(target, target, log2(SCALE_BLOCK))

    def _find(self, arguments: dict[str, Reg], place: Place) -> None:
        """Buffers at the tile's first row and block of columns, that end with the view's or the tile's last."""
        k, each, count, first = self.k, self.k.s.alloc("bytes of scales", 2), self.k.s.alloc("rows"), self.k.s.alloc("first")
        for buffer, name in zip(self.buffers, ("scale_a", "scale_b"), strict=True):
            if name == "scale_a":
                k.s_mov_b32(count, arguments["m"])
                k.s_mov_b32(first, place.m0)
                most = self.plan.tile_m
            else:
                self._blocks(count, arguments["n"])
                k.s_lshr_b32(first, place.n0, log2(SCALE_BLOCK))
                most = self.columns
            k.s_mul_i32(each[0], count, self.stride)
            k.s_mul_hi_u32(each[1], count, self.stride)
            if name == "scale_a" and self.plan.problem.groups:  # the group's begin at the pointer
                k.s_mov_b64(each, 0)
            tile_buffer(k, buffer, arguments[name], name, (first, 0), self.stride, WORD, place.batch, each)
            k.s_sub_u32(count, count, first)
            k.s_min_u32(count, count, most)
            k.s_mul_i32(buffer[2], count, self.stride, note="bytes in range")
        k.s.free(each, count, first)

    def _row_offset(self) -> Reg:
        """Byte offset of the scales of the work-item's row: of `TileLayout.row_of` for the place of its number."""
        k, rows, offset = self.k, self.rows, self.k.v.alloc("row's scales' offset")
        run, low, high = rows.atom // rows.fold, k.v.alloc("low"), k.v.alloc("high")
        k.v_and_b32(offset, rows.atom - 1, k.work_item, note="i of the atom's row")
        if rows.fold > 1:
            k.v_lshrrev_b32(high, log2(run), offset)
            k.v_and_b32(offset, run - 1, offset)
            k.v_mad_u32_u24(offset, offset, rows.fold, high)
        k.v_lshrrev_b32(high, log2(rows.atom), k.work_item, note="number of the atom")
        k.v_and_b32(low, rows.wide - 1, high)
        k.v_lshrrev_b32(high, log2(rows.wide), high)
        k.v_mad_u32_u24(offset, high, rows.atom, offset)
        k.v_mad_u32_u24(offset, offset, rows.wide, low)
        k.v_mul_lo_u32(offset, offset, self.stride)
        k.v.free(low, high)
        return offset

    def _read_address(self, place: Place) -> Reg:
        k, address, first = self.k, self.k.v.alloc("block scales' LDS address to read"), self.k.s.alloc("wave's first")
        k.s_lshr_b32(first, place.wave_column, log2(SCALE_BLOCK))
        k.s_mul_i32(first, first, SCALE_ROWS)
        k.s_add_u32(first, first, place.wave_row)
        k.v_lshlrev_b32(address, log2(self.per_atom), place.group)
        k.v_add_lshl_u32(address, first, address, log2(WORD))
        k.v_add_u32(address, self.region.offset, address)
        k.s.free(first)
        return address

    # -- moves ---------------------------------------------------------------------------------------

    def loads(self) -> list[Callable[[], None]]:
        """The next tile's scales into registers, one call a load. Beyond k they are another block's, or 0, and scale nothing."""

        def load(target: Reg, buffer: Reg, name: str, column: int) -> None:
            k, block = self.k, self.k.s.alloc("block of k")
            k.s_lshr_b32(block, self.k_loaded, log2(SCALE_BLOCK))
            if buffer is self.buffers[0]:
                k.v_lshl_add_u32(self.at, block, log2(WORD), self.row_offset)
            else:
                k.s_lshl_b32(block, block, log2(WORD))
                if column:
                    k.s_add_u32(block, block, self.stride)
                k.v_mov_b32(self.at, block)
            k.buffer_load_dword(target, self.at, buffer, 0, offen=True, note=f"scale of {name}'s block")
            k.s.free(block)

        a, b = self.buffers
        return [partial(load, self.of_a, a, "A", 0), *(partial(load, reg, b, "B", j) for j, reg in enumerate(self.of_b))]

    def writes(self) -> list[Callable[[], None]]:
        """Their products to LDS, one call a write."""

        def write(column: int) -> None:
            self.k.v_mul_f32(self.product, self.of_a, self.of_b[column])
            offset = column * SCALE_ROWS * WORD
            self.k.ds_write_b32(self.write_address, self.product, offset=offset, note=f"block scales, block of columns {column}")

        return [partial(write, column) for column in range(self.columns)]

    def read(self, mt: int) -> None:
        """The scales of an atom's rows into registers."""
        note = f"block scales of atom {mt}"
        self.k.ds_read_b128(self._of(self.scales, mt), self.read_address, offset=mt * self.rows.atom * WORD, note=note)

    def advance(self) -> None:
        """On to the tile behind the one that was loaded."""
        self.k.s_add_u32(self.k_loaded, self.k_loaded, self.plan.tile_k)

    def other_stage(self, step: Reg) -> None:
        """Reads go to the other stage from here on; step: SGPR, bytes to it."""
        self.k.v_add_u32(self.read_address, step, self.read_address, note="the other stage")

    def release(self) -> None:
        """Gives all registers back but the address to write."""
        k = self.k
        addresses = self.at, self.row_offset, self.read_address
        k.v.free(self.pool, self.scales, self.of_a, *self.of_b, self.product, *addresses, listed=True)
        k.s.free(*self.buffers, self.k_loaded, self.stride, listed=True)

    # -- products ------------------------------------------------------------------------------------

    def products(self, number: int) -> Reg:
        """Where the products of a tile's atom number so and so are, of all its turns' atoms in order."""
        return self._of(self.pool, number % POOL_ATOMS)

    def add(self, acc: Accumulators, number: int, mt: int, nt: int, r: int) -> None:
        """Adds one register of an atom's scaled products to its sums; not packed: what is waits for the matrix unit's end."""
        products, scales, sums = self.products(number), self._of(self.scales, mt), acc.atom(mt, nt)
        self.k.v_fmac_f32(sums[r], products[r], scales[r], note=f"C[{mt}][{nt}] += scaled products")

    def _of(self, registers: Reg, number: int) -> Reg:
        return registers[number * self.per_atom : (number + 1) * self.per_atom]
