"""Matrix instructions: their layouts, pictures and tests.

    fragments.py        who owns which element: tables, formulas
    fragment_svg.py     a picture of the owners
    kernel.py           kernels around one instruction, as assembly text
    structured_test.py  the paper's structured test, as a kernel
    difference.py       where an array differs from a reference, and why
    trace_tile.py       registers of a trace as the tile that they hold
"""
