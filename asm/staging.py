"""One operand's way from memory through LDS to fragments: addresses, loads, writes, reads."""

from __future__ import annotations

from dataclasses import dataclass

from asm.emit import advance_buffer, clip, log2, vector_divmod
from asm.kernel import KernelBuilder, LdsRegion
from asm.layout import HALF_LINE, SWIZZLES, WORD, TileLayout
from hardware.isa.instruction import Reg

DS_OFFSET_LIMIT = 1 << 16  # ds offset has 16 bits (LLVM, all four targets)


@dataclass(frozen=True)
class Unit:
    """One load of a work-item: row + row_step and k + k_step are its first element's place."""

    row: Reg  # needed by clipped loads only where rows are contiguous
    k: Reg
    row_step: int
    k_step: int
    offset: Reg  # bytes from the tile's first element; OUTSIDE if the row is out of the view


@dataclass(frozen=True)
class Fragment:
    """A read of LDS that brings a lane `registers`, for the (atom, step) pairs that it feeds."""

    registers: Reg
    immediate: int
    feeds: tuple[tuple[int, int], ...]


class Staging:
    """Emits the staging of one operand's tiles.

    resource: raw buffer whose base is the tile's first element; stride: bytes between stored rows
    (an SGPR); rows_left: rows of the view from the tile's first row on (an SGPR).
    """

    def __init__(
        self,
        k: KernelBuilder,
        layout: TileLayout,
        region: LdsRegion,
        resource: Reg,
        stride: Reg,
        rows_left: Reg,
    ) -> None:
        self.k, self.layout, self.region = k, layout, region
        self.resource, self.stride, self.rows_left = resource, stride, rows_left
        self.units: list[Unit] = []
        self.staged = k.v.alloc(f"{layout.name} staging", layout.loads * layout.vec)
        self.fragment_registers = k.v.alloc(f"{layout.name} fragments", layout.atoms * layout.kw)
        self.read_address = k.v.alloc(f"{layout.name} fragments' LDS address")
        self.step: Reg | int = layout.k * WORD

    # -- addresses ---------------------------------------------------------------------------

    def prepare_loads(self) -> None:
        """Offsets of every load, rows outside the view folded in, and the step to the next tile."""
        k, layout = self.k, self.layout
        k.comment(f"{layout.name}: {layout.loads} loads of {layout.vec} elements a work-item and tile")
        for load in range(layout.loads):
            same = layout.offset_from_first(load) if load else None
            if same is not None:
                first = self.units[0]
                row, kk, (row_step, k_step) = first.row, first.k, same
            else:
                row, kk = self._place(load)
                row_step = k_step = 0
            self.units.append(Unit(row, kk, row_step, k_step, self._offset(row, kk, row_step, k_step)))
        if layout.k_contiguous:
            k.v.free(*{unit.row for unit in self.units})  # folded into the offsets
        else:
            self.step = k.s.alloc(f"{layout.name} bytes to the next tile")
            k.s_mul_i32(self.step, self.stride, layout.k)

    def _place(self, load: int) -> tuple[Reg, Reg]:
        """VGPRs with the row and k of `TileLayout.staged`."""
        k, layout = self.k, self.layout
        unit = k.v.alloc("unit")
        k.v_add_u32(unit, load * layout.threads, k.work_item)
        units = layout.rows * layout.k // layout.vec
        place = self._k_contiguous_place if layout.k_contiguous else self._row_contiguous_place
        row, kk = place(unit, units)
        k.v.free(unit)
        return row, kk

    def _row_contiguous_place(self, unit: Reg, units: int) -> tuple[Reg, Reg]:
        k, layout = self.k, self.layout
        kk, row = vector_divmod(k, unit, layout.rows // layout.vec, units, layout.name)
        k.v_mul_u32_u24(row, layout.vec, row, note="row")
        if layout.swaps_halves:
            k.v_lshrrev_b32(unit, log2(layout.kw), kk)
            k.v_and_b32(unit, 1, unit)
            k.v_mul_u32_u24(unit, HALF_LINE, unit)
            k.v_xor_b32(row, row, unit, note="odd k group: the other half of the line")
        return row, kk

    def _k_contiguous_place(self, unit: Reg, units: int) -> tuple[Reg, Reg]:
        k, layout = self.k, self.layout
        a_slot = layout.span // layout.vec
        block, rest = vector_divmod(k, unit, layout.rows * a_slot, units, f"{layout.name} k block")
        slot, place = vector_divmod(k, rest, a_slot, layout.rows * a_slot, f"{layout.name} slot")
        a_chunk = layout.kw // layout.vec
        chunk, half = vector_divmod(k, place, a_chunk, a_slot, f"{layout.name} chunk")
        k.v.free(rest, place)
        swizzle = self._swizzle(slot)
        k.v_xor_b32(chunk, chunk, swizzle, note="swizzled")
        k.v_mul_u32_u24(half, layout.vec, half)
        k.v_mad_u32_u24(half, chunk, layout.kw, half)
        k.v_mad_u32_u24(half, block, layout.span, half, note="k")
        k.v.free(block, chunk, swizzle)
        if layout.wide == 1:
            return slot, half
        atom, i = vector_divmod(k, slot, layout.atom, layout.rows, "atom")
        group, w = vector_divmod(k, atom, layout.wide, layout.rows, "atom in group")
        k.v_mad_u32_u24(i, group, layout.atom, i)
        k.v_mad_u32_u24(slot, i, layout.wide, w, note="row")
        k.v.free(atom, i, group, w)
        return slot, half

    def _swizzle(self, slot: Reg) -> Reg:
        """A new VGPR with `TileLayout.swizzle`."""
        k, layout = self.k, self.layout
        step, count = SWIZZLES[layout.groups, layout.kw]
        swizzle = k.v.alloc("swizzle")
        k.v_lshrrev_b32(swizzle, log2(layout.rows_a_line), slot)
        k.v_and_b32(swizzle, count - 1, swizzle)
        k.v_mul_u32_u24(swizzle, step, swizzle)
        return swizzle

    def _offset(self, row: Reg, kk: Reg, row_step: int, k_step: int) -> Reg:
        """Byte offset of (row + row_step, kk + k_step), OUTSIDE where the row is past the view."""
        k, layout = self.k, self.layout
        offset = k.v.alloc(f"{layout.name} load offset")
        outer, inner = (row, kk) if layout.k_contiguous else (kk, row)
        steps = (row_step, k_step) if layout.k_contiguous else (k_step, row_step)
        limit = k.s.alloc("limit")
        k.v_add_u32(offset, steps[0], outer)
        k.v_mul_lo_u32(offset, offset, self.stride)
        k.v_lshl_add_u32(offset, inner, 2, offset)
        if steps[1]:
            k.v_add_u32(offset, steps[1] * WORD, offset)
        k.s_sub_u32(limit, self.rows_left, row_step)
        clip(k, offset, offset, limit, row, note=f"rows of {layout.name} past the view: outside")
        k.s.free(limit)
        return offset

    def prepare_reads(self, lane_row: Reg, group: Reg, wave_row: Reg, scratch: Reg) -> None:
        """LDS address of the wave's fragments; lane_row: i, group: g, wave_row: the wave's first
        row (an SGPR); scratch: an SGPR."""
        k, layout, address = self.k, self.layout, self.read_address
        temporary = k.v.alloc("temporary")
        if layout.k_contiguous:
            swizzle = self._swizzle(lane_row)
            k.v_xor_b32(swizzle, swizzle, group)
            k.v_mul_u32_u24(address, layout.span * WORD, lane_row)
            k.v_mul_u32_u24(temporary, layout.kw * WORD, swizzle)
            k.v_add_u32(address, address, temporary)
            k.s_mul_i32(scratch, wave_row, layout.span * WORD)
            k.v_add_u32(address, scratch, address)
            k.v.free(swizzle)
        else:
            k.v_mul_u32_u24(address, layout.wide, lane_row)
            k.v_add_u32(address, wave_row, address)
            if layout.swaps_halves:
                k.v_and_b32(temporary, 1, group)
                k.v_mul_u32_u24(temporary, HALF_LINE, temporary)
                k.v_xor_b32(address, address, temporary)
            k.v_mul_u32_u24(temporary, layout.kw * layout.rows, group)
            k.v_add_lshl_u32(address, address, temporary, 2)
        if self.region.offset:
            k.v_add_u32(address, self.region.offset, address, note=f"fragments of {layout.name} in LDS")
        k.v.free(temporary)

    # -- moves -------------------------------------------------------------------------------

    def load(self) -> None:
        """The next tile into registers: every k is inside and no wide access straddles an edge."""
        layout = self.layout
        for number, unit in enumerate(self.units):
            target = self._target(number, 0, layout.vec)
            self._load(target, unit.offset, 0, f"{layout.name} tile, load {number}")

    def load_clipped(self, k_left: Reg) -> None:
        """The same element by element, rows and k outside the view read as 0.

        k_left: k of the view from the tile's first k on (an SGPR).
        """
        k, layout = self.k, self.layout
        limit, offset, element = k.s.alloc("limit"), k.v.alloc("clipped offset"), k.v.alloc("element offset")
        for number, unit in enumerate(self.units):
            if layout.k_contiguous:
                index, left, step = unit.k, k_left, unit.k_step
                row_offset = unit.offset
            else:
                index, left, step = unit.row, self.rows_left, unit.row_step
                row_offset = offset
                k.s_sub_u32(limit, k_left, unit.k_step)
                clip(k, offset, unit.offset, limit, unit.k, note="k past the view: outside")
            for e in range(layout.vec):
                source = row_offset
                if layout.k_contiguous or e:
                    k.s_sub_u32(limit, left, step + e)
                    clip(k, element, row_offset, limit, index)
                    source = element
                note = f"{layout.name} tile, load {number}, element {e}"
                self._load(self._target(number, e, 1), source, e * WORD, note)
        k.s.free(limit)
        k.v.free(offset, element)

    def _target(self, load: int, first: int, count: int) -> Reg:
        start = load * self.layout.vec + first
        return self.staged[start : start + count]

    def _load(self, target: Reg, offset: Reg, immediate: int, note: str) -> None:
        suffix = f"x{target.count}" if target.count > 1 else ""
        self.k.emit(
            f"buffer_load_dword{suffix}", target, offset, self.resource, 0, offen=True, offset=immediate,
            note=note,
        )  # fmt: skip

    def advance(self) -> None:
        """The buffer's base to the next k tile."""
        advance_buffer(self.k, self.resource, self.step, self.layout.name)

    @property
    def write_base(self) -> int:
        """What the write address must hold beside work-item · vec · 4: what immediates cannot."""
        return self.region.offset if self.region.offset + self.layout.bytes > DS_OFFSET_LIMIT else 0

    def write(self, address: Reg) -> None:
        """Staged registers to LDS; address: work-item · vec · 4 + write_base, in the right stage."""
        layout = self.layout
        for load in range(layout.loads):
            offset = self.region.offset - self.write_base + load * layout.threads * layout.vec * WORD
            self.k.emit(
                f"ds_write_b{32 * layout.vec}", address, self._target(load, 0, layout.vec), offset=offset,
                note=f"{layout.name} tile to LDS, load {load}",
            )  # fmt: skip

    def release(self) -> None:
        """Gives all VGPRs back: the last tile has been read."""
        units = {unit.k for unit in self.units} | {unit.offset for unit in self.units}
        if not self.layout.k_contiguous:
            units |= {unit.row for unit in self.units}
        self.k.v.free(self.staged, self.fragment_registers, self.read_address, *units, listed=True)

    # -- fragments ---------------------------------------------------------------------------

    def fragments(self, span: int) -> list[Fragment]:
        """The reads of one span; every span's take the same registers."""
        layout, registers = self.layout, self.fragment_registers
        if layout.k_contiguous:
            return [
                Fragment(
                    registers[t * layout.kw : (t + 1) * layout.kw],
                    (span * layout.rows + t * layout.atom) * layout.span * WORD,
                    tuple((t, s) for s in range(layout.kw)),
                )
                for t in range(layout.atoms)
            ]
        groups = layout.atoms // layout.wide
        return [
            Fragment(
                registers[(s * groups + block) * layout.wide : (s * groups + block + 1) * layout.wide],
                ((span * layout.span + s) * layout.rows + block * layout.wide * layout.atom) * WORD,
                tuple((block * layout.wide + w, s) for w in range(layout.wide)),
            )
            for s in range(layout.kw)
            for block in range(groups)
        ]

    def read(self, fragment: Fragment, span: int) -> None:
        """Emits one fragment's read."""
        t, s = fragment.feeds[0]
        self.k.emit(
            f"ds_read_b{32 * fragment.registers.count}", fragment.registers, self.read_address,
            offset=fragment.immediate, note=f"{self.layout.name} fragment: span {span}, atom {t}, step {s}",
        )  # fmt: skip
