"""Compiles programs of `ir_programs.py` for a GPU and for the host, runs them, and compares their memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from simgpu import Device
from simgpu.asm.builder import toolchain
from simgpu.hardware.errors import ToolchainError
from simgpu.tools.robustness import ir_host
from simgpu.tools.robustness.ir_programs import IN_STRIDE, LANES, OUT_STRIDE, SHARED, IrProgram
from simgpu.tools.robustness.ir_statements import ATOM_STRIDE

TIMEOUT_SECONDS = 300
ALIGNMENT = 64  # bytes: buffers lie as aligned as a GPU's
LDS_BYTES = 1 << 16
SCALAR = 0x9E3779B97F4A7C15 - (1 << 64)
HOST_OPTIONS = ("-target", "x86_64-linux-gnu", "-march=haswell", "-fPIC", "-ffp-contract=off", "-Wno-override-module")
GPU_OPTIONS = ("-target", "amdgcn-amd-amdhsa", "-nogpulib", "-mcode-object-version=5", "-ffp-contract=off", "-Wno-override-module")
# x86 calls a library for some narrowing. These round to odd; the second rounding cannot tell that from the exact value.
HOST_HELPERS = """
define internal float @to_odd(double %x) {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %exact = fcmp ueq double %back, %x
  %bits = bitcast float %near to i32
  %abs_back = call double @llvm.fabs.f64(double %back)
  %abs = call double @llvm.fabs.f64(double %x)
  %away = fcmp ogt double %abs_back, %abs
  %step = sext i1 %away to i32
  %toward = add i32 %bits, %step
  %odd = or i32 %toward, 1
  %chosen = select i1 %exact, i32 %bits, i32 %odd
  %made = bitcast i32 %chosen to float
  ret float %made
}
define half @__truncdfhf2(double %x) {
  %odd = call float @to_odd(double %x)
  %made = fptrunc float %odd to half
  ret half %made
}
define bfloat @__truncsfbf2(float %x) {
  %nan = fcmp uno float %x, %x
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %even = and i32 %high, 1
  %bias = add i32 %even, 32767
  %sum = add i32 %bits, %bias
  %cut = lshr i32 %sum, 16
  %narrow = trunc i32 %cut to i16
  %chosen = select i1 %nan, i16 32704, i16 %narrow
  %made = bitcast i16 %chosen to bfloat
  ret bfloat %made
}
define bfloat @__truncdfbf2(double %x) {
  %odd = call float @to_odd(double %x)
  %made = call bfloat @__truncsfbf2(float %odd)
  ret bfloat %made
}
"""


@dataclass(frozen=True)
class MemoryImage:
    """A program's buffers as bytes, before or after its run."""

    given: np.ndarray
    out: np.ndarray
    atom: np.ndarray


@dataclass(frozen=True)
class Setting:
    """A target and the options of its clang."""

    target: str
    level: str
    global_isel: bool
    passes: bool = True  # False: only code generation, as llc does
    limit: int | None = None  # the last optional pass that clang runs (default: all)

    def __str__(self) -> str:
        without = "" if self.passes else ", code generation only"
        return f"{self.target} {self.level}{' GlobalISel' if self.global_isel else ''}{without}"

    @property
    def options(self) -> tuple[str, ...]:
        chosen = ("-mllvm", "-global-isel", "-mllvm", "-global-isel-abort=2") if self.global_isel else ("-mllvm", "-global-isel=0")
        passes = () if self.passes else ("-Xclang", "-disable-llvm-passes")
        limit = () if self.limit is None else ("-mllvm", f"-opt-bisect-limit={self.limit}")
        return (*GPU_OPTIONS, f"-mcpu={self.target}", self.level, *passes, *chosen, *limit)


class ProgramRejected(Exception):
    """Raised with the first lines of an error of clang or the linker."""


def memory(seed: int, number: int) -> MemoryImage:
    """Draws random bytes; some of the input are small or zero."""
    rng = np.random.default_rng((seed, number))
    given = rng.integers(0, 256, LANES * (IN_STRIDE + 8), np.uint8)
    given[rng.random(len(given)) < 0.15] = 0
    out = rng.integers(0, 256, LANES * (OUT_STRIDE + 8), np.uint8)
    atom = rng.integers(0, 256, LANES * ATOM_STRIDE + SHARED, np.uint8)
    return MemoryImage(given, out, atom)


