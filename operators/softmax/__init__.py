"""Online softmax of rows.

    problem.py         sizes, types, masks
    state.py           maximum and denominator of a row, and how two states merge
    cost.py            rows as launches: their time
    plan.py            the tiles
    tree.py            Softmax and the nodes below it
    execute.py         the tree with numpy, at any level
    traffic.py         what it moves
    reference.py       float64 results and error bounds
    typical_error.py   how far a faithful kernel usually is from float64
"""

from simgpu.operators.softmax import execute, traffic  # noqa: F401  (registration)
