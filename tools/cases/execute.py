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
) -> tuple[list[np.ndarray], list[Any]]:
    """The memory of the result, and of those beside it, after a launch, and the kernels' runs; KernelFailed, HipError if one
    errs."""
    buffers = [device.upload(array) for array in work.arrays]
    runs = launched(kernel.name, lambda: _launched(kernel, device, buffers, watch), watch)
    written = (work.result, *(expected.operand for expected in work.beside))
    return [buffers[place].download(work.arrays[place].dtype, work.arrays[place].shape) for place in written], runs


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
    (simulated, *_), runs = execute(simulated_device(options, kernel.target), kernel, work)
    return Agreement.of(kernel.operands[work.result], real, simulated, all(all_exact(run.fidelity) for run in runs))
