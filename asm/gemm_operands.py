"""From a GEMM plan to the layouts of its operand tiles, and what no kernel can be emitted for."""

from __future__ import annotations

from dataclasses import dataclass

from asm.emit import WAVEFRONT
from asm.layout import WORD, TileLayout, widest
from hardware.errors import LaunchError, UnsupportedInstruction
from operators.tiles import GemmPlan


@dataclass(frozen=True)
class Operands:
    """The layouts of A's and B's tiles for a plan."""

    a: TileLayout
    b: TileLayout

    @classmethod
    def of(cls, plan: GemmPlan) -> Operands:
        atom, problem = plan.atom, plan.problem
        groups = WAVEFRONT // atom.n
        kw = widest(plan.warp_k // groups)
        common = {"k": plan.tile_k, "groups": groups, "kw": kw, "threads": plan.threads}
        return cls(
            TileLayout("A", plan.tile_m, warp_rows=plan.warp_m, atom=atom.m, k_contiguous=not problem.trans_a,
                       interleave=False, **common),
            TileLayout("B", plan.tile_n, warp_rows=plan.warp_n, atom=atom.n, k_contiguous=problem.trans_b,
                       interleave=True, **common),
        )  # fmt: skip


def check(plan: GemmPlan) -> None:
    """Raises what keeps a plan from being emitted: its type, or strides past 32-bit tile offsets."""
    problem = plan.problem
    if problem.dtype != "f32" or plan.atom.k * plan.atom.m != WAVEFRONT:
        raise UnsupportedInstruction(f"GEMM kernels are emitted for f32 only, not for {problem.dtype}")
    if problem.batch != 1 or problem.bias or problem.activation != "none":
        raise UnsupportedInstruction("GEMM kernels are emitted without batch, bias and activation: leave these at their defaults")
    tiles = {
        "lda": (problem.lda, plan.tile_k if problem.trans_a else plan.tile_m),
        "ldb": (problem.ldb, plan.tile_n if problem.trans_b else plan.tile_k),
        "ldc": (problem.ldc, plan.tile_m),
    }
    for name, (stride, rows) in tiles.items():
        limit = (1 << 31) // (rows * WORD)
        if stride is not None and stride >= limit:
            raise LaunchError(
                f"{name} = {stride}: a tile of {rows} rows must stay within 2^31 bytes, so {name} < {limit}"
            )
