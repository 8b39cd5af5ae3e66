"""Conversions from code bytes to `Instruction` and to LLVM's text, and control flow.

    operands.py        operand fields: registers, constants, names
    immediates.py      immediates with a special syntax
    formats.py         scalar and memory encodings
    vector_formats.py  vector encodings
    decode.py          decoder: bytes to Instruction
    text.py            disassembler: Instruction to text
    flow.py            successors of an instruction, basic blocks
"""
