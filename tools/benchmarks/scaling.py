"""Times launches on one host thread and on all, and forecasts hosts with more cores.

    python -m simgpu.tools.benchmarks.scaling [--cores 16,64] [--only NAME] [--json]

Each work runs on 1 and on N threads, N being the host's cores, turn about: wall and processor seconds, best of some. A forecast has
a launch's part for one thread, the start of the threads that pay, as measured here, and rounds of workgroups, each with the
processor time that it has on N threads. GB/s is what a thread's loads and stores draw from the host's memory if caches hold
nothing.

`limit` names the largest loss:

    threads      their start, or fewer than cores
    workgroups   fewer than cores
    rounds       the last one is not full
    serial       a launch's part for one thread
    contention   processor time that more threads cost
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simgpu.tools.benchmarks.blas import limit_threads

if TYPE_CHECKING:
    from simgpu import Run
    from simgpu.tools.benchmarks.engine import Bench

REPEATS = 5
PRODUCTS = (("f32 GEMM 2048", 2048, "mi100", "f32"), ("f16 GEMM 1024", 1024, "mi300x", "f16"))
LOOPS = ("valu", "lds", "global", "vector add")
LOOP_GROUPS = 512  # workgroups of a loop: 8 would be too few for many threads
LOOP_SCALE = 1 / 64  # of the loops' counts
MOVED = ("global_read_bytes", "global_write_bytes")
Launch = Callable[[], Sequence["Run"]]


@dataclass(frozen=True)
class Measured:
    """Seconds of one work, on one thread and on all."""

    name: str
    wall: Sequence[float]
    processor: Sequence[float]
    groups: int  # workgroups
    amount: int  # work by `simgpu.engine.launch.amount_of_work`
    nbytes: int  # that its loads and stores move

    @property
    def contention(self) -> float:
        """Processor time on all of this host's cores over that on one."""
        return max(1.0, self.processor[-1] / self.processor[0])


@dataclass(frozen=True)
class Forecast:
    """Speed-up over one thread, and the largest loss beside perfect speed-up, in words."""

    speedup: float
    limit: str


