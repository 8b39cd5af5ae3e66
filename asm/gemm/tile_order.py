"""Tile that a workgroup computes, in an order that shares rows of A and columns of B in each L2.

The grid has one dimension. The hardware assigns workgroups to the X XCDs in turn (ids i, i + X, ... run on the same one). The
kernel reverses that: every XCD computes consecutive tiles. Tiles are numbered down `group_rows` rows before the next column, so
that tiles in flight together read few rows and columns (`simgpu.operators.gemm.order`). Divisions are by multiplication, exact
for 31 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from simgpu.asm.builder.formula import DIVIDEND_LIMIT, division_words
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.lanes import consecutive_workgroups
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.order import group_rows
from simgpu.operators.gemm.tree import TiledComputation

DIVISORS = ("tiles", "parts", "group", "rows", "last")
PARTS = ("", "_magic", "_shift")
NAMES = ("xcd_tiles", "xcd_rest", "tile_rows", *(name + part for name in DIVISORS for part in PARTS))


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
        self._rows_of_last_group(group, scratch)
        self._divmod(column, number, "rows", scratch)
        k.s_add_u32(row, number, group)
        k.s.free(scratch, group, *(self.arguments[name] for name in NAMES if name != "parts"))

    def _rows_of_last_group(self, first_row: Reg, scratch: Reg) -> None:
        """Replaces "rows" by "last" in the last group, which may have fewer rows."""
        k, arguments = self.k, self.arguments
        k.s_add_u32(scratch, first_row, arguments["rows"])
        k.s_cmp_gt_u32(scratch, arguments["tile_rows"], note="the last group has fewer rows")
        for part in PARTS:
            k.s_cselect_b32(arguments["rows" + part], arguments["last" + part], arguments["rows" + part])

    def _divmod(self, quotient: Reg, x: Reg, name: str, scratch: Reg) -> None:
        """Emits quotient, x = divmod(x, d) for the divisor `name`, by `division_words`."""
        k, arguments = self.k, self.arguments
        k.s_lshl_b32(quotient, x, 1)
        k.s_mul_hi_u32(quotient, quotient, arguments[f"{name}_magic"])
        k.s_lshr_b32(quotient, quotient, arguments[f"{name}_shift"])
        k.s_mul_i32(scratch, quotient, arguments[name])
        k.s_sub_u32(x, x, scratch)
