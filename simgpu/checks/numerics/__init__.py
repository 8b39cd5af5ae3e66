"""Finds where NaN, infinities, overflow and other losses first appear, and which of them reach memory.

    check.py         the check: the instructions that it watches, and its findings
    wanted.py        options: the default, and extras on request
    vector.py        results of vector instructions
    conversions.py   ranges of conversions to integers and small floats, by the instruction's name and types
    matrix.py        sums of matrix instructions, and NaN codes in their 8-bit operands
    stores.py        NaN and infinities that go to device memory
    stored_types.py  types in a store's registers, by the code before it
    definitions.py   last writers of a register, by the code
    division.py      steps of a division, which are not reported
    table.py         notes of handlers: counts, and the first of each kind at an instruction
    formats.py       8-bit floats of the wrong kind
    findings.py      findings made of the notes
    shadow/          runs one workgroup again with f64 beside its values: origins of an element's error
"""