def forecast(measured: Measured, cores: int, serial: float, starting: Callable[[int], float]) -> Forecast:
    """Returns the speed-up on `cores` cores. serial: seconds of a launch without work; starting: seconds to start n threads."""
    from simgpu.engine.launch import worthwhile_threads

    threads = min(cores, worthwhile_threads(measured.amount, measured.groups))
    work = max(measured.wall[0] - serial, 0.0)
    losses = {
        "threads": starting(threads) * (threads > 1) + work / threads - work / min(cores, measured.groups),
        "serial": serial,
        "rounds": work * (-(-measured.groups // threads) / measured.groups - 1 / threads),
        "contention": (measured.contention - 1) * work / threads,
        "workgroups": work / min(cores, measured.groups) - work / cores,
    }
    seconds = work / cores + sum(losses.values())
    return Forecast(measured.wall[0] / seconds, max(losses, key=lambda name: losses[name]))


def measure(name: str, launches: Sequence[Launch]) -> Measured:
    """Times launches of one work, on one thread and on all, with its handlers compiled."""
    import numpy as np

    from simgpu.engine.launch import amount_of_work
    from simgpu.tools.benchmarks.turn_about import best_seconds

    runs = launches[0]()
    wall = best_seconds(*launches, repeats=REPEATS)
    processor = best_seconds(*launches, repeats=REPEATS, clock=time.process_time)
    return Measured(
        name, wall, processor, sum(int(np.prod(run.call["grid"])) for run in runs), sum(amount_of_work(run) for run in runs),
        sum(run.counters[counter] for run in runs for counter in MOVED),
    )  # fmt: skip


def works() -> Iterator[tuple[str, Callable[[int], Launch]]]:
    """Yields each work's name, and a function that prepares its launch on a number of threads."""
    from simgpu.tools.benchmarks import engine

    for name, size, target, dtype in PRODUCTS:
        yield name, functools.partial(_product, size, target, dtype)
    for bench in engine.benches(LOOP_SCALE):
        if bench.name in LOOPS:
            few = bench.groups < LOOP_GROUPS
            more = replace(bench, groups=LOOP_GROUPS, nbytes=bench.nbytes * LOOP_GROUPS // bench.groups) if few else bench
            yield bench.name, functools.partial(_loop, more)


def _product(size: int, target: str, dtype: str, threads: int) -> Launch:
    from simgpu.tools.benchmarks import gemm

    return gemm.prepare(size, target, threads, dtype).launch


def _loop(bench: Bench, threads: int) -> Launch:
    from simgpu import Device
    from simgpu.tools.benchmarks import engine

    made = engine.prepare(bench, Device("gfx908", threads=threads))
    return lambda: [made.launch()]


def starting_seconds(count: int) -> float:
    """Returns seconds in which a launch's threads start and end, if they have nothing to do."""
    from simgpu.engine.workers.team import Team
    from simgpu.tools.benchmarks.turn_about import best_seconds

    idle: Any = [SimpleNamespace(job=SimpleNamespace(stop=0)) for _ in range(count)]
    (seconds,) = best_seconds(lambda: Team(None).run(idle, lambda _: None), repeats=20 * REPEATS)
    return seconds


def launch_seconds() -> float:
    """Returns seconds of a launch of one workgroup that adds 256 elements, on this thread."""
    from simgpu import Device
    from simgpu.tools.benchmarks import engine
    from simgpu.tools.benchmarks.turn_about import best_seconds

    small = engine.prepare(replace(engine.bench_named("vector add"), groups=1), Device("gfx908", threads=1))
    (seconds,) = best_seconds(small.launch, repeats=20 * REPEATS)
    return seconds


def main() -> int:
    """Prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", default="16,64", help="cores of the forecasts, at most 64 (default: 16,64)")
    parser.add_argument("--only", default="", help="works whose name contains this")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    try:
        cores = [int(text) for text in options.cores.split(",")]
    except ValueError:
        cores = []
    if not cores or not all(1 <= count <= 64 for count in cores):
        parser.error(f"--cores {options.cores}: give whole numbers from 1 to 64, with commas between them")
    threads = (1, os.cpu_count() or 1)
    limit_threads(threads[-1])
    serial, starting = launch_seconds(), functools.cache(starting_seconds)
    rows = []
    for name, prepare in works():
        if options.only in name:
            found = measure(name, [prepare(count) for count in threads])
            rows.append((found, [forecast(found, count, serial, starting) for count in cores]))
    _show(rows, threads[-1], serial, {count: starting(count) for count in cores}, options.json)
    return 0


def _show(
    rows: list[tuple[Measured, list[Forecast]]], threads: int, serial: float, starting: dict[int, float], as_json: bool
) -> None:
    from simgpu.tools.shared.console import print_json, show, table

    if as_json:
        document = [
            {**vars(found), "forecasts": [{"cores": count, **vars(each)} for count, each in zip(starting, expected, strict=True)]}
            for found, expected in rows
        ]
        print_json({"serial_seconds": serial, "starting_seconds": starting, "works": document})
        return
    heads = ("work", "workgroups", "1 thread, s", f"{threads} threads, s", "speed-up", "processor time", "GB/s a thread")
    show(table("Measured", heads, [
        (found.name, f"{found.groups:,}", f"{found.wall[0]:.3f}", f"{found.wall[-1]:.3f}", f"{found.wall[0] / found.wall[-1]:.2f}",
         f"x {found.processor[-1] / found.processor[0]:.2f}", f"{found.nbytes / found.wall[0] / 1e9:.1f}")
        for found, _ in rows], left=1))  # fmt: skip
    expected_heads = ("work", *(text for count in starting for text in (f"{count} cores", "limit")))
    show(table("Speed-up expected", expected_heads, [
        (found.name, *(text for each in expected for text in (f"{each.speedup:.1f}", each.limit))) for found, expected in rows],
        left=1))  # fmt: skip
    more = ", ".join(f"{count}: {1e6 * seconds:.0f} us" for count, seconds in starting.items())
    show(f"starting threads: {more}; launch: {1e6 * serial:.0f} us")


if __name__ == "__main__":
    sys.exit(main())
