"""An operator from a class that derives from RowOperator: options from its fields, operands from its names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from simgpu.operators import RowOperator, RowTree, reference
from simgpu.tools.cases.operators.fields import class_operator
from simgpu.tools.cases.operators.operator import Kernels, Operator
from simgpu.tools.cases.workload import ExpectedOperand, StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs

SIZES = {"rows": "rows", "n": "elements of a row of X"}
HELP = {
    "dtype_y": "type of Y: f32, f16, bf16, fp8, bf8 or i8 (default: X's)",
    "ldx": "row stride of X in elements (default: its row)",
    "ldy": "row stride of Y in elements (default: its row)",
    "group": "elements of a row that are reduced together, a power of two (default: the row)",
}


def row_operator(kind: type[RowOperator]) -> Operator:
    """Returns the operator of a class. UsageError names what the class lacks."""
    return class_operator(
        kind, RowTree, SIZES, HELP, Kernels(_workload),
        figures=lambda plan: {"workgroups": plan.blocks, "workgroup_size": plan.waves * plan.descriptor.wavefront_size},
    )  # fmt: skip


def _workload(tree: RowTree, arch: str, inputs: Inputs) -> Workload:
    """Draws the operands, in the kernel's order. Arrays end at their last element, so that reads beyond it are found."""
    p = tree.problem
    assert p.ldx and p.ldy
    strides = dict.fromkeys(("X", *p.matrices), p.ldx) | dict.fromkeys(set(p.written) - set(p.row_results), p.ldy)
    operands = {}
    for name, shape in (*p.read.items(), *p.written.items()):
        apart = (strides[name], 1) if name in strides else contiguous(shape)
        form = array_type(p.type_of(name), arch), shape, apart
        operands[name] = (StridedArray.draw if name in p.read else StridedArray.for_results)(inputs, *form, guard=0)
    given = {name.lower() if name == "X" else name: operands[name].view for name in p.read}
    order = list(operands)

    def of(name: str, make: Callable[..., dict[str, np.ndarray[Any, Any]]]) -> Callable[[], np.ndarray[Any, Any]]:
        return lambda: make(p, arch=arch, **given)[name]

    result, *beside = p.written
    bounds = partial(reference.rows_error_bound, streamed=not tree.plan.resident)
    want, bound = (of(result, make) for make in (reference.rows, bounds))
    others = (ExpectedOperand(order.index(name), of(name, reference.rows), of(name, bounds)) for name in beside)
    return Workload(tuple(operands.values()), order.index(result), want, bound, lambda: None, beside=tuple(others))
