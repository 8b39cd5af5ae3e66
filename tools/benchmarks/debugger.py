"""Times a step of the debugger: `python -m simgpu.tools.benchmarks.debugger`."""

from __future__ import annotations

import time

from simgpu import Device
from simgpu.debugger.debugger import Debugger
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.tools.benchmarks.engine import bench_named, prepare
from simgpu.tools.shared.console import print_figures

STEPS = 20_000


def step_microseconds(target: str) -> float:
    """Returns the mean of STEPS steps of one instruction, in the scalar loop of `benchmarks.engine`.

    >>> step_microseconds("mi100")  # doctest: +SKIP
    8.1
    """
    made = prepare(bench_named("scalar"), Device(target))
    with Debugger(made.kernel, Geometry.of(1, made.bench.workgroup), [*made.buffers, made.bench.count]) as debugger:
        debugger.step()
        began = time.perf_counter()
        for _ in range(STEPS):
            debugger.step()
        return (time.perf_counter() - began) / STEPS * 1e6


if __name__ == "__main__":
    print_figures({"step, us": step_microseconds("mi100")}, False)
