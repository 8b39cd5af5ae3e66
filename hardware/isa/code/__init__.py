"""Between code bytes, `Instruction` and LLVM's text.

    operands.py        operand fields: registers, constants, names
    immediates.py      immediates with a special syntax
    formats.py         scalar and memory encodings
    vector_formats.py  vector encodings
    decode.py          bytes to Instruction
    text.py            Instruction to text
    flow.py            successors of an instruction, basic blocks
"""
