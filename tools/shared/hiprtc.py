"""hiprtc's compiler: HIP source to a code object, by the clang that assembles kernels too.

A source finds HIP's words in our hiprtc.h, whether it includes HIP's headers or not.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from simgpu.asm.builder.toolchain import TIMEOUT_SECONDS, Toolchain, candidates
from simgpu.hardware.errors import ToolchainError
from simgpu.hip.options import Source

HEADER = Path(__file__).with_name("hiprtc.h")
# Options of a program that the compiler takes; others mean hipcc or nvcc, and are left out.
PASSED = re.compile(r"-(D|U|I|O|f|W|std=|m(?!cpu))")
LANGUAGE = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-nostdinc", "-nostdinc++", "-fdeclspec", "-std=c++17")


def compile_source(source: Source) -> tuple[bytes | None, str]:
    """The linked code object and the compiler's messages; None where the source is wrong, or there is no compiler."""
    try:
        tool = next((tool for tool in candidates() if tool.has_amdgcn()), None)
    except ToolchainError as error:
        return None, str(error)
    if tool is None:
        return None, "no clang with the amdgcn target and no lld found: pip install ziglang"
    with tempfile.TemporaryDirectory(prefix="simgpu-hiprtc-") as scratch:
        return _compiled(tool, source, Path(scratch))


def _compiled(tool: Toolchain, source: Source, scratch: Path) -> tuple[bytes | None, str]:
    for name, text in source.headers:
        place = (scratch / name).resolve()
        if scratch.resolve() not in place.parents:
            return None, f"a header named {name}: names with .. or / in front are not taken"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    for name in ("hip/hip_runtime.h", "hip/hiprtc.h"):
        (scratch / name).parent.mkdir(exist_ok=True)
        if not (scratch / name).exists():
            (scratch / name).write_text("#pragma once\n")
    # The last lines make sure that what is named by an expression is there.
    uses = "".join(f"\n__device__ __attribute__((used)) auto __simgpu_use_{i} = &{name};" for i, name in _kernels(source))
    (scratch / source.file).write_text(f"{source.text}\n{uses}\n")
    options = [option for option in source.options if PASSED.match(option)]
    ir = [
        *tool.clang, *LANGUAGE, f"--offload-arch={source.target}", "-O3", "-include", str(HEADER), "-I.", *options,
        "-fgpu-rdc", "-emit-llvm", "-gline-tables-only", "-fdebug-compilation-dir=.",
        "-c", source.file, "-o", "program.bc",
    ]  # fmt: skip
    machine = [
        *tool.clang, "-x", "ir", "-target", "amdgcn-amd-amdhsa", f"-mcpu={source.target}", "-nogpulib", "-O3", "-c", "program.bc",
        "-o", "program.o",
    ]  # fmt: skip
    log = ""
    for command in (ir, machine, [*tool.lld, "-shared", "program.o", "-o", "program.co"]):
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=os.environ)
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, f"{command[0]}: {error}"
        log += done.stderr
        if done.returncode:
            return None, log
    return (scratch / "program.co").read_bytes(), log


def _kernels(source: Source) -> list[tuple[int, str]]:
    """The expressions that name an instance of a template: nothing else makes the compiler keep it."""
    return [(index, name.lstrip("&")) for index, name in enumerate(source.names) if "<" in name]
