"""Times a step of the debugger: `python -m simgpu.tools.benchmarks.debugger`."""

from __future__ import annotations

import time

import numpy as np

from simgpu import Device, asm
from simgpu.debugger.debugger import Debugger
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.tools.benchmarks.engine import benches, text_of
from simgpu.tools.shared.console import print_figures

STEPS = 20_000


def step_microseconds(target: str) -> float:
    """Returns the mean of STEPS steps of one instruction, in the scalar loop of `benchmarks.engine`.

    >>> step_microseconds("mi100")  # doctest: +SKIP
    8.1
    """
    gpu = Device(target)
    (bench,) = [bench for bench in benches() if bench.name == "scalar"]
    kernel = gpu.load(asm.assemble(text_of(bench, gpu.arch), gpu.arch))["bench"]
    buffers = [gpu.upload(np.zeros(bench.nbytes // 4, np.float32)) for _ in range(3)]
    with Debugger(kernel, Geometry.of(1, bench.workgroup), [*buffers, bench.count]) as debugger:
        debugger.step()
        began = time.perf_counter()
        for _ in range(STEPS):
            debugger.step()
        return (time.perf_counter() - began) / STEPS * 1e6


if __name__ == "__main__":
    print_figures({"step, us": step_microseconds("mi100")}, False)
