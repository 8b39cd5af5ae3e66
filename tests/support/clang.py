"""LLVM's code for lines of assembly and for C: the clang of the ziglang wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

_LINE = re.compile(r"^L(\d+):[^\n]*\n\t(\S.*?)\s*; encoding: \[([^\]]*)\]", re.MULTILINE)
_ERROR = re.compile(r"^<stdin>:(\d+):\d+: error: (.*)$", re.MULTILINE)


class Assembled(NamedTuple):
    """A line that LLVM accepted."""

    text: str  # printed again, single spaces
    code: bytes


def assemble(lines: Sequence[str], target: str) -> list[Assembled | None]:
    """Assembles each line, one instruction each; None for a line that LLVM refuses. Skips the test without clang."""
    options = ["-triple", "amdgcn-amd-amdhsa", "-target-cpu", target, "-filetype", "asm", "-show-encoding", "-o", "-", "-"]
    command = [sys.executable, "-m", "ziglang", "clang", "-cc1as", *options]
    labelled = "".join(f"L{number}:\n{line}\n" for number, line in enumerate(lines))
    done = subprocess.run(command, input=labelled, capture_output=True, text=True, timeout=120)
    if "No module named ziglang" in done.stderr:
        pytest.skip("the ziglang wheel is not installed")
    refused = {int(number) // 2 - 1 for number, _ in _ERROR.findall(done.stderr)}
    printed = {int(number): _assembled(shown, code) for number, shown, code in _LINE.findall(done.stdout)}
    assert refused.union(printed) == set(range(len(lines))), "LLVM neither refused nor printed a line"
    return [None if i in refused else printed[i] for i in range(len(lines))]


def _assembled(text: str, code: str) -> Assembled:
    return Assembled(" ".join(text.split()), bytes(int(byte, 16) for byte in code.split(",")))


def linked(text: str, *options: str, target: str = "gfx90a", language: str = "c") -> bytes:
    """Compiles C or C++ source to a code object, in a folder of its own as `k.c`. Skips the test without clang."""
    clang = ["clang", "-x", language, "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", *options]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "k.c").write_text(text)
        for stage in ([*clang, "-c", "k.c", "-o", "k.o"], ["ld.lld", "-shared", "k.o", "-o", "k.co"]):
            command = [sys.executable, "-m", "ziglang", *stage]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
            if "No module named ziglang" in done.stderr:
                pytest.skip("the ziglang wheel is not installed")
            assert done.returncode == 0, done.stderr
        return (Path(folder) / "k.co").read_bytes()


def emitted(ir: str, target: str, *options: str) -> str:
    """Returns the assembly of LLVM IR at -O1. Skips the test without clang."""
    clang = ["clang", "-x", "ir", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", "-O1", "-Wno-override-module"]
    command = [sys.executable, "-m", "ziglang", *clang, *options, "-S", "-o", "-", "-"]
    done = subprocess.run(command, input=ir, capture_output=True, text=True, timeout=300)
    if "No module named ziglang" in done.stderr:
        pytest.skip("the ziglang wheel is not installed")
    assert done.returncode == 0, done.stderr
    return done.stdout
