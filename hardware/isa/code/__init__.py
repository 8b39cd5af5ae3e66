"""Between code bytes, `Instruction` and LLVM's text.

    operands.py        operand fields: registers, constants, names
    immediates.py      immediates with a syntax of their own
    formats.py         scalar and memory encodings
    vector_formats.py  vector encodings
    decode.py          bytes to Instruction
    text.py            Instruction to text
    flow.py            where an instruction leads, basic blocks
"""
