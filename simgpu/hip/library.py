"""Builds the HIP library that programs load instead of AMD's, by the C compiler of the ziglang wheel, and caches it."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from simgpu.hardware import cache
from simgpu.hardware.errors import ToolchainError

SOURCES = Path(__file__).with_name("library")
SYMBOLS = SOURCES / "symbols.txt"
# File names that programs of HIP 5, 6 and 7 link or dlopen, and HSA's. All are one file, so a program that loads two of them, as
# hip-python loads libamdhip64.so and libhiprtc.so, has one library with one arena.
NAMES = (
    *(f"lib{name}.so{version}" for name in ("amdhip64", "hiprtc") for version in ("", ".5", ".6", ".7")),
    "libhsa-runtime64.so", "libhsa-runtime64.so.1",
)  # fmt: skip
# Functions that AMD's HIP library does not have: our own, a C++ one by its beginning, and HSA's.
OTHERS = (
    "simgpuLendMemory", "simgpuRegisterNamed", "_Z24hipExtModuleLaunchKernel*", "hsa_init", "hsa_shut_down", "hsa_iterate_agents",
    "hsa_agent_get_info", "hsa_agent_iterate_isas", "hsa_isa_get_info_alt",
)  # fmt: skip
# Environment variables that the library reads: where its server listens, or the command that starts one; "1" to print calls.
SOCKET, SERVER, TRACE = "SIMGPU_HIP_SOCKET", "SIMGPU_HIP_SERVER", "SIMGPU_HIP_TRACE"
IMAGES = re.compile(r"Array|Tex|Surface|Mipmap|AtoA|AtoD|AtoH|DtoA|HtoA")  # names of functions on images
FOREIGN = re.compile(r"External|Graphics")  # names of functions on other libraries' objects; their first argument is not NULL
GLIBC = "2.17"  # of 2012: every distribution that ROCm supports has a later one
OPTIONS = (
    "-shared", "-fPIC", "-O2", "-g0", "-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
    "-Wl,-soname,libamdhip64.so", "-Wl,-z,nodelete", "-Wl,-z,defs", "-ldl", "-lpthread",
)  # fmt: skip
BUILD_SECONDS = 300
ADVICE = "Install the ziglang wheel: pip install ziglang"


def symbols() -> dict[str, tuple[str, ...]]:
    """Returns the functions of AMD's library by symbol version, oldest first."""
    found: dict[str, tuple[str, ...]] = {}
    version = ""
    for line in SYMBOLS.read_text().splitlines():
        if line.startswith(" "):
            found[version] += tuple(line.split())
        elif not line.startswith("#"):
            version = line
            found[version] = ()
    return found


def version_script() -> str:
    """Returns the linker's version script, with each function under its version in AMD's library."""
    made, before = [], ""
    for version, names in symbols().items():
        lines = "".join(f"    {name};\n" for name in (*names, *([] if before else OTHERS)))
        made.append(f"{version} {{\nglobal:\n{lines}" + ("local:\n    *;\n" if not before else "") + f"}}{before};\n")
        before = f" {version}"
    return "\n".join(made)


def stubs() -> str:
    """Returns C source of every function that no other source defines: it answers hipErrorNotSupported and reports its
    name once."""
    lines = (
        f'API __attribute__((weak)) Error {name}(const void *first) {{ return {answer}("{name}", first); }}'
        if (answer := "no_image" if IMAGES.search(name) else "missing_of" if FOREIGN.search(name) else "") else
        f'API __attribute__((weak)) Error {name}(void) {{ return missing("{name}"); }}'
        for names in symbols().values() for name in names
    )  # fmt: skip
    return "\n".join(('#include "internal.h"', *lines, ""))


def target() -> str:
    """Returns the compiler's name of this host. Raises ToolchainError for a host without HIP programs."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
        raise ToolchainError(f"HIP programs are Linux programs for x86_64 or aarch64; this is {sys.platform} on {machine}")
    return f"{machine}-linux-gnu.{GLIBC}"


def folder() -> Path:
    """Returns the folder that must come first in LD_LIBRARY_PATH; builds the library under all of its names if it is missing.

    Raises ToolchainError if there is no compiler.
    """
    kept = cache.Folder(f"hip-{_digest()[:32]}")
    content = kept.load("library")
    if content is None:
        content = _build()
        kept.store("library", content)
    placed = kept.place(NAMES[0], content)
    if placed is not None and None not in [kept.link(name, NAMES[0]) for name in NAMES[1:]]:
        return placed.parent
    return _temporary(content)


def _temporary(content: bytes) -> Path:
    """Returns a folder of this process only, for a cache that cannot be used."""
    scratch = Path(tempfile.mkdtemp(prefix="simgpu-hip-"))
    (scratch / NAMES[0]).write_bytes(content)
    for name in NAMES[1:]:
        (scratch / name).symlink_to(NAMES[0])
    return scratch


def _digest() -> str:
    """Hashes the sources, the options and the compiler's version."""
    made = hashlib.sha256(repr((OPTIONS, target(), _compiler_version())).encode())
    for path in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        made.update(str(path.relative_to(SOURCES)).encode() + b"\0" + path.read_bytes())
    made.update(Path(__file__).read_bytes())
    return made.hexdigest()


def _compiler_version() -> str:
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        raise ToolchainError(f"the HIP library is C, and its compiler is not installed. {ADVICE}")
    binary = Path(next(iter(found.submodule_search_locations)), "zig")
    return f"{binary}:{binary.stat().st_size}" if binary.is_file() else str(binary.parent)


def _build() -> bytes:
    with tempfile.TemporaryDirectory(prefix="simgpu-hip-") as scratch:
        script, missing, made = (Path(scratch, name) for name in ("versions.map", "missing.c", "library.so"))
        script.write_text(version_script())
        missing.write_text(stubs())
        sources = [str(path) for path in sorted(SOURCES.rglob("*.c"))]
        command = [
            sys.executable, "-m", "ziglang", "cc", "-target", target(), f"-I{SOURCES}", *sources, str(missing), *OPTIONS,
            f"-Wl,--version-script={script}", "-Wl,--undefined-version", "-o", str(made),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"the HIP library cannot be compiled: {error}. {ADVICE}") from None
        if done.returncode:
            raise ToolchainError(f"the HIP library cannot be compiled: {' '.join(done.stderr.split())[:600]}")
        return made.read_bytes()
