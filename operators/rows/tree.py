"""Tree of an operator on rows: RowTree, RowBlock, RowWarp, RowLoad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from simgpu.operators.levels import Level
from simgpu.operators.rows.plan import rows_plan, with_nest
from simgpu.operators.rows.problem import RowOperands, RowOperator
from simgpu.operators.rows.program import RowProgram
from simgpu.operators.rows.tiles import RowPlan, RowTiles
from simgpu.operators.tree import Axes, Extent, TileNode, TileRoot, View


@dataclass(frozen=True)
class _RowNode(TileNode):
    plan: RowPlan

    @staticmethod
    def views_of(plan: RowPlan, axes: Axes) -> tuple[View, ...]:
        """Returns the windows of X and of the results."""
        p, rows, columns = plan.problem, axes["rows"], axes["n"]
        name = next(iter(p.written))
        if name in p.row_results:
            columns = Extent(columns.min_ // p.span, -(-columns.max_ // p.span), -(-columns.tile // p.span))
        outer = tuple(() if parts == 1 else (Extent.whole(parts),) for parts in (p.parts, p.parts_y))
        return View("X", rows, axes["n"], outer[0]), View(name, rows, columns, outer[1])


@dataclass(frozen=True)
class RowLoad(_RowNode):
    """Leaf: one load of a wave, a chunk a lane, and the expressions of its elements."""

    level: ClassVar[Level] = Level.ATOM

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the load."""
        plan = self.plan
        nbytes, rows = plan.chunk * plan.problem.element.bytes, plan.rows_load
        shared = f" of {rows} rows, {plan.lanes_row} lanes each" if rows > 1 else ""
        return (("RowLoad  [leaf -- hardware instruction]", f"{nbytes} bytes a lane{shared}", f"loads of a wave: {_loads(plan)}"),)


@dataclass(frozen=True)
class RowWarp(_RowNode):
    """A wave's part of a row, or of some short ones."""

    level: ClassVar[Level] = Level.WARP
    below: ClassVar[Any] = RowLoad

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the part, and how it is held."""
        how = "in registers, read once" if self.plan.resident else f"streamed, read {self.plan.reads} times"
        return (("RowWarp  [warp]", "  ".join(map(str, self.views)), f"its part of a row: {how}"),)


@dataclass(frozen=True)
class RowBlock(_RowNode):
    """A block's rows, or its row, or its part of one."""

    level: ClassVar[Level] = Level.BLOCK
    below: ClassVar[Any] = RowWarp

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the block's rows."""
        plan = self.plan
        lds = plan.resources.lds_bytes
        held = f"LDS = {lds} B  (a value of each wave for each reduction)" if lds else "LDS = 0"
        waves = f"{plan.waves} waves, {plan.waves_row} a row"
        return (("RowBlock  [block / CU]", "  ".join(map(str, self.views)), waves, held),)


class RowRoot(TileRoot):
    """Root of a tree whose kernels are those of rows."""

    problem: RowOperands
    row_tiles: RowTiles  # sizes of tiles, from the loops

    @property
    def program(self) -> RowProgram:
        """Expressions for the tree's architecture."""
        return self.problem.program(self.descriptor.arch)


class RowTree(RowRoot):
    """Root of the tree of an operator on rows, on a target under a tile policy.

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> print(*RowTree(RmsNorm(rows=4096, n=1000), "mi300x").first().views)
    X:(4,1000) Y:(4,1000)
    """

    problem: RowOperator
    derivation: RowPlan
    below, derive = RowBlock, staticmethod(rows_plan)
    refit = staticmethod(with_nest)
    lengths: ClassVar = {"rows": "rows", "n": "columns"}

    @property
    def program(self) -> RowProgram:
        """Expressions of the kernel."""
        return self.derivation.program

    @property
    def row_tiles(self) -> RowTiles:  # type: ignore[override]
        """Sizes of tiles, from the loops."""
        block = self.first()
        assert isinstance(block, RowBlock)
        warp = block.first()
        assert isinstance(warp, RowWarp)
        (rows, of_block), (load, of_wave), (_, of_load) = self.loops, block.loops, warp.loops
        chunk = of_load.tile * load.tile // self.descriptor.wavefront_size
        return RowTiles(
            len(self.axes["n"]), rows.tile, load.tile, chunk, of_wave.tile // chunk, self.trips("n"),
            of_block.tile // of_wave.tile, self.derivation.loads,
        )  # fmt: skip

    def whole_only(self, axis: str) -> str:
        """Returns the reason why columns cannot be clipped."""
        repeat = self.problem.repeat
        if axis == "n":
            return "the places of its chunks follow from its length"
        return f"{repeat} rows share a row of the tables" if repeat > 1 else ""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, p = self.derivation, self.problem
        rows, parts = self.trips("rows"), self.trips("n")
        head = (
            f"{type(p).__name__}  of each row of X",
            *self.program.describe(),
            "  ".join(f"{name}:({','.join(map(str, shape))})" for name, shape in (*p.read.items(), *p.written.items())),
            f"CU grid: {rows} x {parts} ({rows * parts} tiles) [parallel]",
            plan.tiling_line,
            "boundary: views are clipped; a row's last chunk ends with the row, what it reads twice counts once",
        )
        passes = [f"  {', '.join(step.name for step in steps)}[I] over J" for steps in self.program.passes]
        loops = (f"for I in {rows} [parallel] / for J in {parts} [parallel]", *passes, "  then the results")
        return head, loops


def _loads(plan: RowPlan) -> int:
    return plan.in_flight * -(-plan.part // plan.lanes_row)
