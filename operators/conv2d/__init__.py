"""2-D convolution.

    problem.py         sizes, stride, padding, groups; operands in other layouts
    lds.py             layouts of halo and filter taps in LDS
    loads.py           clocks of the vector cache for the loads of a halo
    tiles.py           tiles, and properties that follow from their sizes
    cost.py            tiles as launches: their time
    limits.py          registers and LDS of tiles, and their limits
    plan.py            the choice of tiles, in closed form
    tree.py            Conv2d and the nodes below it
    execute.py         the tree with numpy, at any level
    traffic.py         bytes that it moves
    reference.py       float64 results and error bounds
    typical_error.py   usual distance of a faithful kernel from float64
"""

from simgpu.operators.conv2d import execute, traffic  # noqa: F401  (registration)
