"""`simgpu doctor`: dependencies that this machine has or lacks, and how to get them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from simgpu.hardware import cache
from simgpu.hardware.errors import HipError, ToolchainError
from simgpu.hardware.targets import architectures
from simgpu.tools.shared.console import add_json_option, print_json, progress, show
from simgpu.version import VERSION

NEEDED, USEFUL = "needed", "optional"
PACKAGES = ("numpy", "llvmlite", "rich", "msgpack", "ml_dtypes", "zstandard")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's options."""
    add_json_option(parser)


@dataclass(frozen=True)
class Dependency:
    """Software or a device that simgpu uses."""

    name: str
    found: str  # version or place, "" if missing
    purpose: str  # the work that needs it
    remedy: str = ""  # how to get it
    need: str = USEFUL

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        made = {"name": self.name, "found": self.found or None, "for": self.purpose, "need": self.need}
        return {**made, "remedy": self.remedy or None}


def run(options: Namespace) -> int:
    """Prints the dependencies; status 1 if one is missing that simgpu cannot work without."""
    with progress("looking around"):
        items = list(_items())
    lacking = [item for item in items if not item.found]
    if options.json:
        print_json([item.document() for item in items])
    else:
        listed = Table.grid(padding=(0, 3))
        for item in items:
            listed.add_row(item.name, item.found or Text(f"missing, {item.need}: for {item.purpose}", "yellow"))
        show(listed)
        for item in lacking:
            show(f"\n{item.name}: {item.remedy}")
        if not lacking:
            show("\nNothing is missing.")
    return 1 if any(item.need == NEEDED for item in lacking) else 0


def _items() -> Iterator[Dependency]:
    python = f"{platform.python_version()} ({sys.executable})"
    yield Dependency("simgpu", VERSION, "everything", need=NEEDED)
    yield Dependency(
        "Python", python if sys.version_info >= (3, 11) else "", "everything", "simgpu needs Python 3.11 or later", NEEDED
    )  # fmt: skip
    yield Dependency("host", f"{platform.system()} {platform.machine()}, {os.cpu_count()} threads", "speed", need=NEEDED)
    for name in PACKAGES:
        yield Dependency(name, _version(name), "everything", f"pip install {name}", NEEDED)
    found, remedy = _clang()
    yield Dependency("clang for amdgcn", found, "assembling kernels", remedy, NEEDED)
    yield _cache()
    yield _common_handlers()
    yield Dependency("triton", _version("triton"), "Triton kernels", "pip install 'triton>=3.7'")
    yield Dependency("torch", _version("torch"), "Triton with PyTorch", "pip install torch")
    yield _rocm()
    yield _gpu()
    said = "install Debian's chromium, or Chrome; any browser opens the pages that --html writes"
    yield Dependency("browser", next(filter(None, map(shutil.which, BROWSERS)), ""), "tests of pages", said)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def version_lines() -> list[str]:
    """Returns the output of `simgpu --version`, four lines: simgpu, clang, the host, the packages that decide speed and
    results."""
    packages = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "llvmlite"))
    host = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    found, why = _clang()
    return [f"simgpu {VERSION}", found or f"no clang: {why}", host, packages]


def _clang() -> tuple[str, str]:
    """Returns the version of the first clang with the amdgcn target, and "". If there is none: "" and how to get one."""
    from simgpu.asm.builder.toolchain import ADVICE, candidates

    try:
        usable = next((tool for tool in candidates() if tool.has_amdgcn()), None)
        return (usable.version(), "") if usable else ("", f"none has the amdgcn target: {ADVICE}")
    except ToolchainError as error:
        return "", str(error)


def _cache() -> Dependency:
    """Describes the folder that keeps compiled handlers from one run to the next."""
    place = cache.Folder("doctor").path
    if place is None:
        return Dependency("cache", "", "starting fast", "set SIMGPU_CACHE_DIR to a folder that only you can write")
    files = [path.stat().st_size for path in place.parent.rglob("*") if path.is_file()]
    return Dependency("cache", f"{place.parent}, {sum(files) / 1e6:.0f} MB in {len(files)} files", "starting fast")


def _common_handlers() -> Dependency:
    """Names the architectures whose common instructions have compiled handlers."""
    from simgpu.engine.lowering.ahead import is_compiled
    from simgpu.machine.jit import compiler

    found = ", ".join(arch for arch in architectures() if is_compiled(arch, compiler()))
    remedy = "simgpu warm --target mi300x compiles them now; else a first launch starts that, at low priority"
    return Dependency("common handlers", found, "fast first launches", remedy)


def _rocm() -> Dependency:
    folder = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    return Dependency("ROCm", str(folder) if folder.is_dir() else "", "HIP programs' compiler, real GPUs",
                "https://rocm.docs.amd.com; without it, kernels are compiled by the ziglang wheel's clang")  # fmt: skip


def _gpu() -> Dependency:
    remedy = "only for --device hip: an AMD CDNA GPU, ROCm, and pip install hip-python"
    if importlib.util.find_spec("hip") is None:
        return Dependency("GPU", "", "--device hip", remedy)
    from simgpu.hardware.hip import Device

    try:
        return Dependency("GPU", Device().name, "--device hip")
    except HipError as error:
        return Dependency("GPU", "", "--device hip", f"{remedy} ({error})")
