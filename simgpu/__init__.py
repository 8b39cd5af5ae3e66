"""simgpu: AMD CDNA kernels on a functional, instruction-exact model of the GPU.

`simgpu.Device` runs code objects. `simgpu.load` reads any file that holds kernels; `simgpu.compile` returns its code
object. `simgpu.mfma` runs one matrix instruction, `simgpu.disassemble` prints code, `simgpu.page` shows runs, layouts
and plans. Four more folders of the repository belong to the package: `simgpu.hardware` (the chips), `simgpu.operators`
(computations and their tiles), `simgpu.asm` (kernels) and `simgpu.tools` (the command). Each name is loaded when it is
first used.

    machine/     what every handler is made of: a wave's state, LLVM
    memory/      instructions that access memory
    alu/         instructions on registers
    matrix/      matrix instructions
    engine/      from a code object to executed workgroups
    checks/      checked mode
    device.py    the public Device: the engine's, with checks by name
    debugger/    one workgroup again: stops, steps forward and backward, where a value came from
    weak/        weak mode: caches that hold old copies, waves in an order that a seed chooses
    profile.py   where the time of launches goes, by opcode
    timing/      the model that predicts how long a launch would take
    advice/      what to change first in a kernel, and the launch's time without each cause
    slices/      a launch in parts, in other processes and machines
    proof/       two kernels, proved equal for all inputs by a solver
    sampling/    samples of a launch, which the timing model is fed with
    triton/      Triton kernels on a simulated GPU
    hip/         HIP programs, unmodified, on simulated GPUs
    __main__.py  python -m simgpu: the command
    version.py   the version, in one place
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # names that `__getattr__` finds, for mypy and editors
    from simgpu import asm, hardware, operators, triton
    from simgpu.debugger.debugger import debug
    from simgpu.device import Buffer, Device, Kernel, Module
    from simgpu.engine.result import Finding, Run
    from simgpu.hardware.errors import (
        Deadlock,
        DecodeError,
        HostCallError,
        InstructionLimit,
        KernelTrap,
        LaunchError,
        MemoryFault,
        SimError,
        TargetError,
        TimeLimit,
        ToolchainError,
        UnsupportedInstruction,
    )
    from simgpu.hardware.isa import disassemble
    from simgpu.matrix.one_mfma import mfma
    from simgpu.tools.cases.sources import compile, load
    from simgpu.tools.page.subjects import page
    from simgpu.version import VERSION as __version__

# Public name -> the module that has it.
_HOME = {
    **dict.fromkeys(("Buffer", "Device", "Kernel", "Module"), "simgpu.device"),
    **dict.fromkeys(("Finding", "Run"), "simgpu.engine.result"),
    **dict.fromkeys(
        (
            "Deadlock", "DecodeError", "HostCallError", "InstructionLimit", "KernelTrap", "LaunchError", "MemoryFault", "SimError",
            "TargetError", "TimeLimit", "ToolchainError", "UnsupportedInstruction",
        ),
        "simgpu.hardware.errors",
    ),
    "debug": "simgpu.debugger.debugger",
    "disassemble": "simgpu.hardware.isa",
    "mfma": "simgpu.matrix.one_mfma",
    "compile": "simgpu.tools.cases.sources",
    "load": "simgpu.tools.cases.sources",
    "page": "simgpu.tools.page.subjects",
}  # fmt: skip
_FOLDERS = ("asm", "hardware", "operators", "triton")

__all__ = [
    "Buffer",
    "Deadlock",
    "DecodeError",
    "Device",
    "Finding",
    "HostCallError",
    "InstructionLimit",
    "Kernel",
    "KernelTrap",
    "LaunchError",
    "MemoryFault",
    "Module",
    "Run",
    "SimError",
    "TargetError",
    "TimeLimit",
    "ToolchainError",
    "UnsupportedInstruction",
    "__version__",
    "asm",
    "compile",
    "debug",
    "disassemble",
    "hardware",
    "load",
    "mfma",
    "operators",
    "page",
    "triton",
]


def __getattr__(name: str) -> Any:
    """Loads a public name at its first use (PEP 562)."""
    if name in _FOLDERS:
        return importlib.import_module(f"simgpu.{name}")
    if name == "__version__":
        value: Any = importlib.import_module("simgpu.version").VERSION
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'simgpu' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
