"""Best times of functions to compare. They run in turn, so that a change in the machine's speed affects all of them."""

from __future__ import annotations

import time
from collections.abc import Callable

REPEATS = 3
ENOUGH = 30.0  # seconds after which no further round begins


def best_seconds(
    *works: Callable[[], object], repeats: int = REPEATS, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Returns the shortest time of each function, in seconds of a clock. After `ENOUGH` seconds, no further round begins."""
    best = [float("inf")] * len(works)
    started = time.perf_counter()
    for _ in range(repeats):
        for at, work in enumerate(works):
            began = clock()
            work()
            best[at] = min(best[at], clock() - began)
        if time.perf_counter() - started > ENOUGH:
            break
    return best


def figures(simulated: float, blas: float, gflop: float, instructions: int) -> dict[str, float]:
    """Returns the figures of a product of `gflop` GFLOP next to numpy's; units are in the names."""
    return {
        "simulated_seconds": simulated,
        "numpy_seconds": blas,
        "ratio": simulated / blas,
        "simulated_gflops": gflop / simulated,
        "numpy_gflops": gflop / blas,
        "wave_instructions": instructions,
        "wave_instructions_per_second": instructions / simulated,
    }
