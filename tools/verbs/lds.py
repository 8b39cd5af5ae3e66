"""`simgpu lds`: LDS bank conflicts of each access of a kernel, and the least padding or swizzle without any."""

from __future__ import annotations

import math
from argparse import REMAINDER, ArgumentParser, Namespace
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.subject import Subject, subjects
from simgpu.tools.shared.console import add_json_option, print_json, show, table
from simgpu.tools.shared.launching import launch_work
from simgpu.tools.shared.parser import own_options

if TYPE_CHECKING:
    from simgpu.tools.page.lds import LdsAccess, LdsBuffer

USAGE = """FILE takes the options of `simgpu exec`, OP those of `simgpu run`:
  simgpu lds k.co --kernel k --grid 4 --arg zeros:f32:256
  simgpu lds gemm -m 256 -n 256 -k 64 --dtype f16 --target mi300x
The waves of the first workgroup are looked at, each at its first visits. All visits of a launch count `simgpu check --performance`.
"""


def configure(parser: ArgumentParser) -> None:
    """Adds the verb's own options; those of exec or run follow FILE or OP."""
    add_json_option(parser)
    parser.add_argument("what", metavar="FILE|OP", help=f"a code object, assembly, or an operator: {', '.join(OPERATORS)}")
    parser.add_argument("rest", metavar="...", nargs=REMAINDER, help="options of `simgpu exec` or `simgpu run`")


@dataclass(frozen=True)
class LdsAccesses:
    """LDS accesses of all waves of a workgroup, and the buffers that they access."""

    name: str
    target: str
    accesses: list[LdsAccess]
    buffers: list[LdsBuffer]


def run(options: Namespace) -> int:
    """Prints the accesses and suggestions of each launched kernel; raises as run or exec."""
    wanted, rest = own_options(add_json_option, options)
    found = [launch_work(one.kernel.title, partial(look, one)) for one in subjects("lds", options.what, rest, compares=False)]
    if wanted.json:
        print_json([_document(one) for one in found])
    else:
        for one in found:
            _show(one)
    return 0


def look(subject: Subject) -> LdsAccesses:
    """Launches the kernel, and returns the accesses of the first workgroup's waves."""
    from simgpu.tools.page.lds import accesses, buffers, join_waves
    from simgpu.tools.page.watching import WatchedLaunch

    kernel = subject.kernel
    waves = -(-math.prod(subject.geometry.block) // 64)
    watched = WatchedLaunch(kernel, subject.call)
    every = join_waves([accesses(watched.look(wave).visits) for wave in range(waves)])
    kernel.launch(**subject.call)  # later kernels may read its results
    return LdsAccesses(kernel.title, kernel.module.code.target, every, buffers(every))


def _document(one: LdsAccesses) -> dict[str, Any]:
    numbers = {id(access): at for at, buffer in enumerate(one.buffers) for access in buffer.accesses}
    return {
        "kernel": one.name, "target": one.target,
        "accesses": [
            {"offset": a.offset, "text": a.text, "part": a.part, "kind": a.kind, "bytes": a.nbytes, "buffer": numbers.get(id(a)),
             "visits": len(a.addresses), "clocks_lost": a.lost_clocks(one.target)}
            for a in one.accesses
        ],
        "buffers": [
            {"first": b.first, "end": b.end, "clocks_lost": b.lost_clocks(one.target),
             "suggestions": [{**s.document(), "text": str(s), "bytes_more": b.added_bytes(s)} for s in b.suggest(one.target)]}
            for b in one.buffers
        ],
    }  # fmt: skip


def _show(one: LdsAccesses) -> None:
    if not one.accesses:
        show(f"{one.name} on {one.target}: no access to LDS in the first workgroup")
        return
    numbers = {id(access): at for at, buffer in enumerate(one.buffers) for access in buffer.accesses}
    rows = [
        (
            f"{a.offset:#x}",
            a.text + (" (second)" if a.part else ""),
            numbers.get(id(a)),
            len(a.addresses),
            a.lost_clocks(one.target),
        )
        for a in one.accesses
    ]
    show(table(f"{one.name} on {one.target}", ("offset", "access", "buffer", "visits", "clocks lost"), rows, left=2))
    for number, buffer in enumerate(one.buffers):
        where = f"\nbuffer {number}, bytes {buffer.first:#x} to {buffer.end:#x}:"
        clocks = buffer.lost_clocks(one.target)
        if not clocks:
            show(f"{where} no conflict")
            continue
        suggestions = buffer.suggest(one.target)
        show(f"{where} {clocks:,} clocks lost; {'these clear all of it:' if suggestions else 'nothing tried clears all of it'}")
        for suggestion in suggestions:
            added = buffer.added_bytes(suggestion)
            show(f"  {suggestion}{f'  ({added:,} bytes more)' if added else ''}")
