"""Compiles HIP source to a code object for hiprtc, by the clang that also assembles kernels.

HIP's built-in types and functions come from device/*.h, whether or not a source includes HIP's headers. Longer functions
(sinf, pow, printf) come from ROCm's device library: ocml.bc and ockl.bc, which ROCm, Debian and the triton wheel provide.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from simgpu.asm.builder.toolchain import ADVICE, CODE_OBJECT_VERSION, TIMEOUT_SECONDS, Toolchain, candidates
from simgpu.hardware.errors import ToolchainError
from simgpu.hip.names import USE
from simgpu.hip.options import HipSource

HEADER = Path(__file__).with_name("device") / "hip.h"  # included in every source
STANDARD = HEADER.parent / "standard"  # headers of C and C++: what they have for kernels
HIP_HEADERS = HEADER.parent / "include"  # hip/NAME: most are empty, since hip.h has everything
# Options of a program that are passed to clang; all others, for hipcc or nvcc, are dropped.
PASSED = re.compile(r"-(D|U|I|O|f|W|std=|m(?!cpu))")
DEPTH = 8  # folders above the source's that `..` in the name of a header may reach
LANGUAGE = ("-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-nostdinc", "-nostdinc++", "-fdeclspec", "-std=c++17")
BITCODE = "-fgpu-rdc"  # LLVM bitcode that is linked later
LIBRARIES = ("ocml.bc", "ockl.bc")
# Constants of the control libraries (oclc_*.bc), one each: ROCm-Device-Libs' doc/OCML.md, "Controls".
CONTROL = """
#define SAY(type, name, value) const type __attribute__((address_space(4), visibility("hidden"))) __oclc_##name = value;
SAY(unsigned char, wavefrontsize64, 1) SAY(unsigned char, wavefrontsize_log2, 6) SAY(unsigned char, daz_opt, 0)
SAY(unsigned char, correctly_rounded_sqrt32, 1) SAY(unsigned char, finite_only_opt, FAST) SAY(unsigned char, unsafe_math_opt, FAST)
SAY(unsigned, ISA_version, ISA) SAY(unsigned, ABI_version, ABI)
"""
NEEDS_LIBRARY = re.compile(r"undefined (?:hidden )?symbol: __(?:ocml_(\w+)_f(32|64)|ockl_\w+)")


def compile_source(source: HipSource) -> tuple[bytes | None, str]:
    """Returns the linked code object and the compiler's messages; None if the source is wrong, or there is no compiler."""
    try:
        tool = compiler()
    except ToolchainError as error:
        return None, str(error)
    with tempfile.TemporaryDirectory(prefix="simgpu-hiprtc-") as root:
        scratch = Path(root, *["sources"] * DEPTH)
        scratch.mkdir(parents=True)
        return (_linked_parts if source.parts else _compile)(tool, source, scratch)


def device_library() -> Path | None:
    """Finds the folder of ocml.bc and ockl.bc; None if no installation has them."""
    wheel = importlib.util.find_spec("triton")
    rocm = os.environ.get("ROCM_PATH") or "/opt/rocm"
    folders = [
        *filter(None, [os.environ.get("HIP_DEVICE_LIB_PATH")]), f"{rocm}/amdgcn/bitcode",
        *(f"{place}/backends/amd/lib" for place in (wheel.submodule_search_locations or () if wheel else ())),
        *map(str, Path("/usr/lib").glob("*/amdgcn/bitcode")),
    ]  # fmt: skip
    return next((path for path in map(Path, folders) if all((path / name).is_file() for name in LIBRARIES)), None)


def compiler() -> Toolchain:
    """Returns the first toolchain that compiles for amdgcn; raises ToolchainError if there is none."""
    tool = next((tool for tool in candidates() if tool.has_amdgcn()), None)
    if tool is None:
        raise ToolchainError(f"no clang with the amdgcn target and no lld found: {ADVICE}")
    return tool


