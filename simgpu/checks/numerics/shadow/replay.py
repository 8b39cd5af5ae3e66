"""Runs a single workgroup of a launch, and traces it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgpu.checks.numerics.shadow.trace import ROOM, ShadowTrace
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError


def trace_group(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], group: tuple[int, int, int]
) -> tuple[np.ndarray, Launch]:
    """Returns the trace of one workgroup (see `trace`), and its launch. Raises LaunchError if the workgroup is too long."""
    device = kernel.module.device.sharing([ShadowTrace()])
    number = geometry.number(group)
    launch = Launch(
        Kernel(kernel.module.on(device), kernel.info), geometry, args, parts=[range(number, number + 1)], threads=1, fuse=False
    )
    launch.run()
    trace = launch.at_work[0].checks["shadow"].trace
    if trace.overflows:
        raise LaunchError(
            f"{kernel.title}: workgroup {group} does {trace.requested_words[0] / ROOM:.1f} times as much as can be followed, "
            f"{4 * ROOM >> 20} MiB of values: take a smaller problem"
        )
    return trace.drain(0), launch
