"""Finds barriers that order nothing, by a checked launch of one workgroup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simgpu.checks.barrier_slack import BarrierSlack
from simgpu.checks.races.check import Races
from simgpu.checks.races.lds_dma import LdsDma
from simgpu.engine.allocations import SavedMemory
from simgpu.engine.events import RetiredCounter
from simgpu.hardware.errors import SimError

if TYPE_CHECKING:
    from simgpu.device import Kernel

WANTED = (BarrierSlack(), RetiredCounter(), LdsDma(), Races())  # in the order of `checks.suite.NOTES`
MOST_INSTRUCTIONS = 4_000_000  # of the checked launch: some seconds


def unneeded_barriers(kernel: Kernel, call: Mapping[str, Any]) -> frozenset[int]:
    """Returns the code offsets of barriers that order nothing in a launch of one workgroup; none if the launch fails or is long.

    The device's memory does not change. call: arguments of `Kernel.launch`.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
    >>> unneeded_barriers(run.kernel, run.call)
    frozenset()
    """
    device = kernel.module.device
    saved, checked = SavedMemory.of(device.memory), device.sharing(WANTED)
    checked.max_instructions = min(MOST_INSTRUCTIONS, device.max_instructions)
    try:
        run = type(kernel)(kernel.module.on(checked), kernel.info).launch(**{**call, "grid": 1, "global_size": None})
    except SimError:
        return frozenset()
    finally:
        saved.restore()
    return frozenset(
        finding.pc - kernel.info.start for finding in run.findings
        if finding.kind == "performance" and finding.text.startswith("s_barrier")
    )
