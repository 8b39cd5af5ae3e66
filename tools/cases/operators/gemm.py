"""GEMM of the command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.operators import GemmProblem, TiledComputation, microscale, preshuffle, reference
from simgpu.operators.gemm.epilogue import rows_of_preshuffled
from simgpu.tools.cases.operators.operator import Kernels, Matrices, Operator, add_output_options, add_strides, finite_number
from simgpu.tools.cases.workload import PackedRows, StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs


def _gemm_options(sub: ArgumentParser) -> None:
    for name in "mnk":
        sub.add_argument(f"-{name}", type=int, required=True, metavar=name.upper(), help=f"extent {name}")
    sub.add_argument("--trans-a", action="store_true", help="A is stored transposed, (k,m)")
    sub.add_argument("--trans-b", action="store_true", help="B is stored transposed, (n,k)")
    sub.add_argument("--preshuffle-b", action="store_true", help="B, stored (n,k), was permuted by operators.preshuffle")
    sub.add_argument("--alpha", type=finite_number, default=1.0, help="factor of the product (default: 1)")
    sub.add_argument("--beta", type=finite_number, default=0.0, help="factor of C; 0 (default): C is not read")
    add_strides(sub, ("lda", "ldb", "ldc"))
    sub.add_argument("--batch", type=int, default=1, help="products, whose matrices are consecutive in memory (default: 1)")
    sub.add_argument("--bias", action="store_true", help="add a row of n elements to each row of C")
    gates = "of column pairs, gate and up, which leave n/2 columns: reglu, geglu or swiglu"
    sub.add_argument("--activation", default="none", help=f"none (default), relu, gelu or silu; {gates}")
    sub.add_argument("--residual", action="store_true", help="add a matrix of C's type and strides after the activation")
    scales = (
        "tensor (one of A, one of B), row (one a row of A, one a column of op(B)), block (fp8, bf8: one for 128 k of a row of A, "
        "one for 128 columns by 128 k of op(B)) or mx (MXFP8, MXFP6, MXFP4: E8M0, one for 32 k of a row of A and of a column of B; "
        "with --trans-b and --dtype fp8, bf8, fp6, bf6 or fp4)"
    )
    sub.add_argument("--scales", default="none", help=f"factors of the product: none (default), {scales}")
    sub.add_argument("--dtype-b", default="", help="type of B, if it differs from A's (--scales mx)")
    sub.add_argument("--groups", type=int, default=0, help="grouped: the m rows belong to GROUPS groups, each with its own B")
    add_output_options(sub, "C")


def _gemm(o: Namespace) -> TiledComputation:
    names = ("policy", "dtype", "trans_a", "trans_b", "alpha", "beta", "lda", "ldb", "ldc", "batch", "bias", "activation",
             "dtype_c", "scale_c", "residual", "scales", "groups", "dtype_b", "preshuffle_b")  # fmt: skip
    return TiledComputation(o.m, o.n, o.k, target=o.target, **{name: getattr(o, name) for name in names})


def _gemm_workload(tree: TiledComputation, arch: str, inputs: Inputs) -> Workload:
    """Draws A, B, C and the epilogue's operands. C is NaN if beta = 0, since it must not be read. Arrays of strided operands end
    at their last element, so that reads beyond it are found.

    Scales are uniform in [1/4, 2). MX operands and their scales come from f32 by `microscale`. In a grouped product, some
    groups are far likelier than others to get rows.
    """
    p = tree.problem
    reads_c = p.beta != 0
    kinds = array_type(p.dtype, arch), array_type(p.dtype_b, arch), array_type(p.dtype_c, arch)
    outer, groups = () if p.batch == 1 else (p.batch,), (p.groups,) * bool(p.groups)
    forms: list[tuple[np.dtype, tuple[int, ...], tuple[int, ...], int]] = []
    outers, strides = (outer, outer + groups, outer), (p.lda, p.ldb, p.ldc)
    for kind, around, (rows, columns), stride in zip(kinds, outers, p.stored_shapes, strides, strict=True):
        assert stride
        apart = (*((rows * stride,) if around else ()), stride, 1)
        forms.append((kind, (*around, rows, columns), apart, 0))
    c = StridedArray.draw(inputs, *forms[2]) if reads_c else StridedArray.for_results(inputs, *forms[2])
    more: dict[str, StridedArray] = {}
    if p.scales == "mx":
        a, b, *factors = _mx_operands(p, arch, inputs)
    else:
        a, b = (StridedArray.draw(inputs, *form) for form in forms[:2])
        wholes = ((*around, *shape) for around, shape in zip(outers, p.scale_shapes or (), strict=False))
        factors = [StridedArray.row_major(inputs.rng.uniform(0.25, 2, whole).astype(np.float32)) for whole in wholes]
    if p.bias:
        whole = (*groups, p.n)
        more["bias"] = StridedArray.draw(inputs, array_type(p.dtype_addend, arch), whole, contiguous(whole), guard=0)
    if p.residual:
        more["residual"] = StridedArray.draw(inputs, *forms[2])
    more |= zip(("scale_a", "scale_b"), factors, strict=False)
    if p.groups:
        rows_of = inputs.rng.multinomial(p.m, inputs.rng.dirichlet(np.ones(p.groups)))
        more["group_rows"] = StridedArray.empty(np.dtype(np.int32), groups, (1,), guard=0).fill(rows_of.astype(np.int32))
    given = a.view, b.view, c.view if reads_c else None
    read = {name: operand.view for name, operand in more.items()}
    return Workload(
        (a, b, c, *more.values()), 2, lambda: reference.gemm(p, *given, **read, arch=arch),
        lambda: reference.gemm_error_bound(p, *given, arch, **read),
        lambda: reference.gemm_typical_error(p, *given, arch, **read), reads_c,
    )  # fmt: skip


def _mx_operands(p: GemmProblem, arch: str, inputs: Inputs) -> list[StridedArray]:
    """Makes A, B and their scales from matrices in f32."""
    outer, groups = () if p.batch == 1 else (p.batch,), (p.groups,) * bool(p.groups)
    elements: list[StridedArray] = []
    scales: list[StridedArray] = []
    places = zip((p.dtype, p.dtype_b), (outer, outer + groups), p.stored_shapes, (p.lda, p.ldb), strict=False)
    for (kind, around, shape, stride), pitch in zip(places, p.mx_rows, strict=True):
        assert stride
        values, factors = microscale(inputs.array(np.dtype(np.float32), (*around, *shape)), kind, pitch)
        shuffled = p.preshuffle_b and len(elements) == 1
        elements.append(PackedRows.rows(preshuffle(values, kind) if shuffled else values, kind, stride))
        scales.append(StridedArray.row_major(factors))
    return elements + scales


def _gemm_figures(plan: Any) -> dict[str, Any]:
    return {"grid": list(plan.grid), "workgroup_size": plan.threads, "k_steps": plan.k_steps, "useful_products": plan.fill,
            "atom": plan.atom.mnemonic, **({"best_for": plan.tiling.aim} if plan.tiling.aim else {})}  # fmt: skip


def _gemm_matrices(tree: TiledComputation, work: Workload) -> Matrices:
    """Returns op(A), op(B), and as C their product, which the accumulators hold before alpha and beta; of a batch, the first.

    If K is split, each workgroup has the product of its part: C.0, C.1, ... Grouped products and MX formats return nothing,
    since their registers hold parts of elements.
    """
    p = tree.problem
    if p.groups or p.scales == "mx":
        return {}
    a, b = (operand.view.astype(np.float64).reshape(-1, *operand.shape[-2:])[0] for operand in work.operands[:2])
    b = rows_of_preshuffled(b, p.dtype_b) if p.preshuffle_b else b
    a, b = a.T if p.trans_a else a, b.T if p.trans_b else b
    plan = tree.plan
    if plan.split_k == 1:
        return {"A": a, "B": b, "C": a @ b}
    size = plan.k_steps_per_block * plan.tile_k
    parts = {f"C.{part}": a[:, low : low + size] @ b[low : low + size] for part, low in enumerate(range(0, p.k, size))}
    return {"A": a, "B": b, **parts}


def _gemm_host_bytes(p: GemmProblem) -> int:
    """Bytes of the operands on host and device, of float64 copies, the reference and the bound."""
    return 2 * _gemm_operand_bytes(p) + 8 * p.batch * (2 * (p.m + max(1, p.groups) * p.n) * p.k + 6 * p.m * p.n)


def _gemm_operand_bytes(p: GemmProblem) -> int:
    """Bytes of A, B and C with their strides."""
    sizes = p.element.bits / 8, p.element_b.bits / 8, dtype(p.dtype_c).bytes
    strides = p.lda or 0, p.ldb or 0, p.ldc or 0
    times = 1, max(1, p.groups), 1
    stored = sum(
        count * rows * stride * size for count, (rows, _), stride, size in zip(times, p.stored_shapes, strides, sizes, strict=True)
    )
    return int(p.batch * stored)


OPERATORS = (
    Operator(
        "gemm", "C (m,n) = alpha * op(A) (m,k) @ op(B) (k,n) + beta * C, row-major", TiledComputation, _gemm_options, _gemm,
        Kernels(_gemm_workload), figures=_gemm_figures, matrices=_gemm_matrices, host_bytes=_gemm_host_bytes,
        operand_bytes=_gemm_operand_bytes,
    ),
)  # fmt: skip
