"""One workgroup again with f64 beside every f32 and narrower value: where the error of an element came from.

    trace.py      what the workgroup's waves do, instruction by instruction, with the values
    steps.py      the trace read back
    replay.py     one workgroup alone, traced
    f64.py        bodies of instructions on f64
    registers.py  shadows of registers, LDS and memory, which hold as long as the bits beside them do
    evaluate.py   an instruction's shadow results, and how much of their error each operand brought
    products.py   the same of matrix instructions
    run.py        all steps of a trace
    origins.py    an element's error by the instructions that made it
"""
