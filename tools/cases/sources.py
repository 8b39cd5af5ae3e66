"""Code object that a file names: the file itself, a capture's, or one compiled from a source."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import DecodeError
from simgpu.hardware.targets import architecture
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.source_files import decode_source

if TYPE_CHECKING:
    from simgpu import Module
    from simgpu.hardware.code_object.code_object import CodeObject

KERNELS = "kernels (.hip, .cpp, .cu, .cl, .ll)"
FILE = f"code object, offload bundle, host file with one inside, assembly (.s), {KERNELS}, or a folder of kerncap's"
ASSEMBLY = (".s", ".S", ".asm")  # suffixes of assembly files
HIP = (".hip", ".cpp", ".cc", ".cxx", ".cu")  # hipcc takes all of them
OPENCL, IR = ".cl", ".ll"
COMPILED = (*HIP, OPENCL, IR)
_TARGET = re.compile(r'^\s*\.amdgcn_target\s+"amdgcn-amd-amdhsa--(gfx\w+)', re.MULTILINE)


def is_assembly(path: str) -> bool:
    """True if the file's name says that it holds assembly."""
    return Path(path).suffix in ASSEMBLY


def is_capture(path: str) -> bool:
    """True if the path is a folder that kerncap wrote."""
    return Path(path, "dispatch.json").is_file()


def is_script(path: str) -> bool:
    """True if the file's name says that it is a Python program, which launches kernels itself."""
    return path.endswith(".py") and not is_operator_file(path)


def is_operator_file(word: str) -> bool:
    """True for a Python file, or FILE.py:NAME, that assigns OPERATORS."""
    path = operator_path(word)
    if path is None or not path.is_file():
        return False
    return re.search(r"^OPERATORS\b[^=\n]*=", path.read_text("utf-8", errors="replace"), re.MULTILINE) is not None


def operator_path(word: str) -> Path | None:
    """Returns the file of FILE.py or FILE.py:NAME; None for another word."""
    path, named, _ = word.partition(".py:")
    return Path(f"{path}.py") if named else Path(word) if word.endswith(".py") else None


def add_compiler_option(parser: Any) -> None:
    """Adds --options: clang's options for a source."""
    text = "options of clang for HIP, OpenCL C or LLVM IR, after its -O3, as --options='-O0 -DN=64 -Iinclude'"
    parser.add_argument("--options", type=compiler_options, default=[], metavar="OPTIONS", help=text)


