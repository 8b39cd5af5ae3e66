"""Stops and notes as machine code, around the handlers of a replay.

    clock.py       number of instructions that each wave retired, and stops at such a number
    points.py      reasons to stop: native tests before an instruction
    typed.py       values of expressions, with their types
    evaluated.py   expressions on a wave's bytes
    emitted.py     expressions as machine code
    conditions.py  expressions on registers, parsed, and compiled into points' tests
    noting.py      instructions and accesses of waves, noted in one run
    capturing.py   contents of waves at a variable's marks
    touching.py    bytes of device memory that each instruction touches
"""
