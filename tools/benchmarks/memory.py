"""Peak memory of a process that simulates a kernel, beyond the buffers of its launch (operands, result, and the kernel's scratch
memory, as for parts of a sum): Python, numpy and ours, warm.

python -m simgpu.tools.benchmarks.memory [WORK] [--threads 2] [--json]

WORK is one of gemm (f32, 4096 x 4096 x 4096), attention (f32, L = 16384, d = 128), vector-add (2^20 elements); default: each, in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simgpu.tools.shared.console import print_figures
from simgpu.tools.shared.processes import output_of

if TYPE_CHECKING:
    from simgpu import Buffer

MIB = 1 << 20
TARGET = "mi100"
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss: getrusage(2)


def main() -> int:
    """Prints MiB: the peak, the buffers, and their difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", choices=tuple(WORKS), help="default: all, each in a process of its own")
    parser.add_argument("--threads", type=int, default=2, help="host threads (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if options.work:
        print_figures(measure(options.work, options.threads), options.json)
    else:
        found = measure_each(options.threads)
        print_figures({f"{work} {name}": value for work, figures in found.items() for name, value in figures.items()}, options.json)
    return 0


def measure_each(threads: int) -> dict[str, dict[str, float]]:
    """Returns the figures of each work by name, MiB."""
    found = {}
    for name in WORKS:
        for _ in range(2):  # the first may compile
            found[name] = json.loads(output_of(["-m", "simgpu.tools.benchmarks.memory", name, "--threads", str(threads), "--json"]))
    return found


def measure(work: str, threads: int) -> dict[str, float]:
    """Returns this process's peak after the work."""
    buffers = sum(buffer.nbytes for buffer in WORKS[work](threads))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
    return {"peak_mib": peak / MIB, "buffers_mib": buffers / MIB, "beyond_mib": (peak - buffers) / MIB}


def _launch(tree: Any, counts: tuple[int, ...], threads: int) -> list[Buffer]:
    """Runs the tree's kernel on float32 operands of `counts` elements. No host array outlives its upload.

    Returns the buffers, scratch memory included.
    """
    import numpy as np

    from simgpu import Device, asm
    from simgpu.asm import Prepared

    kernel, device = asm.emit(tree), Device(TARGET, threads=threads)
    source = np.random.default_rng(0)
    buffers = [device.upload(source.random(count, dtype=np.float32)) for count in counts[:-1]]
    buffers.append(device.alloc(4 * counts[-1]))
    prepared = Prepared(kernel, device)
    prepared.launch(*buffers)
    return [*buffers, *prepared.scratch.values()]


def _gemm(threads: int) -> list[Buffer]:
    from simgpu.operators import TiledComputation

    return _launch(TiledComputation(4096, 4096, 4096, target=TARGET), (4096 * 4096,) * 3, threads)


def _attention(threads: int) -> list[Buffer]:
    from simgpu.operators import AttentionProblem, FusedAttention

    return _launch(FusedAttention(AttentionProblem(16384, 16384, 128), TARGET), (16384 * 128,) * 4, threads)


def _vector_add(threads: int) -> list[Buffer]:
    from simgpu import Device
    from simgpu.tools.benchmarks.engine import bench_named, prepare

    return prepare(bench_named("vector add"), Device(TARGET, threads=threads)).buffers


WORKS: dict[str, Callable[[int], list[Buffer]]] = {"gemm": _gemm, "attention": _attention, "vector-add": _vector_add}


if __name__ == "__main__":
    sys.exit(main())
