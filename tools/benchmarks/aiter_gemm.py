"""Times AITER's bf16 GEMM of gfx950, every instruction executed, against numpy's sgemm of matrices of that size.

    python -m simgpu.tools.benchmarks.aiter_gemm CHECKOUT [--size 4096] [--threads 2] [--profile] [--json]

CHECKOUT: of github.com/ROCm/aiter, whose code object of 256 x 256 tiles is read in place. D (m, n) = A (m, k) B (n, k)^T, normally
distributed. Both times are the best of three, turn about (fewer if they take long). --profile prints the time by opcode.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import SimError
from simgpu.tools.benchmarks.blas import limit_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from simgpu import Device, Run

OBJECT = "hsa/gfx950/bf16gemm/bf16gemm_bf16_tn_256x256.co"
KERNEL = "_ZN5aiter24bf16gemm_bf16_tn_256x256E"
TILE = 256
AHEAD = 4096  # bytes that loads ahead read past the end of an operand
ROUNDING = 2.0**-8  # of bf16, relative
OF_SUMS = 1e-6  # of f32 sums of this length, relative to the sum of magnitudes


def main() -> int:
    """Prints the ratio; status 1 if the product is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="folder of AITER's sources")
    parser.add_argument("--size", type=int, default=4096, help=f"m = n = k, a multiple of {TILE} (default: 4096)")
    parser.add_argument("--threads", type=int, default=2, help="host threads, for both (default: 2)")
    parser.add_argument("--profile", action="store_true", help="the time by opcode instead")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if options.size < TILE or options.size % TILE:
        parser.error(f"--size {options.size}: give a positive multiple of {TILE}")
    if not (options.checkout / OBJECT).is_file():
        parser.error(f"{options.checkout / OBJECT} not found: give the folder of a checkout of github.com/ROCm/aiter")
    limit_threads(options.threads)  # before numpy is loaded
    from simgpu.tools.shared.console import print_figures

    try:
        if options.profile:
            from simgpu.tools.bench.profile import profile_document, profile_launches, show_profile

            device, launch, _, _ = prepare(options.checkout, options.size, options.threads)
            show_profile(profile_document(profile_launches(device, launch)), f"AITER's bf16 GEMM {options.size}³")
            return 0
        figures = measure(options.checkout, options.size, options.threads)
    except SimError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print_figures(figures, options.json)
    return 0 if figures["pass"] else 1


def prepare(
    checkout: Path, size: int, threads: int
) -> tuple[Device, Callable[[], Run], tuple[np.ndarray, np.ndarray], Callable[[], np.ndarray]]:
    """Returns the device; a launch of the whole product, compiled; A (m, k) and B (n, k) as f32; and a function that reads D
    (m, n) as f32."""
    import ml_dtypes
    import numpy as np

    import simgpu
    from simgpu.tools.validation.aiter import FAMILIES

    call = FAMILIES["bf16gemm"](checkout / OBJECT, KERNEL, "mi355x", size, size, size, 1, {"tilem": TILE, "tilen": TILE})
    device = simgpu.Device(call.board, threads=threads)
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((size, size), np.float32).astype(ml_dtypes.bfloat16) for name in ("A", "B")}
    buffers = {name: device.alloc(nbytes + AHEAD) for name, nbytes in call.buffers.items()}
    for name, matrix in given.items():
        buffers[name].write(matrix.view(np.uint16))
    kernel = device.load(call.path)[call.kernel]
    arguments = call.arguments(kernel, {name: buffer.address for name, buffer in buffers.items()})

    def launch() -> Run:
        return kernel.launch(grid=call.grid, block=call.threads, args=arguments)

    def product() -> np.ndarray:
        return buffers["D"].download(np.uint16, (size, size)).view(ml_dtypes.bfloat16).astype(np.float32)

    launch()
    a, b = (matrix.astype(np.float32) for matrix in given.values())
    return device, launch, (a, b), product


def measure(checkout: Path, size: int, threads: int) -> dict[str, Any]:
    """Returns both times and figures from them; units are in the names."""
    import numpy as np

    from simgpu.tools.benchmarks.turn_about import best_seconds, figures

    device, launch, (a, b), product = prepare(checkout, size, threads)
    runs: list[Run] = []
    simulated, blas = best_seconds(lambda: runs.append(launch()), lambda: np.matmul(a, b.T))
    wanted = np.matmul(a, b.T)
    bound = ROUNDING * np.abs(wanted) + OF_SUMS * np.matmul(np.abs(a), np.abs(b).T)
    instructions, gflop = runs[-1].instructions, 2e-9 * size**3
    return {
        "kernel": KERNEL,
        "target": device.descriptor.name,
        "size": size,
        "threads": device.threads,
        **figures(simulated, blas, gflop, instructions),
        "pass": bool((np.abs(product() - wanted) <= bound).all()),
    }


if __name__ == "__main__":
    sys.exit(main())
