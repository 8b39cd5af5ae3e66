"""Kernels of a GEMM.

    operands.py      layouts of A and B; what has no kernel
    tile_order.py    which tile a workgroup takes
    groups.py        which group a tile lies in
    prologue.py      arguments, coordinates, buffers, accumulators
    block_scales.py  products that are scaled before they are added
    mx_scales.py     E8M0 scales of MX formats
    lines.py         the main loop of operands that come by whole cache lines
    turn.py          in which order a turn's atoms are multiplied
    spread.py        where a tile's LDS writes, loads and reads go among its matrix instructions
    fragments.py     when fragments are read again, and the barrier before it
    emitter.py       the main loop, and the kernel as a whole
    ending.py        where C and what the epilogue adds lie; the ways of storing
    store.py         accumulators through the epilogue to C
    reduce.py        the second kernel, where K is split
"""

from simgpu.asm.gemm import emitter  # noqa: F401  (registration)
