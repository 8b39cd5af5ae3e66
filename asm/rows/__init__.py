"""Kernels of operators on rows, from their expressions.

    places.py    where a wave's lanes find their chunks: offsets, ends of rows, loads, stores
    values.py    reductions over lanes and waves, values of rows and of elements
    emitter.py   the kernel as a whole
"""

from simgpu.asm.rows import emitter  # noqa: F401  (registration)
