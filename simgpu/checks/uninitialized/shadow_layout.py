"""Where shadows lie, by the byte layout of a wave.

Byte b of a wave's state has its shadow at b + WAVE_BYTES: a set bit is undefined. The row
of a vector register whose flag says DEFINED is zero; with MIXED it counts bit by bit; with UNDEFINED
it is not written yet and stands for ones.
"""

from __future__ import annotations

from simgpu.machine import layout

DELTA = layout.WAVE_BYTES  # from a byte of the wave to its shadow
# The shadow block's copies of fields that have no shadow hold other things:
STORED = DELTA + 520  # u32: whether the instruction stored undefined bits to device memory
FLAGS = DELTA + layout.ADDRESSES  # u8 for each of 256 VGPRs and 256 AccVGPRs
REGISTERS = 512
# Behind both: u32 for each vector register, then for each scalar dword and SCC, see shadow_origin.
ORIGINS = layout.SHADOW_ORIGINS
SHADOWED_STATE = layout.SCC + 4  # the scalar file and SCC

DEFINED, MIXED, UNDEFINED = 0, 1, 2
