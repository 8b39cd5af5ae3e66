"""Kernels of operators on rows, softmax among them.

    places.py        where a wave's lanes find their chunks: offsets, ends of rows, loads, stores
    frame.py         what a wave has: sizes, places, buffers of operands from its first row; exchange of waves that share a row
    values.py        expressions: reductions over lanes and waves, values of rows and of elements
    exponentials.py  softmax: scores, their state, results; masks, bands, rows kept as loaded
    states.py        states (m, delta) in f32 or f64, and their merges over lanes, waves and parts of a row
    emitter.py       the kernel as a whole
"""

from simgpu.asm.rows import emitter  # noqa: F401  (registration)
