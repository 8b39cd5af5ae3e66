"""Best times of things that are compared: turn about, so that a change of the machine's speed meets all of them."""

from __future__ import annotations

import time
from collections.abc import Callable

REPEATS = 3
ENOUGH = 30.0  # seconds after which no further turn begins


def best_seconds(*works: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """The shortest wall time of each."""
    best = [float("inf")] * len(works)
    started = time.perf_counter()
    for _ in range(repeats):
        for at, work in enumerate(works):
            began = time.perf_counter()
            work()
            best[at] = min(best[at], time.perf_counter() - began)
        if time.perf_counter() - started > ENOUGH:
            break
    return best


def figures(simulated: float, blas: float, gflop: float, instructions: int) -> dict[str, float]:
    """Of a product of so many GFLOP: seconds, ratio and GFLOP/s beside numpy's, and wave-instructions; units are in the names."""
    return {
        "simulated_seconds": simulated,
        "numpy_seconds": blas,
        "ratio": simulated / blas,
        "simulated_gflops": gflop / simulated,
        "numpy_gflops": gflop / blas,
        "wave_instructions": instructions,
        "wave_instructions_per_second": instructions / simulated,
    }
