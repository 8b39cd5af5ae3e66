"""Reductions of columns: y (n) = the sum or the largest element of each column of X (m,n). Tiles, tree, execution with numpy.

A lane adds up v columns, 16 bytes of X, of every row that it loads. A load of a wave brings 64/l rows, of which each has l lanes;
l is 64, or fewer if rows are shorter. Four waves and the lanes of other rows merge in LDS at the end.

A block has l*v columns and a part of the rows: parts are so many that there are BLOCKS blocks a CU, as long as
each lane has LOADS loads. A second kernel of the same form merges the parts' results, which are rows of n in f32; l is 8 there,
so that few columns make many blocks too. n is free: the last chunk of v columns ends with the row, as in `rows/plan.py`, and
stores only what the one before does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import POLICIES, expect_shape, one_of, positive_dimension, row_stride
from simgpu.operators.compute import COMBINE, Array, Executor, WindowExecutor
from simgpu.operators.error_model import UNIT_F32, gamma
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import (
    BUFFER_BYTES,
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    bandwidth_row,
    limit_rows,
    mark_binding,
    occupancy_row,
    scalar_ranges,
)
from simgpu.operators.traffic import Counters, block_counters
from simgpu.operators.tree import Axes, Extent, TileNode, TileRoot, View

TYPES = ("f32", "f16", "bf16")
LOAD_BYTES = 16
WAVES = 4
LOADS = 8  # loads of a lane in flight
BLOCKS = 2  # a CU
MERGE_LANES = 8


@dataclass(frozen=True)
class ColumnProblem:
    """y (n) = a reduction of each column of X (m,n), in f32; NaNs do not count for the largest element.

    >>> from simgpu.operators import ColumnProblem
    >>> ColumnProblem(300, 200, "f16").bytes_once
    120800
    """

    m: int  # rows of X
    n: int  # columns of X
    dtype: str = "f32"  # type of X, one of TYPES
    ldx: int | None = None  # stride of X's rows in elements; None: n
    reduce: str = "sum"  # sum or maximum

    def __post_init__(self) -> None:
        for name in ("m", "n"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        object.__setattr__(self, "dtype", dtype(self.dtype).name)
        one_of("dtype", self.dtype, TYPES)
        one_of("reduction", self.reduce, tuple(COMBINE))
        object.__setattr__(self, "ldx", row_stride("ldx", self.ldx, self.n))

    @property
    def element(self) -> DType:
        """Type of X."""
        return dtype(self.dtype)

    @property
    def flops(self) -> int:
        """FLOPs: one an element."""
        return self.m * self.n

    @property
    def bytes_once(self) -> int:
        """Bytes if X is read and y written once."""
        return self.m * self.n * self.element.bytes + 4 * self.n


@dataclass(frozen=True)
class ColumnPlan(Derivation):
    """Tiles of a reduction of columns.

    >>> from simgpu.operators import ColumnProblem, Columns
    >>> Columns(ColumnProblem(16384, 4095, "f16"), "mi300x").plan.sizes
    {'chunk': 8, 'lanes': 64, 'rows': 216, 'parts': 76}
    """

    problem: ColumnProblem
    descriptor: HardwareDescriptor
    policy: str
    chunk: int  # columns of a lane
    lanes: int  # lanes of a row
    rows: int  # rows of a block
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p, d = self.problem, self.descriptor
        return f"column {p.reduce} {p.m}x{p.n} {p.dtype} on {d.name or d.arch}"

    @property
    def parts(self) -> int:
        """Blocks that share a column."""
        return -(-self.problem.m // self.rows)

    @property
    def rows_load(self) -> int:
        """Rows of a load of a wave."""
        return self.descriptor.wavefront_size // self.lanes

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        return {name: getattr(self, name) for name in ("chunk", "lanes", "rows", "parts")}

    @property
    def nest(self) -> Nest:
        """Loops of the tree: a block has rows and columns, a wave every fourth load of the rows."""
        columns = self.lanes * self.chunk
        return {
            Level.DEVICE: (TileLoop("m", self.rows, True), TileLoop("n", columns, True)),
            Level.BLOCK: (TileLoop("m", self.rows_load, True), TileLoop("n", columns)),
            Level.WARP: (TileLoop("m", 1, True), TileLoop("n", self.chunk, True)),
        }

    @property
    def blocks(self) -> int:
        """Blocks of the first kernel."""
        return self.parts * -(-self.problem.n // (self.lanes * self.chunk))

    @property
    def merge(self) -> ColumnPlan | None:
        """Plan of the kernel that merges the parts; None if there is one part."""
        if self.parts == 1:
            return None
        partial = ColumnProblem(self.parts, self.problem.n, "f32", None, self.problem.reduce)
        return plan_columns(partial, self.descriptor, self.policy, MERGE_LANES, self.parts)


def plan_columns(problem: ColumnProblem, descriptor: HardwareDescriptor, policy: str = "corrected", lanes: int = 64,
                 rows: int = 0) -> ColumnPlan:  # fmt: skip
    """Returns the closed-form plan. lanes: of a row, at most. rows: of a block; 0: by the formula.

    >>> from simgpu import hardware, operators
    >>> operators.plan_columns(operators.ColumnProblem(4096, 100), hardware.target("mi100")).lanes
    32
    """
    p, d = problem, descriptor
    one_of("policy", policy, POLICIES)
    most = min(LOAD_BYTES // p.element.bytes, p.n)
    v = 1 << (most.bit_length() - 1)
    k = -(-p.n // v)
    shared = min(lanes, d.wavefront_size, 1 << (k - 1).bit_length())
    step = WAVES * d.wavefront_size // shared
    if not rows:
        wanted = max(1, BLOCKS * d.num_cus // -(-k // shared))
        rows = max(LOADS * step, -(-p.m // wanted))
    rows = -(-rows // step) * step
    rows = max(step, min(rows, BUFFER_BYTES // (p.ldx * p.element.bytes) // (2 * step) * step))  # type: ignore[operator]
    if (rows + LOADS * step) * p.ldx * p.element.bytes >= BUFFER_BYTES:  # type: ignore[operator]
        limit = BUFFER_BYTES // ((1 + LOADS) * step * p.element.bytes)
        raise LaunchError(f"ldx = {p.ldx}: a block's rows must stay below 2^31 bytes, so ldx < {limit}")
    words = max(1, v * p.element.bytes // 4)
    registers = (
        RegisterRange("sums", "arch", v), RegisterRange("loads", "arch", LOADS * words), RegisterRange("addresses", "arch", 8),
        RegisterRange("unpacked", "arch", v if p.element.bytes < 4 else 0),
    )  # fmt: skip
    lds = (LdsArray("sums", 4 * WAVES * d.wavefront_size * v),)
    scalars = scalar_ranges(arguments=8, coordinates=5, buffers=4, before_buffers=3, temporaries=2)
    resources = ResourcePlan.of(d, WAVES, registers, lds, scalars)
    plan = ColumnPlan(p, d, policy, v, shared, rows, resources, ())
    limits = limit_rows(d, resources.arch_vgprs, 0, resources.sgprs, resources.lds_bytes, WAVES, 1, {})
    bandwidth = bandwidth_row(d, p.flops, p.bytes_once, f"{plan.parts} part(s) of {plan.rows} rows")
    marked = mark_binding((*limits, occupancy_row(d, plan.blocks), bandwidth),
                          "HBM bandwidth" if plan.blocks >= d.num_cus else "occupancy")  # fmt: skip
    return replace(plan, constraints=marked)


@dataclass(frozen=True)
class _ColumnNode(TileNode):
    plan: ColumnPlan

    @staticmethod
    def views_of(plan: ColumnPlan, axes: Axes) -> tuple[View, View]:
        """Returns the windows of X and of what is written."""
        return View("X", axes["m"], axes["n"]), View("Y", Extent.whole(1), axes["n"])


@dataclass(frozen=True)
class ColumnLane(_ColumnNode):
    """Leaf: a lane's chunk of a row."""

    level: ClassVar[Level] = Level.ATOM

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the chunk."""
        return (("ColumnLane  [leaf -- a lane's registers]", f"{self.plan.chunk} columns, a result each"),)


@dataclass(frozen=True)
class ColumnWarp(_ColumnNode):
    """A wave's load: some rows of the tile."""

    level: ClassVar[Level] = Level.WARP
    below: ClassVar[Any] = ColumnLane

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the load."""
        said = f"{self.plan.lanes} lanes a row; {LOADS} loads in flight"
        return (("ColumnWarp  [warp]", "  ".join(map(str, self.views)), said),)


@dataclass(frozen=True)
class ColumnBlock(_ColumnNode):
    """A block's rows of a tile of columns."""

    level: ClassVar[Level] = Level.BLOCK
    below: ClassVar[Any] = ColumnWarp

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the tile."""
        lds = f"LDS = {self.plan.resources.lds_bytes} B  (results of waves and rows)"
        return (("ColumnBlock  [block / CU]", "  ".join(map(str, self.views)), lds),)


class Columns(TileRoot):
    """Root of the tree of a reduction of columns, on a target under a tile policy.

    >>> from simgpu.operators import ColumnProblem, Columns
    >>> print(*Columns(ColumnProblem(16384, 1000), "mi300x").first().views)
    X:(108,256) Y:(1,256)
    """

    problem: ColumnProblem
    derivation: ColumnPlan
    below, derive = ColumnBlock, staticmethod(plan_columns)
    lengths: ClassVar = {"m": "m", "n": "n"}

    @classmethod
    def of(cls, plan: ColumnPlan) -> Columns:
        """Returns the tree of an existing plan."""
        made = cls(plan.problem, plan.descriptor, plan.policy)
        made.derivation = plan
        return made

    def fit(self, nest: Nest) -> ColumnPlan:
        """Returns the plan of other rows for a block, as near to the loops as a kernel can be."""
        rows, _ = nest[Level.DEVICE]
        return plan_columns(self.problem, self.descriptor, self.derivation.policy, rows=rows.tile)

    def whole_only(self, axis: str) -> str:
        """Returns the reason why columns cannot be clipped."""
        return "the places of its chunks follow from its length" if axis == "n" else ""

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, p, m, n = self.derivation, self.problem, self.trips("m"), self.trips("n")
        head = (
            f"Columns  y[j] = {p.reduce} over i of X[i,j]",
            "  ".join(map(str, self.views)),
            f"CU grid: {m} x {n} ({m * n} tiles) [parallel]",
            plan.tiling_line,
            "boundary: views are clipped; a row's last chunk ends with the row",
        )
        merged = f"; then {plan.parts} parts merge" if plan.merge else ""
        return head, (f"for I in {m} [parallel] / for J in {n} [parallel]", f"  y[J] = {p.reduce} of X[I,J]{merged}")


class ColumnExecutor(WindowExecutor, Executor, root=Columns):
    """Reduces the columns of X (m,n), window by window."""

    def visit_device(self, tree: Columns, x: ArrayLike) -> Array:
        """Returns y (1,n)."""
        p, kind = tree.problem, self.kind("f32")
        tree.plan.check()
        neutral, self._reduce = COMBINE[p.reduce]
        self._x, self._y = expect_shape("X", x, (p.m, p.n)).astype(kind), np.full((1, p.n), neutral, kind)
        self.counters = block_counters(tree)
        self.visit_tile(tree)
        return self._y

    def compute(self, x: View, y: View) -> None:  # type: ignore[override]
        """Reduces a window."""
        self._y[y.index] = self._reduce(self._y[y.index], self._reduce.reduce(self._x[x.index], axis=0, keepdims=True))


@block_counters.register(Columns)
def _counters(tree: Columns) -> Counters:
    p, plan = tree.problem, tree.derivation
    partial = 2 * 4 * plan.parts * p.n if plan.parts > 1 else 0
    return Counters(p.flops, p.bytes_once, p.bytes_once + partial, atoms=p.m * -(-p.n // plan.chunk))


def columns(problem: ColumnProblem, x: ArrayLike) -> NDArray[np.float64]:
    """Returns the reduction of each column in float64, (1,n).

    >>> from simgpu.operators import ColumnProblem, reference
    >>> reference.columns(ColumnProblem(2, 2), [[1, 2], [3, 4]])
    array([[4., 6.]])
    """
    wide = expect_shape("X", x, (problem.m, problem.n)).astype(np.float64)
    return np.asarray(COMBINE[problem.reduce][1].reduce(wide, axis=0, keepdims=True))


def columns_error_bound(problem: ColumnProblem, x: ArrayLike) -> NDArray[np.float64]:
    """Returns an elementwise bound on |kernel - float64 reference|, for any order of additions in f32; 0 for the largest element.

    >>> from simgpu.operators import ColumnProblem, reference
    >>> bool((reference.columns_error_bound(ColumnProblem(2, 2), [[1, 2], [3, 4]]) < 1e-5).all())
    True
    """
    size = np.abs(expect_shape("X", x, (problem.m, problem.n)).astype(np.float64)).sum(0, keepdims=True)
    own = gamma(problem.m, UNIT_F32) + gamma(problem.m, 2.0**-53)
    return np.asarray(size * (own if problem.reduce == "sum" else 0.0))
