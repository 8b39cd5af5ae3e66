"""What `simgpu hip` was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simgpu.engine.result import Run


@dataclass(frozen=True)
class HipSource:
    """HIP source that a program compiles while it runs; headers: name and text of each; names: expressions to be found in it.

    With the option -fgpu-rdc it becomes bitcode. Where there are parts, these are to be linked: LLVM bitcode or text of LLVM IR.
    """

    text: str
    target: str
    options: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()
    file: str = "program.hip"  # what messages and the line table call it
    folder: str = "."  # where the program runs: relative names of its options start there
    parts: tuple[bytes, ...] = ()


# Makes a code object, or bitcode, and a log of the source; None where the source is wrong.
Compile = Callable[[HipSource], tuple[bytes | None, str]]


# Launches a kernel with the arguments of `Kernel.launch`; the run, and what a page shows of it, for JSON.
Observe = Callable[..., tuple[Run, dict[str, Any]]]


@dataclass(frozen=True)
class Options:
    """boards: names of the devices, one each; check: as for `simgpu.Device`; pad: to a multiple of so many bytes a kernel may
    access past an allocation; kernels: only those whose name it finds are checked; skip, only: launches of them that are not, and
    how many behind those are (None: all); time: whether the model of time says how long launches would take; observe: what
    launches the first of each kernel, where somebody wants to look at it."""

    boards: tuple[str, ...]
    check: bool | str = False
    pad: int = 0
    kernels: re.Pattern[str] | None = None
    skip: int = 0
    only: int | None = None
    threads: int | None = None
    max_instructions: int | None = None
    timeout: float | None = None
    time: bool = False
    observe: Observe | None = None
