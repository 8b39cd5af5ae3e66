"""Backward of attention: gradients of Q, K and V.

    problem.py        sizes, types, the sums of rows of dO * O
    plan.py           tiles, registers and LDS of the kernels of gradients
    tree.py           AttentionBackward, its three kernels and their nodes
    execute.py        the tree with numpy, at any level, and the bytes that it moves
    reference.py      float64 results and error bounds
    typical_error.py  usual distance of a faithful kernel from float64
"""

from simgpu.operators.attention_backward import execute  # noqa: F401  (registration)
