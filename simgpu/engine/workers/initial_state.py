"""State that waves begin with, as the kernel descriptor requests it.

Source: LLVM AMDGPUUsage, "Initial Kernel Execution State"; orders and sizes in hardware.code_object.descriptor.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.engine.workers.scheduler import PACKED_XY, WorkerJob
from simgpu.hardware.architectures import SINCE_GFX942
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.code_object.kernels import KernelInfo as KernelInfo
from simgpu.hardware.errors import LaunchError
from simgpu.machine import layout, mode
from simgpu.machine.layout import Wave
from simgpu.machine.operands import PRIVATE_APERTURE, SHARED_APERTURE

QUEUE_BYTES = 256
GIVE_WAY = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
GRID_SYNC = "hidden_multigrid_sync_arg"
GRID_BARRIER = "the grid's barrier"  # label of its memory


@dataclass(frozen=True)
class LaunchInputs:
    """Memory of a launch whose addresses waves find in SGPRs."""

    kernarg: int  # device address of the kernel arguments
    arguments: bytes  # their bytes
    dispatch: int  # device address of the packet, 0 if the descriptor does not request it
    queue: int  # device address of the queue, 0 if the descriptor does not request it
    scratch: int  # device address of a worker's private memory
    private: int  # bytes of private memory a lane


def mode_register(descriptor: Any) -> int:
    """Returns the MODE register that a wave begins with (ISA guides, "MODE register")."""
    return (
        descriptor.round_f32
        | descriptor.round_f16_f64 << 2
        | descriptor.denorm_f32 << 4
        | descriptor.denorm_f16_f64 << 6
        | descriptor.dx10_clamp << 8
        | descriptor.ieee_mode << 9
        | descriptor.fp16_overflow << mode.FP16_OVFL
    )


def packet(geometry: Geometry, private: int, lds: int, kernel_object: int, kernarg: int) -> bytes:
    """Returns the hsa_kernel_dispatch_packet_t that a kernel may read. private: bytes a lane. lds: bytes."""
    return struct.pack(
        "<HHHHHHIIIIIQQQQ", 2, geometry.used_dimensions, *geometry.block, 0, *geometry.global_size,
        private, lds, kernel_object, kernarg, 0, 0,
    )  # fmt: skip


def queue() -> bytes:
    """Returns the start of an amd_queue_t: the apertures' high halves at 0x40 and 0x44 (AMDGPUUsage, "Queue")."""
    return bytes(64) + struct.pack("<II", SHARED_APERTURE, PRIVATE_APERTURE)


def grid_sync(groups: int) -> bytes:
    """Returns the data at hidden_multigrid_sync_arg in a cooperative launch of one grid.

    It is the device library's mg_info (ockl/src/cg.cl). Fields: pointer, rank and number of a group of grids, work-items before
    and in all of them, the grid's own barrier, its workgroups. The layout is that of ROCm 5 to 7; LLVM's sources of 2026
    differ.
    """
    return struct.pack("<QIIQQQI", 0, 0, 0, 0, 0, 0, groups).ljust(64, b"\0")


def user_sgprs(info: KernelInfo, given: LaunchInputs) -> list[int]:
    """Returns the words of the user SGPRs. Raises LaunchError if the descriptor requests more than fit."""
    words: list[int] = []
    descriptor = info.descriptor

    def address(value: int) -> None:
        words.extend((value, value >> 32))

    if descriptor.enable_private_segment_buffer:
        # Swizzled by lane in dwords: swizzle, index stride 64, add_tid (LLVM, getScratchRsrc).
        words += given.scratch, given.scratch >> 32 & 0xFFFF | 1 << 31, 0xFFFFFFFF, 3 << 21 | 1 << 23
    if descriptor.enable_dispatch_ptr:
        address(given.dispatch)
    if descriptor.enable_queue_ptr:
        address(given.queue)
    if descriptor.enable_kernarg_segment_ptr:
        address(given.kernarg)
    if descriptor.enable_dispatch_id:
        address(0)
    if descriptor.enable_flat_scratch_init:
        address(given.scratch)
    if descriptor.enable_private_segment_size:
        words.append(given.private)
    if descriptor.preload_length:
        first = 4 * descriptor.preload_offset
        raw = given.arguments.ljust(first + 4 * descriptor.preload_length, b"\0")
        words += np.frombuffer(raw, np.uint32, descriptor.preload_length, first).tolist()
    if len(words) > descriptor.user_sgprs:
        raise LaunchError(
            f"{info.title}: its descriptor asks for more launch state than its {descriptor.user_sgprs} user SGPRs hold"
        )
    return words


def template(wave: Wave, info: KernelInfo, given: LaunchInputs, lds_room: int, entry: int, records: int, context: int) -> None:
    """Writes the state that every wave of a worker begins with into a zeroed `wave`: user SGPRs and constant fields.

    entry: first record. records: host address of the records. context: host address of the worker's context
    """
    for at, word in enumerate(user_sgprs(info, given)):
        wave.sgprs[at] = word & 0xFFFFFFFF
    wave.mode = mode_register(info.descriptor)
    wave.entry = wave.resume = entry
    wave.context = context
    wave.lds_size = lds_room
    wave.scratch_size = given.private
    wave.records = records


def registers(descriptor: Any, arch: str) -> tuple[int, int]:
    """Returns the numbers of VGPRs and AccVGPRs that a descriptor requests; they are equal on gfx908."""
    if arch == "gfx908":
        return descriptor.vgprs, descriptor.vgprs
    vectors = descriptor.accum_offset or descriptor.vgprs
    return vectors, max(0, descriptor.vgprs - vectors)


def job(info: KernelInfo, geometry: Geometry, arch: str) -> WorkerJob:
    """Returns a worker's job with the kernel's and geometry's fields. The launch fills in addresses and sizes."""
    descriptor = info.descriptor
    vectors, accumulators = registers(descriptor, arch)
    ids = (
        descriptor.enable_workgroup_id_x | descriptor.enable_workgroup_id_y << 1 | descriptor.enable_workgroup_id_z << 2
    )
    after_ids = descriptor.user_sgprs + ids.bit_count() + descriptor.enable_workgroup_info
    architected = arch in SINCE_GFX942
    groups = geometry.groups
    return WorkerJob(
        groups=groups[0] * groups[1] * groups[2],
        grid=groups[:2],
        block=geometry.block,
        size=geometry.global_size,
        vgprs=min(256, vectors),
        agprs=min(256, accumulators),
        group_id_sgpr=descriptor.user_sgprs,
        group_id_mask=ids,
        id_mode=_id_mode(descriptor.workitem_id_mode, arch),
        scratch_sgpr=-1 if architected or not descriptor.enable_private_segment else after_ids,
        flat_scratch=architected,
        kernarg_sgpr=_kernarg_sgpr(descriptor),
        give_way=GIVE_WAY,
        open=1,
        turn=layout.SLICE,
    )


def _id_mode(mode: int, arch: str) -> int:
    """Returns the job's `id_mode`. From gfx90a on, the ids that a kernel asks for are packed, and v0 has no others:
    LLVM reads it without a mask if only x is asked for.
    """
    return mode if arch == "gfx908" or mode == 0 else PACKED_XY - 1 + mode


def _kernarg_sgpr(descriptor: Any) -> int:
    """Returns the first SGPR of the kernarg segment's address, -1 if it is not passed."""
    before = 4 * descriptor.enable_private_segment_buffer + 2 * descriptor.enable_dispatch_ptr + 2 * descriptor.enable_queue_ptr
    return before if descriptor.enable_kernarg_segment_ptr else -1