def compiler_options(text: str) -> list[str]:
    """Splits options as a shell does. Raises ArgumentTypeError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: {error}") from None


def load(path: str, target: str | None = None, options: Sequence[str] = (), **device: Any) -> Module:
    """Loads a file's kernels on a new simulated GPU, `Module.device`.

    path: a code object, an offload bundle, assembly, HIP or OpenCL kernels, or a folder that kerncap captured; or the text of a
    source, as `compile` takes it
    target: board or architecture (default: the file's; HIP and OpenCL name none)
    options: of clang for a source, such as -O0
    device: options of `Device`, such as check=True

    Raises OSError, DecodeError, TargetError, ToolchainError, and UsageError for a source that does not compile.

    >>> import numpy as np
    >>> x = np.ones(64, "f4")
    >>> twice = load("__global__ void twice(float *x) {\\n  x[threadIdx.x] *= 2;\\n}", "mi300x", check=True)["twice"]
    >>> twice.launch(grid=1, block=64, args=[x]).findings
    []
    >>> x[:3]
    array([2., 2., 2.], dtype=float32)
    """
    from simgpu import Device

    code = read_code_object(path, target, options)
    return Device(target or code.target, **device).load(code.data)


def read_code_object(path: str, target: str | None = None, options: Sequence[str] = ()) -> CodeObject:
    """Reads the code object of a file, or compiles it from a source.

    target: the entry of a bundle, or the target to assemble for (default: the file's `.amdgcn_target`); options: of clang, for HIP,
    OpenCL C and LLVM IR. Raises OSError,
    DecodeError, TargetError, ToolchainError, UsageError.
    """
    from simgpu.hardware.code_object.code_object import CodeObject

    arch = architecture(target) if target else ""
    if is_script(path):
        raise UsageError(f"{path} is a Python program: run it by `simgpu triton {path}`; `debug`, `time` and `profile` take it")
    if is_text(path) or is_assembly(path) or Path(path).suffix in COMPILED:
        return CodeObject.parse(compile(path, target, options), arch)
    if options:
        raise UsageError(f"{path} is compiled already: it takes no options of a compiler: {' '.join(options)}")
    file = Path(path, "kernel.hsaco") if is_capture(path) else Path(path)
    try:
        return CodeObject.parse(file.read_bytes(), arch)
    except DecodeError as error:
        raise DecodeError(f"{file}: {error}") from None


def compile(path: str, target: str | None = None, options: Sequence[str] = ()) -> bytes:
    """Compiles kernels (.hip, .cpp, .cu, .cl, .ll), or assembles a file of any other name; no ROCm is needed.

    Returns the code object.

    path: the file, or its text of more than one line; HIP, OpenCL C, LLVM IR and assembly are recognized by their keywords
    target: board or architecture (default: the `.amdgcn_target` of assembly)
    options: of clang after its -O3, such as -O0; assembly takes none

    Raises OSError, TargetError, ToolchainError, and UsageError with the compiler's message.

    >>> compile("__global__ void nothing() {\\n}", target="mi300x")[:4]
    b'\\x7fELF'
    """
    arch = architecture(target) if target else ""
    if is_text(path):
        source = _Source(f"<text>{_ending(path)}", path)
    else:
        source = _Source(path, _text(path))
    if source.suffix in COMPILED:
        return _compile(source, arch, options)
    if options:
        raise UsageError(f"{source.name}: assembly takes no options of a compiler: {' '.join(options)}")
    return _assemble(source, arch)


@dataclass(frozen=True)
class _Source:
    """A source's name, for messages, and its text."""

    name: str
    text: str

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix


def is_text(source: str) -> bool:
    """True for a source itself, not the name of its file: text has more than one line."""
    return "\n" in source


def _ending(text: str) -> str:
    """Returns the ending that a file with this text has."""
    if re.search(r"^define\b.*\bamdgpu_kernel\b", text, re.MULTILINE):
        return IR
    if re.search(r"^\s*\.(amdgcn_target|amdhsa_kernel|text|globl)\b", text, re.MULTILINE):
        return ASSEMBLY[0]
    return OPENCL if re.search(r"\b(__kernel|kernel\s+void)\b", text) else HIP[0]


def _assemble(source: _Source, arch: str) -> bytes:
    """Assembles a source for an architecture or, without one, for the target that it names."""
    from simgpu.asm.builder.toolchain import assemble

    named = _TARGET.search(source.text)
    if not arch and not named:
        remedy = "give --target, or write .amdgcn_target \"amdgcn-amd-amdhsa--gfx942\" into it"
        raise UsageError(f"{source.name} names no target: {remedy}")
    return assemble(source.text, arch or str(named and named[1]), Path(source.name).name)


def _compile(source: _Source, arch: str, options: Sequence[str]) -> bytes:
    """Compiles HIP or OpenCL C kernels, or LLVM IR."""
    from simgpu.hip.options import HipSource
    from simgpu.tools.cases.host_parts import compile_kernels
    from simgpu.tools.cases.ir import compile_ir
    from simgpu.tools.cases.opencl import compile_opencl
    from simgpu.tools.shared.hiprtc import with_absolute_folders

    if not arch:
        raise UsageError(f"{source.name} names no target: give --target")
    file, given = Path(source.name), with_absolute_folders(options, ".")
    if source.suffix in HIP:
        code, log = compile_kernels(HipSource(source.text, arch, tuple(given), file=file.name, folder=str(file.parent)))
    else:
        code, log = (compile_ir if source.suffix == IR else compile_opencl)(source.text, arch, file, given)
    if code is None:
        said = next((line for line in log.splitlines() if "error: " in line), log).strip().removeprefix("./")
        if "file not found" in said:
            said += "; --options=-IFOLDER names its folder"
        elif source.suffix in HIP and "-IFOLDER" not in said:
            said += "; only kernels are compiled here, `simgpu hip` runs whole programs"
        raise UsageError(said)
    return code


def _text(path: str) -> str:
    data = Path(path).read_bytes()
    latin = Path(path).suffix in (*HIP, OPENCL) and b"\0" not in data
    try:
        return decode_source(data) if latin else data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is no UTF-8: a file of that name holds text") from None
