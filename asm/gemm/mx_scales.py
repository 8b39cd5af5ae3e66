"""E8M0 scales of an operand, one for each row and 32 k: from memory through LDS to the matrix instructions.

In memory the scales of all rows for one block of k are contiguous. A work-item loads those of 4 or 8 consecutive rows, in one of
the K step's 4 or 8 blocks. LDS has them in the same order, with blocks MX_PITCH bytes apart, so that lane groups read different
banks. A lane then reads the byte that its matrix instruction needs: the scale of its row and of its lane group's block of k.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simgpu.asm.builder.formula import Formula, log2, of
from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import advance_buffer, clip
from simgpu.asm.parts.staging import StagedFragment
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import TileLayout
from simgpu.operators.gemm.limits import MX_PITCH, SCALE_ROWS
from simgpu.operators.gemm.problem import MX_BLOCK


class MxScales:
    """Emits the code for one operand's scales. It has the methods of `Staging` that the main loop calls.

        layout     layout of the operand's tile
        resource   raw buffer at the tile's first scale
        step       SGPR, bytes between blocks of k; becomes bytes between K steps
        rows_left  SGPR, rows of the view from the tile's first on
        size       blocks of a K step, and rows of a work-item
        ahead      K steps whose scales registers hold
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

    def _place(self) -> tuple[Formula, Formula]:
        """Returns the work-item's block of the K step and its first row of the tile."""
        item, items = of(self.k.work_item), SCALE_ROWS // self.size
        return item // items, item % items * self.size

    def _offset(self, rows_left: Reg) -> Reg:
        """Returns the byte offset of the work-item's rows, OUTSIDE past the view's or the tile's last row."""
        k = self.k
        k.comment(f"{self.name}: {self.size} rows of a block of k a work-item")
        block, row = self._place()
        offset = k.vector(f"{self.name}' offset", block * self.step + row)
        limit = of(rows_left).least(self.layout.rows, "i32")
        clip(k, offset, offset, limit, row, note="rows past the view or the tile: outside")
        return offset

    def prepare_reads(self, lane_row: Reg, group: Reg, wave_row: Reg) -> None:
        """Emits the LDS address of the lane's byte for the wave's first atom. Arguments as `Staging.prepare_reads`."""
        row = of(lane_row) * self.layout.wide + wave_row
        self.k.set(self.address, row + of(group) * MX_PITCH + self.region.offset)

    # -- moves ---------------------------------------------------------------------------------------

    def loads(self, held: int = 0) -> list[list[Callable[[], None]]]:
        """Returns the load of a K step's scales: one unit of one load. held: index of the K step's registers, below `ahead`."""
        return [[lambda: self._load(self.offset, held)]]

    def _registers(self, held: int) -> Reg:
        return self.staged[held * self.size // WORD : (held + 1) * self.size // WORD]

    def _load(self, offset: Reg, held: int = 0) -> None:
        self.k.buffer_load(self._registers(held), offset, self.resource, 0, note=self.name)

    def load_clipped(self, k_left: Reg) -> None:
        """Loads a K step's scales; blocks past the view's k read 0, the scale 2^-127. k_left: SGPR, k from the step's first."""
        offset = self.k.v.alloc("clipped offset")
        self.cut_offset(of(k_left) // MX_BLOCK, offset)
        self._load(offset)
        self.k.v.free(offset)

    def cut_offset(self, blocks_left: Formula | Reg, target: Reg | None = None) -> None:
        """Makes the offset OUTSIDE for good if the next step's block is past the view. Scales then read 0, i.e. 2^-127.

        blocks_left: scalar, blocks from the step's first on; negative if it is past the view.
        """
        clip(self.k, target or self.offset, self.offset, blocks_left, self._place()[0], note="blocks past the view: outside")

    def advance(self) -> None:
        """Advances to the next K step."""
        advance_buffer(self.k, self.resource, self.step, self.name)

    @property
    def write_key(self) -> tuple[object, ...]:
        """Key of the write address, which A and B share."""
        return ("MX scales", self.size)

    def write_address(self) -> Reg:
        """Returns a new VGPR with the LDS byte to which the work-item writes, relative to the region."""
        block, row = self._place()
        return self.k.vector("scales' LDS write address", block * MX_PITCH + row)

    def writes(self, address: Reg, held: int = 0) -> list[Callable[[], None]]:
        """Returns the call that writes the staged scales to LDS. held: as in `loads`."""

        data, note = self._registers(held), f"{self.name} to LDS"
        return [partial(self.k.ds_write, address, data, offset=self.region.offset, note=note)]

    def other_stage(self, step: Reg) -> None:
        """Switches reads to the other stage. step: SGPR, bytes to it."""
        self.k.v_add_u32(self.address, step, self.address, note="the other stage")

    # -- fragments -----------------------------------------------------------------------------------

    def fragments(self, turn: int) -> list[StagedFragment]:
        """Returns the reads of a turn: a byte for each atom. All turns use the same registers."""
        layout, first = self.layout, turn * self.layout.groups * MX_PITCH
        return [
            StagedFragment(
                self.registers[t : t + 1], self.address, first + layout.row_of(t, 0), tuple((t, s) for s in range(layout.steps))
            )
            for t in range(layout.atoms)
        ]

    def source(self, t: int) -> Reg:
        """Returns the register whose lowest byte scales atom t."""
        return self.registers[t]

    def read(self, fragment: StagedFragment, turn: int) -> None:
        """Emits one atom's read."""
        note = f"{self.name}: turn {turn}, atom {fragment.feeds[0][0]}"
        self.k.ds_read_u8(fragment.registers, fragment.address, offset=fragment.immediate, note=note)
