"""C = activation(alpha * op(A) op(B) + beta * C + bias) + R.

    problem.py         sizes, types, storage, epilogue
    leaves.py          expressions on tiles of A, rows' sums and products, of operators that are more than a GEMM
    limits.py          registers, LDS and bandwidth of a tiling, and their limits
    edges.py           time of loads that end with their rows
    loads.py           clocks of the vector cache for a step's loads
    layout.py          operand tiles in LDS, and which lane moves what
    cost.py            tiles as launches: their time
    sides.py           candidates for the tile's sides, in closed form
    tiling.py          the choice among them, with K step and split
    plan.py            the tiles: both policies
    order.py           the order of tiles over workgroups
    tree.py            TiledComputation and the nodes below it
    epilogue.py        operands as arrays; scales, alpha, beta, bias, activation, residual
    groups.py          products whose groups of rows have a matrix each
    execute.py         the tree with numpy, at any level
    traffic.py         bytes that it moves
    reference.py       float64 results and error bounds
    typical_error.py   usual distance of a faithful kernel from float64
"""

from simgpu.operators.gemm import execute, traffic  # noqa: F401  (registration)
