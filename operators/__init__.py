"""What is computed and how it is cut: trees, closed-form tiles, numpy execution, float64 references."""

from simgpu.operators import reference
from simgpu.operators.attention import AttentionProblem, AttentionTiles, derive_tiles, plan_attention
from simgpu.operators.attention_compute import AttentionExecutor
from simgpu.operators.attention_tree import FusedAttention
from simgpu.operators.compute import ComputeVisitor
from simgpu.operators.conv2d import Conv2dPlan, packed_filter, plan_conv2d
from simgpu.operators.conv2d_problem import Conv2dProblem, pack_filter, space_to_channel
from simgpu.operators.conv2d_tree import Conv2d
from simgpu.operators.feasibility import FeasibilityReport, FeasibilityVisitor
from simgpu.operators.gemm import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from simgpu.operators.problem import GemmProblem
from simgpu.operators.resources import Constraint, ResourcePlan
from simgpu.operators.softmax import Band, SoftmaxPlan, SoftmaxProblem, SoftmaxState, plan_softmax
from simgpu.operators.softmax_tree import Softmax
from simgpu.operators.tiles import GemmPlan, plan_gemm
from simgpu.operators.traffic import Counters, gemm_counters
from simgpu.operators.unfused import UnfusedAttention

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
    "packed_filter",
    "plan_attention",
    "plan_conv2d",
    "plan_gemm",
    "plan_softmax",
    "reference",
    "space_to_channel",
]
