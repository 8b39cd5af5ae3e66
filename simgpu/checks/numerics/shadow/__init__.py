"""Runs one workgroup again with an f64 shadow of every f32 and narrower value, to find the origin of an element's error.

    trace.py      actions of the workgroup's waves, instruction by instruction, with the values
    steps.py      reads the trace back
    replay.py     traces a single workgroup
    f64.py        bodies of instructions on f64
    registers.py  shadows of registers, LDS and memory, valid as long as the bits stay the same
    evaluate.py   an instruction's shadow results, and each operand's part of their error
    products.py   the same for matrix instructions
    run.py        all steps of a trace
    origins.py    an element's error by the instructions that made it
"""
