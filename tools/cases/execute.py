"""A computation's kernels on a workload: made ready to launch, and launched."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simgpu.engine.allocations import GRANULE
from simgpu.hardware.arrays import ArrayForm, as_bytes
from simgpu.hardware.dtypes import dtype
from simgpu.machine.host_memory import ALIGNMENT
from simgpu.tools.cases.kept_kernels import emit_or_load
from simgpu.tools.cases.operators import Operator
from simgpu.tools.shared.agreement import Agreement, all_exact
from simgpu.tools.shared.arrays import require_memory
from simgpu.tools.shared.console import progress
from simgpu.tools.shared.inputs import Inputs
from simgpu.tools.shared.launching import Watch, launch, launch_work, simulated_device

if TYPE_CHECKING:
    from simgpu import Buffer, Device
    from simgpu.asm import EmittedKernel
    from simgpu.hardware import hip
    from simgpu.operators.tree import Root
    from simgpu.tools.cases.workload import Workload


class Ready(NamedTuple):
    """An operator's kernels, emitted without `items`, on a simulated device."""

    operator: Operator
    tree: Root
    kernel: EmittedKernel
    work: Workload
    buffers: list[Buffer]
    calls: list[tuple[Any, dict[str, Any]]]  # each kernel and the arguments of its launch, in order


def ready(options: Namespace, compares: bool = True) -> Ready:
    """Derives and emits the computation that the options describe, and uploads its inputs; launches nothing.

    compares: the float64 result will be needed. Raises UsageError if the host lacks the memory.
    """
    from simgpu import asm

    operator: Operator = options.operator
    tree, chosen = operator.tree(options), operator.choose_kernels(options)
    kernel = emit_or_load(operator, chosen, tree)
    need = 2 * operator.host_bytes(tree.problem) if compares else _launch_bytes(operator, tree, kernel)
    require_memory(need, tree.derivation.title)
    device = simulated_device(options, options.target)
    with progress("making inputs"):
        work = chosen.workload(tree, device.arch, Inputs(np.random.default_rng(options.seed), options.inputs, compares))
    buffers = [device.upload(array) if compares else _adopt(device, array) for array in work.arrays]
    return Ready(operator, tree, kernel, work, buffers, asm.Prepared(kernel, device).calls(*buffers))


def _adopt(device: Device, array: np.ndarray) -> Buffer:
    """Returns device memory that is the array's own, so kernels change the array. Copies one that is not aligned as allocations
    are, or no whole dwords."""
    from simgpu.engine.device import Buffer

    if array.ctypes.data % ALIGNMENT or array.nbytes % GRANULE:
        return device.upload(array)
    buffer = Buffer(device, device.memory.allocate(array.nbytes, data=as_bytes(array)))
    buffer.form = ArrayForm(array.dtype, array.shape)
    return buffer


def _launch_bytes(operator: Operator, tree: Root, kernel: EmittedKernel) -> int:
    """Upper bound on the host's bytes for a launch without a comparison.

    It counts operands on the host and on the device, which may share them, scratch memory, a copy of device memory for restoring
    it, and elements that are drawn in float64 and clipped before they are rounded.
    """
    operands, scratch = operator.operand_bytes(tree.problem), sum(nbytes for _, nbytes in kernel.scratch)
    drawn = 2 * 8 * operands * 8 // dtype(tree.problem.dtype).bits
    return 3 * operands + 2 * scratch + drawn


def execute(
    device: Device | hip.Device, kernel: EmittedKernel, work: Workload, watch: Watch | None = None
) -> tuple[list[np.ndarray], list[Any]]:
    """Launches the kernels and returns the memory of the result and of further results, and the kernels' runs.

    Raises KernelFailed, or HipError.
    """
    buffers = [device.upload(array) for array in work.arrays]
    runs = launch_work(kernel.name, lambda: _launch(kernel, device, buffers, watch), watch)
    written = (work.result, *(expected.operand for expected in work.beside))
    return [buffers[place].download(work.arrays[place].dtype, work.arrays[place].shape) for place in written], runs


def _launch(kernel: EmittedKernel, device: Device | hip.Device, buffers: list[Any], watch: Watch | None) -> list[Any]:
    """Launches the kernels in order and returns their runs."""
    from simgpu import asm

    prepared = asm.Prepared(kernel, device)
    try:
        return [launch(entry, watch, **call) for entry, call in prepared.calls(*buffers)]
    finally:
        prepared.free()


def against_sim(options: Namespace, kernel: EmittedKernel, work: Workload, real: np.ndarray) -> Agreement:
    """Compares a real GPU's result with the simulated one."""
    (simulated, *_), runs = execute(simulated_device(options, kernel.target), kernel, work)
    return Agreement.of(kernel.operands[work.result], real, simulated, all(all_exact(run.fidelity) for run in runs))
