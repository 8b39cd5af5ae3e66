"""Initialises shadows when a wave begins: of registers, LDS and private memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.uninitialized import shadow_layout
from simgpu.engine.workers.scheduler import PACKED_XY
from simgpu.engine.workgroup import context
from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.runtime import clear, copy, fill, load32, load64, runtime

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker


def prepare(launch: Dispatch, worker: Worker) -> None:
    """Allocates the shadow that each wave begins with and the shadow of LDS, and makes the scheduler call `begin`.

    The addresses of both, and of private memory's shadow, go into the worker's context.
    """
    shadow = aligned_bytes(shadow_layout.BEGIN_BYTES)
    begin_scalars(launch, worker, shadow[:512].view(np.uint32))
    shadow[layout.SCC] = 1
    flags = shadow[layout.ADDRESSES : layout.ADDRESSES + shadow_layout.REGISTERS]
    flags[:] = shadow_layout.UNDEFINED
    mode = worker.job.id_mode
    flags[: 1 if mode >= PACKED_XY else mode + 1] = shadow_layout.DEFINED
    lds = aligned_bytes(len(worker.slots) * worker.job.lds_stride)
    worker.storage += shadow, lds
    worker.job.begin = begin.address
    worker.set_context(shadow_layout.BEGIN, shadow.ctypes.data)
    scratch = launch.memory.find(worker.job.scratch)
    if scratch is not None and scratch.undefined is not None:
        worker.set_context(shadow_layout.SCRATCH_SHADOW, scratch.undefined.ctypes.data)
    worker.set_context(shadow_layout.LDS_SHADOW, lds.ctypes.data - worker.job.lds)


@runtime
def begin(wave: int, place: int) -> None:
    """Initialises the shadows of a wave's registers and private memory; for the workgroup's first wave, also that of LDS.

    place: the wave's number among the worker's waves.
    """
    copy(wave + shadow_layout.DELTA, context(wave, shadow_layout.BEGIN), shadow_layout.BEGIN_BYTES)
    clear(wave + shadow_layout.DELTA + layout.VGPR, 3 * layout.ROW)  # the work-item ids
    clear(wave + shadow_layout.ORIGINS, shadow_layout.ORIGINS_BYTES)
    if load32(wave + layout.WAVE_ID) == 0:
        lds = load64(wave + layout.LDS_BASE) + context(wave, shadow_layout.LDS_SHADOW)
        fill(lds, load64(wave + layout.LDS_SIZE) + 63 & -64, 0xFF)
    scratch, nbytes = context(wave, shadow_layout.SCRATCH_SHADOW), layout.LANES * load64(wave + layout.SCRATCH_SIZE)
    if scratch:
        fill(scratch + place * nbytes, nbytes, 0xFF)


def begin_scalars(launch: Dispatch, worker: Worker, shadow: np.ndarray) -> None:
    """Marks all scalar registers as undefined, except the ones that the launch sets (AMDGPUUsage, "SGPR Register Set Up Order")."""
    descriptor = launch.info.descriptor
    shadow[:] = 0xFFFFFFFF
    shadow[: descriptor.launch_state_sgprs + descriptor.preload_length] = 0
    first = worker.job.group_id_sgpr
    ids = worker.job.group_id_mask.bit_count() + descriptor.enable_workgroup_info
    shadow[first : first + ids] = 0
    if worker.job.scratch_sgpr >= 0:
        shadow[worker.job.scratch_sgpr] = 0
    if worker.job.flat_scratch:
        shadow[isa.FLAT_SCRATCH : isa.FLAT_SCRATCH + 2] = 0
    shadow[isa.EXEC : isa.EXEC + 2] = 0
