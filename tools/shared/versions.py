"""What `simgpu --version` prints: ours, clang's, the host's."""

from __future__ import annotations

import importlib.metadata
import platform

from simgpu.asm.builder.toolchain import candidates
from simgpu.hardware.errors import ToolchainError
from simgpu.version import VERSION


def version_lines() -> list[str]:
    """Four lines: simgpu, clang, the host, the packages that decide speed and results."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "numba", "llvmlite"))
    host = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return [f"simgpu {VERSION}", _clang(), host, packages]


def _clang() -> str:
    try:
        usable = next((tool for tool in candidates() if tool.has_amdgcn()), None)
        return usable.version() if usable else "no clang with the amdgcn target"
    except ToolchainError as error:
        return f"no clang: {error}"