@cache
def _tools() -> toolchain.Toolchain:
    found = toolchain.candidates()
    if not found:
        raise ToolchainError(toolchain.ADVICE)
    return found[0]


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ProgramRejected("timeout") from None
    if done.returncode < 0:
        raise ProgramRejected(f"{Path(command[0]).name} ended by signal {-done.returncode}")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line or "UNREACHABLE" in line or "Assertion" in line]
        raise ProgramRejected("; ".join(lines[:3])[:500] or f"exit status {done.returncode}: {done.stderr[:200]}")


def _build(text: str, options: Sequence[str], folder: str) -> Path:
    """Compiles the IR to a shared object. Raises ProgramRejected."""
    source, made, linked = Path(folder, "program.ll"), Path(folder, "program.o"), Path(folder, "program.so")
    source.write_text(text)
    _run([*_tools().clang, *options, "-c", str(source), "-o", str(made)])
    _run([*_tools().lld, "-shared", str(made), "-o", str(linked)])
    return linked


def host_results(programs: Sequence[IrProgram], seed: int, level: str = "-O0") -> list[MemoryImage]:
    """Runs the programs on x86, phase 0 before phase 1. Raises ProgramRejected, for code that ends its process, too."""
    text = HOST_HELPERS + "".join(program.text(gpu=False) for program in programs)
    with tempfile.TemporaryDirectory(prefix="simgpu-ir-") as folder:
        library = _build(text, (*HOST_OPTIONS, level), folder)
        image = Path(folder, "image")
        before = [memory(seed, program.number) for program in programs]
        places = []
        with image.open("wb") as file:
            for buffers in before:
                starts = []
                for buffer in (buffers.given, buffers.out, buffers.atom, np.zeros(LDS_BYTES, np.uint8)):
                    file.seek(-file.tell() % ALIGNMENT, os.SEEK_CUR)
                    starts.append(file.tell())
                    file.write(buffer.tobytes())
                places.append(starts)
        jobs = [([f"p{one.number}_{phase}" for phase in range(2)], starts) for one, starts in zip(programs, places, strict=True)]
        _run([sys.executable, "-S", "-E", ir_host.__file__, str(library), str(image), json.dumps((SCALAR, LANES, jobs))])
        after = np.fromfile(image, np.uint8)

    def part(start: int, like: np.ndarray) -> np.ndarray:
        return after[start : start + len(like)]

    return [
        MemoryImage(part(given, was.given), part(out, was.out), part(atom, was.atom))
        for was, (given, out, atom, _lds) in zip(before, places, strict=True)
    ]


def code_object(programs: Sequence[IrProgram], setting: Setting) -> bytes:
    """Compiles the programs' kernels. Raises ProgramRejected."""
    with tempfile.TemporaryDirectory(prefix="simgpu-ir-") as folder:
        return _build("".join(program.text(gpu=True) for program in programs), setting.options, folder).read_bytes()


def gpu_result(gpu: Device, module: Any, program: IrProgram, seed: int) -> MemoryImage:
    """Runs one program on the simulated GPU. Raises SimError."""
    before = memory(seed, program.number)
    buffers = [gpu.upload(data) for data in (before.given, before.out, before.atom)]
    try:
        module[f"p{program.number}"].launch(grid=1, block=LANES, args=[*buffers, SCALAR])
        return MemoryImage(*(buffer.download(np.uint8) for buffer in buffers))
    finally:
        for buffer in buffers:
            gpu.free(buffer)


def difference(expected: MemoryImage, got: MemoryImage) -> str | None:
    """Describes the first differing bytes; None if all agree."""
    for name in ("given", "out", "atom"):
        a, b = getattr(expected, name), getattr(got, name)
        (places,) = (a != b).nonzero()
        if len(places):
            first = int(places[0])
            here, there = (bytes_[first : first + 8].tobytes().hex(" ") for bytes_ in (b, a))
            return f"{len(places)} bytes of `{name}`, first at {first}: {here} for {there}"
    return None
