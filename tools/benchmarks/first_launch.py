"""Measures the first launch of a kernel whose handlers are not compiled yet.

    python -m simgpu.tools.benchmarks.first_launch [--handlers 100] [--target mi300x] [--check] [--json]

The kernel executes N instructions (--handlers) of `benchmarks.rates` once each, from all classes, in a new process with an empty
cache. If there are too few, it also takes them with a scalar register instead of a vector register. Imports, assembling and
uploads are not counted. The scheduler's loop and, in checked mode, the functions of checks are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from simgpu import Device, asm
from simgpu.hardware.errors import ToolchainError
from simgpu.tools.benchmarks.engine import Bench, text_of
from simgpu.tools.benchmarks.rates import BEFORE, CLASSES, NBYTES
from simgpu.tools.shared.console import print_figures
from simgpu.tools.shared.processes import output_of

GOLDEN = (5**0.5 - 1) / 2  # its multiples spread evenly: the first of any number are from all classes
CHILD = "from simgpu.tools.benchmarks.first_launch import child; child({target!r}, {check!r}, {lines!r})"


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handlers", type=int, default=100, help="instructions (default: 100)")
    parser.add_argument("--target", default="mi300x", help="board or architecture (default: mi300x)")
    parser.add_argument("--check", action="store_true", help="in checked mode")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    print_figures(measure(options.target, options.handlers, options.check), options.json)
    return 0


def measure(target: str, handlers: int, check: bool) -> dict[str, Any]:
    """Returns seconds of the launch, its processor time, and the number of functions that it compiled."""
    lines = choose_instructions(target, handlers)
    with tempfile.TemporaryDirectory() as folder:
        program = CHILD.format(target=target, check=check, lines=lines)
        return dict(json.loads(output_of(["-c", program], {"SIMGPU_CACHE_DIR": str(Path(folder, "simgpu"))})))


def choose_instructions(target: str, count: int) -> list[str]:
    """Returns instructions of the target, of all classes; fewer than `count` if there are no more."""
    arch = Device(target).arch
    there: dict[str, None] = {}
    for line in _candidates():
        if len(there) == count:
            break
        try:
            asm.assemble(text_of(_bench(line), arch), arch)
        except ToolchainError:
            continue
        there[line] = None
    return list(there)


def _candidates() -> Iterator[str]:
    lines = [line for of_class in CLASSES.values() for line in of_class]
    spread = [lines[at] for at in sorted(range(len(lines)), key=lambda at: at * GOLDEN % 1)]
    yield from spread
    for register in ("v4", "v5", "v6"):
        yield from (line.replace(f" {register},", " s21,") for line in spread if f" {register}," in line)


def _bench(lines: str) -> Bench:
    return Bench("rate", "first launch", f"{BEFORE}\n  {lines}", 1, 1, NBYTES, workgroup=64, lds=4096, vgprs=96, agprs=4)


def child(target: str, check: bool, lines: list[str]) -> None:
    """Prints the figures of this process, which has launched nothing before."""
    import numpy as np

    gpu = Device(target, threads=1, check=check)
    kernel = gpu.load(asm.assemble(text_of(_bench("\n  ".join(lines)), gpu.arch), gpu.arch))["bench"]
    buffers = [gpu.upload(np.ones(NBYTES // 4, np.float32)) for _ in range(3)]
    launch = partial(kernel.launch, grid=1, block=64, args=[*buffers, 1])
    began, cpu = time.perf_counter(), time.process_time()
    launch()
    seconds, processor = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "processor_seconds": processor, "compiled": gpu.compiler.compiled}))


if __name__ == "__main__":
    sys.exit(main())
