"""Measures the cost of cutting a launch: a GEMM sliced over processes of one thread, and in one process with as many threads.

python -m simgpu.tools.benchmarks.slices [--size 4096] [--processes 2] [--pairs 3] [--json]

The two are measured in pairs. Processor time leaves out other users of the machine; wall time includes them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

import numpy as np

from simgpu import Device, asm
from simgpu.operators import TiledComputation
from simgpu.slices.processes import Processes
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.shared.errors import KernelFailed

TARGET = "mi300x"
FIELDS = (11, 12)  # fields of /proc/PID/stat after the name: clock ticks in user and in kernel mode (proc(5))


def main() -> int:
    """Prints a line a pair, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="m, n and k (default: 4096)")
    parser.add_argument("--processes", type=int, default=2, help="and threads of the one beside them (default: 2)")
    parser.add_argument("--pairs", type=int, default=3, help="of measurements (default: 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if min(options.size, options.processes, options.pairs) < 1:
        parser.error("--size, --processes and --pairs: give 1 or more")
    rows = measure(options.size, options.processes, options.pairs)
    wall, cpu = (statistics.median(row[name] for row in rows) for name in ("wall_ratio", "processor_ratio"))
    if options.json:
        print_json({"pairs": rows, "wall_ratio": wall, "processor_ratio": cpu})
        return 0
    title = f"f16 GEMM of {options.size}, slices over one process"
    show(table(title, tuple(rows[0]), [tuple(row.values()) for row in rows], left=0))
    show(f"median: {wall:.3f} times the wall time, {cpu:.3f} times the processor time")
    return 0


def measure(size: int, processes: int, pairs: int) -> list[dict[str, float]]:
    """Returns seconds of each pair, and slices over one process. Raises KernelFailed if the bytes differ, or the launch was not
    cut."""
    kernel = asm.emit(TiledComputation(size, size, size, target=TARGET, dtype="f16"))
    source = np.random.default_rng(0)
    a, b = (source.standard_normal((size, size)).astype(np.float16) for _ in range(2))

    def launch(threads: int, **cut: Any) -> tuple[float, bytes]:
        gpu = Device(TARGET, threads=threads)
        c = gpu.empty((size, size))
        calls = asm.Prepared(kernel, gpu).calls(gpu.upload(a), gpu.upload(b), c)
        begun = time.perf_counter()
        runs = [entry.launch(**call, **cut) for entry, call in calls]
        seconds = time.perf_counter() - begun
        if notes := [note for run in runs for note in run.notes]:
            raise KernelFailed(f"it was not cut: {notes[0]}")
        return seconds, c.download().tobytes()

    rows = []
    with Processes(processes) as pool:
        cut = {"executor": pool, "slices": processes}
        launch(1, **cut)  # compiles, and starts the processes
        launch(processes)
        for _ in range(pairs):
            before = processor_seconds(pool)
            one, want = launch(processes)
            between = processor_seconds(pool)
            sliced, found = launch(1, **cut)
            after = processor_seconds(pool)
            if found != want:
                raise KernelFailed("slices gave other bytes")
            ratio = (after - between) / max(between - before, 1e-9)
            rows.append({"one_seconds": one, "slices_seconds": sliced, "wall_ratio": sliced / one, "processor_ratio": ratio})
    return rows


def processor_seconds(pool: Processes) -> float:
    """Processor seconds of this process and the pool's so far (Linux)."""
    total = 0
    for number in (os.getpid(), *pool.pids):
        with open(f"/proc/{number}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += sum(int(fields[at]) for at in FIELDS)
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
