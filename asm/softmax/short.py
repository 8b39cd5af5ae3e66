"""Short rows, several in a wave: `lanes_row` lanes share a row, and a load of the wave fetches 64 / `lanes_row` rows.

Register i of a lane holds column u·(lane % lanes_row) + i of row lane / lanes_row of the load. u, the elements of a lane,
divides n. One raw buffer spans the rows of a load and ends with the last of them. Lanes past the end of their row get offsets
outside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.buffers import OUTSIDE
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import row_reduce
from simgpu.asm.softmax.merge import LANE_BYTES, RowState
from simgpu.asm.softmax.row import LoadGroup, RowPart, Window
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.softmax.plan import SoftmaxPlan


class ShortState(RowState):
    """State of the rows of a load: m and delta in a VGPR each, equal in all lanes of a row."""

    def reduce_maximum(self, name: str) -> None:
        """Emits m = the largest of the row's lanes' m."""
        row_reduce(self.k, "v_max_f32", self.lane_m, self.scratch[0], self.plan.lanes_row, name)

    def _reduce_sum(self) -> None:
        row_reduce(self.k, "v_add_f32", self.delta, self.scratch[0], self.plan.lanes_row, "delta")

    def release(self) -> None:
        """Frees nothing, because m is not in an SGPR."""


@dataclass(frozen=True)
class LanePlaces:
    """Offsets of a lane's elements, in VGPRs."""

    x: Reg  # bytes from the first row of a load in X
    y: Reg  # bytes from the first row of a load in Y
    left: Reg  # columns from the lane's first to the row's end, none if not positive


def places(k: KernelBuilder, plan: SoftmaxPlan, arguments: dict[str, Reg]) -> LanePlaces:
    """Emits the offsets of a wave's lanes and returns them. `x` is k.work_item, which held 16·lane."""
    p, lane = plan.problem, k.work_item
    row, column = k.v.alloc("offset in Y"), k.v.alloc("columns left")
    stride = k.s.alloc("bytes of a row")
    k.v_lshrrev_b32(row, log2(LANE_BYTES * plan.lanes_row), lane, note=f"lane / {plan.lanes_row}")
    k.v_and_b32(column, LANE_BYTES * (plan.lanes_row - 1), lane)
    k.v_lshrrev_b32(column, log2(LANE_BYTES // plan.lane_elements), column, note=f"{plan.lane_elements}·(lane % {plan.lanes_row})")
    k.s_lshl_b32(stride, arguments["ldx"], log2(p.element.bytes))
    k.v_mul_lo_u32(lane, row, stride)
    k.v_lshl_add_u32(lane, column, log2(p.element.bytes), lane, note="offset in X")
    k.s_lshl_b32(stride, arguments["ldy"], log2(p.element_y.bytes))
    k.v_mul_lo_u32(row, row, stride)
    k.v_lshl_add_u32(row, column, log2(p.element_y.bytes), row, note="offset in Y")
    k.v_sub_u32(column, arguments["n"], column)
    k.s.free(stride)
    return LanePlaces(lane, row, column)


class ShortRows(RowPart):
    """Emits the code for the rows of one load. registers: VGPRs, a lane's elements."""

    def __init__(
        self, k: KernelBuilder, kinds: tuple[str, str], registers: Reg, places: LanePlaces, offset: Reg, scratch: Reg,
        aligned: Reg | None, lanes_row: int,
    ) -> None:  # fmt: skip
        super().__init__(k, kinds, registers, places.x, offset, scratch, aligned)
        self.places, self.lanes_row = places, lanes_row

    @property
    def columns(self) -> int:
        """Number of columns that a row's lanes have room for."""
        return self.lanes_row * self.registers.count

    def _addresses(self, element: int, among: Sequence[LoadGroup] | None = None) -> Iterator[tuple[LoadGroup, Reg, int]]:
        """Yields the only group, with a VGPR that holds the lane's offset, or one outside the buffer.

        It is valid until the next call.
        """
        (group,) = self.groups
        self.k.v_cmp_lt_i32("vcc", 0, self.places.left)
        self.k.v_cndmask_b32(self.offset, OUTSIDE, self.lane, "vcc", note="behind the row's end: outside")
        yield group, self.offset, 0

    def store(self, resource: Reg, name: str) -> None:
        """Rounds the registers to the type and stores them. Overwrites them."""
        self.lane = self.places.y
        super().store(resource, name)

    def clip(self, window: Window) -> None:
        """Replaces elements past a row's end by -infinity, so that they count 0 after exp (E30)."""
        self.leave_out_value()
        self.k.v_cmp_lt_i32("vcc", 0, self.places.left)
        for r in range(self.registers.count):
            self.leave_out(r)
