"""E8M0 scales of an operand's rows by 32 k: their way from memory through LDS to the matrix instructions, beside the operand's own.

A work-item loads the scales of one row in a K step, 4 or 8 bytes behind each other, and leaves them in LDS in the order in which a
wave's atoms have the rows. A lane then reads the byte that its matrix instruction wants of it: its row's, of the block of k that
its group holds. HSA runs CDNA in unaligned access mode (LLVM AMDGPUUsage), so a row of scales may begin at any byte.
"""

from __future__ import annotations

from collections.abc import Callable

from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE, advance_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lds_tile import TileLayout
from simgpu.asm.parts.staging import Fragment
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.limits import SCALE_ROWS
from simgpu.operators.gemm.problem import MX_BLOCK


class MxScales:
    """Emits what one operand's scales take; the methods are `Staging`'s, so that the main loop moves them as it moves tiles.

    layout: of the operand's tile; resource: raw buffer at the tile's first scale; stride: SGPR, bytes of a row of scales;
    rows_left: SGPR, rows of the view from the tile's first on; size: bytes of a row's scales in a K step.
    """

    def __init__(
        self, k: KernelBuilder, layout: TileLayout, region: LdsRegion, resource: Reg, stride: Reg, rows_left: Reg, size: int
    ) -> None:
        self.k, self.layout, self.region, self.size = k, layout, region, size
        self.resource, self.name = resource, f"{layout.name} scales"
        self.staged = k.array(f"{self.name}' staging", size // WORD)
        self.registers = k.array(self.name, layout.atoms)
        self.offset, self.address = self._offset(stride, rows_left), k.v.alloc(f"{self.name}' LDS address")

    def _offset(self, stride: Reg, rows_left: Reg) -> Reg:
        """Byte offset of the work-item's row, OUTSIDE behind the view's or the tile's last."""
        k = self.k
        k.comment(f"{self.name}: {self.size} a row and K step, a row a work-item")
        row, limit, offset = row_of_place(k, self.layout), k.s.alloc("limit"), k.v.alloc(f"{self.name}' offset")
        k.s_min_i32(limit, rows_left, self.layout.rows)
        k.v_mul_lo_u32(offset, row, stride)
        k.v_cmp_gt_i32("vcc", limit, row)
        k.v_cndmask_b32(offset, OUTSIDE, offset, "vcc", note="rows past the view or the tile: outside")
        k.v.free(row)
        k.s.free(limit)
        return offset

    def prepare_reads(self, lane_row: Reg, group: Reg, wave_row: Reg) -> None:
        """LDS address of the lane's byte of the wave's first atom; arguments as `Staging.prepare_reads`."""
        k = self.k
        k.v_add_u32(self.address, wave_row, lane_row)
        k.v_lshl_add_u32(self.address, self.address, log2(self.size), group)
        if self.region.offset:
            k.v_add_u32(self.address, self.region.offset, self.address)

    # -- moves ---------------------------------------------------------------------------------------

    def loads(self) -> list[list[Callable[[], None]]]:
        """The next K step's scales into registers: one unit of one load."""

        def load() -> None:
            suffix = "dword" if self.size == WORD else f"dwordx{self.size // WORD}"
            self.k.emit(f"buffer_load_{suffix}", self.staged, self.offset, self.resource, 0, offen=True, note=self.name)

        return [[load]]

    def load_clipped(self, k_left: Reg) -> None:
        """The same a byte at a time, those past the view's k as 0, the scale 2^-127. k_left: SGPR, k from the step's first."""
        k = self.k
        at, parts = k.v.alloc("clipped offset"), [k.v.alloc("scale") for _ in range(WORD)]
        for j in range(self.size):
            k.s_cmp_gt_i32(k_left, j * MX_BLOCK)
            k.s_cselect_b64("vcc", -1, 0)
            k.v_cndmask_b32(at, OUTSIDE, self.offset, "vcc", note="blocks past the view: outside")
            k.buffer_load_ubyte(parts[j % WORD], at, self.resource, 0, offen=True, offset=j, note=f"{self.name}, block {j}")
            if j % WORD == WORD - 1:
                joined = parts[-1]
                for part in reversed(parts[:-1]):
                    k.v_lshl_or_b32(self.staged[j // WORD], joined, 8, part)
                    joined = self.staged[j // WORD]
        k.v.free(at, *parts)

    def advance(self) -> None:
        """On to the next K step."""
        advance_buffer(self.k, self.resource, self.size, self.name)

    @property
    def write_key(self) -> tuple[object, ...]:
        """A's and B's share the address to write."""
        return ("MX scales", self.size)

    def write_address(self) -> Reg:
        """A new VGPR with the work-item's place, without the region's."""
        address = self.k.v.alloc("scales' LDS write address")
        self.k.v_lshlrev_b32(address, log2(self.size), self.k.work_item)
        return address

    def writes(self, address: Reg) -> list[Callable[[], None]]:
        """The staged scales to LDS: one write."""

        def write() -> None:
            self.k.emit(f"ds_write_b{8 * self.size}", address, self.staged, offset=self.region.offset, note=f"{self.name} to LDS")

        return [write]

    def other_stage(self, step: Reg) -> None:
        """Reads go to the other stage from here on; step: SGPR, bytes to it."""
        self.k.v_add_u32(self.address, step, self.address, note="the other stage")

    def release(self) -> None:
        """Gives all registers back."""
        self.k.v.free(self.staged, self.registers, self.offset, self.address, listed=True)
        self.k.s.free(self.resource, listed=True)

    # -- fragments -----------------------------------------------------------------------------------

    def fragments(self, turn: int) -> list[Fragment]:
        """A byte an atom; every turn's take the same registers."""
        rows, first, steps = self.layout.atom * self.size, turn * self.layout.groups, range(self.layout.steps)
        return [
            Fragment(self.registers[t : t + 1], self.address, t * rows + first, tuple((t, s) for s in steps))
            for t in range(self.layout.atoms)
        ]

    def source(self, t: int) -> Reg:
        """The register whose lowest byte scales atom t."""
        return self.registers[t]

    def read(self, fragment: Fragment, turn: int) -> None:
        """Emits one atom's read."""
        note = f"{self.name}: turn {turn}, atom {fragment.feeds[0][0]}"
        self.k.ds_read_u8(
            fragment.registers, fragment.address, offset=fragment.immediate, note=note
        )


def mx_regions(k: KernelBuilder, size: int) -> tuple[LdsRegion, LdsRegion]:
    """Stage 0 of A's and B's scales in LDS."""
    a, b = (k.region(f"{name} scales, stage 0", SCALE_ROWS * size) for name in "AB")
    return a, b


def row_of_place(k: KernelBuilder, rows: TileLayout) -> Reg:
    """A new VGPR with the tile's row of the work-item's number: `TileLayout.row_of`, atom after atom."""
    row = k.v.alloc("row of the work-item's scales")
    run, low, high = rows.atom // rows.fold, k.v.alloc("low"), k.v.alloc("high")
    k.v_and_b32(row, rows.atom - 1, k.work_item, note="i of the atom's row")
    if rows.fold > 1:
        k.v_lshrrev_b32(high, log2(run), row)
        k.v_and_b32(row, run - 1, row)
        k.v_mad_u32_u24(row, row, rows.fold, high)
    k.v_lshrrev_b32(high, log2(rows.atom), k.work_item, note="number of the atom")
    k.v_and_b32(low, rows.wide - 1, high)
    k.v_lshrrev_b32(high, log2(rows.wide), high)
    k.v_mad_u32_u24(row, high, rows.atom, row)
    k.v_mad_u32_u24(row, row, rows.wide, low)
    k.v.free(low, high)
    return row
