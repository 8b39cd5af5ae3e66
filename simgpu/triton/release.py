"""Refuses releases of Triton that bind a kernel's arguments otherwise, or lack what simgpu replaces: LaunchError."""

from __future__ import annotations

import triton

from simgpu.hardware.errors import LaunchError

OLDEST = (3, 6)

if tuple(int(part) for part in triton.__version__.split(".")[:2]) < OLDEST:
    raise LaunchError(f"simgpu runs kernels of Triton {OLDEST[0]}.{OLDEST[1]} and later; this is Triton {triton.__version__}")
