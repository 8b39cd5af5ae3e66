"""A GEMM with leaves of its own: one class with three expressions and a float64 definition is an operator.

    problem.py    FusedGemm, the class to derive from
    tree.py       the tree: the GEMM's nodes, and the leaves
    execute.py    the tree executed with numpy, at any level; bytes that it moves
    reference.py  float64 result, and the error bound that follows from the expressions
"""

from simgpu.operators.fused import execute  # noqa: F401  (registration)
