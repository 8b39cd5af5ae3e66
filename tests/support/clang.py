"""LLVM's code for lines of assembly and for C: the clang of the ziglang wheel.

What it answers is kept in a folder of the user, by its version and all that it was given.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.places import kept_folder

_LINE = re.compile(r"^L(\d+):[^\n]*\n\t(\S.*?)\s*; encoding: \[([^\]]*)\]", re.MULTILINE)
_ERROR = re.compile(r"^<stdin>:(\d+):\d+: error: (.*)$", re.MULTILINE)


class Assembled(NamedTuple):
    """A line that LLVM accepted."""

    text: str  # printed again, single spaces
    code: bytes


def kept(make: Callable[[], bytes], *about: object) -> bytes:
    """Returns make(), the answer of LLVM's tools to what `about` says, or what it was before. Skips the test without the wheel."""
    try:
        version = importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the ziglang wheel is not installed")
    file = kept_folder("llvm") / hashlib.sha256(repr((version, *about)).encode()).hexdigest()
    if not file.exists():
        written = file.with_name(f"{file.name}.{os.getpid()}")
        written.write_bytes(make())
        written.rename(file)
    return file.read_bytes()


def answer(command: Sequence[str], given: str) -> subprocess.CompletedProcess[str]:
    """Returns the status and output of a tool, `clang …`, that reads `given` and writes no file."""

    def run() -> bytes:
        words = [sys.executable, "-m", "ziglang", *command]
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=300)
        return json.dumps((done.returncode, done.stdout, done.stderr)).encode()

    return subprocess.CompletedProcess(command, *json.loads(kept(run, command, given)))


def file_of(commands: Sequence[Sequence[str]], texts: Mapping[str, str], name: str, about: object = ()) -> bytes:
    """Returns the file `name` that tools made of source texts, in a folder of their own; about: what else it depends on."""

    def run() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            for source, text in texts.items():
                Path(folder, source).write_text(text)
            for command in commands:
                words = [sys.executable, "-m", "ziglang", *command]
                done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
                assert done.returncode == 0, done.stderr
            return Path(folder, name).read_bytes()

    return kept(run, commands, sorted(texts.items()), name, about)


def assemble(lines: Sequence[str], target: str) -> list[Assembled | None]:
    """Assembles each line, one instruction each; None for a line that LLVM refuses. Skips the test without clang."""
    options = ["-triple", "amdgcn-amd-amdhsa", "-target-cpu", target, "-filetype", "asm", "-show-encoding", "-o", "-", "-"]
    labelled = "".join(f"L{number}:\n{line}\n" for number, line in enumerate(lines))
    done = answer(["clang", "-cc1as", *options], labelled)
    refused = {int(number) // 2 - 1 for number, _ in _ERROR.findall(done.stderr)}
    printed = {int(number): _assembled(shown, code) for number, shown, code in _LINE.findall(done.stdout)}
    assert refused.union(printed) == set(range(len(lines))), "LLVM neither refused nor printed a line"
    return [None if i in refused else printed[i] for i in range(len(lines))]


def _assembled(text: str, code: str) -> Assembled:
    return Assembled(" ".join(text.split()), bytes(int(byte, 16) for byte in code.split(",")))


def linked(text: str, *options: str, target: str = "gfx90a", language: str = "c") -> bytes:
    """Compiles C or C++ source to a code object, in a folder of its own as `k.c`. Skips the test without clang."""
    clang = ["clang", "-x", language, "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", *options]
    return file_of([[*clang, "-c", "k.c", "-o", "k.o"], ["ld.lld", "-shared", "k.o", "-o", "k.co"]], {"k.c": text}, "k.co")


def emitted(ir: str, target: str, *options: str) -> str:
    """Returns the assembly of LLVM IR at -O1. Skips the test without clang."""
    clang = ["clang", "-x", "ir", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", "-O1", "-Wno-override-module"]
    done = answer([*clang, *options, "-S", "-o", "-", "-"], ir)
    assert done.returncode == 0, done.stderr
    return done.stdout
