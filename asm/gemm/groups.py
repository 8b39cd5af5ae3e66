"""Group of a workgroup's tile in a grouped GEMM: a search through a prefix sum of tile counts.

The kernel loads the row counts of 64 groups at once, one per lane, computes each group's rows of tiles, and forms prefix sums of
tiles and rows by DPP. The tile belongs to the first lane whose prefix sum of tiles exceeds the tile's number. Workgroups past the
last group's tiles end.
"""

from __future__ import annotations

from typing import Any

from simgpu.asm.builder.formula import division_words, integer, of
from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import new_buffer
from simgpu.asm.parts.integer_math import add_product
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import SCALE_BLOCK

MASKS: dict[str, Any] = {"row_mask": "0xf", "bank_mask": "0xf", "bound_ctrl": 0}
# Lanes of a row of 16 add the lanes before them, then rows 1 and 3 add the row before, then rows 2 and 3 the half
# before.
_SCAN: tuple[dict[str, Any], ...] = (
    *({"row_shr": step, **MASKS} for step in (1, 2, 4, 8)),
    {"row_bcast": 15, **MASKS, "row_mask": "0xa"},
    {"row_bcast": 31, **MASKS, "row_mask": "0xc"},
)


def find_group(k: KernelBuilder, plan: GemmPlan, tile_m: int, arguments: dict[str, Reg], tile: Reg, group: Reg) -> None:
    """Emits group = the tile's group, tile = its number in the group, arguments["m"] = the group's rows.

    tile_m: rows of a tile. tile: SGPR, number among the rows of tiles of all groups. Pointers of A, C and other arrays with a row
    for each row of A are advanced to the group's first row.
    """
    k.comment("which group: the first that ends behind the tile")
    buffer = new_buffer(k, arguments["group_rows"], "groups' rows", nbytes=of(arguments["groups"]) * WORD)
    start = k.s.alloc("rows before the group")
    k.s_mov_b32(group, 0)
    k.s_mov_b32(start, 0)
    names = ("offset", "rows of the lane's group", "rows up to its end", "its tiles", "tiles up to its end")
    offset, rows, row_ends, tiles, tile_ends = registers = [k.v.alloc(name) for name in names]
    last, value = k.s.alloc("last lane or the group's"), k.s.alloc("value")
    again, found = k.new_label("groups"), k.new_label("group_found")
    k.label(again)
    k.set(offset, (of(k.work_item) % WAVEFRONT + group) * WORD)
    k.buffer_load_dword(rows, offset, buffer, 0, offen=True, note="a group a lane; behind the last one 0 rows")
    k.v_add_u32(tiles, tile_m - 1, rows)
    _, magic, shift = division_words(tile_m)
    k.s_mov_b32(value, magic)
    k.v_lshlrev_b32(tiles, 1, tiles)
    k.v_mul_hi_u32(tiles, tiles, value)
    k.v_lshrrev_b32(tiles, shift, tiles, note=f"tiles of {tile_m} rows")
    for ends, each in ((row_ends, rows), (tile_ends, tiles)):
        k.v_mov_b32(ends, each)
        for step in _SCAN:
            k.emit("v_add_u32_dpp", ends, ends, ends, **step)
    k.v_cmp_lt_u32("vcc", tile, tile_ends)
    k.s_cbranch_vccnz(found)
    k.v_readlane_b32(value, tile_ends, WAVEFRONT - 1)
    k.s_sub_u32(tile, tile, value)
    k.v_readlane_b32(value, row_ends, WAVEFRONT - 1)
    k.s_add_u32(start, start, value)
    k.s_add_u32(group, group, WAVEFRONT)
    k.s_cmp_lt_i32(group, arguments["groups"])
    k.s_cbranch_scc1(again)
    k.s_endpgm(note="more workgroups than tiles")
    k.label(found)
    k.s_ff1_i32_b64(last, "vcc")
    k.s_add_u32(group, group, last)
    for total, ends, each in ((tile, tile_ends, tiles), (start, row_ends, rows)):
        k.v_sub_u32(ends, ends, each)
        k.v_readlane_b32(value, ends, last)
        (k.s_sub_u32 if total is tile else k.s_add_u32)(total, total, value)
    k.v_readlane_b32(arguments["m"], rows, last, note="the group's rows")
    k.v.free(*registers)
    k.s.free(buffer, last, value)
    _begin_at(k, plan, arguments, start)
    k.s.free(start)


def _begin_at(k: KernelBuilder, plan: GemmPlan, arguments: dict[str, Reg], start: Reg) -> None:
    """Moves the pointers of arrays that have a row for each row of A to row `start`."""
    problem, size_c = plan.problem, dtype(plan.problem.dtype_c).bytes
    size_a = 1 if problem.scales == "mx" else problem.element.bytes  # lda of MX formats counts bytes
    scales = {"row": integer(WORD), "mx": integer(1), "block": (of(arguments["k"]) + (SCALE_BLOCK - 1)) // SCALE_BLOCK * WORD}
    strides = {"A": of(arguments["lda"]) * size_a, "C": of(arguments["ldc"]) * size_c}
    strides |= {"residual": strides["C"]} if problem.residual else {}
    strides |= {"scale_a": scales[problem.scales]} if problem.scales in scales else {}
    k.comment("pointers to the group's first row")
    for name, stride in strides.items():
        with k.temporary(stride) as row:
            add_product(k, arguments[name], start, row)
