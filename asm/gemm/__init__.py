"""Kernels of a GEMM.

    operands.py     layouts of A and B; what has no kernel
    tile_order.py   which tile a workgroup takes
    prologue.py     arguments, coordinates, buffers, accumulators
    emitter.py      the main loop, and the kernel as a whole
    store.py        accumulators to C
    reduce.py       the second kernel, where K is split
"""

from simgpu.asm.gemm import emitter  # noqa: F401  (registration)
