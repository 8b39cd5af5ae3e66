"""One matrix instruction, looked at.

    fragments.py        who owns which element: tables, formulas
    fragment_svg.py     the same as a picture
    kernel.py           kernels around one instruction, as assembly text
    structured_test.py  the paper's structured test, as a kernel
    difference.py       where an array differs from what it should be, and why
    trace_tile.py       registers of a trace as the tile that they hold
"""
