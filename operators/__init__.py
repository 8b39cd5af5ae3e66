"""Computations and their tiles: problem, plan in closed form, tree; executed with numpy, compared with float64.

    arguments.py     checks of arguments that all operators share
    levels.py        the machine's levels: device, block, warp, atom; loops of a tree
    resources.py     constraints and resources of a plan
    tree.py          nodes, axes and views: one model for every operator
    cost.py          seconds of a kernel launch in closed form: the one cost by which tiles are chosen, compared and searched
    split.py         how many blocks share a reduction
    feasibility.py   whether a tree fits, and what binds
    traffic.py       what a tree moves, without executing it
    compute.py       a tree executed with numpy
    expressions.py   arithmetic of leaves, written once: executed, bounded, emitted
    error_model.py   bounds and usual size of matrix arithmetic's errors
    running_error.py  bounds on the errors of expressions in f32
    gemm/            matrix products; like every operator, from problem to reference
    conv2d/          2-D convolution
    fused/           GEMMs with leaves of their own: the base of further operators
    rmsnorm_gemm.py  RMSNorm and a GEMM, one of them
    softmax/         online softmax of rows
    rows/            normalisations, quantisation and other operators on rows: the base of further ones
    columns.py       reductions of columns
    transpose.py     transposes, with tiles and tree
    attention/       attention, fused and unfused
    attention_backward/  gradients of attention
    reference.py     float64 references of all operators, bounds, usual errors
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from simgpu.hardware import lazy

if TYPE_CHECKING:  # names that `__getattr__` finds, for mypy and editors
    from simgpu.operators import reference
    from simgpu.operators.attention.execute import AttentionExecutor
    from simgpu.operators.attention.plan import AttentionTiles, derive_tiles, plan_attention
    from simgpu.operators.attention.problem import AttentionProblem
    from simgpu.operators.attention.tree import FusedAttention
    from simgpu.operators.attention.unfused import UnfusedAttention
    from simgpu.operators.attention_backward.problem import AttentionBackwardProblem
    from simgpu.operators.attention_backward.tree import AttentionBackward
    from simgpu.operators.columns import ColumnPlan, ColumnProblem, Columns, plan_columns
    from simgpu.operators.compute import ComputeVisitor
    from simgpu.operators.conv2d.plan import plan_conv2d
    from simgpu.operators.conv2d.problem import Conv2dProblem, merge_groups, pack_filter, space_to_channel
    from simgpu.operators.conv2d.tiles import Conv2dPlan, packed_filter
    from simgpu.operators.conv2d.tree import Conv2d
    from simgpu.operators.feasibility import FeasibilityReport, FeasibilityVisitor
    from simgpu.operators.fused.problem import FusedGemm
    from simgpu.operators.fused.tree import FusedTree
    from simgpu.operators.gemm.epilogue import gated_columns, microscale, preshuffle
    from simgpu.operators.gemm.plan import GemmPlan, plan_gemm
    from simgpu.operators.gemm.problem import GemmProblem
    from simgpu.operators.gemm.traffic import gemm_counters
    from simgpu.operators.gemm.tree import AtomHint, BlockGemmNode, TiledComputation, WarpGemmNode
    from simgpu.operators.resources import Constraint, ResourcePlan
    from simgpu.operators.rmsnorm_gemm import RmsNormGemm
    from simgpu.operators.rows.forms import AddRmsNorm, LayerNorm, MxQuantise, Quantise, RmsNorm, Rope, RowMax, RowSum, SiluMul
    from simgpu.operators.rows.plan import rows_plan
    from simgpu.operators.rows.problem import RowOperator
    from simgpu.operators.rows.tiles import RowPlan
    from simgpu.operators.rows.tree import RowTree
    from simgpu.operators.softmax.plan import SoftmaxPlan, plan_softmax
    from simgpu.operators.softmax.problem import Band, SoftmaxProblem
    from simgpu.operators.softmax.state import SoftmaxState
    from simgpu.operators.softmax.tree import Softmax
    from simgpu.operators.traffic import Counters
    from simgpu.operators.transpose import Transpose, TransposePlan, TransposeProblem, plan_transpose

# Module of this package -> the public names that it has.
_NAMES = {
    "attention.execute": ("AttentionExecutor",),
    "attention.plan": ("AttentionTiles", "derive_tiles", "plan_attention"),
    "attention.problem": ("AttentionProblem",),
    "attention.tree": ("FusedAttention",),
    "attention.unfused": ("UnfusedAttention",),
    "attention_backward.problem": ("AttentionBackwardProblem",),
    "attention_backward.tree": ("AttentionBackward",),
    "columns": ("ColumnPlan", "ColumnProblem", "Columns", "plan_columns"),
    "compute": ("ComputeVisitor",),
    "conv2d.plan": ("plan_conv2d",),
    "conv2d.problem": ("Conv2dProblem", "merge_groups", "pack_filter", "space_to_channel"),
    "conv2d.tiles": ("Conv2dPlan", "packed_filter"),
    "conv2d.tree": ("Conv2d",),
    "feasibility": ("FeasibilityReport", "FeasibilityVisitor"),
    "fused.problem": ("FusedGemm",),
    "fused.tree": ("FusedTree",),
    "gemm.epilogue": ("gated_columns", "microscale", "preshuffle"),
    "gemm.plan": ("GemmPlan", "plan_gemm"),
    "gemm.problem": ("GemmProblem",),
    "gemm.traffic": ("gemm_counters",),
    "gemm.tree": ("AtomHint", "BlockGemmNode", "TiledComputation", "WarpGemmNode"),
    "resources": ("Constraint", "ResourcePlan"),
    "rmsnorm_gemm": ("RmsNormGemm",),
    "rows.forms": ("AddRmsNorm", "LayerNorm", "MxQuantise", "Quantise", "RmsNorm", "Rope", "RowMax", "RowSum", "SiluMul"),
    "rows.plan": ("rows_plan",),
    "rows.problem": ("RowOperator",),
    "rows.tiles": ("RowPlan",),
    "rows.tree": ("RowTree",),
    "softmax.plan": ("SoftmaxPlan", "plan_softmax"),
    "softmax.problem": ("Band", "SoftmaxProblem"),
    "softmax.state": ("SoftmaxState",),
    "softmax.tree": ("Softmax",),
    "traffic": ("Counters",),
    "transpose": ("Transpose", "TransposePlan", "TransposeProblem", "plan_transpose"),
}

__all__ = [
    "AddRmsNorm",
    "AtomHint",
    "AttentionBackward",
    "AttentionBackwardProblem",
    "AttentionExecutor",
    "AttentionProblem",
    "AttentionTiles",
    "Band",
    "BlockGemmNode",
    "ColumnPlan",
    "ColumnProblem",
    "Columns",
    "ComputeVisitor",
    "Constraint",
    "Conv2d",
    "Conv2dPlan",
    "Conv2dProblem",
    "Counters",
    "FeasibilityReport",
    "FeasibilityVisitor",
    "FusedAttention",
    "FusedGemm",
    "FusedTree",
    "GemmPlan",
    "GemmProblem",
    "LayerNorm",
    "MxQuantise",
    "Quantise",
    "ResourcePlan",
    "RmsNorm",
    "RmsNormGemm",
    "Rope",
    "RowMax",
    "RowOperator",
    "RowPlan",
    "RowSum",
    "RowTree",
    "SiluMul",
    "Softmax",
    "SoftmaxPlan",
    "SoftmaxProblem",
    "SoftmaxState",
    "TiledComputation",
    "Transpose",
    "TransposePlan",
    "TransposeProblem",
    "UnfusedAttention",
    "WarpGemmNode",
    "derive_tiles",
    "gated_columns",
    "gemm_counters",
    "merge_groups",
    "microscale",
    "pack_filter",
    "packed_filter",
    "plan_attention",
    "plan_columns",
    "plan_conv2d",
    "plan_gemm",
    "plan_softmax",
    "plan_transpose",
    "preshuffle",
    "reference",
    "rows_plan",
    "space_to_channel",
]

_load = lazy.loader(__name__, "simgpu.operators", _NAMES)
_RENAMED = {"microscaled": "microscale", "preshuffled": "preshuffle"}  # old names, until the next release


def __getattr__(name: str) -> Any:
    """Loads a public name, or the one that an old name stands for, at its first use (PEP 562)."""
    if name in _RENAMED:
        warnings.warn(f"simgpu.operators.{name} is now {_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    if name == "reference":
        return importlib.import_module("simgpu.operators.reference")
    return _load(name)


def __dir__() -> list[str]:
    return __all__
