"""Places of shadows, by the byte layout of a wave.

The shadow of byte b of a wave's state is at b + WAVE_BYTES: a set bit is undefined. A vector register has a flag. DEFINED: its
shadow row is zero. MIXED: the row is valid. UNDEFINED: the register was never written; the row is not valid yet and counts as
ones.
"""

from __future__ import annotations

from simgpu.engine.workers.fields import context_fields
from simgpu.machine import layout

DELTA = layout.WAVE_BYTES  # from a byte of the wave to its shadow
# Fields without a shadow leave room in the shadow block for other data:
STORED = DELTA + 520  # u32: nonzero if the instruction stored undefined bits to device memory
FLAGS = DELTA + layout.ADDRESSES  # u8 for each of 256 VGPRs and 256 AccVGPRs
REGISTERS = 512
BEGIN_BYTES = layout.ADDRESSES + REGISTERS  # bytes of the shadow, up to and with the flags
ORIGINS_BYTES = 4096
ORIGINS = 2 * layout.WAVE_BYTES  # u32 for each vector register, then for each scalar dword and SCC, see `origins`
SHADOW_BYTES = layout.WAVE_BYTES + ORIGINS_BYTES  # bytes after a wave's state
SHADOWED_STATE = layout.SCC + 4  # the scalar file and SCC

DEFINED, MIXED, UNDEFINED = 0, 1, 2

# Context fields. BEGIN: address of the BEGIN_BYTES that every wave's shadow begins with. LDS_SHADOW: distance from a byte of
# LDS to its undefined bits. SCRATCH_SHADOW: host address of the undefined bits of private memory, or 0.
BEGIN, LDS_SHADOW, SCRATCH_SHADOW = context_fields("uninitialized", 3)
