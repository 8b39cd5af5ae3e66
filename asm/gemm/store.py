"""The end of a GEMM: C = activation(alpha·A·B + beta·C + bias) from accumulators, tile rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import OUTSIDE, REACH, clip
from simgpu.asm.parts.epilogue import Epilogue
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lds_tile import TileLayout
from simgpu.hardware.errors import ResourceError
from simgpu.hardware.isa.instruction import Reg

BATCH = 8  # groups of C that are in flight at once where beta reads them


@dataclass(frozen=True)
class Accumulators:
    """A wave's C tile, atom by atom, `per_atom` registers each, `words` an element.

    32-bit element r of a lane holds A-row 4G(r//4)+4g+r%4, 64-bit element r A-row Gr+g.
    """

    registers: Reg
    rows: TileLayout
    columns: TileLayout
    per_atom: int
    words: int

    def element(self, mt: int, nt: int, r: int) -> Reg:
        """The registers of one element."""
        return self.atom(mt, nt)[r * self.words : (r + 1) * self.words]

    def atom(self, mt: int, nt: int) -> Reg:
        """The registers of one atom."""
        start = (mt * self.columns.atoms + nt) * self.per_atom
        return self.registers[start : start + self.per_atom]

    @property
    def lane_rows(self) -> int:
        """A-rows from one lane group to the next."""
        return 4 if self.words == 1 else 1

    def tile_rows(self) -> Iterator[tuple[int, int, int]]:
        """(mt, r, row) for every element of an atom; row without the lane's own part, wide·lane_rows·g."""
        run = self.lane_rows
        for mt in range(self.rows.atoms):
            for r in range(self.per_atom // self.words):
                yield mt, r, self.rows.row_of(mt, run * self.rows.groups * (r // run) + r % run)


@dataclass(frozen=True)
class StoreInputs:
    """Where C goes, and what happens to its elements."""

    resource: Reg  # raw buffer at the tile's first element of C
    row: Reg  # VGPRs: the lane's first row and column in the tile, and their byte offset
    column: Reg
    offset: Reg
    stride: Reg  # SGPR: bytes of a row
    rows_left: Reg  # SGPRs: rows and columns of the view from the tile's first on
    columns_left: Reg
    epilogue: Epilogue
    bias: Reg | None  # raw buffer at the tile's first column, if there is a bias


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
    scaled: beta is not 0; C is read only then.
    """

    def __init__(self, k: KernelBuilder, acc: Accumulators, inputs: StoreInputs) -> None:
        self.k, self.acc, self.inputs = k, acc, inputs
        self.wide, self.words = acc.columns.wide, acc.words
        self.data_words, self.size = self.wide * acc.words, acc.words * WORD
        self.blocks = acc.columns.atoms // self.wide
        self.block_bytes = self.wide * acc.columns.atom * self.size
        if self.blocks * self.block_bytes > REACH:
            raise ResourceError(
                f"a wave's {acc.columns.warp_rows} columns of C exceed a buffer offset's reach of "
                f"{REACH // self.size}: use more waves along n"
            )

    def emit(self, clipped: bool, scaled: bool) -> None:
        k, wide = self.k, self.data_words
        masks = self._column_masks() if clipped else []
        addresses = self.wide if clipped else 1
        row_address = k.v.alloc("C row offset")
        bias = self._load_bias(masks)
        self.free = self.inputs.epilogue.scratch()
        slots = self._slots(wide, addresses, scaled)
        groups = self._groups(slots)
        while batch := list(islice(groups, len(slots))):
            for group in batch:
                self._address(group, row_address, clipped, masks)
                if scaled:
                    self._transfer("load", group, group.old, clipped)
            for group in batch:
                self._combine(group, scaled, bias)
                self._transfer("store", group, group.data, clipped)
        for data, old, address in slots:
            k.v.free(data, address, *([old] if scaled else []))
        k.v.free(row_address, *self.free, *([bias] if bias is not None else []))
        k.s.free(*masks)

    def _slots(self, wide: int, addresses: int, scaled: bool) -> list[tuple[Reg, Reg, Reg]]:
        """Registers of as many groups in flight as the plan's registers allow, at least one and at most BATCH."""
        slots: list[tuple[Reg, Reg, Reg]] = []
        sizes = (("C data", wide), ("C old", wide if scaled else 0), ("C offset", addresses))
        while len(slots) < BATCH:
            taken: list[Reg] = []
            try:
                for name, count in sizes:
                    taken.append(self.k.v.alloc(name, count) if count else Reg("v", 0, 0))
            except ResourceError:
                self.k.v.free(*(reg for reg in taken if reg.count))
                if not slots:
                    raise
                break
            slots.append((taken[0], taken[1], taken[2]))
        return slots

    def _load_bias(self, masks: list[Reg]) -> Reg | None:
        """The lane's columns' elements of the bias, column block after column block."""
        k, inputs = self.k, self.inputs
        if inputs.bias is None:
            return None
        bias, offset = k.v.alloc("bias", self.blocks * self.data_words), k.v.alloc("bias offset")
        clipped = k.v.alloc("clipped bias offset")
        k.v_lshlrev_b32(offset, log2(self.size), inputs.column)
        for number in range(self.blocks * self.wide):
            source, (block, w) = offset, divmod(number, self.wide)
            if masks:
                source = k.v_cndmask_b32(clipped, OUTSIDE, offset, masks[number])
            target = bias[number * self.words : (number + 1) * self.words]
            k.emit(
                f"buffer_load_dword{'x2' * (self.words == 2)}", target, source, inputs.bias, 0, offen=True,
                offset=block * self.block_bytes + w * self.size, note=f"bias of column block {block}, element {w}",
            )  # fmt: skip
        k.v.free(offset, clipped)
        return bias

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
        k, words = self.k, self.words
        start = group.block * self.block_bytes
        note = f"C row {group.row}, column block {group.block}"
        if not clipped:
            name = f"buffer_{direction}_dword{f'x{data.count}' if data.count > 1 else ''}"
            k.emit(name, data, group.address, self.inputs.resource, 0, offen=True, offset=start, note=note)
            return
        for w in range(self.wide):
            k.emit(
                f"buffer_{direction}_dword{'x2' * (words == 2)}", data[w * words : (w + 1) * words], group.address[w],
                self.inputs.resource, 0, offen=True, offset=start + w * self.size, note=f"{note}, element {w}",
            )  # fmt: skip

    def _combine(self, group: Group, scaled: bool, bias: Reg | None) -> None:
        k, words, epilogue = self.k, self.words, self.inputs.epilogue
        elements = [group.data[w * words : (w + 1) * words] for w in range(self.wide)]
        for w, element in enumerate(elements):
            source = self.acc.element(group.mt, group.block * self.wide + w, group.r)
            for word in range(words):
                k.v_accvgpr_read_b32(element[word], source[word], note=f"A·B: atom {group.mt}, element {group.r}")
        for element in elements:
            epilogue.scale(element)
        for w, element in enumerate(elements if scaled else []):
            epilogue.add_scaled(element, group.old[w * words : (w + 1) * words])
        for w, element in enumerate(elements if bias is not None else []):
            first = (group.block * self.wide + w) * words
            epilogue.add(element, bias[first : first + words])  # type: ignore[index]
        for element in elements:
            epilogue.activate(element, self.free)
