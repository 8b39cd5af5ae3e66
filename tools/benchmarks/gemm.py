"""Times a simulated GEMM, every instruction executed, against numpy's sgemm of matrices of that size.

python -m simgpu.tools.benchmarks.gemm [--size 4096] [--target mi100] [--dtype f32] [--threads 2] [--check] [--json]

Both are the best of three, turn about (fewer where that takes long).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.tools.benchmarks.blas import limit_threads

if TYPE_CHECKING:
    from simgpu import Run
    from simgpu.operators import TiledComputation
    from simgpu.tools.cases.prepared import Prepared
    from simgpu.tools.verbs.run import Operands


def main() -> int:
    """Prints the ratio; status 1 if the result is outside the error bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="m = n = k (default: 4096)")
    parser.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
    parser.add_argument("--dtype", default="f32", help="type of A and B (default: f32)")
    parser.add_argument("--threads", type=int, default=2, help="host threads, for both (default: 2)")
    parser.add_argument("--check", action="store_true", help="in checked mode")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    limit_threads(options.threads)  # before numpy is loaded
    from simgpu.tools.shared.console import print_figures

    figures = measure(prepare(options.size, options.target, options.threads, options.dtype, options.check))
    print_figures(figures, options.json)
    return 0 if figures["pass"] else 1


@dataclass(frozen=True)
class Gemm:
    """A GEMM whose handlers are compiled; first: seconds that one workgroup took, compiling."""

    tree: TiledComputation
    operands: Operands
    prepared: Prepared
    first: float


def prepare(size: int, target: str, threads: int, dtype: str = "f32", check: bool = False) -> Gemm:
    """Emits the kernel and runs one workgroup, which compiles what it uses."""
    from simgpu import Device, asm
    from simgpu.operators import TiledComputation
    from simgpu.tools.benchmarks.turn_about import best_seconds
    from simgpu.tools.cases.prepared import Prepared
    from simgpu.tools.verbs.run import Operands

    tree = TiledComputation(size, size, size, dtype=dtype, target=target)
    device = Device(target, threads=threads, check=check)
    operands = Operands.random(tree.problem, device.arch, seed=0)
    prepared = Prepared.of(asm.emit(tree), device, operands.flat)
    (first,) = best_seconds(prepared.warm_up, repeats=1)
    return Gemm(tree, operands, prepared, first)


def measure(gemm: Gemm) -> dict[str, Any]:
    """Both times and what follows from them; units are in the names."""
    import numpy as np

    from simgpu.tools.benchmarks.turn_about import best_seconds
    from simgpu.tools.verbs.run import compare

    prepared, device = gemm.prepared, gemm.prepared.device
    a, b = (gemm.operands.matrix(which).astype(np.float32) for which in (0, 1))
    np.matmul(a[:64], b)  # starts BLAS's threads
    launches: list[list[Run]] = []
    simulated, blas = best_seconds(lambda: launches.append(prepared.launch()), lambda: np.matmul(a, b))
    runs = launches[-1]
    instructions = sum(run.instructions for run in runs)
    before = gemm.operands.flat[2]
    result = prepared.buffers[2].download(before.dtype, before.shape)
    verdict = compare(gemm.tree.problem, gemm.operands, result, device.arch)
    findings = sum(len(run.findings) for run in runs)
    gflop = gemm.tree.problem.flops / 1e9
    return {
        "kernel": prepared.kernel.name,
        "target": device.descriptor.name,
        "size": gemm.tree.problem.m,
        "threads": device.threads,
        "checked": bool(device.check),
        "simulated_seconds": simulated,
        "numpy_seconds": blas,
        "ratio": simulated / blas,
        "simulated_gflops": gflop / simulated,
        "numpy_gflops": gflop / blas,
        "wave_instructions": instructions,
        "wave_instructions_per_second": instructions / simulated,
        "one_workgroup_seconds": gemm.first,
        "findings": findings,
        "max_error": verdict.max_error,
        "pass": verdict.passed and not findings,
    }


if __name__ == "__main__":
    sys.exit(main())
