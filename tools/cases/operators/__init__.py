"""Table of operators for the command. Built-in ones and a user's come in by the same door: `OPERATORS` of a module.

    operator.py   what an operator is to the command: options, tree, kernels with operands and float64 result
    gemm.py       GEMM: like every module that can be named here, it has OPERATORS
    conv2d.py     convolution
    softmax.py    softmax
    attention.py  attention, fused and not
    attention_backward.py  gradients of attention
    fields.py     options from the fields of a class
    fused.py      an operator from a class that derives from FusedGemm
    rows.py       an operator from a class that derives from RowOperator
    transpose.py  transpose
    columns.py    reductions of columns
    table.py      modules to operators, by name or by file
"""

from simgpu.tools.cases.operators.operator import Kernels, Operator
from simgpu.tools.cases.operators.table import OPERATORS, named_operator, workload

__all__ = ["OPERATORS", "Kernels", "Operator", "named_operator", "workload"]
