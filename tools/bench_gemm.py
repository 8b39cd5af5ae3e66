"""Times a simulated f32 GEMM, every instruction executed, against numpy's sgemm of the same matrices.

python -m tools.bench_gemm [--size 4096] [--target mi100] [--threads 2] [--json]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

BLAS_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS")
REPEATS = 3  # numpy's best of; the simulated GEMM runs once, warm


def main() -> int:
    """Prints the ratio; status 1 if the result is outside the error bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=4096, help="m = n = k (default: 4096)")
    parser.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
    parser.add_argument("--threads", type=int, default=2, help="host threads, for both (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    for name in BLAS_THREAD_VARIABLES:  # read when numpy is loaded, which is why it is loaded later
        os.environ[name] = str(options.threads)
    figures = measure(options.size, options.target, options.threads)
    if options.json:
        from tools.console import print_json

        print_json(figures)
    else:
        for name, value in figures.items():
            print(f"{name:32} {value:,.4g}" if isinstance(value, float) else f"{name:32} {value}")
    return 0 if figures["pass"] else 1


def measure(size: int, target: str, threads: int) -> dict[str, Any]:
    """Both times and what follows from them; units are in the names."""
    import numpy as np

    import asm
    from operators import TiledComputation
    from simgpu import Device
    from tools.run import Operands, compare

    tree = TiledComputation(size, size, size, target=target)
    kernel = asm.emit(tree)
    device = Device(target, threads=threads)
    operands = Operands.random(tree.problem, device.arch, seed=0)
    a, b = operands.matrix(0), operands.matrix(1)
    buffers = [device.upload(flat) for flat in operands.flat]
    entry = device.load(kernel.assemble())[kernel.name]
    arguments = kernel.arguments(*buffers)
    began = time.perf_counter()
    entry.launch(grid=1, block=kernel.block, args=arguments)  # one workgroup: compiles what the kernel uses
    first = time.perf_counter() - began
    began = time.perf_counter()
    run = entry.launch(grid=kernel.grid, block=kernel.block, args=arguments)
    simulated = time.perf_counter() - began
    blas = min(_sgemm(np, a, b) for _ in range(REPEATS))
    verdict = compare(tree.problem, operands, buffers[2].download(np.float32), device.arch)
    gflop = tree.problem.flops / 1e9
    return {
        "kernel": kernel.name,
        "target": target,
        "size": size,
        "threads": threads,
        "simulated_seconds": simulated,
        "numpy_seconds": blas,
        "ratio": simulated / blas,
        "simulated_gflops": gflop / simulated,
        "numpy_gflops": gflop / blas,
        "wave_instructions": run.instructions,
        "wave_instructions_per_second": run.instructions / simulated,
        "one_workgroup_seconds": first,
        "max_error": verdict.max_error,
        "pass": verdict.passed,
    }


def _sgemm(np: Any, a: Any, b: Any) -> float:
    began = time.perf_counter()
    np.matmul(a, b)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
