"""Real GPUs through HIP.

    library.py   libamdhip64 by ctypes: the calls that a launch needs, and texts of errors
    device.py    Device, Buffer, Module, Kernel, Run: the interface of `simgpu.Device`, on the GPU
"""

from __future__ import annotations

from simgpu.hardware.hip.device import Buffer, Device, Kernel, Launch, Module, Run, unsuitable

__all__ = ["Buffer", "Device", "Kernel", "Launch", "Module", "Run", "unsuitable"]
