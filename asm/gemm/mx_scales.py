"""E8M0 scales of an operand's rows by 32 k: their way from memory through LDS to the matrix instructions, beside the operand's own.

In memory the rows' scales of one block of k lie behind each other. A work-item loads those of 4 or 8 neighbouring rows in one of
the K step's 4 or 8 blocks, and LDS has them in the same order, blocks MX_PITCH bytes apart, so that lane groups read other banks. A
lane then reads the one byte that its matrix instruction wants of it: its row's, of the block of k that its group holds.
"""

from __future__ import annotations

from collections.abc import Callable

from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE, advance_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lds_tile import TileLayout
from simgpu.asm.parts.staging import StagedFragment
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.limits import MX_PITCH, SCALE_ROWS
from simgpu.operators.gemm.problem import MX_BLOCK


class MxScales:
    """Emits what one operand's scales take; the methods are `Staging`'s, so that the main loop moves them as it moves tiles.

    layout: of the operand's tile; resource: raw buffer at the tile's first scale; step: SGPR, bytes between blocks of k, made
    those between K steps; rows_left: SGPR, rows of the view from the tile's first on; size: blocks of a K step, and rows of a
    work-item; ahead: K steps whose scales registers hold.
    """

    def __init__(
        self, k: KernelBuilder, layout: TileLayout, region: LdsRegion, resource: Reg, step: Reg, rows_left: Reg, size: int,
        ahead: int = 1,
    ) -> None:
        self.k, self.layout, self.region, self.size = k, layout, region, size
        self.resource, self.step, self.name = resource, step, f"{layout.name} scales"
        self.staged = k.array(f"{self.name}' staging", ahead * size // WORD)
        self.registers = k.array(self.name, layout.atoms)
        self.offset, self.address = self._offset(rows_left), k.v.alloc(f"{self.name}' LDS address")
        k.s_lshl_b32(step, step, log2(size), note="bytes to the next K step")

    def _place(self) -> tuple[Reg, Reg]:
        """New VGPRs with the work-item's block of the K step and its first row of the tile."""
        k, block, row = self.k, self.k.v.alloc("block of k"), self.k.v.alloc("row")
        k.v_lshrrev_b32(block, log2(SCALE_ROWS // self.size), k.work_item)
        k.v_and_b32(row, SCALE_ROWS // self.size - 1, k.work_item)
        k.v_lshlrev_b32(row, log2(self.size), row)
        return block, row

    def _offset(self, rows_left: Reg) -> Reg:
        """Byte offset of the work-item's rows, OUTSIDE behind the view's or the tile's last."""
        k = self.k
        k.comment(f"{self.name}: {self.size} rows of a block of k a work-item")
        (block, row), limit, offset = self._place(), k.s.alloc("limit"), k.v.alloc(f"{self.name}' offset")
        k.s_min_i32(limit, rows_left, self.layout.rows)
        k.v_mul_lo_u32(offset, block, self.step)
        k.v_add_u32(offset, row, offset)
        k.v_cmp_gt_i32("vcc", limit, row)
        k.v_cndmask_b32(offset, OUTSIDE, offset, "vcc", note="rows past the view or the tile: outside")
        k.v.free(block, row)
        k.s.free(limit)
        return offset

    def prepare_reads(self, lane_row: Reg, group: Reg, wave_row: Reg) -> None:
        """LDS address of the lane's byte of the wave's first atom; arguments as `Staging.prepare_reads`."""
        k, block = self.k, self.k.v.alloc("block of k")
        k.v_mul_u32_u24(self.address, self.layout.wide, lane_row)
        k.v_add_u32(self.address, wave_row, self.address)
        k.v_mul_u32_u24(block, MX_PITCH, group)
        k.v_add_u32(self.address, block, self.address)
        if self.region.offset:
            k.v_add_u32(self.address, self.region.offset, self.address)
        k.v.free(block)

    # -- moves ---------------------------------------------------------------------------------------

    def loads(self, held: int = 0) -> list[list[Callable[[], None]]]:
        """A K step's scales into registers: one unit of one load. held: which of `ahead` K steps' registers."""
        return [[lambda: self._load(self.offset, held)]]

    def _registers(self, held: int) -> Reg:
        return self.staged[held * self.size // WORD : (held + 1) * self.size // WORD]

    def _load(self, offset: Reg, held: int = 0) -> None:
        suffix = "dword" if self.size == WORD else f"dwordx{self.size // WORD}"
        self.k.emit(f"buffer_load_{suffix}", self._registers(held), offset, self.resource, 0, offen=True, note=self.name)

    def load_clipped(self, k_left: Reg) -> None:
        """The same, blocks past the view's k as 0, the scale 2^-127. k_left: SGPR, k from the step's first."""
        k, (block, row), blocks = self.k, self._place(), self.k.s.alloc("blocks left")
        k.s_lshr_b32(blocks, k_left, log2(MX_BLOCK))
        k.v_cmp_gt_i32("vcc", blocks, block)
        k.v_cndmask_b32(row, OUTSIDE, self.offset, "vcc", note="blocks past the view: outside")
        self._load(row)
        k.v.free(block, row)
        k.s.free(blocks)

    def cut(self, blocks_left: Reg) -> None:
        """Sends the offset outside for good where the next step's block is past the view: its scale is then 0, 2^-127.
        blocks_left: SGPR, blocks from the step's first on, negative where it lies behind."""
        k, (block, row) = self.k, self._place()
        k.v_cmp_gt_i32("vcc", blocks_left, block)
        k.v_cndmask_b32(self.offset, OUTSIDE, self.offset, "vcc", note="blocks past the view: outside")
        k.v.free(block, row)

    def advance(self) -> None:
        """On to the next K step."""
        advance_buffer(self.k, self.resource, self.step, self.name)

    @property
    def write_key(self) -> tuple[object, ...]:
        """A's and B's share the address to write."""
        return ("MX scales", self.size)

    def write_address(self) -> Reg:
        """A new VGPR with the work-item's place, without the region's."""
        block, row = self._place()
        self.k.v_mul_u32_u24(block, MX_PITCH, block)
        self.k.v_add_u32(block, block, row, note="scales' LDS write address")
        self.k.v.free(row)
        return block

    def writes(self, address: Reg, held: int = 0) -> list[Callable[[], None]]:
        """The staged scales to LDS: one write; held as in `loads`."""

        def write() -> None:
            data, note = self._registers(held), f"{self.name} to LDS"
            self.k.emit(f"ds_write_b{8 * self.size}", address, data, offset=self.region.offset, note=note)

        return [write]

    def other_stage(self, step: Reg) -> None:
        """Reads go to the other stage from here on; step: SGPR, bytes to it."""
        self.k.v_add_u32(self.address, step, self.address, note="the other stage")

    def release(self) -> None:
        """Gives all registers back."""
        self.k.v.free(self.staged, self.registers, self.offset, self.address, listed=True)
        self.k.s.free(self.resource, self.step, listed=True)

    # -- fragments -----------------------------------------------------------------------------------

    def fragments(self, turn: int) -> list[StagedFragment]:
        """A byte an atom; every turn's take the same registers."""
        layout, first = self.layout, turn * self.layout.groups * MX_PITCH
        return [
            StagedFragment(
                self.registers[t : t + 1], self.address, first + layout.row_of(t, 0), tuple((t, s) for s in range(layout.steps))
            )
            for t in range(layout.atoms)
        ]

    def source(self, t: int) -> Reg:
        """The register whose lowest byte scales atom t."""
        return self.registers[t]

    def read(self, fragment: StagedFragment, turn: int) -> None:
        """Emits one atom's read."""
        note = f"{self.name}: turn {turn}, atom {fragment.feeds[0][0]}"
        self.k.ds_read_u8(fragment.registers, fragment.address, offset=fragment.immediate, note=note)
