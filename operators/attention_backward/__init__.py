"""Backward of attention: gradients of Q, K and V.

    problem.py        sizes, types, the sums of rows of dO * O
    tiles.py          tiles, and properties that follow from their sizes
    cost.py           tiles as launches: their time
    plan.py           registers and LDS of tiles; the choice of tiles, in closed form
    tree.py           AttentionBackward, its three kernels and their nodes
    execute.py        the tree with numpy, at any level, and the bytes that it moves
    reference.py      float64 results and error bounds
    typical_error.py  usual distance of a faithful kernel from float64
"""

from simgpu.operators.attention_backward import execute  # noqa: F401  (registration)
