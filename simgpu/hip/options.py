"""Options of `simgpu hip`, and the sources that its programs compile."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from simgpu.engine.result import Run
from simgpu.engine.suppressions import Suppressions

MOST_PAD = 1 << 16  # bytes: allocations are that far apart (`GAP` of library/memory/memory.c)


@dataclass(frozen=True)
class HipSource:
    """HIP source that a program compiles while it runs. With the option -fgpu-rdc it becomes bitcode."""

    text: str
    target: str
    options: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()  # name and text of each
    names: tuple[str, ...] = ()  # expressions whose symbols in the code object are requested
    file: str = "program.hip"  # its name in messages and the line table
    folder: str = "."  # where the program runs; relative names in its options start there
    parts: tuple[bytes, ...] = ()  # LLVM bitcode or text of LLVM IR to link instead


def file_of(name: str, headers: Sequence[str] = ()) -> str:
    """Returns the file of a program that hiprtc compiles, for `HipSource.file`: its name without folders.

    Other characters than letters, digits, `.`, `+` and `-` are `_`. Without a name, and for a name that another file has, it is
    the default.

    >>> file_of("kernels/my scale.cu"), file_of("")
    ('my_scale.cu', 'program.hip')
    """
    made = re.sub(r"[^\w.+-]", "_", name.rpartition("/")[2]).lstrip("-.")[:100]
    taken = made in headers or made == "hip" or made.startswith(("program.", "oclc."))
    return HipSource.file if not made or taken else made


# Compiles a source; returns a code object or bitcode, None if the source is wrong, and a log.
Compile = Callable[[HipSource], tuple[bytes | None, str]]


# Launches a kernel with the arguments of `Kernel.launch`; returns the run and, for JSON, the data of its page.
Observe = Callable[..., tuple[Run, dict[str, Any]]]


@dataclass(frozen=True)
class Options:
    """Options of a run."""

    boards: tuple[str, ...]  # names of the devices, one each
    check: bool | str = False  # as for `simgpu.Device`
    pad: int = 0  # a kernel may access an allocation up to the next multiple of this many bytes, at most MOST_PAD
    kernels: re.Pattern[str] | None = None  # only kernels whose name this matches are checked
    skip: int = 0  # number of first launches of each kernel that are not checked
    only: int | None = None  # number of launches of each kernel that are checked after those (None: all)
    threads: int | None = None
    max_instructions: int | None = None
    timeout: float | None = None
    ring: bool | None = None  # as for `simgpu.Device`
    time: bool = False  # predict the time of launches
    observe: Observe | None = None  # runs the first launch of each kernel, for a page
    suppressions: Suppressions = field(default_factory=Suppressions)  # findings that are not reported
    weak: int | None = None  # seed of weak mode, as for `simgpu.Device`
    late: int | None = None  # seed of late mode
    trace_calls: bool = False  # the program prints each call of HIP and its result on stderr
