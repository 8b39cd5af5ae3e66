"""Assembles text to a linked code object, with a clang and lld found on the machine.

Order of search: `SIMGPU_CLANG`, ROCm's clang (`ROCM_PATH` or /opt/rocm), the `ziglang` wheel, a system clang that has the
amdgcn target. Results are cached by content; a hit starts no process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simgpu.hardware import cache
from simgpu.hardware.errors import ToolchainError
from simgpu.hardware.targets import architecture

CODE_OBJECT_VERSION = 5
TIMEOUT_SECONDS = 120
SOURCE_NAME = "kernel.s"
CLANG_OPTIONS = (
    *("-target", "amdgcn-amd-amdhsa", f"-mcode-object-version={CODE_OBJECT_VERSION}", "-nogpulib"),
    *("-c", "-x", "assembler", "-g", "-fdebug-compilation-dir=."),
)
SYSTEM_CLANGS = ("clang", *(f"clang-{version}" for version in range(24, 13, -1)))
ADVICE = "install the ziglang wheel (pip install ziglang) or set SIMGPU_CLANG to an LLVM clang"


@dataclass(frozen=True)
class Toolchain:
    """A clang and an lld, as commands."""

    clang: tuple[str, ...]  # command prefix
    lld: tuple[str, ...]  # command prefix
    probe: bool = False  # True if its targets must still be checked for amdgcn

    @property
    def identity(self) -> str:
        """Path, time and size: a text that changes when the tool changes, without running it."""
        status = os.stat(self.clang[0])
        return f"{' '.join(self.clang)}:{status.st_mtime_ns}:{status.st_size}"

    def has_amdgcn(self) -> bool:
        if not self.probe:
            return True
        answer = _run([*self.clang, "--print-targets"])
        return "amdgcn" in answer.stdout

    def version(self) -> str:
        """Returns the first line of `clang --version`. ToolchainError if clang cannot be run."""
        return f"{_run([*self.clang, '--version']).stdout.partition(chr(10))[0].strip()} ({self.clang[0]})"

    def build(self, text: str, target: str, name: str) -> bytes:
        """Returns the linked code object. Raises ToolchainError with the first message of clang or lld.

        Its line table names lines of the text as `name:LINE` (`CodeObject.source_line`).
        """
        with tempfile.TemporaryDirectory(prefix="simgpu-") as scratch:
            object_file, linked = Path(scratch, "object"), Path(scratch, "linked")  # not in the text's folder: any `name` is safe
            folder = Path(scratch, "source")
            folder.mkdir()
            (folder / name).write_text(text)
            assembled = _run([*self.clang, *CLANG_OPTIONS, f"-mcpu={target}", f"./{name}", "-o", str(object_file)], str(folder))
            if assembled.returncode:
                raise ToolchainError(_first_error(assembled.stderr, text, target, name))
            joined = _run([*self.lld, "-shared", str(object_file), "-o", str(linked)], scratch)
            if joined.returncode:
                raise ToolchainError(_first_error(joined.stderr, text, target, name))
            return linked.read_bytes()


def assemble(text: str, target: str, name: str = SOURCE_NAME) -> bytes:
    """Assembles and links `text` for `target`. Returns a code object of version 5.

    target: gfx908, gfx90a:xnack+, ... or a board. name: the file that messages and the line table name. Raises
    ToolchainError with a one-line message if there is no usable clang and lld, or they reject the text. Raises
    TargetError for an unknown board.

    >>> from simgpu import asm
    >>> asm.assemble("s_endpgm", "gfx942")[1:4]
    b'ELF'
    >>> asm.assemble("s_nop 1, 2", "gfx942")
    Traceback (most recent call last):
        ...
    simgpu.hardware.errors.ToolchainError: gfx942 assembly, line 1: ...: s_nop 1, 2
    """
    target = target if target.startswith("gfx") else architecture(target)
    tools, kept = [], cache.Folder("objects")
    for tool in _search():
        cached = kept.load(_digest(tool, text, target, name))
        if cached is not None:
            return cached
        tools.append(tool)
    for tool in tools:
        if tool.has_amdgcn():
            code = tool.build(text, target, name)
            kept.store(_digest(tool, text, target, name), code)
            return code
    raise ToolchainError(f"no clang with the amdgcn target and no lld found: {ADVICE}")


def candidates() -> tuple[Toolchain, ...]:
    """Returns the toolchains of this machine in order of search. SIMGPU_CLANG excludes all others."""
    return tuple(_search())


def _search() -> Iterator[Toolchain]:
    """Yields `candidates`, each once it is found: system clangs have many names to look up."""
    chosen = os.environ.get("SIMGPU_CLANG")
    if chosen:
        yield _toolchain_at(chosen)
    else:
        yield from _installed_toolchains()


def _toolchain_at(command: str) -> Toolchain:
    path = shutil.which(command)
    if path is None:
        raise ToolchainError(f"SIMGPU_CLANG={command} is no executable: unset it or correct it")
    lld = _lld_beside(path)
    if lld is None:
        raise ToolchainError(f"no ld.lld beside SIMGPU_CLANG={command} or on PATH: install lld")
    return Toolchain((path,), (lld,))


def _installed_toolchains() -> Iterator[Toolchain]:
    rocm = Path(os.environ.get("ROCM_PATH") or "/opt/rocm")
    for folder in (rocm / "llvm" / "bin", rocm / "lib" / "llvm" / "bin"):
        if (folder / "clang").is_file() and (lld := _lld_beside(str(folder / "clang"))):
            yield Toolchain((str(folder / "clang"),), (lld,))
    wheel = importlib.util.find_spec("ziglang")
    for folder_name in (wheel.submodule_search_locations or ()) if wheel else ():
        for zig in (Path(folder_name, "zig"), Path(folder_name, "zig.exe")):
            if zig.is_file():
                yield Toolchain((str(zig), "clang"), (str(zig), "ld.lld"))
    for name in SYSTEM_CLANGS:
        path = shutil.which(name)
        if path and (lld := _lld_beside(path)):
            yield Toolchain((path,), (lld,), probe=True)


def _lld_beside(clang: str) -> str | None:
    """Returns ld.lld from clang's own folder, with clang's version suffix, or else from PATH."""
    suffix = re.search(r"-\d+$", Path(clang).name)
    names = ([f"ld.lld{suffix.group()}"] if suffix else []) + ["ld.lld"]
    folders = (str(Path(clang).parent), str(Path(clang).resolve().parent), None)
    found = (shutil.which(name, path=folder) for name in names for folder in folders)
    return next((path for path in found if path), None)


def _run(command: list[str], folder: str | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, cwd=folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{command[0]} cannot be run: {error}; {ADVICE}") from None


def _first_error(messages: str, text: str, target: str, name: str) -> str:
    """Returns the tool's first error in one line, with the offending line of the assembly."""
    what = f"{target} assembly" if name == SOURCE_NAME else f"{name} for {target}"
    located = re.search(r":(\d+):\d+: (?:fatal )?error: (.*)", messages)
    if located:
        number = int(located.group(1))
        lines = text.splitlines()
        line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        return f"{what}, line {number}: {located.group(2).strip()}: {line}"
    plain = re.search(r"error: (.*)", messages)
    reason = plain.group(1).strip() if plain else " ".join(messages.split())[:300]
    return f"{what} was rejected: {reason or 'no message'}"


def _digest(tool: Toolchain, text: str, target: str, name: str) -> str:
    """Returns the cache key of a code object."""
    key = "\0".join((tool.identity, *CLANG_OPTIONS, target, name, text))
    return hashlib.sha256(key.encode()).hexdigest()