def link(commands: Sequence[Sequence[str]], linked: Path) -> tuple[bytes | None, str]:
    """Runs the commands in the folder of `linked`, which the last one writes. Returns its bytes (None after a failure) and all
    messages."""
    log = ""
    for command in commands:
        try:
            done = subprocess.run(command, cwd=linked.parent, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, f"{command[0]}: {error}"
        log += done.stderr
        if done.returncode:
            return None, log
    return linked.read_bytes(), log


def _linked_parts(tool: Toolchain, source: HipSource, scratch: Path) -> tuple[bytes | None, str]:
    """Links bitcode to a code object, optimized as a whole."""
    names = [f"part{index}.bc" for index in range(len(source.parts))]
    for name, part in zip(names, source.parts):
        (scratch / name).write_bytes(part)
    options = ("-shared", "--no-undefined", f"-plugin-opt=mcpu={source.target}", "-plugin-opt=O3")
    return link([[*tool.lld, *options, *names, "-o", "program.co"]], scratch / "program.co")


def _compile(tool: Toolchain, source: HipSource, scratch: Path) -> tuple[bytes | None, str]:
    for name, text in source.headers:
        place = (scratch / name).resolve()
        if scratch.resolve().parents[DEPTH - 1] not in place.parents:
            return None, f"a header named {name}: names with / or more than {DEPTH} .. in front are not taken"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    # The last lines keep functions that name expressions refer to.
    uses = "".join(f"\n__device__ __attribute__((used)) auto {USE}{i} = &{name};" for i, name in _kernels(source))
    (scratch / source.file).write_text(f"{source.text}\n{uses}\n")
    if BITCODE in source.options:  # bitcode: its needs are known only when it is linked
        return _build(tool, source, scratch, device_library())
    code, log = _build(tool, source, scratch, None)
    if code is None and NEEDS_LIBRARY.search(log):  # sources compile without it if they can
        library = device_library()
        return _build(tool, source, scratch, library) if library else (None, _advice(log) + log)
    return code, log


def _build(tool: Toolchain, source: HipSource, scratch: Path, library: Path | None) -> tuple[bytes | None, str]:
    """Compiles the files in `scratch` to a code object, linked with a device library if one is passed."""
    options = [option for option in with_absolute_folders(source.options, source.folder) if PASSED.match(option)]
    version = f"-mcode-object-version={CODE_OBJECT_VERSION}"
    unit = hashlib.sha256(source.text.encode()).hexdigest()[:16]  # sources that are linked together must differ in it
    ir = [
        *tool.clang, *LANGUAGE, version, f"--offload-arch={source.target}", "-O3", "-include", str(HEADER),
        "-I.", f"-I{HIP_HEADERS}", *options, "-isystem", str(STANDARD),
        "-fgpu-rdc", f"-cuid={unit}", "-emit-llvm", "-g", "-fdebug-compilation-dir=.",
        *(_link_options(library) if library else ()), "-c", source.file, "-o", "program.bc",
    ]  # fmt: skip
    amdgcn = [*tool.clang, "-target", "amdgcn-amd-amdhsa", f"-mcpu={source.target}", version, "-nogpulib", "-O3"]
    commands = [
        ir, [*amdgcn, "-x", "ir", "-c", "program.bc", "-o", "program.o"],
        [*tool.lld, "-shared", "--no-undefined", "program.o", "-o", "program.co"],
    ]  # fmt: skip
    if BITCODE in source.options:
        commands = [ir]
    if library:
        (scratch / "oclc.c").write_text(CONTROL)
        said = {"FAST": int("-ffast-math" in options), "ISA": _isa_version(source.target), "ABI": 100 * CODE_OBJECT_VERSION}
        defined = [f"-D{key}={value}" for key, value in said.items()]
        commands.insert(0, [*amdgcn, *defined, "-emit-llvm", "-c", "oclc.c", "-o", "oclc.bc"])
    return link(commands, scratch / ("program.bc" if BITCODE in source.options else "program.co"))


def with_absolute_folders(options: Sequence[str], folder: str) -> list[str]:
    """Returns options whose -I names absolute folders, since the compiler runs in another one. Relative ones are in `folder`."""
    joined = re.sub(r"(?<=\0-I)\0", "", "\0" + "\0".join(options)).split("\0")[1:]
    return [f"-I{Path(folder, option[2:]).absolute()}" if option.startswith("-I") else option for option in joined]


def _link_options(library: Path) -> list[str]:
    """Returns options that link the needed functions of the device library, and the constants that control it."""
    files = [*(str(library / name) for name in LIBRARIES), "oclc.bc"]
    return [word for file in files for word in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", file)]


def _isa_version(target: str) -> int:
    """Returns 9010 for gfx90a: the target's last two hexadecimal digits are minor version and stepping, the digits before them
    the major one."""
    major, minor, stepping = target[3:-2], int(target[-2], 16), int(target[-1], 16)
    return int(major) * 1000 + minor * 100 + stepping


def _advice(log: str) -> str:
    """Returns the error line to print before lld's messages if these report missing functions of the device library."""
    found = NEEDS_LIBRARY.findall(log)
    missing = sorted({name + "f" * (bits == "32") if name else "printf" for name, bits in found})
    needs = "need" if len(missing) > 1 else "needs"
    ways = "pip install triton, apt install rocm-device-libs, or set ROCM_PATH"
    return f"error: {', '.join(missing)} {needs} ROCm's device library: {ways}\n"


def _kernels(source: HipSource) -> list[tuple[int, str]]:
    """Returns the numbered expressions that name an instance of a template, which the compiler would drop if unused."""
    return [(index, name.lstrip("&")) for index, name in enumerate(source.names) if "<" in name]
