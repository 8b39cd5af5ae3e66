"""Softmax of the command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import numpy as np

from simgpu.operators import Band, Softmax, SoftmaxProblem, reference
from simgpu.tools.cases.operators.operator import Kernels, Operator, add_strides, finite_number
from simgpu.tools.cases.workload import StridedArray, Workload
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs


def _softmax_options(sub: ArgumentParser) -> None:
    sub.add_argument("--rows", type=int, required=True, help="rows")
    sub.add_argument("-n", type=int, required=True, metavar="N", help="elements of a row")
    sub.add_argument("--scale", type=finite_number, default=1.0, help="factor before the exponential (default: 1)")
    add_strides(sub, ("ldx", "ldy"))
    sub.add_argument("--mask", action="store_true", help="with a mask of bytes, (rows,n)")
    sub.add_argument("--log", action="store_true", help="the softmax's logarithm")
    sub.add_argument("--causal", action="store_true", help="row r keeps the columns up to r")


def _softmax(o: Namespace) -> Softmax:
    band = Band(o.rows, -o.rows, 1) if o.causal else None
    return Softmax(SoftmaxProblem(o.rows, o.n, o.dtype, o.scale, o.ldx, o.ldy, o.mask, band, log=o.log), o.target, o.policy)


def _softmax_workload(tree: Softmax, arch: str, inputs: Inputs) -> Workload:
    p = tree.problem
    assert p.ldx and p.ldy
    shape = p.rows, p.n
    x = StridedArray.draw(inputs, array_type(p.dtype, arch), shape, (p.ldx, 1))
    keep = inputs.rng.random(shape) < 0.5 if p.mask else None
    mask = () if keep is None else (StridedArray.row_major(keep.astype(np.uint8)),)
    y = StridedArray.for_results(inputs, array_type(p.element_y.name, arch), shape, (p.ldy, 1))
    return Workload(
        (x, y, *mask), 1, lambda: reference.softmax(p, x.view, keep), lambda: reference.softmax_error_bound(p, x.view, keep),
        lambda: reference.softmax_typical_error(p, x.view, keep, arch),
    )  # fmt: skip


OPERATORS = (
    Operator("softmax", "softmax of the rows of X (rows,n)", Softmax, _softmax_options, _softmax, Kernels(_softmax_workload)),
)
