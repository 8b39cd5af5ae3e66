"""64-byte amdhsa kernel descriptor, which the packet processor reads before a kernel starts.

Layout and bit positions: LLVM AMDGPUUsage "Kernel Descriptor"; the positions used here were checked by assembling every
directive and reading the bytes back (see tests/hardware/code_object/test_code_object.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from simgpu.hardware.architectures import GFX12
from simgpu.hardware.errors import DecodeError

DESCRIPTOR_BYTES = 64
ENTRY_OFFSET_AT = 16  # byte of a descriptor where its 64-bit entry offset begins
# A kernel whose arguments are preloaded into SGPRs starts this far after its entry point; the
# bytes before are the fall-back that loads them (AMDGPUUsage "Preloaded Kernel Arguments").
PRELOAD_PROLOGUE_BYTES = 256
SGPR_ENCODING_GRANULE = 8
# Registers of a granule of the VGPR field: gfx90a and later share one file of 512.
VGPR_ENCODING_GRANULE = {"gfx908": 4, "gfx90a": 8, "gfx942": 8, "gfx950": 8, "gfx1250": 16}
GFX12_SGPRS = 106  # GFX12 gives every wave s0 to s105; the descriptor does not declare them


@dataclass(frozen=True)
class KernelDescriptor:
    """A decoded kernel descriptor. Sizes are bytes, registers are counted as allocated, in whole granules."""

    group_segment_size: int  # static LDS of a workgroup
    private_segment_size: int  # scratch of a work-item
    kernarg_size: int
    entry_offset: int  # bytes from the descriptor to the first instruction, signed
    vgprs: int  # of a lane: ArchVGPRs and AccVGPRs together from gfx90a on, the larger of the two on gfx908
    sgprs: int  # of a wave
    accum_offset: int  # the first AccVGPR in the unified file, 0 on gfx908
    tg_split: bool  # the waves of a workgroup may be on several compute units
    priority: int  # of a wave, 0 to 3
    round_f32: int  # 0 to nearest even, 1 up, 2 down, 3 to zero
    round_f16_f64: int  # the same values
    denorm_f32: int  # bit 0 keeps input denormals, bit 1 output denormals
    denorm_f16_f64: int  # the same bits
    privileged: bool
    dx10_clamp: bool
    debug_mode: bool
    ieee_mode: bool
    bulky: bool
    cdbg_user: bool
    fp16_overflow: bool
    enable_private_segment: bool
    user_sgprs: int  # SGPRs that hold launch state
    trap_handler: bool
    enable_workgroup_id_x: bool
    enable_workgroup_id_y: bool
    enable_workgroup_id_z: bool
    enable_workgroup_info: bool
    workitem_id_mode: int  # 0 x, 1 x and y, 2 x, y and z
    exception_address_watch: bool
    exception_memory: bool
    lds_granules: int
    exception_enables: int
    # Launch state in user SGPRs, in this order (AMDGPUUsage "Initial Kernel Execution State").
    enable_private_segment_buffer: bool
    enable_dispatch_ptr: bool
    enable_queue_ptr: bool
    enable_kernarg_segment_ptr: bool
    enable_dispatch_id: bool
    enable_flat_scratch_init: bool
    enable_private_segment_size: bool
    wave32: bool
    dynamic_stack: bool
    preload_length: int  # kernel arguments preloaded into user SGPRs, dwords
    preload_offset: int  # the first of them, in dwords

    @property
    def launch_state_sgprs(self) -> int:
        """Number of user SGPRs that hold the enabled launch state; preloaded arguments follow them."""
        return (
            4 * self.enable_private_segment_buffer
            + 2 * self.enable_dispatch_ptr
            + 2 * self.enable_queue_ptr
            + 2 * self.enable_kernarg_segment_ptr
            + 2 * self.enable_dispatch_id
            + 2 * self.enable_flat_scratch_init
            + self.enable_private_segment_size
        )

    @classmethod
    def decode(cls, raw: bytes, target: str) -> KernelDescriptor:
        """Decodes the descriptor in `raw` (64 bytes) for `target`. Raises DecodeError if `raw` is shorter."""
        if len(raw) < DESCRIPTOR_BYTES:
            raise DecodeError(
                f"kernel descriptor has {len(raw)} bytes, not {DESCRIPTOR_BYTES}: the file is cut off"
            )
        group, private, kernarg, _, entry = struct.unpack_from("<IIIIq", raw, 0)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", raw, 0x2C)
        gfx12 = target in GFX12
        unified = target != "gfx908" and not gfx12

        def is_set(word: int, bit: int) -> bool:
            return bool(word >> bit & 1)

        return cls(
            group_segment_size=group,
            private_segment_size=private,
            kernarg_size=kernarg,
            entry_offset=entry,
            vgprs=((rsrc1 & 63) + 1) * VGPR_ENCODING_GRANULE[target],
            sgprs=GFX12_SGPRS if gfx12 else ((rsrc1 >> 6 & 15) + 1) * SGPR_ENCODING_GRANULE,
            accum_offset=((rsrc3 & 63) + 1) * 4 if unified else 0,
            tg_split=unified and is_set(rsrc3, 16),
            priority=rsrc1 >> 10 & 3,
            round_f32=rsrc1 >> 12 & 3,
            round_f16_f64=rsrc1 >> 14 & 3,
            denorm_f32=rsrc1 >> 16 & 3,
            denorm_f16_f64=rsrc1 >> 18 & 3,
            privileged=is_set(rsrc1, 20),
            dx10_clamp=is_set(rsrc1, 21),
            debug_mode=is_set(rsrc1, 22),
            ieee_mode=is_set(rsrc1, 23),
            bulky=is_set(rsrc1, 24),
            cdbg_user=is_set(rsrc1, 25),
            fp16_overflow=is_set(rsrc1, 26),
            enable_private_segment=is_set(rsrc2, 0),
            user_sgprs=rsrc2 >> 1 & (63 if gfx12 else 31),
            trap_handler=not gfx12 and is_set(rsrc2, 6),
            enable_workgroup_id_x=is_set(rsrc2, 7),
            enable_workgroup_id_y=is_set(rsrc2, 8),
            enable_workgroup_id_z=is_set(rsrc2, 9),
            enable_workgroup_info=is_set(rsrc2, 10),
            workitem_id_mode=rsrc2 >> 11 & 3,
            exception_address_watch=is_set(rsrc2, 13),
            exception_memory=is_set(rsrc2, 14),
            lds_granules=rsrc2 >> 15 & 511,
            exception_enables=rsrc2 >> 24 & 127,
            enable_private_segment_buffer=is_set(properties, 0),
            enable_dispatch_ptr=is_set(properties, 1),
            enable_queue_ptr=is_set(properties, 2),
            enable_kernarg_segment_ptr=is_set(properties, 3),
            enable_dispatch_id=is_set(properties, 4),
            enable_flat_scratch_init=is_set(properties, 5),
            enable_private_segment_size=is_set(properties, 6),
            wave32=is_set(properties, 10),
            dynamic_stack=is_set(properties, 11),
            preload_length=preload & 127 if target != "gfx908" else 0,
            preload_offset=preload >> 7 & 511 if target != "gfx908" else 0,
        )
