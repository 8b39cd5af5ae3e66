"""Transpose of the command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import numpy as np

from simgpu.operators import Transpose, TransposeProblem, reference
from simgpu.tools.cases.operators.operator import Kernels, Operator, add_strides
from simgpu.tools.cases.workload import StridedArray, Workload
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs


def _options(sub: ArgumentParser) -> None:
    sub.add_argument("-m", type=int, required=True, metavar="M", help="rows of X")
    sub.add_argument("-n", type=int, required=True, metavar="N", help="columns of X")
    add_strides(sub, ("ldx", "ldy"))


def _tree(o: Namespace) -> Transpose:
    return Transpose(TransposeProblem(o.m, o.n, o.dtype, o.ldx, o.ldy), o.target, o.policy)


def _workload(tree: Transpose, arch: str, inputs: Inputs) -> Workload:
    """Draws X. Arrays end at their last element, so that reads beyond it are found."""
    p, kind = tree.problem, array_type(tree.problem.dtype, arch)
    assert p.ldx and p.ldy
    x = StridedArray.draw(inputs, kind, (p.m, p.n), (p.ldx, 1), guard=0)
    y = StridedArray.for_results(inputs, kind, (p.n, p.m), (p.ldy, 1), guard=0)
    return Workload((x, y), 1, lambda: reference.transpose(p, x.view), lambda: np.zeros((p.n, p.m)), lambda: None)


OPERATORS = (Operator("transpose", "Y (n,m) = the transpose of X (m,n)", Transpose, _options, _tree, Kernels(_workload)),)
