"""Tree of a softmax: Softmax, BlockSoftmaxNode, WarpSoftmaxNode, LaneSoftmaxNode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from simgpu.operators.levels import Level
from simgpu.operators.rows.tiles import RowTiles
from simgpu.operators.rows.tree import RowRoot
from simgpu.operators.softmax.plan import SoftmaxPlan, plan_softmax
from simgpu.operators.softmax.problem import SoftmaxProblem
from simgpu.operators.tree import FLOOR, Axes, TileNode, View


@dataclass(frozen=True)
class _SoftmaxNode(TileNode):
    plan: SoftmaxPlan

    @staticmethod
    def views_of(plan: SoftmaxPlan, axes: Axes) -> tuple[View, View]:
        """Returns the windows of X and of what is written."""
        return View("X", axes["rows"], axes["n"]), View("Y", axes["rows"], axes["n"])


@dataclass(frozen=True)
class LaneSoftmaxNode(_SoftmaxNode):
    """Leaf: one wave instruction on 64 elements of a row; each lane has its own state."""

    level: ClassVar[Level] = Level.ATOM

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the instruction and how often a wave issues it."""
        lanes = self.plan.descriptor.wavefront_size
        return (
            (
                "LaneSoftmaxNode  [leaf -- hardware instruction]",
                f"v_max_f32, v_exp_f32, v_add_f32 on {lanes} lanes",
                f"calls per warp step: {self.plan.lane_elements}",
            ),
        )


@dataclass(frozen=True)
class WarpSoftmaxNode(_SoftmaxNode):
    """A wave's step of its row, or of some short ones. States of lanes merge with ⊕ when the row ends."""

    level: ClassVar[Level] = Level.WARP
    below: ClassVar[Any] = LaneSoftmaxNode

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the step of a wave."""
        return (("WarpSoftmaxNode  [warp]", "  ".join(map(str, self.views)), f"steps per row: {self.plan.steps_per_block}"),)


@dataclass(frozen=True)
class BlockSoftmaxNode(_SoftmaxNode):
    """A block's rows, or its part of them if rows are split."""

    level: ClassVar[Level] = Level.BLOCK
    below: ClassVar[Any] = WarpSoftmaxNode

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the block's rows."""
        plan = self.plan
        packed = f", {plan.packing} elements each" * (plan.packing > 1)
        how = f"in registers{packed}, read once" if plan.reads == 1 else "streamed, read twice"
        return (
            (
                "BlockSoftmaxNode  [block / CU]",
                "  ".join(map(str, self.views)),
                f"rows {how}",
                f"LDS = {plan.resources.lds_bytes} B  (states of waves that share a row: {plan.waves_row})",
            ),
        )


class Softmax(RowRoot):
    """Root of a softmax's tree: Y = softmax of the rows of scale * X on a target under a policy.

    >>> from simgpu.operators import Softmax, SoftmaxProblem
    >>> tree = Softmax(SoftmaxProblem(rows=4096, n=1000), "mi300x")
    >>> tree.plan.sizes
    {'tile_rows': 4, 'waves_row': 1, 'tile_n': 1024, 'split_n': 1, 'packing': 1, 'reads': 1}
    """

    problem: SoftmaxProblem
    derivation: SoftmaxPlan
    below, derive = BlockSoftmaxNode, staticmethod(plan_softmax)
    refit = staticmethod(SoftmaxPlan.with_nest)
    lengths: ClassVar = {"rows": "rows", "n": "n"}

    @property
    def row_tiles(self) -> RowTiles:  # type: ignore[override]
        """Sizes of tiles, from the loops."""
        plan, block, columns = self.derivation, self.first(), len(self.axes["n"])
        assert isinstance(block, BlockSoftmaxNode)
        (rows, part), (load, step) = self.loops, block.loops
        chunk = min(plan.chunk, 1 << (columns.bit_length() - 1))
        shared = plan.waves_row if plan.resident else 1
        of_wave = (step if plan.resident else part).tile // chunk
        lanes = self.descriptor.wavefront_size // load.tile
        return RowTiles(columns, rows.tile, load.tile, chunk, of_wave, self.trips("n"), shared, -(-step.tile // (chunk * lanes)))

    def whole_only(self, axis: str) -> str:
        """Returns the reason why columns cannot be clipped, if something else has the length of a row."""
        if axis == "n" and self.problem.mask:
            return "the mask's rows are as long"
        if axis == "n" and self.derivation.rows_load > 1:
            return "lanes hold equal parts of a short row"
        return ""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, p = self.derivation, self.problem
        scaled = "X" if p.scale == 1 else f"{p.scale:g} * X"
        gain = "" if p.gain == 1 else f"{p.gain:g} * "
        head = (
            f"Softmax  Y = {gain}{'log ' * p.log}softmax({scaled})",
            "  ".join(map(str, self.views)),
            f"CU grid: {self.trips('rows')} x split {self.trips('n')} ({self.trips('rows') * self.trips('n')} tiles) [parallel]",
            plan.tiling_line,
            f"boundary: views are clipped; X reads {FLOOR.text}; a row without elements gives {'-infinity' if p.log else 0}",
        )
        loops = (
            f"for I in {self.trips('rows')} [parallel] / for J in {plan.steps_per_block} [sequential]",
            "  (m, delta)[I] = (m, delta)[I] ⊕ state(X[I,J]); then Y = "
            + ("X - m - log(delta)" if p.log else "exp(X - m) / delta"),
        )
        return head, loops
