"""Compiles HIP programs with what pip brings: the clang and lld of the ziglang wheel, and our own library to link against."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from simgpu.hip import library
from tests.support.places import ROOT

PROGRAMS = ROOT / "tests" / "support" / "hip_programs"
ZIG = (sys.executable, "-m", "ziglang")
HIP = ("-x", "hip", "-nogpulib", "-nogpuinc", "-O1", "-g", "-fdeclspec", "-nostdinc", "-fdebug-compilation-dir=.")
LLD = f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -m ziglang ld.lld "$@"\n'  # clang calls it as `lld -flavor gnu …`
PAGE = 4096


def run(command: Sequence[object], **options: object) -> None:
    """Run a tool to its end. Skips the test without the wheel, fails it with what the tool says."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    if "No module named ziglang" in done.stderr:
        pytest.skip("the ziglang wheel is not installed")
    assert done.returncode == 0, done.stderr


@cache
def folder() -> Path:
    """Where programs of this user are kept between sessions, by content."""
    made = Path(tempfile.gettempdir(), f"simgpu-hip-programs-{os.getuid()}")
    made.mkdir(mode=0o700, exist_ok=True)
    assert made.stat().st_uid == os.getuid()
    return made


def bundle(code: dict[str, bytes]) -> bytes:
    """An uncompressed offload bundle of code objects by target."""
    rows = {b"host-x86_64-unknown-linux-gnu-": b""} | {b"hipv4-amdgcn-amd-amdhsa--" + t.encode(): data for t, data in code.items()}
    table, body, at = b"", b"", PAGE
    for name, data in rows.items():
        table += struct.pack("<QQQ", at, len(data), len(name)) + name
        body += data
        at += len(data)
    return (b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(rows)) + table).ljust(PAGE, b"\0") + body


def device_code(source: Path, target: str, scratch: Path, options: Sequence[str] = ()) -> bytes:
    """The linked code object of a program's kernels."""
    (scratch / "lld").write_text(LLD)
    (scratch / "lld").chmod(0o755)
    environment = {**os.environ, "PATH": f"{scratch}:{os.environ['PATH']}"}
    made = scratch / f"{target}.co"
    device = ("--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={target}")
    run([*ZIG, "clang", *HIP, *device, *options, "-c", source.name, "-o", made], cwd=source.parent, env=environment)
    return made.read_bytes()


def program(name: str, *targets: str) -> Path:
    """The executable of tests/support/hip_programs/NAME.hip with code for the targets."""
    return compiled(PROGRAMS / f"{name}.hip", *targets)


def compiled(source: Path, *targets: str, options: Sequence[str] = ()) -> Path:
    """The executable of a source with code for the targets; it is linked against our own library."""
    name = source.stem
    content = source.read_bytes() + (PROGRAMS / "api.h").read_bytes() + Path(__file__).read_bytes()
    digest = hashlib.sha256(content + repr((targets, options, library.folder())).encode()).hexdigest()[:16]
    made = folder() / f"{name}-{'-'.join(targets)}-{digest}"
    if not made.exists():
        with tempfile.TemporaryDirectory() as temporary:
            scratch = Path(temporary)
            code = {target: device_code(source, target, scratch, options) for target in targets}
            (scratch / "bundle").write_bytes(bundle(code))
            embed = ("--cuda-host-only", "-Xclang", "-fcuda-include-gpubinary", "-Xclang", scratch / "bundle")
            run([*ZIG, "clang", *HIP, *embed, *options, "-fPIE", "-c", source.name, "-o", scratch / "host.o"], cwd=source.parent)
            out = folder() / f".{made.name}.{os.getpid()}"
            libraries = (f"-L{library.folder()}", "-lamdhip64", "-lpthread")
            run([*ZIG, "cc", "-target", library.target(), scratch / "host.o", "-o", out, *libraries])
            out.rename(made)
    return made
