"""Matrix instructions of CDNA 1 to 4: shapes, fragment layouts and exact arithmetic.

    row = find("v_mfma_f32_16x16x16_f16", "gfx942")
    row.owner("D", 5, 3)        # (register, lane, low_bit)
    multiply(row, a, b, c)      # raw bits in, the hardware's raw bits out

The table itself is `simgpu.hardware.matrix_table`, outside this package because the boards' descriptors also read it.

    instruction.py  MatrixInstruction: a row with its operands, layouts and evidence; look-ups by name and opcode
    layout.py       register, lane and bit of each element, in closed form
    numbers.py      number formats: raw bits to significand and exponent
    arithmetic.py   D = A·B + C, generation by generation
    chain.py        when D's registers can be the next instruction's A or B unchanged
"""

from simgpu.hardware.mfma.arithmetic import multiply
from simgpu.hardware.mfma.instruction import MatrixInstruction, by_opcode, find, instructions

__all__ = ["MatrixInstruction", "by_opcode", "find", "instructions", "multiply"]
