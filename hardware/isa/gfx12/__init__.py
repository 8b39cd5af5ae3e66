"""GFX12 (gfx1250, CDNA5): decoder and disassembler from a table of its instructions, which have no bodies: none is executed.

    gfx1250.tsv is the table: encoding, opcode, mnemonic, operands, modifiers

    rows.py            the table's rows as specs
    operands.py        operand fields: registers, constants, literals and their text
    formats.py         readers of the scalar, memory and short vector encodings
    vector_formats.py  readers of VOP3, VOP3P, scaled matrix instructions, VOPD
    decode.py          from bits to spec, operands and modifiers
    immediates.py      immediates with a special syntax
    text.py            disassembler
"""
