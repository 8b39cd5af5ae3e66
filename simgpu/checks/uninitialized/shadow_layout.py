"""Where shadows lie, by the byte layout of a wave.

Byte b of a wave's state has its shadow at b + WAVE_BYTES: a set bit is undefined. The row
of a vector register whose flag says DEFINED is zero; with MIXED it counts bit by bit; with UNDEFINED
it is not written yet and stands for ones.
"""

from __future__ import annotations

from simgpu.engine.workers.fields import context_fields
from simgpu.machine import layout

DELTA = layout.WAVE_BYTES  # from a byte of the wave to its shadow
# The shadow block's copies of fields that have no shadow hold other things:
STORED = DELTA + 520  # u32: whether the instruction stored undefined bits to device memory
FLAGS = DELTA + layout.ADDRESSES  # u8 for each of 256 VGPRs and 256 AccVGPRs
REGISTERS = 512
BEGIN_BYTES = layout.ADDRESSES + REGISTERS  # of the shadow, up to the flags
ORIGINS_BYTES = 4096
ORIGINS = 2 * layout.WAVE_BYTES  # u32 for each vector register, then for each scalar dword and SCC, see `origins`
SHADOW_BYTES = layout.WAVE_BYTES + ORIGINS_BYTES  # behind a wave's state
SHADOWED_STATE = layout.SCC + 4  # the scalar file and SCC

DEFINED, MIXED, UNDEFINED = 0, 1, 2

# Of the context: address of BEGIN_BYTES that the shadow of every wave begins with; from a byte of LDS to its undefined bits;
# host address of those of private memory, or 0.
BEGIN, LDS_SHADOW, SCRATCH_SHADOW = context_fields("uninitialized", 3)
