"""2-D convolution.

    problem.py         sizes, stride, padding, groups; operands in other layouts
    lds.py             where halo and filter taps lie in LDS
    tiles.py           tiles, and what follows from their sizes
    cost.py            tiles as launches: their time
    limits.py          registers and LDS of tiles, and their limits
    plan.py            which tiles, in closed form
    tree.py            Conv2d and the nodes below it
    execute.py         the tree with numpy, at any level
    traffic.py         what it moves
    reference.py       float64 results and error bounds
    typical_error.py   how far a faithful kernel usually is from float64
"""

from simgpu.operators.conv2d import execute, traffic  # noqa: F401  (registration)
