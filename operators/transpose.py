"""Transpose: Y (n,m) = X (m,n)^T. Problem, tiles in closed form, tree, execution with numpy.

A lane has a block of v x v elements, v = 16 bytes of them: v loads of a row each, and v stores of a column each, all 128 bits wide.
The elements change their places in the lane's registers, so no LDS is used. A wave's lanes are 8 x 8 such blocks: each load and
each store moves 8 pieces of 128 bytes, whole cache lines.

m and n are free. Chunk j of v elements begins at v*j, the last one at n - v, so that it ends with the row (as in `rows/plan.py`):
it overlaps the one before, whose elements are stored twice, by the same wave. So a wave has p blocks a side, the largest p up to 8
for which the last chunk is not the first of a wave. v is smaller if a side is shorter than v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import POLICIES, expect_shape, one_of, positive_dimension, row_stride
from simgpu.operators.compute import Array, Executor, WindowExecutor
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import (
    BUFFER_BYTES,
    Constraint,
    Derivation,
    RegisterRange,
    ResourcePlan,
    limit_rows,
    mark_binding,
    occupancy_row,
    scalar_ranges,
)
from simgpu.operators.traffic import Counters, block_counters
from simgpu.operators.tree import Axes, TileNode, TileRoot, View

TYPES = ("f32", "f16", "bf16", "fp8", "bf8", "i8", "i32")
LOAD_BYTES = 16
SIDE = 8  # lanes of a wave on each side of its tile
WAVES = 4  # waves of a block, side by side along n


@dataclass(frozen=True)
class TransposeProblem:
    """Y (n,m) = X (m,n)^T, row-major.

    >>> from simgpu.operators import TransposeProblem
    >>> TransposeProblem(300, 200, "f16").bytes_once
    240000
    """

    m: int  # rows of X
    n: int  # columns of X
    dtype: str = "f32"  # one of TYPES
    ldx: int | None = None  # stride of X's rows in elements; None: n
    ldy: int | None = None  # stride of Y's rows in elements; None: m
    flops: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name in ("m", "n"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        object.__setattr__(self, "dtype", dtype(self.dtype).name)
        one_of("dtype", self.dtype, TYPES)
        for name, least in (("ldx", self.n), ("ldy", self.m)):
            object.__setattr__(self, name, row_stride(name, getattr(self, name), least))

    @property
    def element(self) -> DType:
        """Type of the elements."""
        return dtype(self.dtype)

    @property
    def bytes_once(self) -> int:
        """Bytes if X is read and Y written once."""
        return 2 * self.m * self.n * self.element.bytes


@dataclass(frozen=True)
class TransposePlan(Derivation):
    """Tiles of a transpose.

    >>> from simgpu.operators import Transpose, TransposeProblem
    >>> Transpose(TransposeProblem(300, 199, "f16"), "mi300x").plan.sizes
    {'chunk': 8, 'side_m': 8, 'side_n': 7}
    """

    problem: TransposeProblem
    descriptor: HardwareDescriptor
    policy: str
    chunk: int  # elements of a side of a lane's block
    side_m: int  # blocks of a wave along m
    side_n: int  # blocks of a wave along n
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p, d = self.problem, self.descriptor
        return f"transpose {p.m}x{p.n} {p.dtype} on {d.name or d.arch}"

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        return {name: getattr(self, name) for name in ("chunk", "side_m", "side_n")}

    @property
    def nest(self) -> Nest:
        """Loops of the tree: a block has four waves side by side, a wave its lanes' blocks."""
        m, n = self.side_m * self.chunk, self.side_n * self.chunk
        return {
            Level.DEVICE: (TileLoop("m", m, True), TileLoop("n", WAVES * n, True)),
            Level.BLOCK: (TileLoop("m", m), TileLoop("n", n, True)),
            Level.WARP: (TileLoop("m", self.chunk, True), TileLoop("n", self.chunk, True)),
        }

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        m, n = self.nest[Level.DEVICE]
        return -(-self.problem.m // m.tile) * -(-self.problem.n // n.tile)


def plan_transpose(problem: TransposeProblem, descriptor: HardwareDescriptor, policy: str = "corrected", chunk: int = 0,
                   sides: tuple[int, int] = (SIDE, SIDE)) -> TransposePlan:  # fmt: skip
    """Returns the closed-form plan. chunk, sides: at most; 0: 16 bytes.

    >>> from simgpu import hardware, operators
    >>> operators.plan_transpose(operators.TransposeProblem(4096, 4096), hardware.target("mi100")).chunk
    4
    """
    p, d = problem, descriptor
    one_of("policy", policy, POLICIES)
    most = min(chunk or LOAD_BYTES // p.element.bytes, LOAD_BYTES // p.element.bytes, p.m, p.n)
    v = 1 << (most.bit_length() - 1)
    while v > 1 and not (_side(p.m, v, sides[0]) and _side(p.n, v, sides[1])):
        v //= 2
    side_m, side_n = _side(p.m, v, sides[0]), _side(p.n, v, sides[1])
    spanned = p.element.bytes * max(p.ldx * side_m, p.ldy * WAVES * side_n) * v  # type: ignore[operator]
    if spanned >= BUFFER_BYTES:
        raise LaunchError(f"transpose {p.m}x{p.n}: a tile's rows span {spanned} bytes; use strides below 2^31 bytes a tile")
    words = max(1, v * p.element.bytes // 4)
    registers = (
        RegisterRange("rows", "arch", v * words), RegisterRange("columns", "arch", v * words),
        RegisterRange("addresses", "arch", 6), RegisterRange("temporaries", "arch", 3 if p.element.bytes == 1 else 0),
    )  # fmt: skip
    scalars = scalar_ranges(arguments=8, coordinates=4, buffers=8, before_buffers=3, selectors={1: 5, 2: 2}.get(p.element.bytes, 0),
                            temporaries=4)  # fmt: skip
    resources = ResourcePlan.of(d, WAVES, registers, (), scalars)
    plan = TransposePlan(p, d, policy, v, side_m, side_n, resources, ())
    rows = (*limit_rows(d, resources.arch_vgprs, 0, resources.sgprs, 0, WAVES, 1, {}), occupancy_row(d, plan.blocks),
            _bandwidth_row(plan))  # fmt: skip
    marked = mark_binding(rows, "HBM bandwidth" if plan.blocks >= d.num_cus else "occupancy")
    return TransposePlan(p, d, policy, v, side_m, side_n, resources, marked)


def _side(size: int, chunk: int, most: int) -> int:
    """Returns the blocks of a wave on a side: the most for which a last chunk that overlaps is not the first; 0 for none."""
    chunks = -(-size // chunk)
    return next((side for side in range(most, 0, -1) if size % chunk == 0 or (chunks - 1) % side), 0)


def _bandwidth_row(plan: TransposePlan) -> Constraint:
    piece = min(plan.side_m, plan.side_n) * plan.chunk * plan.problem.element.bytes
    note = f"{piece} consecutive bytes of a row are moved together, of a cache line's {SIDE * LOAD_BYTES}"
    return Constraint("HBM bandwidth", Level.DEVICE, SIDE * LOAD_BYTES, piece, "bytes", note, hard=False)


@dataclass(frozen=True)
class _TransposeNode(TileNode):
    plan: TransposePlan

    @staticmethod
    def views_of(plan: TransposePlan, axes: Axes) -> tuple[View, View]:
        """Returns the windows of X and of what is written."""
        return View("X", axes["m"], axes["n"]), View("Y", axes["n"], axes["m"])


@dataclass(frozen=True)
class TransposeAtom(_TransposeNode):
    """Leaf: a lane's block, in registers."""

    level: ClassVar[Level] = Level.ATOM

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the block."""
        v = self.plan.chunk
        return (("TransposeAtom  [leaf -- a lane's registers]", f"{v} loads of {v} elements, {v} stores of {v} elements"),)


@dataclass(frozen=True)
class TransposeWarp(_TransposeNode):
    """A wave's tile."""

    level: ClassVar[Level] = Level.WARP
    below: ClassVar[Any] = TransposeAtom

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the tile."""
        lanes = f"{self.plan.side_m} x {self.plan.side_n} lanes"
        return (("TransposeWarp  [warp]", "  ".join(map(str, self.views)), lanes),)


@dataclass(frozen=True)
class TransposeBlock(_TransposeNode):
    """A block's tile."""

    level: ClassVar[Level] = Level.BLOCK
    below: ClassVar[Any] = TransposeWarp

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the tile."""
        return (("TransposeBlock  [block / CU]", "  ".join(map(str, self.views)), f"{WAVES} waves along n, LDS = 0"),)


class Transpose(TileRoot):
    """Root of a transpose's tree, on a target under a tile policy.

    >>> from simgpu.operators import Transpose, TransposeProblem
    >>> print(*Transpose(TransposeProblem(300, 200, "f16"), "mi300x").first().views)
    X:(64,256) Y:(256,64)
    """

    problem: TransposeProblem
    derivation: TransposePlan
    below, derive = TransposeBlock, staticmethod(plan_transpose)
    lengths: ClassVar = {"m": "m", "n": "n"}

    def fit(self, nest: Nest) -> TransposePlan:
        """Returns the plan of other tiles, as near to the loops as a kernel can be."""
        plan, (m, n) = self.derivation, nest[Level.BLOCK]
        if nest[Level.DEVICE][0] != plan.nest[Level.DEVICE][0]:
            m, _ = nest[Level.DEVICE]
        chunk = min(loop.tile for loop in nest[Level.WARP])
        sides = min(SIDE, max(1, m.tile // plan.chunk)), min(SIDE, max(1, n.tile // plan.chunk))
        return plan_transpose(self.problem, self.descriptor, plan.policy, chunk, sides if chunk == plan.chunk else (SIDE, SIDE))

    def whole_only(self, axis: str) -> str:
        """Returns the reason why an axis cannot be clipped."""
        return "the places of its chunks follow from its length"

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the device's loop nest."""
        plan, m, n = self.derivation, self.trips("m"), self.trips("n")
        head = (
            "Transpose  Y = X^T",
            "  ".join(map(str, self.views)),
            f"CU grid: {m} x {n} ({m * n} tiles) [parallel]",
            plan.tiling_line,
            "boundary: views are clipped; a side's last chunk ends with it, what it moves twice is the same",
        )
        return head, (f"for I in {m} [parallel] / for J in {n} [parallel]", "  Y[J,I] = X[I,J]^T")


class TransposeExecutor(WindowExecutor, Executor, root=Transpose):
    """Transposes X (m,n), window by window."""

    def visit_device(self, tree: Transpose, x: ArrayLike) -> Array:
        """Returns Y (n,m)."""
        p = tree.problem
        tree.plan.check()
        self._x = expect_shape("X", x, (p.m, p.n))
        self._y = np.zeros((p.n, p.m), self._x.dtype)
        self.counters = block_counters(tree)
        self.visit_tile(tree)
        return self._y

    def compute(self, x: View, y: View) -> None:  # type: ignore[override]
        """Moves a window."""
        self._y[y.index] = self._x[x.index].T


@block_counters.register(Transpose)
def _counters(tree: Transpose) -> Counters:
    p, v = tree.problem, tree.derivation.chunk
    return Counters(0, p.bytes_once, p.bytes_once, atoms=-(-p.m // v) * -(-p.n // v))


def transpose(problem: TransposeProblem, x: ArrayLike) -> NDArray[np.float64]:
    """Returns X's transpose in float64, which a kernel gives exactly.

    >>> from simgpu.operators import TransposeProblem, reference
    >>> reference.transpose(TransposeProblem(1, 2), [[1, 2]])
    array([[1.],
           [2.]])
    """
    return expect_shape("X", x, (problem.m, problem.n)).astype(np.float64).T
