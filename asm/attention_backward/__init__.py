"""Kernels of attention's backward.

    moves.py      rows of a step: from memory through LDS to operands, which are read some products before their use
    weights.py    P and dS of a step
    emitter.py    the kernel of dK and dV, the kernel of dQ, and the three kernels in sequence
"""

from simgpu.asm.attention_backward import emitter  # noqa: F401  (registration)
