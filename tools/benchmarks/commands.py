"""Times commands as users call them: each in new processes with warm caches.

python -m simgpu.tools.benchmarks.commands [NAME ...] [--json]

Wall time and processor time are medians, after one more process that fills the caches.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simgpu.hardware.errors import ToolchainError
from simgpu.tools.benchmarks.blas import THREAD_VARIABLES
from simgpu.tools.shared.console import print_figures
from simgpu.tools.shared.errors import KernelFailed
from simgpu.tools.shared.processes import environment

TARGET, ARCH = "mi300x", "gfx942"
TIMES = 3  # processes after the first
LAUNCHES = 10_000
BLOCKS = 1_700  # of ten instructions each, for lint
BLOCK = """
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[6:7]
  s_waitcnt vmcnt(0)
  v_add_f32 v4, v2, v3
  v_mul_f32 v5, v4, v4
  v_fma_f32 v6, v5, v4, v2
  v_max_f32 v6, v6, v3
  s_add_u32 s10, s10, 1
  global_store_dword v1, v6, s[8:9]
  s_nop 0"""
HOST = """
#include <stdlib.h>
extern int hipModuleLoad(void **, const char *), hipModuleGetFunction(void **, void *, const char *);
extern int hipMalloc(void **, size_t), hipDeviceSynchronize(void);
typedef unsigned Extent;
extern int hipModuleLaunchKernel(void *, Extent, Extent, Extent, Extent, Extent, Extent, unsigned, void *, void **, void **);

int main(int count, char **words) {
    void *module, *kernel, *x, *y, *z;
    int n = 256;
    void *arguments[] = {&x, &y, &z, &n};
    if (hipModuleLoad(&module, words[1]) || hipModuleGetFunction(&kernel, module, "bench")) return 1;
    if (hipMalloc(&x, 1024) || hipMalloc(&y, 1024) || hipMalloc(&z, 1024)) return 1;
    for (int i = atoi(words[2]); i > 0; i--)
        if (hipModuleLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, 0, arguments, 0)) return 2;
    return hipDeviceSynchronize();
}
"""
TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

x, out = torch.ones(1000), torch.empty(1000)
add[(1,)](x, x, out, 1000, BLOCK=1024)
assert (out == 2).all()
"""


@dataclass(frozen=True)
class Command:
    """A command to time."""

    work: str  # in words
    words: Callable[[Path], list[str]]  # writes its files into a folder; returns the words after `simgpu`
    needs: tuple[str, ...] = ()  # packages


@dataclass(frozen=True)
class CommandTime:
    """Seconds of a command."""

    wall: float
    processor: float


def measure(name: str, times: int = TIMES) -> CommandTime:
    """Times a command of COMMANDS. Raises KernelFailed if it fails, ToolchainError if a package that it needs is missing."""
    command = COMMANDS[name]
    missing = [package for package in command.needs if importlib.util.find_spec(package) is None]
    if missing:
        raise ToolchainError(f"{name}: {', '.join(missing)} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        words = command.words(Path(folder))
        taken = [_run(words) for _ in range(1 + times)][1:]
    return CommandTime(statistics.median(one.wall for one in taken), statistics.median(one.processor for one in taken))


def _run(words: list[str]) -> CommandTime:
    free = {name: value for name, value in environment().items() if name not in THREAD_VARIABLES}  # the table sets them
    before, began = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-P", "-m", "simgpu", *words], env=free, capture_output=True, text=True)
    wall, after = time.perf_counter() - began, os.times()
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise KernelFailed(f"simgpu {' '.join(words)}: {said[-1]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return CommandTime(wall, spent)


def _lint(folder: Path) -> list[str]:
    from simgpu import asm
    from simgpu.tools.benchmarks.engine import Bench, text_of

    bench = Bench("lint", "straight code", "  v_lshlrev_b32 v1, 2, v0" + BLOCK * BLOCKS, groups=1, count=1, nbytes=4096)
    (folder / "k.co").write_bytes(asm.assemble(text_of(bench, ARCH), ARCH))
    return ["lint", str(folder / "k.co")]


def _hip(folder: Path) -> list[str]:
    from simgpu import asm
    from simgpu.hip import library
    from simgpu.tools.benchmarks.engine import bench_named, text_of

    (folder / "k.co").write_bytes(asm.assemble(text_of(bench_named("vector add"), ARCH), ARCH))
    (folder / "main.c").write_text(HOST)
    compile = [sys.executable, "-m", "ziglang", "cc", "-target", library.target(), "-O2", "main.c", "-o", "main"]
    done = subprocess.run(
        [*compile, f"-L{library.folder()}", "-lamdhip64", "-lpthread"], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        raise ToolchainError(f"a C program cannot be compiled: {done.stderr.strip()[-300:]}")
    return ["hip", "--target", TARGET, str(folder / "main"), str(folder / "k.co"), str(LAUNCHES)]


def _triton(folder: Path) -> list[str]:
    (folder / "script.py").write_text(TRITON)
    return ["triton", "--target", TARGET, str(folder / "script.py")]


GEMM = ("gemm", "--target", TARGET)
COMMANDS = {
    "version": Command("simgpu --version", lambda folder: ["--version"]),
    "time": Command(
        "simgpu time: f16 GEMM 1024³, MI300X", lambda folder: ["time", *GEMM, *"-m 1024 -n 1024 -k 1024 --dtype f16".split()]
    ),
    "lint": Command(f"simgpu lint: {10 * BLOCKS:,} instructions", _lint),
    "page": Command(
        "simgpu run --html: a small GEMM",
        lambda folder: ["run", *GEMM, *"-m 100 -n 77 -k 33 --html".split(), str(folder / "page.html"), "--force"],
    ),
    "why": Command(
        "simgpu why: an element of an f32 GEMM of 130,000 instructions",
        lambda folder: ["why", "C[5,7]", *GEMM, *"-m 64 -n 64 -k 4096".split()],
    ),
    "hip": Command(f"simgpu hip: {LAUNCHES:,} launches of a small kernel", _hip, ("ziglang",)),
    "triton": Command("simgpu triton: a cached kernel's first launch", _triton, ("triton", "torch")),
}


def main() -> int:
    """Prints the seconds of each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)} (default: those that can run here)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for name in options.names or COMMANDS:
        if name not in COMMANDS:
            parser.error(f"no command {name}; there are {', '.join(COMMANDS)}")
        try:
            taken = measure(name)
        except ToolchainError as error:
            print(error, file=sys.stderr)
            continue
        figures |= {f"{name}, wall s": taken.wall, f"{name}, processor s": taken.processor}
    print_figures(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
