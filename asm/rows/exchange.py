"""Exchange between waves and blocks that share a row: values of waves through LDS, values of parts through memory."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import lane_number
from simgpu.hardware.isa.instruction import Reg

STATES = "states"  # scratch memory for reduced values of a split row's parts


def share(k: KernelBuilder, held: Reg, address: Reg, wave: Reg, waves: int, name: str) -> LdsRegion:
    """Emits the write of a wave's registers to LDS and a barrier. Emits address = that of the values of wave (lane % waves).

    held: VGPRs, a power of two of them, equal in all lanes. wave: SGPR, the wave's number.
    """
    nbytes, place = WORD * held.count, k.s.alloc("place")
    region = k.region(f"{name} of waves", nbytes * waves)
    k.s_lshl_b32(place, wave, log2(nbytes))
    k.v_mov_b32(address, place)
    k.s.free(place)
    k.s_mov_b64("exec", 1, note="one lane")
    k.emit(f"ds_write_b{8 * nbytes}", address, held, offset=region.offset)
    k.s_mov_b64("exec", -1)
    k.s_barrier()
    lane_number(k, address)
    k.v_and_b32(address, waves - 1, address)
    k.v_lshlrev_b32(address, log2(nbytes), address)
    return region


def states_buffer(k: KernelBuilder, resource: Reg, pointer: Reg, row: Reg, nbytes: int) -> None:
    """Builds a raw buffer of what the parts of a row have stored. nbytes: of a row."""
    offset = k.s.alloc("byte offset", 2)
    k.s_mul_hi_u32(offset[1], row, nbytes)
    k.s_mul_i32(offset[0], row, nbytes)
    raw_buffer(k, resource, pointer, (offset[0], offset[1]), STATES)
    k.s.free(offset)
    k.s_mov_b32(resource[2], nbytes)
