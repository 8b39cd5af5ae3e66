"""An operator from a class that derives from FusedGemm: options from its fields, operands from its names."""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.operators import FusedGemm, FusedTree, reference
from simgpu.operators.expressions import NUMPY, evaluate
from simgpu.operators.gemm.epilogue import op
from simgpu.operators.gemm.leaves import ELEMENT
from simgpu.tools.cases.operators.fields import class_operator
from simgpu.tools.cases.operators.operator import Kernels, Matrices, Operator
from simgpu.tools.cases.workload import StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs

SIZES = {"m": "rows of A and C", "n": "columns of B", "k": "columns of A"}
HELP = {
    "trans_b": "B is stored transposed, (n,k)",
    "lda": "row stride of A in elements (default: its row)",
    "ldb": "row stride of B in elements (default: its row)",
    "ldc": "row stride of C in elements (default: its row)",
    "bias": "add a row of n elements to each row of the result",
    "activation": "none (default), relu, gelu, silu; of column pairs, which leave n/2 columns: reglu, geglu or swiglu",
    "dtype_c": "type of C: f32 (default), f16, bf16, fp8 or bf8",
    "residual": "add a matrix of C's type and strides after the activation",
}


def fused_operator(kind: type[FusedGemm]) -> Operator:
    """Returns the operator of a class. UsageError names what the class lacks."""
    return class_operator(
        kind, FusedTree, SIZES, HELP, Kernels(_workload), matrices=_matrices,
        figures=lambda plan: {"grid": list(plan.grid), "workgroup_size": plan.threads, "k_steps": plan.k_steps},
    )  # fmt: skip


def _workload(tree: FusedTree, arch: str, inputs: Inputs) -> Workload:
    """Draws A, B, and the operands after C, in the kernel's order. Arrays end at their last element, so that reads beyond it are
    found."""
    p, gemm = tree.problem, tree.problem.gemm
    strides = (gemm.lda, gemm.ldb, gemm.ldc)
    kinds = array_type(p.dtype, arch), array_type(p.dtype, arch), array_type(p.dtype_c, arch)
    forms = [(kind, shape, (stride, 1), 0) for kind, shape, stride in zip(kinds, gemm.stored_shapes, strides, strict=True)]
    a, b = (StridedArray.draw(inputs, *form) for form in forms[:2])
    more: dict[str, StridedArray] = {}
    if p.bias:
        more["bias"] = _draw(array_type(gemm.dtype_addend, arch), (p.n,), inputs)
    if p.residual:
        more["residual"] = StridedArray.draw(inputs, *forms[2])
    for name in p.columns:
        more[name] = _draw(array_type("f32", arch), (p.n,), inputs)
    for name in p.matrices:
        more[name] = StridedArray.draw(inputs, *forms[0])
    for name in p.vectors:
        more[name] = _draw(array_type(p.dtype, arch), (p.k,), inputs)
    given = {"a": a.view, "b": b.view, **{name: operand.view for name, operand in more.items()}}
    return Workload(
        (a, b, StridedArray.for_results(inputs, *forms[2]), *more.values()), 2, lambda: reference.fused(p, arch=arch, **given),
        lambda: reference.fused_error_bound(p, arch=arch, **given), lambda: None,
    )  # fmt: skip


def _matrices(tree: FusedTree, work: Workload) -> Matrices:
    """Returns what is multiplied, as A, and op(B), and as C their product, which the accumulators hold before the result's leaf."""
    leaves, names = tree.problem.leaves, tree.plan.problem
    order = ("A", "B", "C", *(["bias"] * names.bias), *(["residual"] * names.residual), *leaves.columns, *leaves.of_element[1:])
    given = {name: operand.view.astype(np.float64) for name, operand in zip(order, work.operands, strict=True)}
    of_a = {ELEMENT: given["A"], **{name: given[name] for name in leaves.of_element[1:]}}
    a, b = evaluate(leaves.left_operand, of_a, NUMPY), op(given["B"], tree.problem.trans_b)
    return {"A": a, "B": b, "C": a @ b}


def _draw(kind: Any, shape: tuple[int, ...], inputs: Inputs) -> StridedArray:
    return StridedArray.draw(inputs, kind, shape, contiguous(shape), guard=0)
