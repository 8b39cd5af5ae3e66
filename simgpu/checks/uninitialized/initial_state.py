"""What is defined when a wave begins, and where a worker's shadows of LDS and private memory lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.uninitialized import shadow_layout
from simgpu.engine.allocations import aligned_bytes
from simgpu.hardware.isa import instruction as isa
from simgpu.machine import layout

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch
    from simgpu.engine.worker import Worker


def prepare(launch: Launch, worker: Worker) -> None:
    """The shadow of a wave's first state, and the worker's addresses for handlers and scheduler."""
    shadow = worker.checks["shadow"]
    begin_scalars(launch, worker, shadow[:512].view(np.uint32))
    shadow[layout.SCC] = 1
    flags = shadow[layout.ADDRESSES : layout.ADDRESSES + shadow_layout.REGISTERS]
    flags[:] = shadow_layout.UNDEFINED
    mode = worker.job.id_mode
    flags[: 1 if mode == 3 else mode + 1] = shadow_layout.DEFINED
    lds = aligned_bytes(len(worker.slots) * worker.job.lds_stride)
    worker.storage.append(lds)
    worker.job.lds_shadow = lds.ctypes.data
    scratch = launch.device.memory.find(worker.job.scratch)
    if scratch is not None and scratch.undefined is not None:
        worker.job.scratch_shadow = scratch.undefined.ctypes.data
    worker.context[layout.CTX_LDS_SHADOW // 8] = lds.ctypes.data - worker.job.lds


def begin_scalars(launch: Launch, worker: Worker, shadow: np.ndarray) -> None:
    """Scalar registers that the launch sets are defined (AMDGPUUsage, "SGPR Register Set Up Order")."""
    descriptor = launch.info.descriptor
    shadow[:] = 0xFFFFFFFF
    user = (
        4 * descriptor.enable_private_segment_buffer
        + 2 * descriptor.enable_dispatch_ptr
        + 2 * descriptor.enable_queue_ptr
        + 2 * descriptor.enable_kernarg_segment_ptr
        + 2 * descriptor.enable_dispatch_id
        + 2 * descriptor.enable_flat_scratch_init
        + descriptor.enable_private_segment_size
        + descriptor.preload_length
    )
    shadow[:user] = 0
    first = worker.job.group_id_sgpr
    ids = worker.job.group_id_mask.bit_count() + descriptor.enable_workgroup_info
    shadow[first : first + ids] = 0
    if worker.job.scratch_sgpr >= 0:
        shadow[worker.job.scratch_sgpr] = 0
    if worker.job.flat_scratch:
        shadow[isa.FLAT_SCRATCH : isa.FLAT_SCRATCH + 2] = 0
    shadow[isa.EXEC : isa.EXEC + 2] = 0
