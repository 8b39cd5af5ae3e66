"""Times compilers' kernels, warm and without imports: device, module, uploads, launch, downloads, each in a new process.

python -m simgpu.tools.benchmarks.corpus FOLDER [--only NAME] [--threads 2] [--json] [--cluster WHERE]

FOLDER: see `robustness.corpus`; workers of a cluster find it under the same name. Kernels that share a machine slow each other:
times of local:2 are for a look, not for a record. A process that has imported everything and run nothing forks for each kernel:
once to fill the cache on disk, and then twice more. The better of these two times counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from simgpu.hardware.errors import SimError
from simgpu.tools.cases.cluster import HERE, add_cluster_option, run_tasks
from simgpu.tools.robustness.corpus import CorpusCase, cases
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.shared.errors import KernelFailed, UsageError
from simgpu.tools.shared.processes import output_of

REPEATS = 2
# Imported before the processes fork.
EVERYONES = ("simgpu", "simgpu.hardware.code_object.code_object", "simgpu.hardware.isa.fidelity")


def main() -> int:
    """Prints the table of all, and the median."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="kernels, with a manifest.json")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="kernels whose names contain this")
    parser.add_argument("--threads", type=int, default=2, help="host threads (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_cluster_option(parser)
    options = parser.parse_args()
    try:
        if options.cluster == HERE:
            figures = measure(options.folder, options.threads, options.only)
        else:
            figures = measure_on(options.cluster, options.folder, options.threads, options.only)
    except SimError as error:
        parser.error(str(error))
    if options.json:
        print_json(figures)
    else:
        show(corpus_table(figures))
    return 0


@dataclass(frozen=True)
class KernelTimes:
    """Times of one kernel."""

    name: str
    target: str
    seconds: float  # from making the device to the last result
    launch_seconds: float  # of the launch only
    first_seconds: float  # of the first process, which compiled handlers that the cache did not hold
    instructions: int


def measure(folder: str, threads: int, only: list[str] | None = None) -> dict[str, Any]:
    """Returns the median and every kernel's KernelTimes, slowest first. Raises UsageError for a folder without any,
    KernelFailed if a kernel fails."""
    chosen = _choose(folder, only)
    for module in EVERYONES:
        importlib.import_module(module)
    return _figures([asdict(_times(case, threads)) for case in chosen])  # no progress: its thread would be forked


def measure_on(cluster: str, folder: str, threads: int, only: list[str] | None = None) -> dict[str, Any]:
    """Measures as `measure`, on the cluster that `--cluster` names."""
    each = partial(_run_in_process, folder=str(Path(folder).resolve()), threads=threads)
    names = [case.name for case in _choose(folder, only)]
    return _figures([future.result() for _, future in run_tasks(cluster, each, names, "kernels")])


def _run_in_process(name: str, folder: str, threads: int) -> dict[str, Any]:
    """Returns the times of a kernel in a new Python, whose only thread it forks."""
    words = ["-m", "simgpu.tools.benchmarks.corpus", folder, "--only", name, "--threads", str(threads), "--json"]
    (row,) = (row for row in json.loads(output_of(words))["all"] if row["name"] == name)  # --only selects all that contain it
    return dict(row)


def _choose(folder: str, only: list[str] | None) -> list[CorpusCase]:
    if not (chosen := cases(folder, only or [])):
        raise UsageError(f"{folder}: no kernels in its manifest{' of such a name' if only else ''}")
    return chosen


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows.sort(key=lambda row: -row["seconds"])
    seconds = [row["seconds"] for row in rows]
    return {"kernels": len(rows), "median_seconds": statistics.median(seconds), "slowest_seconds": seconds[0], "all": rows}


def corpus_table(figures: dict[str, Any]) -> Any:
    """Makes the table of all kernels."""
    title = f"{figures['kernels']} kernels, warm, without imports: median {figures['median_seconds']:.3f} s"
    columns = ("kernel", "target", "seconds", "launch", "first process", "wave-instructions")
    return table(title, columns, [tuple(row.values()) for row in figures["all"]], left=2)


def _times(case: CorpusCase, threads: int) -> KernelTimes:
    first, *again = (_run_forked(case, threads) for _ in range(1 + REPEATS))
    best = min(again, key=lambda took: took[0])
    return KernelTimes(case.name, case.target, best[0], best[1], first[0], int(best[2]))


def _run_forked(case: CorpusCase, threads: int) -> tuple[float, float, float]:
    """Returns seconds, the launch's seconds and wave-instructions of a run in a forked process."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        try:
            said: Any = _run(case, threads)
        except BaseException as error:  # this process ends here for any of them
            said = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        told = file.read()
    os.waitpid(process, 0)
    answer = json.loads(told) if told else "its process ended"
    if isinstance(answer, str):
        raise KernelFailed(f"{case.name}: {answer}")
    return answer[0], answer[1], answer[2]


def _run(case: CorpusCase, threads: int) -> tuple[float, float, int]:
    from simgpu import Device

    began = time.perf_counter()
    gpu = Device(case.target, threads=threads)
    run, _ = case.launch(gpu, gpu.load(case.code)[case.entry])
    return time.perf_counter() - began, run.seconds, run.instructions


if __name__ == "__main__":
    sys.exit(main())
