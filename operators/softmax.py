"""Online softmax: the merge operator, what is computed, and its tiles in closed form (paper, section Online Softmax; E29, E30).

A wave owns a row at a time, four waves a block, two waves a SIMD. A lane holds v elements: with R = ArchVGPRs at two waves a SIMD less
the fixed ones, a row of n <= 64*R elements stays in registers and is read once (8 bytes moved an f32 element); a longer one streams
in steps of 64 lanes x 4 loads of 16 bytes, twice: statistics, then values (12 bytes). Few rows: s blocks share a row, split-N, and a
second pass merges their statistics with ⊕ and writes,  s = max(1, min(CUs // tiles, steps)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.descriptor import HardwareDescriptor
from hardware.dtypes import DType, dtype
from hardware.errors import LaunchError
from operators.gemm_limits import ADDRESS_VGPRS, TEMPORARY_VGPRS
from operators.problem import one_of, positive_dimension
from operators.resources import (
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    limit_rows,
    mark_binding,
    occupancy_row,
    quantised,
    residency,
)
from operators.tiles import POLICIES
from operators.tree import FINITE_FLOOR, Level

FLOPS_PER_ELEMENT = 5  # maximum, subtract, exp, add, scale: an exp counted as one (E29)
_WAVES = 4
_SGPRS = 48
_LOADS = 4  # 128-bit loads of a lane in flight

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
class SoftmaxProblem:
    """Y (rows,n) = softmax over each row of scale * X (rows,n), row-major. Y has X's type, statistics the accumulator's.

    A mask may be given with X: what it leaves out counts 0, and a row that is left out whole gives 0.
    """

    rows: int
    n: int
    dtype: str = "f32"
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rows", "n"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        if dtype(self.dtype).significand == 0:
            raise LaunchError(f"softmax of {self.dtype} has no exponentials: use a floating-point type")

    @property
    def element(self) -> DType:
        """The type of X and Y."""
        return dtype(self.dtype)

    @property
    def flops(self) -> int:
        """FLOPS_PER_ELEMENT an element."""
        return FLOPS_PER_ELEMENT * self.rows * self.n

    @property
    def bytes_once(self) -> int:
        """Bytes if X is read and Y written once."""
        return 2 * self.rows * self.n * self.element.bytes

    def intensity(self, reads: int) -> float:
        """FLOP a byte with X read `reads` times: 0.42 for two reads of f32, 0.62 for one (E29; the paper's 0.2 states no count)."""
        return FLOPS_PER_ELEMENT / ((reads + 1) * self.element.bytes)


@dataclass(frozen=True)
class SoftmaxPlan(Derivation):
    """A softmax's tiles: tile_rows rows a block (one a wave), tile_n elements a step; `split_n` blocks share a row."""

    problem: SoftmaxProblem
    descriptor: HardwareDescriptor
    policy: str
    tile_rows: int
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
        return {"tile_rows": self.tile_rows, "tile_n": self.tile_n, "split_n": self.split_n, "reads": self.reads}

    @property
    def reads(self) -> int:
        """How often X is read."""
        return 1 if self.resident and self.split_n == 1 else 2

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

    @property
    def eta(self) -> float:
        """Quantised occupancy (E9)."""
        return quantised(self.blocks, self.descriptor.num_cus)


def plan_softmax(problem: SoftmaxProblem, descriptor: HardwareDescriptor, policy: str = "corrected") -> SoftmaxPlan:
    """The closed-form plan. "published" streams every row in two reads and never splits (the paper states no more)."""
    p, d = problem, descriptor
    one_of("policy", policy, POLICIES)
    lanes, e = d.wavefront_size, p.element.bytes
    arch, _, _ = d.vgpr_budget(2)
    room = max(0, arch - ADDRESS_VGPRS - TEMPORARY_VGPRS) * lanes  # f32 elements of a row that fit
    step = lanes * _LOADS * 16 // e
    resident = policy == "corrected" and p.n <= room
    tiles = -(-p.rows // _WAVES)
    steps = -(-p.n // step)
    split = max(1, min(d.num_cus // tiles, steps)) if policy == "corrected" else 1
    split = -(-steps // -(-steps // split))
    held = -(-p.n // split // step) * step if resident else step
    registers = (
        RegisterRange("row", "arch", min(-(-held // lanes), -(-p.n // lanes))),
        RegisterRange("m, delta", "arch", 2),
        RegisterRange("addresses", "arch", ADDRESS_VGPRS),
        RegisterRange("temporaries", "arch", TEMPORARY_VGPRS - 2),
    )
    count = sum(r.count for r in registers)
    lds = (LdsArray("statistics", 8 * _WAVES),)
    resources = ResourcePlan(registers, lds, _SGPRS, *residency(d, count, 0, _SGPRS, 8 * _WAVES, _WAVES))
    tflops = p.flops / p.bytes_once * d.hbm_bandwidth_tb
    rows = (
        *limit_rows(d, count, 0, _SGPRS, 8 * _WAVES, _WAVES, 2, {}),
        occupancy_row(d, tiles * split),
        Constraint(
            "HBM bandwidth",
            Level.DEVICE,
            d.peak_tflops_f32,
            tflops,
            "TFLOPS at full bandwidth",
            f"{p.flops / p.bytes_once:.2f} FLOP a byte: bandwidth-bound (E29)",
            hard=False,
        ),
    )
    plan = SoftmaxPlan(p, d, policy, _WAVES, step, resident, split, resources, ())
    return replace(plan, constraints=mark_binding(rows, "HBM bandwidth" if tiles >= d.num_cus else "occupancy"))
