"""Instructions that compute `TileLayout`'s closed forms: the elements that a work-item moves, and their LDS addresses."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.integer_math import log2, vector_divmod
from simgpu.asm.parts.lds_tile import ROW_LANES, SWIZZLES, TileLayout
from simgpu.hardware.isa.instruction import Reg


def staged_place(k: KernelBuilder, layout: TileLayout, load: int) -> tuple[Reg, Reg]:
    """Returns VGPRs with the row and k of `TileLayout.staged_element`."""
    unit = k.v.alloc("unit")
    k.v_add_u32(unit, load * layout.threads, k.work_item)
    place = (
        _panel_place if layout.panel
        else _k_contiguous_place if layout.k_contiguous
        else _transposed_place if layout.transposes
        else _row_contiguous_place
    )  # fmt: skip
    row, kk = place(k, layout, unit, layout.units)
    k.v.free(unit)
    return row, kk


def _row_contiguous_place(k: KernelBuilder, layout: TileLayout, unit: Reg, units: int) -> tuple[Reg, Reg]:
    kk, row = vector_divmod(k, unit, layout.rows // layout.vec, units, layout.name)
    k.v_mul_u32_u24(row, layout.vec, row, note="row")
    if layout.swap:
        k.v_lshrrev_b32(unit, log2(layout.chunk), kk)
        k.v_and_b32(unit, 1, unit)
        k.v_mul_u32_u24(unit, layout.swap, unit)
        k.v_xor_b32(row, row, unit, note="odd k group: moved")
    return row, kk


def _transposed_place(k: KernelBuilder, layout: TileLayout, unit: Reg, units: int) -> tuple[Reg, Reg]:
    if units < layout.threads:
        k.v_and_b32(unit, units - 1, unit, note="several work-items move the same unit")
    blocks, pieces = layout.block_rows // layout.vec // layout.row_lanes, layout.chunk // layout.depth
    rest, row = vector_divmod(k, unit, layout.row_lanes, units, "unit")
    rest_2, kk = vector_divmod(k, rest, pieces, units, "piece")
    chunk, high = vector_divmod(k, rest_2, blocks, units, "row block")
    if layout.rows < layout.block_rows:
        k.v_min_u32(high, layout.last_block, high, note="the last rows more than once")
    k.v_mad_u32_u24(row, high, layout.row_lanes, row)
    k.v_mul_u32_u24(row, layout.vec, row, note="row")
    k.v_mul_u32_u24(kk, layout.depth, kk)
    k.v_mad_u32_u24(kk, chunk, layout.chunk, kk, note="k")
    k.v.free(rest, rest_2, chunk, high)
    return row, kk


def _panel_place(k: KernelBuilder, layout: TileLayout, unit: Reg, units: int) -> tuple[Reg, Reg]:
    """Returns VGPRs with the row and k of `TileLayout.staged_element` for a preshuffled matrix."""
    name = layout.name
    rest, kk = vector_divmod(k, unit, layout.chunk // layout.vec, units, f"{name} piece")
    k.v_mul_u32_u24(kk, layout.vec, kk)
    rest_2, w = vector_divmod(k, rest, layout.wide, units, f"{name} atom")
    rest_3, row = vector_divmod(k, rest_2, ROW_LANES, units, f"{name} slot")
    high, chunk = vector_divmod(k, rest_3, layout.k // layout.chunk, units, f"{name} chunk")
    k.v_mad_u32_u24(kk, chunk, layout.chunk, kk, note="k")
    k.v_mad_u32_u24(row, high, ROW_LANES, row)
    k.v_mad_u32_u24(row, row, layout.wide, w, note="row")
    k.v.free(rest, rest_2, rest_3, w, high, chunk)
    return row, kk


def _k_contiguous_place(k: KernelBuilder, layout: TileLayout, unit: Reg, units: int) -> tuple[Reg, Reg]:
    a_slot = layout.row_chunks * layout.chunk // layout.vec
    block, rest = vector_divmod(k, unit, layout.rows * a_slot, units, f"{layout.name} k block")
    slot, place = vector_divmod(k, rest, a_slot, layout.rows * a_slot, f"{layout.name} slot")
    a_chunk = layout.chunk // layout.vec
    chunk, half = vector_divmod(k, place, a_chunk, a_slot, f"{layout.name} chunk")
    k.v.free(rest, place)
    swizzle = swizzle_of(k, layout, slot)
    k.v_xor_b32(chunk, chunk, swizzle, note="swizzled")
    k.v_mul_u32_u24(half, layout.vec, half)
    k.v_mad_u32_u24(half, chunk, layout.chunk, half)
    k.v.free(chunk, swizzle)
    k.v_mul_u32_u24(block, layout.row_chunks * layout.chunk, block)
    k.v_add_u32(half, block, half, note="k")
    k.v.free(block)
    if layout.wide == 1:
        return slot, half
    atom, row = vector_divmod(k, slot, layout.atom, layout.rows, "atom")
    row_of(k, layout, row, atom)
    k.v.free(atom, slot)
    return row, half


def row_of(k: KernelBuilder, layout: TileLayout, i: Reg, t: Reg | None = None) -> None:
    """Emits i = `TileLayout.row_of` of row i of atom t, a VGPR that is overwritten, or of the first atom."""
    high = k.v.alloc("high part")
    if layout.fold > 1:
        k.v_lshrrev_b32(high, log2(layout.atom // layout.fold), i)
        k.v_and_b32(i, layout.atom // layout.fold - 1, i)
        k.v_mad_u32_u24(i, i, layout.fold, high)
    if t is None:
        k.v_mul_u32_u24(i, layout.wide, i, note="row")
    else:
        k.v_lshrrev_b32(high, log2(layout.wide), t)
        k.v_and_b32(t, layout.wide - 1, t)
        k.v_mad_u32_u24(i, high, layout.atom, i)
        k.v_mad_u32_u24(i, i, layout.wide, t, note="row")
    k.v.free(high)


def swizzle_of(k: KernelBuilder, layout: TileLayout, slot: Reg) -> Reg:
    """Returns a new VGPR with `TileLayout.swizzle`."""
    step, count = SWIZZLES[layout.row_chunks, layout.kw]
    swizzle = k.v.alloc("swizzle")
    if layout.rows_a_line > 1:
        k.v_lshrrev_b32(swizzle, log2(layout.rows_a_line), slot)
        slot = swizzle
    k.v_and_b32(swizzle, count - 1, slot)
    if step > 1:
        k.v_mul_u32_u24(swizzle, step, swizzle)
    return swizzle


def transposed_address(k: KernelBuilder, layout: TileLayout, address: Reg, unit: tuple[Reg, Reg]) -> None:
    """Emits address = `TileLayout.byte` of the first unit's first piece, whose row is a multiple of `vec`."""
    block, slot = vector_divmod(k, unit[0], layout.wide * layout.atom, layout.rows, "slot")
    k.v_lshrrev_b32(slot, log2(layout.vec), slot)
    k.v_mul_u32_u24(block, layout.wide * layout.atom, block)
    k.v_add_u32(slot, block, slot, note="slot")
    if layout.pairs:
        k.v_bfe_u32(block, k.work_item, log2(ROW_LANES // 2), 1)
        k.v_mad_u32_u24(slot, block, layout.atom // layout.fold, slot, note="in odd atoms piece 1 first")
    k.v.free(block)
    _address_of(k, layout, address, slot, unit[1])


def panel_address(k: KernelBuilder, layout: TileLayout, address: Reg) -> None:
    """Emits address = `TileLayout.byte` of a preshuffled matrix's first unit."""
    row, kk = staged_place(k, layout, 0)
    block, rest = vector_divmod(k, row, layout.wide * layout.atom, layout.rows, "block")
    slot, w = vector_divmod(k, rest, layout.wide, layout.rows, "slot")
    k.v_mad_u32_u24(slot, w, layout.atom, slot)
    k.v_mad_u32_u24(slot, block, layout.wide * layout.atom, slot, note="slot")
    k.v.free(row, block, rest, w)
    _address_of(k, layout, address, slot, kk)
    k.v.free(kk)


def _address_of(k: KernelBuilder, layout: TileLayout, address: Reg, slot: Reg, kk: Reg) -> None:
    """Emits address = `TileLayout.byte` of k in an LDS slot. Frees the slot's register."""
    chunk, rest = vector_divmod(k, kk, layout.chunk, layout.k, "chunk")
    span, group = vector_divmod(k, chunk, layout.row_chunks, layout.k, "span")
    k.v.free(chunk)
    swizzle = swizzle_of(k, layout, slot)
    k.v_xor_b32(group, group, swizzle)
    if layout.atom_xor:
        k.v_bfe_u32(swizzle, slot, log2(layout.atom), log2(layout.wide))
        k.v_mul_u32_u24(swizzle, layout.atom_xor, swizzle)
        k.v_xor_b32(group, group, swizzle, note="turned by atom")
    k.v_mul_u32_u24(span, layout.rows, span)
    k.v_add_u32(slot, span, slot)
    k.v_mad_u32_u24(slot, slot, layout.row_chunks, group)
    k.v_mul_u32_u24(rest, layout.element, rest)
    k.v_mul_u32_u24(slot, layout.kw * WORD, slot)
    k.v_add_u32(address, slot, rest, note=f"{layout.name}: where the work-item's first piece goes")
    k.v.free(slot, rest, span, group, swizzle)
