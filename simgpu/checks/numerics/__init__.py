"""Numbers that went wrong: where NaN, infinities, overflow and other losses first appear, and what of it reaches memory.

    check.py         the check: which instructions it looks at, and its findings
    wanted.py        what is looked for: by default, and on request
    vector.py        results of vector instructions
    conversions.py   what conversions to integers and small floats hold, by the instruction's name and types
    matrix.py        sums of matrix instructions, and NaN codes in their 8-bit operands
    stores.py        NaN and infinities that go to device memory
    stored_types.py  what a store's registers hold, by the code before it
    definitions.py   who wrote a register last, by the code
    division.py      steps of a division, of which nothing is told
    table.py         what handlers note: counts, and the first of each kind at an instruction
    formats.py       8-bit floats of the wrong kind
    findings.py      what is told of all that
    shadow/          one workgroup again with f64: where an element's error came from
"""
