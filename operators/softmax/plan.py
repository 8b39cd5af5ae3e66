"""Online softmax: the merge operator, what is computed, and its tiles in closed form (paper, section Online Softmax; E29, E30).

w waves own a row at a time, two waves a SIMD; a block is four rows of one wave each, or one row of w waves. A lane holds v f32
elements. With R = ArchVGPRs at two waves a SIMD less the fixed ones:

  n <= 64*R*w     the row stays in registers and is read once (8 bytes moved an f32 element), w the least of 1, 4, 8 that holds it;
                  w = 4 besides where rows are too few to fill the CUs four at a time (rows <= CUs, n >= a step);
                  v = ceil(n / (64*w))
  longer rows     stream in steps of 64 lanes x 4 loads of 16 bytes, twice: statistics, then values (12 bytes);  v = 4*16/e
  few long rows   s blocks share a row, split-N, and a second pass merges their statistics with ⊕ and writes,
                  s = max(1, min(CUs // tiles, steps))

Waves of one row merge their states with ⊕ through LDS, 8 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import POLICIES, expect_shape, one_of, positive_dimension
from simgpu.operators.levels import Level
from simgpu.operators.resources import (
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    limit_rows,
    mark_binding,
    occupancy_row,
    residency,
    scalar_ranges,
    sgprs,
)
from simgpu.operators.tree import FINITE_FLOOR

FLOPS_PER_ELEMENT = 5  # maximum, subtract, exp, add, scale: an exp counted as one (E29)
_WAVES = 4
_ROW_WAVES = (1, 4, 8)  # that may share a row: 8 are a CU's at two a SIMD
_LOADS = 4  # 128-bit loads of a lane in flight
# Registers that do not depend on the row: lane's byte offset and the load's own; a mask's bytes are loaded eight at a time.
_ADDRESS_VGPRS = 2
_TEMPORARY_VGPRS = 4
_MASK_VGPRS = 8
_MOST_BYTES = 1 << 31  # a row's, so that a raw buffer can hold it

Array = NDArray[Any]


@dataclass(frozen=True)
class SoftmaxState:
    """Running maximum m and denominator delta of rows: arrays of one shape. The merge of states is associative and commutative."""

    m: Array
    delta: Array

    @classmethod
    def empty(cls, shape: tuple[int, ...], kind: np.dtype[Any]) -> SoftmaxState:
        """The neutral element: nothing seen, m at the finite floor, so that m - m is 0 and never NaN (E30)."""
        return cls(np.full(shape, FINITE_FLOOR, kind), np.zeros(shape, kind))

    @classmethod
    def of(cls, scores: Array, keep: Array | None = None) -> SoftmaxState:
        """The state of whole rows (last axis); elements that `keep` leaves out do not count, nor does a row that has none (E30)."""
        seen = scores if keep is None else np.where(keep, scores, scores.dtype.type(FINITE_FLOOR))
        m = np.maximum(seen.max(-1), scores.dtype.type(FINITE_FLOOR))
        return cls(m, exponentials(scores, m, keep).sum(-1))

    def merge(self, other: SoftmaxState) -> SoftmaxState:
        """self ⊕ other (paper, section Online Softmax)."""
        m = np.maximum(self.m, other.m)
        return SoftmaxState(m, self.delta * np.exp(self.m - m) + other.delta * np.exp(other.m - m))


def exponentials(scores: Array, m: Array, keep: Array | None = None) -> Array:
    """exp(scores - m) by rows, 0 where `keep` leaves an element out."""
    if keep is None:
        return np.asarray(np.exp(scores - m[..., None]))
    return np.where(keep, np.exp(np.where(keep, scores - m[..., None], 0)), 0).astype(scores.dtype)


def normalise(values: Array, delta: Array) -> Array:
    """values / delta by rows; 0 in rows that saw nothing (delta = 0)."""
    return np.asarray(values / np.where(delta == 0, 1, delta)[..., None]).astype(values.dtype)


@dataclass(frozen=True)
class Band:
    """Row r keeps the columns j with r % period + first <= j < r % period + end, and leaves the others out.

    Causal attention over L keys is Band(L, -L, 1), a window of w keys Band(L, 1 - w, 1).
    """

    period: int
    first: int
    end: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", positive_dimension("period", self.period))

    def keep(self, rows: int, n: int) -> NDArray[np.bool_]:
        """(rows,n), True where an element counts."""
        diagonal = (np.arange(rows) % self.period)[:, None]
        column = np.arange(n)[None, :]
        return np.asarray((diagonal + self.first <= column) & (column < diagonal + self.end))


@dataclass(frozen=True)
class SoftmaxProblem:
    """Y (rows,n) = gain * softmax over each row of scale * X (rows,n), row-major. X has `dtype`, Y `dtype_y` (None: X's),
    statistics the accumulator's.

    ldx, ldy: row strides in elements, by default n. With `mask`, an array (rows,n) of bool comes with X; `band` is a mask in closed
    form. What they leave out counts 0 and gives 0, and so does a row that is left out whole. gain keeps small values out of a
    narrow Y's subnormals. LaunchError for sizes and strides that cannot be.
    """

    rows: int
    n: int
    dtype: str = "f32"
    scale: float = 1.0
    ldx: int | None = None
    ldy: int | None = None
    mask: bool = False
    band: Band | None = None
    dtype_y: str | None = None
    gain: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rows", "n"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        if self.dtype_y is None:
            object.__setattr__(self, "dtype_y", self.dtype)
        for kind in (self.dtype, self.element_y.name):
            if dtype(kind).significand == 0:
                raise LaunchError(f"softmax of {kind} has no exponentials: use a floating-point type")
        for name in ("ldx", "ldy"):
            given = getattr(self, name)
            stride = self.n if given is None else positive_dimension(name, given)
            if stride < self.n:
                raise LaunchError(f"{name} = {stride} is shorter than a row of {self.n} elements: give {name} >= {self.n}")
            object.__setattr__(self, name, stride)

    def keep(self, mask: ArrayLike | None = None) -> Array:
        """(rows,n) of bool: which elements count, by `mask` and by the band; LaunchError for a mask of another shape."""
        shape = (self.rows, self.n)
        kept = np.ones(shape, bool) if mask is None else expect_shape("mask", mask, shape).astype(bool)
        return kept if self.band is None else kept & self.band.keep(*shape)

    @property
    def element(self) -> DType:
        """The type of X."""
        return dtype(self.dtype)

    @property
    def element_y(self) -> DType:
        """The type of Y."""
        assert self.dtype_y is not None
        return dtype(self.dtype_y)

    @property
    def flops(self) -> int:
        """FLOPS_PER_ELEMENT an element."""
        return FLOPS_PER_ELEMENT * self.rows * self.n

    @property
    def bytes_once(self) -> int:
        """Bytes if X is read and Y written once."""
        return self.rows * self.n * (self.element.bytes + self.element_y.bytes)

    def intensity(self, reads: int) -> float:
        """FLOP a byte with X read `reads` times: 0.42 for two reads of f32, 0.62 for one (E29; the paper's 0.2 states no count)."""
        return FLOPS_PER_ELEMENT / ((reads + 1) * self.element.bytes)


@dataclass(frozen=True)
class SoftmaxPlan(Derivation):
    """A softmax's tiles: tile_rows rows a block, `waves_row` waves each, tile_n elements a step; `split_n` blocks share a row."""

    problem: SoftmaxProblem
    descriptor: HardwareDescriptor
    policy: str
    waves_row: int
    tile_n: int
    resident: bool
    split_n: int
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        return (
            f"softmax {self.problem.rows}x{self.problem.n} {self.problem.dtype} on {self.descriptor.name or self.descriptor.arch}"
        )

    @property
    def sizes(self) -> dict[str, int]:
        """What the policy decided, by name."""
        names = ("tile_rows", "waves_row", "tile_n", "split_n", "reads")
        return {name: getattr(self, name) for name in names}

    @property
    def tile_rows(self) -> int:
        """Rows of a block."""
        return _WAVES if self.waves_row == 1 else 1

    @property
    def waves(self) -> int:
        """Waves of a block."""
        return self.tile_rows * self.waves_row

    @property
    def lane_elements(self) -> int:
        """Elements of a row that a lane holds at a time, one an ArchVGPR."""
        return next(r.count for r in self.resources.registers if r.name == "row")

    @property
    def reads(self) -> int:
        """How often X is read."""
        return 1 if self.resident else 2

    @property
    def steps(self) -> int:
        """Steps of a whole row."""
        return -(-self.problem.n // self.tile_n)

    @property
    def steps_per_block(self) -> int:
        """Steps of a block's part of a row."""
        return -(-self.steps // self.split_n)

    @property
    def blocks(self) -> int:
        """Blocks of the first pass."""
        return -(-self.problem.rows // self.tile_rows) * self.split_n


def plan_softmax(problem: SoftmaxProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> SoftmaxPlan:
    """The closed-form plan. "published" streams every row in two reads and never splits (the paper states no more)."""
    p, d = problem, descriptor
    one_of("policy", policy, POLICIES)
    if p.n * p.element.bytes >= _MOST_BYTES:
        raise LaunchError(f"n = {p.n}: a row must stay below 2^31 bytes, so n < {_MOST_BYTES // p.element.bytes}")
    lanes = d.wavefront_size
    fixed = _ADDRESS_VGPRS + _TEMPORARY_VGPRS + 2 + (_MASK_VGPRS if p.mask else 0)
    room = max(0, d.vgpr_budget(2)[0] - fixed)
    step = lanes * _LOADS * 16 // p.element.bytes
    waves_row = next((w for w in _ROW_WAVES if p.n <= room * lanes * w), 0) if policy == "corrected" else 0
    if waves_row == 1 and p.rows <= d.num_cus and p.n >= step:
        waves_row = _ROW_WAVES[1]
    resident = waves_row > 0
    tiles, steps, split = -(-p.rows // _WAVES), -(-p.n // step), 1
    if policy == "corrected" and not resident:
        split = max(1, min(d.num_cus // tiles, steps))
        split = -(-steps // -(-steps // split))
    plan = SoftmaxPlan(p, d, policy, max(1, waves_row), step, resident, split, _resources(p, d, waves_row, step, fixed), ())
    return replace(plan, constraints=_constraints(plan))


def _resources(p: SoftmaxProblem, d: HardwareDescriptor, waves_row: int, step: int, fixed: int) -> ResourcePlan:
    """waves_row: 0 for a row that streams."""
    held = p.n if waves_row else step
    waves = max(_WAVES, waves_row)
    registers = (
        RegisterRange("row", "arch", -(-held // (d.wavefront_size * max(1, waves_row)))),
        RegisterRange("m, delta", "arch", 2),
        RegisterRange("addresses", "arch", _ADDRESS_VGPRS),
        RegisterRange("temporaries", "arch", fixed - 2 - _ADDRESS_VGPRS),
    )
    lds = (LdsArray("statistics", 8 * waves),) if waves_row > 1 else ()
    count, nbytes = sum(r.count for r in registers), sum(array.nbytes for array in lds)
    scalars = _scalars(p, d)
    return ResourcePlan(registers, lds, scalars, *residency(d, count, 0, sgprs(scalars), nbytes, waves))


def _scalars(p: SoftmaxProblem, d: HardwareDescriptor) -> tuple[RegisterRange, ...]:
    """SGPRs of a wave, for each of the kernels; those of a split row have a third pointer."""
    narrow = p.element_y.bytes == 2
    return scalar_ranges(
        arguments=2 * 3 + 5 + (2 if p.mask else 0) + (3 if p.band else 0),
        coordinates=4,
        buffers=4 * (3 if p.mask else 2),
        band=2 if p.band else 0,
        alignment=1 if narrow else 0,
        rounding=2 if p.dtype_y == "bf16" and d.arch != "gfx950" else 0,
        temporaries=3,
    )


def _constraints(plan: SoftmaxPlan) -> tuple[Constraint, ...]:
    p, d, r = plan.problem, plan.descriptor, plan.resources
    rows = (
        *limit_rows(d, r.arch_vgprs, 0, r.sgprs, r.lds_bytes, plan.waves, 2 * d.simds_per_cu // plan.waves, {}),
        occupancy_row(d, plan.blocks),
        Constraint(
            "HBM bandwidth",
            Level.DEVICE,
            d.peak_tflops_f32,
            p.flops / p.bytes_once * d.hbm_bandwidth_tb,
            "TFLOPS at full bandwidth",
            f"{p.flops / p.bytes_once:.2f} FLOP a byte: bandwidth-bound (E29)",
            hard=False,
        ),
    )
    return mark_binding(rows, "HBM bandwidth" if plan.blocks >= d.num_cus else "occupancy")
