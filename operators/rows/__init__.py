"""Operators on rows: reductions along a row and a value for each element; one class with its expressions is an operator.

    problem.py    RowOperator, the class to derive from
    program.py    its expressions as data: reductions in passes, results
    tiles.py      a plan: sizes, blocks, resources; its tiles, as the emitter needs them; what plans of rows share
    cost.py       seconds of a plan in closed form
    plan.py       the choice of tiles, in closed form
    tree.py       RowTree and the nodes below it
    execute.py    the tree executed with numpy, at any level; bytes that it moves
    reference.py  float64 results, and the error bound that follows from the expressions
    forms.py      normalisations, rotary positions, quantisation, activations, reductions
"""

from simgpu.operators.rows import execute  # noqa: F401  (registration)
