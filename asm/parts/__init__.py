"""Instruction sequences that kernels are made of.

    integer_math.py     division by constants, 64-bit products
    buffers.py          raw buffers, and offsets outside their range
    lanes.py            a lane's place, moves between lanes, 16-bit elements
    matrix.py           the matrix instruction of an atom; accumulators multiplied
    transpose.py        an operand transposed on its way to LDS
    staging.py          an operand's way from memory to fragments
    whole_lines.py      the same way for 4-byte elements of rows that begin anywhere, by whole cache lines
    line_ring.py        the same way for 6-bit elements, by whole cache lines
    expressions.py      expressions of leaves in f32
    activation_f64.py   silu and gelu in f64
    epilogue.py         alpha, beta, bias, activation
    elements.py         elements converted to the epilogue's type, and rounded back
    add_parts.py        the sum of parts that several workgroups stored
"""
