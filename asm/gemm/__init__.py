"""Kernels of a GEMM.

    operands.py      plans that have no kernel; what the second pass computes
    tile_order.py    the tile that a workgroup computes, and its group
    prologue.py      arguments, coordinates, buffers, accumulators
    block_scales.py  products that are scaled before they are added
    mx_scales.py     E8M0 scales of MX formats
    leaves.py        leaves: on tiles of A, on rows' sums, on products
    lines.py         the main loop of operands loaded by whole cache lines
    turn.py          the order in which a turn's atoms are multiplied, and what follows each: LDS writes, loads, reads, the barrier
    emitter.py       the main loop, and the kernel as a whole
    ending.py        places of C and of the epilogue's operands; the ways of storing
    store.py         accumulators through the epilogue to C
    reduce.py        the second kernel, if K is split
"""

from simgpu.asm.gemm import emitter  # noqa: F401  (registration)
