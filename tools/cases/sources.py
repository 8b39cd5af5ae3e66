"""The code object that a file names: one itself, or a source that is compiled first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from simgpu import hardware
from simgpu.hardware.errors import DecodeError
from simgpu.tools.shared.errors import UsageError

if TYPE_CHECKING:
    from simgpu.hardware.code_object.code_object import CodeObject

FILE = "code object, offload bundle, host file with one inside, assembly (.s), kernels (.hip, .cl), or a folder of kerncap's"
ASSEMBLY = (".s", ".S", ".asm")  # how names of assembly files end
HIP, OPENCL = ".hip", ".cl"
_TARGET = re.compile(r'^\s*\.amdgcn_target\s+"amdgcn-amd-amdhsa--(gfx\w+)', re.MULTILINE)


def is_assembly(path: str) -> bool:
    """Whether the file's name says that it holds assembly."""
    return Path(path).suffix in ASSEMBLY


def read_code_object(path: str, target: str | None = None) -> CodeObject:
    """The code object in a file, or that of an assembly file; OSError, DecodeError, TargetError, ToolchainError, UsageError.

    target: which entry of a bundle, what to assemble for (default: what `.amdgcn_target` says).
    """
    from simgpu.hardware.code_object.code_object import CodeObject

    arch = hardware.target(target).arch if target else ""
    if is_assembly(path) or Path(path).suffix in (HIP, OPENCL):
        return CodeObject.parse(built(path, arch), arch)
    try:
        return CodeObject.parse(Path(path).read_bytes(), arch)
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from None


def built(path: str, arch: str) -> bytes:
    """The code object of kernels (.hip, .cl), compiled, or of assembly, which a file of any other name holds."""
    return compiled(path, arch) if Path(path).suffix in (HIP, OPENCL) else assembled(path, arch)


def assembled(path: str, arch: str) -> bytes:
    """The code object of an assembly file, for an architecture or, without one, for that which the file names."""
    from simgpu.asm.builder.toolchain import assemble

    text = _text(path)
    named = _TARGET.search(text)
    if not arch and not named:
        raise UsageError(f"{path} names no target: give --target, or write .amdgcn_target \"amdgcn-amd-amdhsa--gfx942\" into it")
    return assemble(text, arch or str(named and named[1]), Path(path).name)


def compiled(path: str, arch: str) -> bytes:
    """The code object of a file of HIP or OpenCL C kernels, which needs no ROCm; UsageError with the compiler's words."""
    from simgpu.hip.options import Source
    from simgpu.tools.cases.opencl import compile_opencl
    from simgpu.tools.shared.hiprtc import compile_source

    if not arch:
        raise UsageError(f"{path} names no target: give --target")
    text, opencl = _text(path), Path(path).suffix == OPENCL
    code, log = compile_opencl(text, arch, Path(path)) if opencl else compile_source(Source(text, arch, file=Path(path).name))
    if code is None:
        said = next((line for line in log.splitlines() if "error: " in line), log).strip().removeprefix("./")
        raise UsageError(said if opencl else f"{said}; only kernels are compiled here, `simgpu hip` runs whole programs")
    return code


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is no UTF-8: a file of that name holds text") from None
