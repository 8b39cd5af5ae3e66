"""Runs one workgroup again with an f64 shadow of every f32 and narrower value, to find the origin of an element's error.

    trace.py      records the waves' instructions with the values of operands and results
    steps.py      reads the trace back
    replay.py     traces a single workgroup
    f64.py        bodies of instructions on f64
    registers.py  shadows of registers, LDS and memory, valid as long as the bits stay the same
    evaluate.py   an instruction's shadow results, and each operand's part of their error
    products.py   the same for matrix instructions
    run.py        the shadows' computation, along all steps of a trace
    origins.py    shares of an element's error by instruction
"""
