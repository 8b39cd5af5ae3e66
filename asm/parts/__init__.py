"""Instruction sequences that kernels are made of.

    integer_math.py     division by constants, 64-bit products
    buffers.py          raw buffers, and what lies outside of them
    lanes.py            a lane's place, moves between lanes, elements of 16 bits
    matrix.py           the matrix instruction of an atom
    lds_tile.py         where an operand tile lies in LDS
    staged_places.py    what a work-item moves of it, and to where in LDS
    transpose.py        an operand transposed on its way to LDS
    staging.py          an operand's way from memory to fragments
    line_ring.py        6-bit elements by whole cache lines: the same
    activation_f64.py   silu and gelu in f64
    epilogue.py         alpha, beta, bias, activation
    elements.py         an operand's elements into the epilogue's type, and rounded out of it
    add_parts.py        the kernel that adds parts of a sum
"""
