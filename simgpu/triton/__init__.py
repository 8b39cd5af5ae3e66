"""Triton kernels on a simulated AMD GPU: `with simgpu.triton.device("mi300x", check=True): kernel[grid](...)`.

Needs the optional extra `triton`. Nothing else in simgpu imports this folder. Importing it raises LaunchError for a Triton before
3.6. See docs/reference/triton.md.

    release.py       refuses older releases of Triton
    context.py       device(): makes a simulated GPU Triton's current one
    tuning.py        the autotuner on simulated devices
    driver.py        the driver that Triton sees
    kernels.py       the kernels that Triton compiled, by target
    arguments.py     a kernel's arguments by its signature
    tensors.py       host tensors: the bytes that an argument may reach
    session.py       the device that launches run on, and their results
    usage.py         a session's launches, and their totals by kernel
    frames.py        adds the calls between an instruction and the kernel to findings
    variables.py     compiles kernels with marks, by which the debugger finds variables
    instructions.py  a launch's executed instructions, decoded again
    report.py        a compiled kernel and its last launch, by source line
    model.py         modelled time for do_bench and autotuning
    proton.py        Proton's sessions with modelled times
"""

from __future__ import annotations

from simgpu.engine.finding import KernelFinding
from simgpu.triton import release  # noqa: F401  (first: it refuses a Triton that the others cannot import)
from simgpu.triton.context import device
from simgpu.triton.model import ModelledTime
from simgpu.triton.report import KernelReport, LineReport, report
from simgpu.triton.session import Session
from simgpu.triton.usage import Launched

__all__ = ["KernelFinding", "KernelReport", "Launched", "LineReport", "ModelledTime", "Session", "device", "report"]
