"""Stops and notes as machine code, around the handlers of a replay.

    clock.py       how many instructions each wave retired, and stops at such a number
    points.py      what a wave stops for: native tests in front of an instruction
    typed.py       values of expressions, with their types
    evaluated.py   expressions on a wave's bytes
    emitted.py     expressions as machine code
    conditions.py  expressions on registers, parsed, and compiled into points' tests
    noting.py      what waves execute and access, noted in one run
    capturing.py   what waves hold at a variable's marks
    touching.py    which bytes of device memory each instruction touches
"""
