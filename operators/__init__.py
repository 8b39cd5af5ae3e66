"""What is computed and how it is cut: trees, closed-form tiles, numpy execution, float64 references."""

from simgpu.operators import reference
from simgpu.operators.attention.execute import AttentionExecutor
from simgpu.operators.attention.plan import AttentionProblem, AttentionTiles, derive_tiles, plan_attention
from simgpu.operators.attention.tree import FusedAttention
from simgpu.operators.attention.unfused import UnfusedAttention
from simgpu.operators.compute import ComputeVisitor
from simgpu.operators.conv2d.plan import Conv2dPlan, packed_filter, plan_conv2d
from simgpu.operators.conv2d.problem import Conv2dProblem, pack_filter, space_to_channel
from simgpu.operators.conv2d.tree import Conv2d
from simgpu.operators.feasibility import FeasibilityReport, FeasibilityVisitor
from simgpu.operators.gemm.plan import GemmPlan, plan_gemm
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.gemm.traffic import gemm_counters
from simgpu.operators.gemm.tree import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
from simgpu.operators.resources import Constraint, ResourcePlan
from simgpu.operators.softmax.plan import Band, SoftmaxPlan, SoftmaxProblem, SoftmaxState, plan_softmax
from simgpu.operators.softmax.tree import Softmax
from simgpu.operators.traffic import Counters

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
