"""What LLVM's assembler makes of lines: the clang of the ziglang wheel, no object file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest

_LINE = re.compile(r"^\t(\S.*?)\s*; encoding: \[([^\]]*)\]", re.MULTILINE)
_ERROR = re.compile(r"^<stdin>:(\d+):\d+: error: (.*)$", re.MULTILINE)


class Assembled(NamedTuple):
    """One line as LLVM takes it."""

    text: str  # printed again, single spaces
    code: bytes


def assemble(lines: Sequence[str], target: str) -> list[Assembled | None]:
    """What LLVM makes of each line, one instruction each; None where it refuses the line. Skips the test without clang."""
    options = ["-triple", "amdgcn-amd-amdhsa", "-target-cpu", target, "-filetype", "asm", "-show-encoding", "-o", "-", "-"]
    command = [sys.executable, "-m", "ziglang", "clang", "-cc1as", *options]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120)
    if "No module named ziglang" in done.stderr:
        pytest.skip("the ziglang wheel is not installed")
    refused = {int(number) - 1 for number, _ in _ERROR.findall(done.stderr)}
    printed = iter(_LINE.findall(done.stdout))
    taken = [None if i in refused else _assembled(*next(printed)) for i in range(len(lines))]
    assert next(printed, None) is None, "LLVM printed more instructions than lines"
    return taken


def _assembled(text: str, code: str) -> Assembled:
    return Assembled(" ".join(text.split()), bytes(int(byte, 16) for byte in code.split(",")))
