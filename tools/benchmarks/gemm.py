"""Times a simulated GEMM, every instruction executed, against numpy's sgemm of matrices of that size.

python -m simgpu.tools.benchmarks.gemm [--size 4096] [--target mi100] [--dtype f32] [--threads 2] [--check] [--json]

Both times are the best of three, turn about (fewer if they take long).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.tools.benchmarks.blas import limit_threads

if TYPE_CHECKING:
    from simgpu import Buffer, Run
    from simgpu.asm import Prepared
    from simgpu.operators import TiledComputation
    from simgpu.tools.cases.workload import Workload


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
    """A GEMM whose handlers are compiled."""

    tree: TiledComputation
    work: Workload
    prepared: Prepared
    buffers: list[Buffer]  # of the operands
    first: float  # seconds of one workgroup, with compiling

    def launch(self) -> list[Run]:
        """Returns the runs of one whole product."""
        return self.prepared.launch(*self.buffers)


def prepare(
    size: int, target: str, threads: int, dtype: str = "f32", check: bool | str = False, ring: bool = False
) -> Gemm:
    """Emits the kernel and runs one workgroup, which compiles its handlers. Types without a range of their own have MX scales."""
    from simgpu import Device, asm
    from simgpu.operators import TiledComputation
    from simgpu.tools.benchmarks.turn_about import best_seconds
    from simgpu.tools.cases.operators import workload
    from simgpu.tools.cases.timing import first_workgroups

    mx = dtype in ("fp4", "fp6", "bf6")
    tree = TiledComputation(size, size, size, dtype=dtype, target=target, trans_b=mx, scales="mx" if mx else "none")
    device = Device(target, threads=threads, check=check, ring=ring)
    work = workload(tree, device.arch, seed=0)
    prepared, buffers = asm.Prepared(asm.emit(tree), device), [device.upload(array) for array in work.arrays]
    (first,) = best_seconds(lambda: first_workgroups(prepared, buffers), repeats=1)
    return Gemm(tree, work, prepared, buffers, first)


def measure(gemm: Gemm) -> dict[str, Any]:
    """Returns both times and figures from them; units are in the names."""
    import numpy as np

    from simgpu.tools.benchmarks.turn_about import best_seconds, figures

    prepared, work, device = gemm.prepared, gemm.work, gemm.prepared.device
    a, b = (operand.view.astype(np.float32) for operand in work.operands[:2])
    np.matmul(a[:64], b)  # starts BLAS's threads
    launches: list[list[Run]] = []
    simulated, blas = best_seconds(lambda: launches.append(gemm.launch()), lambda: np.matmul(a, b))
    runs = launches[-1]
    instructions = sum(run.instructions for run in runs)
    before = work.arrays[work.result]
    verdict = work.compare(gemm.buffers[work.result].download(before.dtype, before.shape), "C")
    findings = sum(len(run.findings) for run in runs)
    gflop = gemm.tree.problem.flops / 1e9
    return {
        "kernel": prepared.kernel.name,
        "target": device.descriptor.name,
        "size": gemm.tree.problem.m,
        "threads": device.threads,
        "checked": bool(device.check),
        **figures(simulated, blas, gflop, instructions),
        "one_workgroup_seconds": gemm.first,
        "findings": findings,
        "max_error": verdict.max_error,
        "pass": verdict.passed and not findings,
    }


if __name__ == "__main__":
    sys.exit(main())
