"""What is computed and how it is cut: trees, closed-form tiles, numpy execution, float64 references."""

from operators import reference
from operators.attention import AttentionProblem, AttentionTiles, derive_tiles, plan_attention
from operators.attention_compute import AttentionExecutor
from operators.attention_tree import FusedAttention
from operators.compute import ComputeVisitor
from operators.conv2d import Conv2dPlan, Conv2dProblem, pack_filter, plan_conv2d, space_to_channel
from operators.conv2d_tree import Conv2d
from operators.feasibility import FeasibilityReport, FeasibilityVisitor
from operators.gemm import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from operators.problem import GemmProblem
from operators.resources import Constraint, ResourcePlan
from operators.softmax import Band, SoftmaxPlan, SoftmaxProblem, SoftmaxState, plan_softmax
from operators.softmax_tree import Softmax
from operators.tiles import GemmPlan, plan_gemm
from operators.traffic import Counters, gemm_counters
from operators.unfused import UnfusedAttention

__all__ = [
    "AtomHint",
    "AttentionExecutor",
    "AttentionProblem",
    "AttentionTiles",
    "Band",
    "BlockGemmNode",
    "ComputeVisitor",
    "Constraint",
    "Conv2d",
    "Conv2dPlan",
    "Conv2dProblem",
    "Counters",
    "FeasibilityReport",
    "FeasibilityVisitor",
    "FusedAttention",
    "GemmPlan",
    "GemmProblem",
    "ResourcePlan",
    "Softmax",
    "SoftmaxPlan",
    "SoftmaxProblem",
    "SoftmaxState",
    "TiledComputation",
    "UnfusedAttention",
    "WarpGemmNode",
    "derive_tiles",
    "gemm_counters",
    "pack_filter",
    "plan_attention",
    "plan_conv2d",
    "plan_gemm",
    "plan_softmax",
    "reference",
    "space_to_channel",
]
