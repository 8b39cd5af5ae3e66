"""GEMM plans that have no kernel, those with a second pass, and the k tiles of most blocks."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.asm.parts.activation_f64 import PAIRS
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import LaunchError, ResourceError, UnsupportedInstruction
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.problem import GATES, SCALE_BLOCK, GemmProblem


def second_pass(plan: GemmPlan) -> bool:
    """True if a second kernel computes C: if K is split, and for f64 activations of hundreds of instructions per element."""
    return plan.split_k > 1 or (plan.problem.epilogue_type == "f64" and base_activation(plan.problem) in PAIRS)


def base_activation(problem: GemmProblem) -> str:
    """Returns the name of the activation that is applied to single elements: for a gated activation, the gate's."""
    return GATES.get(problem.activation, problem.activation)


def check(plan: GemmPlan) -> None:
    """Raises UnsupportedInstruction, ResourceError or LaunchError if the plan has no kernel.

    Reasons are sizes past an argument's 31 bits, strides past the 32-bit offsets of a tile, tiles that do not fit block scales, an
    epilogue that an i32 C cannot have.
    """
    problem = plan.problem
    size_c = max(dtype(kind).bytes for kind in (problem.dtype_c, problem.accumulator))
    if plan.atom.blocks != 1:
        raise UnsupportedInstruction(f"GEMM kernels take atoms of one block, not {plan.atom.mnemonic}")
    for name in "mnk":
        if (size := getattr(problem, name)) >= 1 << 31:
            raise LaunchError(f"{name} = {size}: a kernel takes sizes of 31 bits, so {name} < {1 << 31}")
    tiles = {
        "lda": (problem.lda, plan.tile_k if problem.trans_a else plan.tile_m, problem.element.bits / 8),
        "ldb": (problem.ldb, plan.tile_n if problem.trans_b else plan.tile_k, problem.element_b.bits / 8),
        "ldc": (problem.ldc, plan.tile_m, size_c),
    }
    for name, (stride, rows, size) in tiles.items():
        limit = int((1 << 31) / (rows * size))
        if stride is not None and stride >= limit:
            raise LaunchError(
                f"{name} = {stride}: a tile of {rows} rows must stay within 2^31 bytes, so {name} < {limit}"
            )
    if second_pass(plan) and problem.ldc is not None and problem.m * problem.ldc * size_c >= 1 << 31:
        raise LaunchError(f"m·ldc = {problem.m * problem.ldc}: where C takes a second kernel, it must stay within 2^31 bytes")
    if problem.scales == "block" and (plan.tile_n & (plan.tile_n - 1) or plan.warp_k != plan.tile_k or SCALE_BLOCK % plan.tile_k):
        raise ResourceError(
            f"block scales and a tile of {plan.tile_n} columns by {plan.tile_k} k, {plan.warp_k} at once: use columns that are a "
            f"power of two and all of a k that divides {SCALE_BLOCK} at once"
        )
    if problem.groups and second_pass(plan):
        raise LaunchError(f"activation {problem.activation} of f64 takes a second kernel, which knows no groups: use none or relu")
    if problem.dtype_c == "i32":
        if base_activation(problem) not in ("none", "relu") or problem.activation in GATES:
            raise LaunchError(
                f"activation {problem.activation} is a fraction of an integer and C is i32: use none or relu, or let C be f32, "
                "f16 or bf16"
            )
        for name in ("alpha", "beta"):
            value = getattr(problem, name)
            if value != int(value) or abs(value) >= 1 << 31:
                raise LaunchError(f"{name} = {value:g}: an i8 product takes an integer of 32 bits")


@dataclass(frozen=True)
class UsualTiles:
    """K tiles of most blocks of the plan's problem. They decide which code is in line; the kernel is right for any k."""

    part: int  # k of a block
    step: int  # k of a tile
    wide: int  # k left that allows whole loads, but at edges of m and n

    @classmethod
    def of(cls, plan: GemmPlan, operands: TileLayouts) -> UsualTiles:
        """Returns those of a plan."""
        aligned = operands.a.aligned or operands.b.aligned
        part = min(plan.problem.k, plan.k_steps_per_block * plan.tile_k)
        return cls(part, plan.tile_k, plan.tile_k * (2 if aligned else 1))

    def is_whole(self, number: int) -> bool:
        """True if tile `number` is loaded as a whole."""
        return self.part - number * self.step >= self.wide

    @property
    def in_last_loop(self) -> bool:
        """True if a tile is loaded after the loop over whole tiles, which begins with tile 2."""
        whole = max(2, (self.part - self.wide) // self.step + 1)
        return self.part > whole * self.step

    @property
    def cut(self) -> bool:
        """True if tile 1 or a later one ends within its loads."""
        return self.part > self.step and not self.is_whole(-(-self.part // self.step) - 1)
