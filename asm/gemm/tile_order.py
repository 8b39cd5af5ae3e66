"""Tile that a workgroup computes, in an order that shares rows of A and columns of B in each L2.

The grid has one dimension. The hardware assigns workgroups to the X XCDs in turn (ids i, i + X, ... run on the same one). The
kernel reverses that: every XCD computes consecutive tiles. Tiles are numbered down `group_rows` rows before the next column, so
that tiles in flight together read few rows and columns (`simgpu.operators.gemm.order`). Divisions are by multiplication, exact
for 31 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from simgpu.asm.builder.formula import DIVIDEND_LIMIT, division_words, integer, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import new_buffer
from simgpu.asm.parts.integer_math import add_product
from simgpu.asm.parts.lanes import consecutive_workgroups
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.order import group_rows
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import SCALE_BLOCK
from simgpu.operators.gemm.tree import TiledComputation

DIVISORS = ("tiles", "parts", "group", "rows", "last")
PARTS = ("", "_magic", "_shift")
NAMES = ("xcd_tiles", "xcd_rest", "tile_rows", *(name + part for name in DIVISORS for part in PARTS))
MASKS: dict[str, Any] = {"row_mask": "0xf", "bank_mask": "0xf", "bound_ctrl": 0}
# Lanes of a row of 16 add the lanes before them, then rows 1 and 3 add the row before, then rows 2 and 3 the half
# before.
_SCAN: tuple[dict[str, Any], ...] = (
    *({"row_shr": step, **MASKS} for step in (1, 2, 4, 8)),
    {"row_bcast": 15, **MASKS, "row_mask": "0xa"},
    {"row_bcast": 31, **MASKS, "row_mask": "0xc"},
)


def workgroups(root: TiledComputation) -> int:
    """Returns the workgroups of the launch. Those of a grouped product may get no work."""
    return prod(root.grid) * prod(root.trips(loop.axis) for loop in root.loops if loop.axis not in "mn")


def order_words(root: TiledComputation) -> tuple[int, ...]:
    """Returns the values of NAMES for a tree. LaunchError if there are 2^31 workgroups or more."""
    plan, total, (gx, gy) = root.plan, workgroups(root), root.grid
    if total >= DIVIDEND_LIMIT:
        raise LaunchError(f"{total} workgroups are more than a launch can have ({DIVIDEND_LIMIT - 1}): use a smaller batch")
    rows = group_rows(plan)
    last = gy - (gy - 1) // rows * rows
    divisors = (gx * gy, root.trips("k"), rows * gx, rows, last)
    words = [word for divisor in divisors for word in division_words(divisor)]
    return (*divmod(total, plan.descriptor.xcds), gy, *words)


@dataclass(frozen=True)
class TileOrder:
    """Emits a workgroup's tile from the kernel arguments NAMES."""

    k: KernelBuilder
    arguments: dict[str, Reg]  # SGPRs by name
    xcds: int

    def emit(self, row: Reg, column: Reg, batch: Reg, part: Reg) -> None:
        """Emits row and column of the tile, in tiles, the product of the batch and the part of K.

        Frees the SGPRs of NAMES, except `parts`.
        """
        k = self.k
        k.comment("which tile: every XCD a run of them, down groups of rows")
        number, scratch, group = k.group_x, k.s.alloc("scratch"), k.s.alloc("group")
        if self.xcds > 1:
            consecutive_workgroups(k, self.xcds, DIVIDEND_LIMIT, self.arguments["xcd_tiles"], self.arguments["xcd_rest"])
        self._divmod(part, number, "tiles", scratch)
        self._divmod(batch, part, "parts", scratch)
        self._divmod(group, number, "group", scratch)
        k.s_mul_i32(group, group, self.arguments["rows"])
        k.s_add_u32(scratch, group, self.arguments["rows"])
        k.s_cmp_gt_u32(scratch, self.arguments["tile_rows"], note="the last group has fewer rows")
        for rows, last in ((self.arguments[name + part] for name in ("rows", "last")) for part in PARTS):
            k.s_cselect_b32(rows, last, rows)
        self._divmod(column, number, "rows", scratch)
        k.s_add_u32(row, number, group)
        k.s.free(scratch, group, *(self.arguments[name] for name in NAMES if name != "parts"))

    def _divmod(self, quotient: Reg, x: Reg, name: str, scratch: Reg) -> None:
        """Emits quotient, x = divmod(x, d) for the divisor `name`, by `division_words`."""
        k, arguments = self.k, self.arguments
        k.s_lshl_b32(quotient, x, 1)
        k.s_mul_hi_u32(quotient, quotient, arguments[f"{name}_magic"])
        k.s_lshr_b32(quotient, quotient, arguments[f"{name}_shift"])
        k.s_mul_i32(scratch, quotient, arguments[name])
        k.s_sub_u32(x, x, scratch)


def find_group(k: KernelBuilder, plan: GemmPlan, tile_m: int, arguments: dict[str, Reg], tile: Reg, group: Reg) -> None:
    """Emits group = the tile's group, tile = its number in the group, arguments["m"] = the group's rows.

    Loads the row counts of 64 groups at once, one per lane, computes each group's rows of tiles, and forms prefix sums of tiles and
    rows by DPP. The tile belongs to the first lane whose prefix sum of tiles exceeds the tile's number. Workgroups past the last
    group's tiles end.

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
    k.buffer_load(rows, offset, buffer, 0, note="a group a lane; behind the last one 0 rows")
    k.set(tiles, (of(rows) + (tile_m - 1)).below(DIVIDEND_LIMIT) // tile_m, note=f"tiles of {tile_m} rows")
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
    k.branch(k.s_cmp_lt_i32(group, arguments["groups"]), again)
    k.s_endpgm(note="more workgroups than tiles")
    k.label(found)
    k.s_ff1_i32_b64(last, "vcc")
    k.s_add_u32(group, group, last)
    for total, ends, each in ((tile, tile_ends, tiles), (start, row_ends, rows)):
        k.v_sub_u32(ends, ends, each)
        k.v_readlane_b32(value, ends, last)
        (k.s_sub_u32 if total is tile else k.s_add_u32)(total, total, value)
    k.v_readlane_b32(arguments["m"], rows, last, note="the group's rows")
    k.free(*registers, buffer, last, value)
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
