"""The end of a GEMM: C = alpha·A·B + beta·C from accumulators, tile rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from asm.emit import OUTSIDE, clip
from asm.kernel import KernelBuilder
from asm.layout import WORD, TileLayout
from hardware.errors import ResourceError
from hardware.isa.instruction import Reg

BUFFER_OFFSET_LIMIT = 1 << 12  # buffer offset has 12 bits (LLVM, all four targets)
BATCH = 8  # groups of C that are in flight at once where beta reads them


@dataclass(frozen=True)
class Accumulators:
    """A wave's C tile: registers of atom (mt, nt), whose register r holds A-row 4G(r//4)+4g+r%4."""

    registers: Reg
    rows: TileLayout
    columns: TileLayout
    per_atom: int

    def atom(self, mt: int, nt: int) -> Reg:
        """The registers of one atom."""
        start = (mt * self.columns.atoms + nt) * self.per_atom
        return self.registers[start : start + self.per_atom]

    def tile_rows(self) -> Iterator[tuple[int, int, int]]:
        """(mt, r, row) for every register row; row without the lane's own part, wide·4g."""
        quad = 4 * self.rows.groups
        for mt in range(self.rows.atoms):
            for r in range(self.per_atom):
                yield mt, r, self.rows.row_of(mt, quad * (r // 4) + r % 4)


@dataclass(frozen=True)
class StoreInputs:
    """resource: raw buffer at the tile's first element of C; row, column, offset: VGPRs with the
    lane's first row and column in the tile and their byte offset; the rest are SGPRs: row stride
    in bytes, rows and columns of the view from the tile's first on, alpha, beta."""

    resource: Reg
    row: Reg
    column: Reg
    offset: Reg
    stride: Reg
    rows_left: Reg
    columns_left: Reg
    alpha: Reg
    beta: Reg


@dataclass
class Group:
    """Consecutive columns of one row in a lane: C[row][column..], its registers and addresses."""

    mt: int
    r: int
    row: int
    block: int
    data: Reg
    old: Reg
    address: Reg


class TileStore:
    """Emits the store of one wave's tile: `emit(clipped, scaled)` for each of the four cases.

    clipped: elements outside the view are neither read nor written, each on its own; else wide.
    scaled: beta is not 0; C is read only then. budget: ArchVGPRs to stay within where possible.
    """

    def __init__(self, k: KernelBuilder, acc: Accumulators, inputs: StoreInputs, budget: int) -> None:
        self.k, self.acc, self.inputs, self.budget = k, acc, inputs, budget
        self.wide = acc.columns.wide
        self.blocks = acc.columns.atoms // self.wide
        self.block_bytes = self.wide * acc.columns.atom * WORD
        if self.blocks * self.block_bytes > BUFFER_OFFSET_LIMIT:
            raise ResourceError(
                f"a wave's {acc.columns.warp_rows} columns of C exceed a buffer offset's reach of "
                f"{BUFFER_OFFSET_LIMIT // WORD}: use more waves along n"
            )

    def emit(self, clipped: bool, scaled: bool) -> None:
        k, wide = self.k, self.wide
        masks = self._column_masks() if clipped else []
        addresses = wide if clipped else 1
        each = wide + addresses + (wide if scaled else 0)
        row_address = k.v.alloc("C row offset")
        slots: list[tuple[Reg, Reg, Reg]] = []
        while not slots or (len(slots) < BATCH and k.v.in_use + each <= self.budget):
            slots.append(
                (k.v.alloc("C data", wide), k.v.alloc("C old", wide) if scaled else Reg("v", 0, 0),
                 k.v.alloc("C offset", addresses))
            )  # fmt: skip
        groups = self._groups(slots)
        while batch := list(islice(groups, len(slots))):
            for group in batch:
                self._address(group, row_address, clipped, masks)
                if scaled:
                    self._transfer("load", group, group.old, clipped)
            for group in batch:
                self._combine(group, scaled)
                self._transfer("store", group, group.data, clipped)
        for data, old, address in slots:
            k.v.free(data, address, *([old] if scaled else []))
        k.v.free(row_address)
        k.s.free(*masks)

    def _groups(self, slots: list[tuple[Reg, Reg, Reg]]) -> Iterator[Group]:
        number = 0
        for mt, r, row in self.acc.tile_rows():
            for block in range(self.blocks):
                yield Group(mt, r, row, block, *slots[number % len(slots)])
                number += 1

    def _column_masks(self) -> list[Reg]:
        """One lane mask per column atom: which lanes' column is inside the view."""
        k, columns = self.k, self.acc.columns
        limit = k.s.alloc("limit")
        masks = []
        for nt in range(columns.atoms):
            mask = k.s.alloc("column mask", 2)
            k.s_sub_u32(limit, self.inputs.columns_left, columns.row_of(nt, 0))
            k.v_cmp_gt_i32(mask, limit, self.inputs.column, note=f"columns of atom {nt} inside the view")
            masks.append(mask)
        k.s.free(limit)
        return masks

    def _address(self, group: Group, row_address: Reg, clipped: bool, masks: list[Reg]) -> None:
        """The group's byte offsets, without what the instruction adds."""
        k, inputs = self.k, self.inputs
        scratch = k.s.alloc("scratch")
        if group.block == 0 or not clipped:
            target = row_address if clipped else group.address
            k.s_mul_i32(scratch, inputs.stride, group.row)
            k.v_add_u32(target, scratch, inputs.offset, note=f"C row {group.row} of the tile")
        if group.block == 0 and clipped:
            k.s_sub_u32(scratch, inputs.rows_left, group.row)
            clip(k, row_address, row_address, scratch, inputs.row)
        k.s.free(scratch)
        if not clipped:
            return
        for w in range(self.wide):
            mask = masks[group.block * self.wide + w]
            k.v_cndmask_b32(group.address[w], OUTSIDE, row_address, mask)

    def _transfer(self, direction: str, group: Group, data: Reg, clipped: bool) -> None:
        k, wide = self.k, self.wide
        start = group.block * self.block_bytes
        note = f"C row {group.row}, column block {group.block}"
        if not clipped:
            suffix = f"x{wide}" if wide > 1 else ""
            name = f"buffer_{direction}_dword{suffix}"
            k.emit(name, data, group.address, self.inputs.resource, 0, offen=True, offset=start, note=note)
            return
        for w in range(wide):
            k.emit(
                f"buffer_{direction}_dword", data[w], group.address[w], self.inputs.resource, 0, offen=True,
                offset=start + w * WORD, note=f"{note}, element {w}",
            )  # fmt: skip

    def _combine(self, group: Group, scaled: bool) -> None:
        k, inputs = self.k, self.inputs
        for w in range(self.wide):
            source = self.acc.atom(group.mt, group.block * self.wide + w)[group.r]
            k.v_accvgpr_read_b32(group.data[w], source, note=f"A·B: atom {group.mt}, register {group.r}")
        for w in range(self.wide):
            k.v_mul_f32(group.data[w], inputs.alpha, group.data[w])
        for w in range(self.wide if scaled else 0):
            k.v_fmac_f32(group.data[w], inputs.beta, group.old[w])
