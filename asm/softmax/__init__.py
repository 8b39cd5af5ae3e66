"""Kernels of a softmax.

    row.py       a wave's part of a row in registers
    packed.py    the same with two elements per register
    short.py     several short rows in a wave, and their states
    merge.py     merges of the states of lanes, waves and parts
    wide.py      a row's part and state in f64
    emitter.py   the kernels as a whole
"""

from simgpu.asm.softmax import emitter  # noqa: F401  (registration)
