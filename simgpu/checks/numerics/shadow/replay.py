"""A launch for shadows: one workgroup alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.numerics.shadow.trace import ROOM, USED, Trace
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


class OneGroup(Launch):
    """A launch of which one workgroup runs."""

    fuse = False

    def alone(self, group: int) -> Worker:
        """Runs it; returns the worker."""
        self.workers = 1
        try:
            (worker,) = self.begin()
            self._run_groups([worker], group, group + 1)
            return worker
        finally:
            self.end(False)


def traced(kernel: Kernel, geometry: Geometry, args: Sequence[object], group: tuple[int, int, int]) -> tuple[np.ndarray, Launch]:
    """The trace of one workgroup (see `trace`), and its launch. LaunchError where it is too long."""
    device = kernel.module.device.sharing([Trace()])
    launch = OneGroup(Kernel(kernel.module.on(device), kernel.info), geometry, args)
    across, down, _ = geometry.groups
    worker = launch.alone(group[0] + across * (group[1] + down * group[2]))
    storage = worker.checks["shadow"]
    used = int(storage.block[USED])
    if used > ROOM:
        raise LaunchError(
            f"{kernel.name}: workgroup {group} does {used / ROOM:.1f} times as much as can be followed, "
            f"{4 * ROOM >> 20} MiB of values: take a smaller problem"
        )
    return storage.words[:used], launch
