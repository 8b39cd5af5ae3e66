"""C = activation(alpha * op(A) op(B) + beta * C + bias) + R.

    problem.py         sizes, types, storage, epilogue
    limits.py          registers, LDS and bandwidth of a tiling, and their limits
    edges.py           what loads and stores of single elements take
    cost.py            tiles as launches: their time
    sides.py           the tile's sides, in closed form
    tiling.py          which of them, with which K step and split
    plan.py            the tiles: both policies
    order.py           which workgroup takes which tile
    tree.py            TiledComputation and the nodes below it
    epilogue.py        operands as arrays; scales, alpha, beta, bias, activation, residual
    groups.py          products whose groups of rows have a matrix each
    execute.py         the tree with numpy, at any level
    traffic.py         what it moves
    reference.py       float64 results and error bounds
    typical_error.py   how far a faithful kernel usually is from float64
"""

from simgpu.operators.gemm import execute, traffic  # noqa: F401  (registration)
