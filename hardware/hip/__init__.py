"""The real GPU through HIP.

    library.py   libamdhip64 by ctypes: the calls that a launch needs, and errors in words
    device.py    Device, Buffer, Module, Kernel, Run: what `simgpu.Device` has, on the GPU
"""

from __future__ import annotations

from simgpu.hardware.hip.device import Buffer, Device, Kernel, Launch, Module, Run, unsuitable

__all__ = ["Buffer", "Device", "Kernel", "Launch", "Module", "Run", "unsuitable"]
