"""Scales of blocks of k: loads, LDS and registers of the scales, and products that are scaled before they are added.

Every `scale_ahead` blocks of k a work-item loads that many scales of one row of A, and a wave those of op(B) into lanes. Rows
are far apart, so each load costs one cache line per row, whether it fetches one scale or many. `scale_ahead` blocks later, the
products of both scales go to LDS, and the next loads reuse their registers. For each block of k and each block of columns, LDS
has one product of scales for each row of the tile, in the order of the rows in a wave's atoms. A lane reads the products for its
four rows of an atom at once. The code that loads and writes scales is out of line, because the loop has no room for it.

A turn is the matrix instructions between two fillings of the fragment registers (`turn.Turn`). In each turn, the matrix
instructions of an atom start from 0 and write to a small pool. A few instructions later, `add` multiplies these products by the
scales and adds them to the sums. Two atoms alternate their steps. The additions of one pair's products are spread evenly among
the matrix instructions of the next pair; those of a tile's last pair, among the next tile's first ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import product

from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.gemm.prologue import TilePlace
from simgpu.asm.gemm.store import Accumulators
from simgpu.asm.parts.buffers import buffer_at
from simgpu.asm.parts.integer_math import multiply_wide
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import TileLayout
from simgpu.operators.gemm.limits import POOL_ATOMS, block_scale_bytes, scale_ahead, scale_columns
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import SCALE_BLOCK

WIDE = 4  # scales that one load brings


class BlockScales:
    """Emits the code for block scales next to A's and B's tiles. Their LDS is before the tiles'."""

    def __init__(self, k: KernelBuilder, plan: GemmPlan, rows: TileLayout, arguments: dict[str, Reg], place: TilePlace) -> None:
        self.k, self.plan, self.rows = k, plan, rows
        self.columns, self.block_bytes = scale_columns(plan.tiling), block_scale_bytes(plan.tiling)
        self.ahead = scale_ahead(plan.descriptor)
        self.region = k.region("block scales", 2 * self.ahead * self.block_bytes)
        self.per_atom = plan.atom.acc_registers
        self.pool = k.array("products to be scaled", POOL_ATOMS * self.per_atom)
        self.scales = k.array("block scales", rows.atoms * self.per_atom)
        self.of_a, self.of_b = k.v.alloc("scales of A", self.ahead), k.v.alloc("scales of B, by lane")
        self.buffers = k.s.alloc("A's scales' buffer", 4), k.s.alloc("B's scales' buffer", 4)
        self.k_read, stride = k.s.alloc("k of the scales to read next"), k.s.alloc("bytes of a row of scales")
        k.comment(f"block scales, every {self.ahead} blocks: as many of A a work-item, {self.columns} times as many of B a wave")
        k.set(stride, _blocks(arguments["k"]) * WORD, note="bytes of a row of scales")
        self._find(arguments, place, stride)
        first = k.scalar("bytes to the first block's scales", of(place.k0) // SCALE_BLOCK * WORD)
        thread, lane = of(k.work_item, rows.threads), of(k.work_item) % WAVEFRONT
        row = rows.row_of(thread // rows.atom, thread % rows.atom)  # the work-item's; of B, a lane has `ahead` blocks of k
        self.row_offset = k.vector("row's scales' offset", row * stride + first)
        place_of_lane = lane // self.ahead * stride + lane % self.ahead * WORD
        self.column_offset = k.vector("columns' scales' offset", place_of_lane + first)
        k.s.free(first, stride)
        k.set(self.k_read, of(place.k0) % SCALE_BLOCK + rows.k, note="of the second tile, from its first block on")
        self.write_address = k.vector("block scales' LDS address to write", of(k.work_item) * WORD + self.region.offset)
        row = of(place.wave_column) // SCALE_BLOCK * rows.rows + place.wave_row + of(place.group) * self.per_atom
        self.first_address = k.vector("first block's LDS address to read", row * WORD + self.region.offset)
        self.read_address = k.vector("block scales' LDS address to read", of(self.first_address))

    def _find(self, arguments: dict[str, Reg], place: TilePlace, stride: Reg) -> None:
        """Builds the buffers of A's and B's scales.

        They start at the tile's first row and first block of columns, and end with the last of the tile or of the view.
        """
        k, each, count, first = self.k, self.k.s.alloc("bytes of scales", 2), self.k.s.alloc("rows"), self.k.s.alloc("first")
        for buffer, name in zip(self.buffers, ("scale_a", "scale_b"), strict=True):
            if name == "scale_a":
                k.s_mov_b32(count, arguments["m"])
                k.s_mov_b32(first, place.m0)
                most = self.rows.rows
            else:
                k.set(count, _blocks(arguments["n"]))
                k.set(first, of(place.n0) // SCALE_BLOCK)
                most = self.columns
            multiply_wide(k, each, count, stride)
            own = name == "scale_a" and self.plan.problem.groups  # a group's scales start at the pointer
            buffer_at(k, buffer, arguments[name], name, (first, stride), *([] if own else [(place.batch, each)]))
            k.set(buffer[2], (of(count) - first).least(most) * stride, note="bytes in range")
        k.s.free(each, count, first)

    # -- moves ---------------------------------------------------------------------------------------

    def load(self) -> None:
        """Loads the next blocks' scales into registers. Past k they are another row's scales, or 0, and are multiplied by 0."""
        k, (a, b) = self.k, self.buffers
        with self._rows_alone():
            for number in range(0, self.ahead, WIDE):
                target, note = self.of_a[number : number + WIDE], f"A's scales of blocks {number} to {number + WIDE - 1}"
                k.buffer_load(target, self.row_offset, a, 0, offset=number * WORD, note=note)
            k.buffer_load(self.of_b, self.column_offset, b, 0, note=f"B's scales of {self.ahead} blocks")
            for offset in (self.row_offset, self.column_offset):
                k.v_add_u32(offset, self.ahead * WORD, offset)

    def write(self, first: bool = False) -> None:
        """Writes the products of A's and B's scales to LDS, over those of earlier blocks. first: True for the first blocks."""
        k, scaled, of_b = self.k, self.k.v.alloc("scale of A times B's"), self.k.s.alloc("scale of B")
        address = self.write_address
        if not first:
            address = k.v.alloc("LDS address")
            self._point(address, self.write_address)
        with self._rows_alone():
            for column, block in product(range(self.columns), range(self.ahead)):
                k.v_readlane_b32(of_b, self.of_b, column * self.ahead + block)
                k.v_mul_f32(scaled, of_b, self.of_a[block])
                offset = block * self.block_bytes + column * self.rows.rows * WORD
                k.ds_write_b32(address, scaled, offset=offset, note=f"scales of block {block}, block of columns {column}")
        k.free(scaled, *([] if first else [address]), of_b)

    def _rows_alone(self) -> AbstractContextManager[None]:
        """Disables the lanes whose number is not a row of the tile, for a block."""
        self.k.v_cmp_gt_u32("vcc", self.rows.rows, self.k.work_item)
        return self.k.lanes("vcc")

    def _point(self, target: Reg, first: Reg) -> None:
        """Emits target = the LDS address for the block of `k_read`, if `first` is the first block's."""
        k, block = self.k, self.k.s.alloc("block in LDS")
        # offset and width of the bit field: number of blocks that LDS holds
        k.s_bfe_u32(block, self.k_read, self.ahead.bit_length() << 16 | SCALE_BLOCK.bit_length() - 1)
        k.s_mul_i32(block, block, self.block_bytes)
        k.v_add_u32(target, block, first, note="block scales of the next tile")
        k.s.free(block)

    def next_tile(self) -> None:
        """Advances to the next tile.

        If the tile after it is the first of `ahead` blocks, writes its scales to LDS and loads the following ones.
        """
        k, rest = self.k, self.k.s.alloc("k in the blocks")
        k.s_add_u32(self.k_read, self.k_read, self.rows.k)
        k.s_and_b32(rest, self.k_read, self.ahead * SCALE_BLOCK - 1)
        k.s.free(rest)
        with k.aside("scc0", "block_scales", "scales_are_there"):
            self.write()
            self.load()

    def read(self, mt: int) -> None:
        """Reads the scales of an atom's rows into registers."""
        note = f"block scales of atom {mt}"
        self.k.ds_read_b128(self._registers_of(self.scales, mt), self.read_address, offset=mt * self.rows.atom * WORD, note=note)

    def clear(self, rows: Iterable[int]) -> None:
        """Clears products, and the scales of some atoms' rows, as if a tile of zeros preceded the first."""
        for register in (self.pool, *(self._registers_of(self.scales, mt) for mt in rows)):
            self.k.move(register, 0)

    def point(self) -> None:
        """Points reads to the next tile's scales."""
        self._point(self.read_address, self.first_address)

    # -- products ------------------------------------------------------------------------------------

    def products(self, number: int) -> Reg:
        """Returns the registers of the products of a tile's atom `number`, counted over the atoms of all its turns."""
        return self._registers_of(self.pool, number % POOL_ATOMS)

    def add(self, acc: Accumulators, number: int, mt: int, nt: int, r: int) -> None:
        """Scales one register of an atom's products and adds it to the sums.

        number, mt, nt, r: as in `turn.Product`. It is not packed, because a packed FMA would wait for the matrix unit.
        """
        products, scales, sums = self.products(number), self._registers_of(self.scales, mt), acc.atom(mt, nt)
        self.k.v_fmac_f32(sums[r], products[r], scales[r], note=f"C[{mt}][{nt}] += scaled products")

    def _registers_of(self, registers: Reg, number: int) -> Reg:
        return registers[number * self.per_atom : (number + 1) * self.per_atom]


def _blocks(size: Reg) -> Formula:
    """Returns the number of SCALE_BLOCK blocks in a size."""
    return (of(size) + (SCALE_BLOCK - 1)) // SCALE_BLOCK
