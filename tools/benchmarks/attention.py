"""Times simulated fused attention (f32, one head, every instruction executed) against numpy's five unfused float32 lines.

python -m simgpu.tools.benchmarks.attention [--length 16384] [--dim 128] [--target mi100] [--threads 2] [--json]

Both are the best of three, turn about, on memory that was touched before.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.tools.benchmarks.blas import limit_threads

if TYPE_CHECKING:
    import numpy as np

    from simgpu import Buffer, Run
    from simgpu.asm import Prepared
    from simgpu.operators import AttentionProblem


def main() -> int:
    """Prints the ratio; status 1 if a compared row is outside the error bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=16384, help="queries and keys (default: 16384)")
    parser.add_argument("--dim", type=int, default=128, help="head dimension (default: 128)")
    parser.add_argument("--target", default="mi100", help="board or architecture (default: mi100)")
    parser.add_argument("--threads", type=int, default=2, help="host threads, for both (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    limit_threads(options.threads)  # before numpy is loaded
    from simgpu.tools.shared.console import print_figures

    figures = measure(prepare(options.length, options.dim, options.target, options.threads))
    print_figures(figures, options.json)
    return 0 if figures["pass"] else 1


@dataclass(frozen=True)
class Attention:
    """Fused attention whose handlers are compiled."""

    problem: AttentionProblem
    arrays: tuple[np.ndarray, ...]  # Q, K, V (length,dim)
    prepared: Prepared
    buffers: list[Buffer]  # of Q, K, V and the result

    def launch(self) -> list[Run]:
        """Returns the runs of one whole computation."""
        return self.prepared.launch(*self.buffers)


def prepare(length: int, dim: int, target: str, threads: int, check: bool | str = False) -> Attention:
    """Emits the kernel and runs one workgroup, which compiles its handlers."""
    import numpy as np

    from simgpu import Device, asm
    from simgpu.operators import AttentionProblem, FusedAttention
    from simgpu.tools.cases.timing import first_workgroups

    problem = AttentionProblem(length, length, dim)
    source = np.random.default_rng(0)
    arrays = tuple(source.standard_normal((length, dim), dtype=np.float32) for _ in range(3))
    device = Device(target, threads=threads, check=check)
    buffers = [device.upload(array) for array in (*arrays, np.zeros_like(arrays[0]))]
    prepared = asm.Prepared(asm.emit(FusedAttention(problem, target)), device)
    first_workgroups(prepared, buffers)
    return Attention(problem, arrays, prepared, buffers)


def measure(attention: Attention) -> dict[str, Any]:
    """Returns both times and figures from them; units are in the names."""
    import numpy as np

    from simgpu.tools.benchmarks.turn_about import best_seconds
    from simgpu.tools.cases.attention_rows import compare_rows

    problem, (q, k, v) = attention.problem, attention.arrays
    held = np.ones((problem.lq, problem.lk), np.float32)
    launches: list[list[Run]] = []
    prepared = attention.prepared
    simulated, unfused = best_seconds(lambda: launches.append(attention.launch()), lambda: _compute_unfused(np, q, k, v, held))
    verdict = compare_rows(problem, q, k, v, attention.buffers[3].download(np.float32, q.shape))
    instructions = sum(run.instructions for run in launches[-1])
    gflop = problem.flops / 1e9
    return {
        "kernel": prepared.kernel.name, "target": prepared.device.descriptor.name, "length": problem.lq, "dim": problem.d,
        "threads": prepared.device.threads,
        "simulated_seconds": simulated, "numpy_seconds": unfused, "ratio": simulated / unfused,
        "simulated_gflops": gflop / simulated, "numpy_gflops": gflop / unfused,
        "wave_instructions": instructions, "wave_instructions_per_second": instructions / simulated,
        "compared_rows": verdict.rows, "max_error": verdict.max_error, "pass": verdict.passed,
    }  # fmt: skip


def _compute_unfused(np: Any, Q: Any, K: Any, V: Any, S: Any) -> Any:
    """Returns O: the five lines, with S in existing memory."""
    c = np.float32(Q.shape[1] ** -0.5)
    np.matmul(Q, K.T, out=S)
    S *= c
    S -= S.max(1, keepdims=True)
    np.exp(S, out=S)
    O = (S @ V) / S.sum(1, keepdims=True)
    return O


if __name__ == "__main__":
    sys.exit(main())
