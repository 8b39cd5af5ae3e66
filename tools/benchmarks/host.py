"""Machine and the versions that decide how fast a simulation is: the head of a table of benchmarks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from simgpu.tools.benchmarks.blas import THREAD_VARIABLES, blas_kernels, blas_name, blas_pins
from simgpu.version import VERSION

PACKAGES = ("numpy", "llvmlite")


def host_document(threads: int) -> dict[str, Any]:
    """Returns a JSON document; threads: of simgpu and BLAS."""
    from simgpu.machine.compiling.helpers import hardware_threads
    from simgpu.machine.host import host

    return {
        "simgpu": VERSION, "cpu": _cpu(), "llvm_cpu": host().cpu, "vectors": f"{host().vector_bits}-bit vectors",
        "cores": hardware_threads(), "threads": threads,
        "load": os.getloadavg()[0], "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}", "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "llvm": host().llvm,
        "blas": blas_name(), "blas_kernels": blas_kernels(), "blas_pins": blas_pins(), "blas_threads": threads,
    }  # fmt: skip


def host_lines(found: dict[str, Any]) -> list[str]:
    """Returns lines for people."""
    cores = f"{found['cores']} cores, {found['memory_gib']:.0f} GiB"
    threads = f"{found['threads']} threads for simgpu, {found['blas_threads']} for BLAS ({THREAD_VARIABLES[0]} and kin)"
    packages = ", ".join(f"{name} {found[name]}" for name in PACKAGES)
    cpu = ", ".join(filter(None, [found["cpu"], f"LLVM's {found['llvm_cpu']}", found["vectors"]]))
    kernels = f", {found['blas_kernels']}'s kernels" if found["blas_kernels"] else ""
    pins = ", ".join(found["blas_pins"])
    return [
        f"simgpu {found['simgpu']} on {cpu}; {cores}; load {found['load']:.1f} before",
        f"{found['system']}, Python {found['python']}, {packages}, LLVM {found['llvm']}",
        f"BLAS {found['blas']}{kernels}; {threads}",
        *([f"BLAS is not free to choose: {pins} is set, so that ratios to numpy may flatter simgpu"] if pins else []),
    ]


def _cpu() -> str:
    """Returns the CPU's model name, from Linux or the platform."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
