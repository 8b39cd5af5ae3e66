"""Reductions of columns for the command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import numpy as np

from simgpu.operators import ColumnProblem, Columns, reference
from simgpu.tools.cases.operators.operator import Kernels, Operator, add_strides
from simgpu.tools.cases.workload import StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs


def _options(sub: ArgumentParser) -> None:
    sub.add_argument("-m", type=int, required=True, metavar="M", help="rows of X")
    sub.add_argument("-n", type=int, required=True, metavar="N", help="columns of X")
    sub.add_argument("--reduce", default="sum", help="sum (default) or maximum")
    add_strides(sub, ("ldx",))


def _tree(o: Namespace) -> Columns:
    return Columns(ColumnProblem(o.m, o.n, o.dtype, o.ldx, o.reduce), o.target, o.policy)


def _workload(tree: Columns, arch: str, inputs: Inputs) -> Workload:
    """Draws X. Arrays end at their last element, so that reads beyond it are found."""
    p = tree.problem
    assert p.ldx
    x = StridedArray.draw(inputs, array_type(p.dtype, arch), (p.m, p.n), (p.ldx, 1), guard=0)
    y = StridedArray.for_results(inputs, np.dtype(np.float32), (1, p.n), contiguous((1, p.n)), guard=0)
    return Workload(
        (x, y), 1, lambda: reference.columns(p, x.view), lambda: reference.columns_error_bound(p, x.view), lambda: None,
    )  # fmt: skip


OPERATORS = (Operator("columns", "y (n) = the sum or the largest element of each column of X (m,n)", Columns, _options, _tree,
                      Kernels(_workload)),)  # fmt: skip
