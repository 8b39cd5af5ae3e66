"""Exchange between waves that share a row, through LDS."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.integer_math import log2
from simgpu.asm.parts.lanes import lane_number
from simgpu.hardware.isa.instruction import Reg


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
