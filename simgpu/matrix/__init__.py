"""Emits matrix instructions, by their rows in `simgpu.hardware.mfma`, as vector code of the host: 16 lanes of D at a time.

    fragments.py      decodes an operand's elements, a row of 64 lanes each, and finds those that a lane of D multiplies
    operand_cache.py  caches decoded operands for later instructions that read the same bits
    sums.py           loops over the lanes of D; pairwise sums (CDNA1, CDNA2)
    i8.py             i8 products, two steps of k at a time
    i8_quads.py       four steps at a time, straight from the registers
    cdna3/            sums of CDNA3 and later: f16, bf16, xf32 and narrower elements
    lane_groups.py    f32 and f64 elements of 16 lanes, in registers and as host vectors
    ring.py           exact sums of elements of a ring
    element_registers.py  registers that hold elements from tile to tile
    fma_tile.py       f32 and f64 products: one instruction, or several that run as one
    instruction.py    plans an instruction's operands, and chooses among these
    tiles.py          chooses f32 and f64 instructions that run as one
    one_mfma.py       simgpu.mfma: one matrix instruction on arrays, through its compiled handler
"""
