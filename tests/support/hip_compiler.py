"""Compiles HIP programs with pip's packages: the clang and lld of the ziglang wheel, and our own library to link against."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from simgpu.hip import library
from simgpu.tools.shared import hiprtc
from tests.hardware.code_object.test_compressed import packed
from tests.support.device_library import VERSIONS
from tests.support.places import ROOT, kept_folder

PROGRAMS = ROOT / "tests" / "support" / "hip_programs"
ZIG = (sys.executable, "-m", "ziglang")
HIP = ("-x", "hip", "-nogpulib", "-nogpuinc", "-O1", "-g", "-fdeclspec", "-nostdinc", "-fdebug-compilation-dir=.")
LLD = f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -m ziglang ld.lld "$@"\n'  # clang calls it as `lld -flavor gnu …`
PAGE = 4096
FROM_THE_LINKER = re.compile(rb"__hip_(?:fatbin|gpubin_handle)_\w+")


def host_compiler() -> tuple[str, ...]:
    """Returns the words that compile and link C for this host.

    They name the target and a level of optimisation as the HIP library does: for each other pair, zig's first link builds its
    runtime libraries, for up to 25 seconds. Raises ToolchainError for a host without HIP programs.
    """
    return (*ZIG, "cc", "-target", library.target(), "-O2")


def run(command: Sequence[object], **options: object) -> None:
    """Runs a tool to its end. Skips the test without the wheel, fails it with the tool's message."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    if "No module named ziglang" in done.stderr:
        pytest.skip("the ziglang wheel is not installed")
    assert done.returncode == 0, done.stderr


def bundle(code: dict[str, bytes]) -> bytes:
    """Packs code objects by target into an uncompressed offload bundle."""
    rows = {b"host-x86_64-unknown-linux-gnu-": b""} | {b"hipv4-amdgcn-amd-amdhsa--" + t.encode(): data for t, data in code.items()}
    table, body, at = b"", b"", PAGE
    for name, data in rows.items():
        table += struct.pack("<QQQ", at, len(data), len(name)) + name
        body += data
        at += len(data)
    return (b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(rows)) + table).ljust(PAGE, b"\0") + body


def device_code(source: Path, target: str, scratch: Path, options: Sequence[str] = ()) -> bytes:
    """Returns the linked code object of a program's kernels."""
    (scratch / "lld").write_text(LLD)
    (scratch / "lld").chmod(0o755)
    environment = {**os.environ, "PATH": f"{scratch}:{os.environ['PATH']}"}
    made = scratch / f"{target}.co"
    device = ("--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={target}")
    run([*ZIG, "clang", *HIP, *device, *options, "-c", source.name, "-o", made], cwd=source.parent, env=environment)
    return made.read_bytes()


def with_device_library(target: str, scratch: Path) -> list[str]:
    """Returns options that link ocml's and ockl's functions. Skips the test if they are not installed."""
    found = hiprtc.device_library()
    if found is None:
        pytest.skip("no ocml.bc and ockl.bc: neither ROCm nor the triton wheel is installed")
    (scratch / "oclc.c").write_text(hiprtc.CONTROL)
    values = (f"-DISA={VERSIONS[target]}", "-DABI=500", "-DFAST=0")
    amdgcn = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", "-mcode-object-version=5")
    run([*ZIG, "clang", *amdgcn, *values, "-emit-llvm", "-c", scratch / "oclc.c", "-o", scratch / "oclc.bc"])
    files = (found / "ocml.bc", found / "ockl.bc", scratch / "oclc.bc")
    return ["-mcode-object-version=5", *(w for f in files for w in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(f)))]


def linked(target: str, *names: str) -> Path:
    """Returns the executable of several sources of -fgpu-rdc, whose device code is linked as one, as clang's driver does it.

    Every object's registration refers to one fat binary and one handle, by symbols that the link defines
    (clang/lib/Driver/ToolChains/HIPUtility.cpp).
    """
    digest = _digest(*(PROGRAMS / f"{name}.hip" for name in names), about=target)
    made = kept_folder("hip-programs") / f"{'-'.join(names)}-{target}-{digest}"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        for name in names:
            rdc = [*ZIG, "clang", *HIP, "-fgpu-rdc", f"-cuid={name}"]
            device = ("--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={target}", "-emit-llvm")
            run([*rdc, *device, "-c", f"{name}.hip", "-o", scratch / f"{name}.bc"], cwd=PROGRAMS)
            run([*rdc, "--cuda-host-only", "-fPIE", "-c", f"{name}.hip", "-o", scratch / f"{name}.o"], cwd=PROGRAMS)
        bitcode = [scratch / f"{name}.bc" for name in names]
        run([*ZIG, "ld.lld", "-shared", "--no-undefined", f"-plugin-opt=mcpu={target}", *bitcode, "-o", scratch / "all.co"])
        (scratch / "bundle").write_bytes(bundle({target: (scratch / "all.co").read_bytes()}))
        objects = [scratch / f"{name}.o" for name in names]
        symbols = sorted({found.decode() for path in objects for found in FROM_THE_LINKER.findall(path.read_bytes())})
        labels = {kind: "".join(f".globl {s}\n{s}:\n" for s in symbols if kind in s) for kind in ("fatbin", "gpubin")}
        (scratch / "fatbin.s").write_text(
            f'.section .hip_fatbin,"a"\n.p2align 12\n{labels["fatbin"]}.incbin "{scratch}/bundle"\n'
            f'.data\n.p2align 3\n{labels["gpubin"]}.quad 0\n'
        )
        _link(made, *objects, scratch / "fatbin.s")
    return made


def program(name: str, *targets: str) -> Path:
    """Returns the executable of tests/support/hip_programs/NAME.hip with code for the targets."""
    return compiled(PROGRAMS / f"{name}.hip", *targets)


def compiled(source: Path, *targets: str, options: Sequence[str] = (), device_library: bool = False, ccob: int = 0) -> Path:
    """Returns the executable of a source with code for the targets, linked against our own library; ccob: a compressed bundle's
    version."""
    about = (targets, options, device_library, ccob)
    made = kept_folder("hip-programs") / f"{source.stem}-{'-'.join(targets)}-{_digest(source, about=about)}"
    if not made.exists():
        with tempfile.TemporaryDirectory() as temporary:
            scratch = Path(temporary)
            code = {}
            for target in targets:
                more = with_device_library(target, scratch) if device_library else []
                code[target] = device_code(source, target, scratch, [*options, *more])
            (scratch / "bundle").write_bytes(packed(bundle(code), ccob, 0) if ccob else bundle(code))
            embed = ("--cuda-host-only", "-Xclang", "-fcuda-include-gpubinary", "-Xclang", scratch / "bundle")
            run([*ZIG, "clang", *HIP, *embed, *options, "-fPIE", "-c", source.name, "-o", scratch / "host.o"], cwd=source.parent)
            _link(made, scratch / "host.o")
    return made


def _digest(*sources: Path, about: object) -> str:
    """Returns the key of an executable."""
    content = b"".join(path.read_bytes() for path in (*sources, PROGRAMS / "api.h", Path(__file__)))
    return hashlib.sha256(content + repr((about, library.folder())).encode()).hexdigest()[:16]


def _link(made: Path, *objects: Path) -> None:
    out = kept_folder("hip-programs") / f".{made.name}.{os.getpid()}"
    libraries = (f"-L{library.folder()}", "-lamdhip64", "-lpthread")
    run([*host_compiler(), *objects, "-o", out, *libraries])
    out.rename(made)
