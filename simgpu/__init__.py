"""simgpu: AMD CDNA kernels on a functional, instruction-exact model of the GPU."""

from __future__ import annotations

from hardware.errors import (
    Deadlock,
    DecodeError,
    InstructionLimit,
    KernelTrap,
    LaunchError,
    MemoryFault,
    SimError,
    UnsupportedInstruction,
)
from hardware.isa import disassemble
from simgpu.device import Buffer, Device, Kernel, Module
from simgpu.mfma import mfma
from simgpu.run import Finding, Run
from simgpu.version import VERSION as __version__

__all__ = [
    "Buffer",
    "Deadlock",
    "DecodeError",
    "Device",
    "Finding",
    "InstructionLimit",
    "Kernel",
    "KernelTrap",
    "LaunchError",
    "MemoryFault",
    "Module",
    "Run",
    "SimError",
    "UnsupportedInstruction",
    "__version__",
    "disassemble",
    "mfma",
]
