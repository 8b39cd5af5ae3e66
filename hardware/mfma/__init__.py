"""Every matrix instruction of CDNA 1 to 4: shape, fragment ownership and exact arithmetic.

    row = find("v_mfma_f32_16x16x16_f16", "gfx942")
    row.owner("D", 5, 3)        # (register, lane, low_bit)
    multiply(row, a, b, c)      # raw bits in, the hardware's raw bits out

To add a matrix instruction, add its row to `simgpu.hardware.mfma.rows`.
"""

from simgpu.hardware.mfma.arithmetic import multiply
from simgpu.hardware.mfma.instruction import MatrixInstruction, by_opcode, find, instructions

__all__ = ["MatrixInstruction", "by_opcode", "find", "instructions", "multiply"]
