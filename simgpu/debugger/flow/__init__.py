"""Backward through a workgroup's run: where a value came from.

    nodes.py      some bits at a moment, and what they came from
    influence.py  which bits of its sources an instruction's result depends on
    traces.py     what each wave executed and accessed, in order
    stores.py     the last store of a byte before an access
    matrix.py     an element of D as the sum of its products, sparse and scaled ones too
    why.py        the answers: registers, memory, matrix elements, back to arguments and constants
"""
