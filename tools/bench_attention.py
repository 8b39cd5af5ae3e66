"""Times simulated fused attention (f32, one head, every instruction executed) against numpy's five unfused float32 lines.

python -m tools.bench_attention [--length 16384] [--dim 128] [--target mi100] [--threads 2] [--json]

Both are the best of three, on memory that was touched before.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from tools.bench_gemm import BLAS_THREAD_VARIABLES

REPEATS = 3


def main() -> int:
    """Prints the ratio; status 1 if a compared row is outside the error bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=16384, help="queries and keys (default: 16384)")
    parser.add_argument("--dim", type=int, default=128, help="head dimension (default: 128)")
    parser.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
    parser.add_argument("--threads", type=int, default=2, help="host threads, for both (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    for name in BLAS_THREAD_VARIABLES:  # read when numpy is loaded, which is why it is loaded later
        os.environ[name] = str(options.threads)
    figures = measure(options.length, options.dim, options.target, options.threads)
    if options.json:
        from tools.console import print_json

        print_json(figures)
    else:
        for name, value in figures.items():
            print(f"{name:32} {value:,.4g}" if isinstance(value, float) else f"{name:32} {value}")
    return 0 if figures["pass"] else 1


def measure(length: int, dim: int, target: str, threads: int) -> dict[str, Any]:
    """Both times and what follows from them; units are in the names."""
    import numpy as np

    import asm
    from operators import AttentionProblem, FusedAttention
    from simgpu import Device
    from tools.attention_rows import compare_rows

    problem = AttentionProblem(length, length, dim)
    source = np.random.default_rng(0)
    q, k, v = (source.standard_normal((length, dim), dtype=np.float32) for _ in range(3))
    kernel = asm.emit(FusedAttention(problem, target))
    device = Device(target, threads=threads)
    buffers = [device.upload(array) for array in (q, k, v, np.zeros_like(q))]
    asm.launch(kernel, device, *buffers)  # compiles what the kernel uses
    simulated, runs = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        runs = asm.launch(kernel, device, *buffers)
        simulated.append(time.perf_counter() - began)
    result = buffers[3].download(np.float32, q.shape)
    verdict = compare_rows(problem, q, k, v, result)
    held, unfused = np.ones((length, length), np.float32), []
    for _ in range(REPEATS):
        seconds, _ = _unfused(np, q, k, v, held)
        unfused.append(seconds)
    gflop = problem.flops / 1e9
    return {
        "kernel": kernel.name, "target": target, "length": length, "dim": dim, "threads": threads,
        "simulated_seconds": min(simulated), "numpy_seconds": min(unfused), "ratio": min(simulated) / min(unfused),
        "simulated_gflops": gflop / min(simulated), "numpy_gflops": gflop / min(unfused),
        "wave_instructions": sum(run.instructions for run in runs),
        "wave_instructions_per_second": sum(run.instructions for run in runs) / min(simulated),
        "compared_rows": verdict.rows, "max_error": verdict.max_error, "pass": verdict.passed,
    }  # fmt: skip


def _unfused(np: Any, Q: Any, K: Any, V: Any, S: Any) -> tuple[float, Any]:
    """Seconds, and O: the five lines, S in memory that is there already."""
    c = np.float32(Q.shape[1] ** -0.5)
    began = time.perf_counter()
    np.matmul(Q, K.T, out=S)
    S *= c
    S -= S.max(1, keepdims=True)
    np.exp(S, out=S)
    O = (S @ V) / S.sum(1, keepdims=True)  # noqa: E741  the issue's letter
    return time.perf_counter() - began, O


if __name__ == "__main__":
    sys.exit(main())
