"""A launch of a computation's kernels on a workload."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from simgpu.tools.shared.agreement import Agreement, all_exact
from simgpu.tools.shared.launching import Watch, launch, launched, simulated_device

if TYPE_CHECKING:
    import numpy as np

    from simgpu import Device
    from simgpu.asm import EmittedKernel
    from simgpu.hardware import hip
    from simgpu.tools.cases.workload import Workload


def execute(
    device: Device | hip.Device, kernel: EmittedKernel, work: Workload, watch: Watch | None = None
) -> tuple[np.ndarray, list[Any]]:
    """The result's memory after a launch, and the kernels' runs; KernelFailed, HipError if one errs."""
    buffers = [device.upload(array) for array in work.arrays]
    runs = launched(kernel.name, lambda: _launched(kernel, device, buffers, watch), watch)
    before = work.arrays[work.result]
    return buffers[work.result].download(before.dtype, before.shape), runs


def _launched(kernel: EmittedKernel, device: Device | hip.Device, buffers: list[Any], watch: Watch | None) -> list[Any]:
    """The runs of the kernels, one behind the other."""
    from simgpu import asm

    prepared = asm.Prepared(kernel, device)
    try:
        return [launch(entry, watch, **call) for entry, call in prepared.calls(*buffers)]
    finally:
        prepared.free()


def against_sim(options: Namespace, kernel: EmittedKernel, work: Workload, real: np.ndarray) -> Agreement:
    """A real GPU's result beside the simulated one."""
    simulated, runs = execute(simulated_device(options, kernel.target), kernel, work)
    return Agreement.of(kernel.operands[work.result], real, simulated, all(all_exact(run.fidelity) for run in runs))
