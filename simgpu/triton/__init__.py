"""Triton kernels on a simulated AMD GPU: `with simgpu.triton.device("mi300x", check=True): kernel[grid](...)`.

Needs the optional extra `triton`; nothing else in simgpu imports it. See docs/reference/triton.md.

    context.py       device(): a simulated GPU as Triton's current one
    tuning.py        the autotuner
    driver.py        the driver that Triton sees
    kernels.py       the kernels that Triton compiled, by target
    arguments.py     a kernel's arguments by its signature
    tensors.py       host tensors: the bytes that an argument may reach
    session.py       the device that launches run on, and their results
    usage.py         a session's launches, and their totals by kernel
    frames.py        calls between an instruction and the kernel, named in findings
    variables.py     kernels compiled with marks that the debugger finds variables by
    instructions.py  a launch's executed instructions, decoded again
    report.py        a compiled kernel and its last launch, by source line
    model.py         time by a model, for do_bench and autotuning
    proton.py        Proton's sessions, by modelled times
"""

from __future__ import annotations

from simgpu.engine.finding import KernelFinding
from simgpu.triton.context import device
from simgpu.triton.model import ModelledTime
from simgpu.triton.report import KernelReport, LineReport, report
from simgpu.triton.session import Session
from simgpu.triton.usage import Launched

__all__ = ["KernelFinding", "KernelReport", "Launched", "LineReport", "ModelledTime", "Session", "device", "report"]
