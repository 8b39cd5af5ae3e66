"""What is computed and how it is cut: trees, closed-form tiles, numpy execution, float64 references."""

from operators import reference
from operators.attention import AttentionTiles, derive_tiles
from operators.compute import ComputeVisitor
from operators.feasibility import FeasibilityReport, FeasibilityVisitor
from operators.gemm import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from operators.problem import GemmProblem
from operators.resources import Constraint, ResourcePlan
from operators.tiles import GemmPlan, plan_gemm
from operators.traffic import Counters, gemm_counters

__all__ = [
    "AtomHint",
    "AttentionTiles",
    "BlockGemmNode",
    "ComputeVisitor",
    "Constraint",
    "Counters",
    "FeasibilityReport",
    "FeasibilityVisitor",
    "GemmPlan",
    "GemmProblem",
    "ResourcePlan",
    "TiledComputation",
    "WarpGemmNode",
    "derive_tiles",
    "gemm_counters",
    "plan_gemm",
    "reference",
]
