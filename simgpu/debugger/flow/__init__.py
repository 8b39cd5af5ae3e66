"""Backward through a workgroup's run: the origin of a value.

    nodes.py      nodes of the answer's graph: bits at a moment, and their sources
    influence.py  source bits that an instruction's result depends on
    traces.py     instructions and accesses of each wave, in order
    stores.py     the last store of a byte before an access
    matrix.py     an element of D as the sum of its products, including sparse and scaled ones
    why.py        the answers: registers, memory, matrix elements, back to arguments and constants
"""
