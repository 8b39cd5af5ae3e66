"""Online softmax of rows.

    problem.py         sizes, types, masks
    state.py           maximum and denominator of a row, and the merge of two states
    cost.py            rows as launches: their time
    plan.py            the tiles
    tree.py            Softmax and the nodes below it
    execute.py         the tree with numpy, at any level
    traffic.py         bytes that it moves
    reference.py       float64 results and error bounds
    typical_error.py   usual distance of a faithful kernel from float64
"""

from simgpu.operators.softmax import execute, traffic  # noqa: F401  (registration)
