"""`simgpu bench`: times of a kernel over many launches on a GPU (or in the simulator), its result validated."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.errors import LaunchError
from tools.against import Agreement, all_exact
from tools.arrays import require_memory
from tools.clock import clock_mhz
from tools.console import print_json, progress, show, table
from tools.launching import add_device_options, device_of, launched, simulated_device
from tools.operator_options import add_operator_options, operator_document, operator_tree
from tools.workload import Workload, workload

if TYPE_CHECKING:
    from asm import EmittedKernel

FEWEST, WARM_UP = 20, 3  # launches; the least
COLD = 2  # times L2 and Infinity Cache: what is touched between two uses of a buffer


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_operator_options(parser, more=_options)


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--launches", type=int, default=FEWEST, help=f"launches to time, at least {FEWEST} (the default)")
    add_device_options(parser)


def run(options: Namespace) -> int:
    """Times the kernel on random inputs; status 1 if the result is wrong or launches differ."""
    import asm

    if options.launches < FEWEST:
        raise LaunchError(f"--launches {options.launches}: give {FEWEST} or more, a median of fewer says little")
    tree = operator_tree(options)
    kernel = asm.emit(tree)
    device: Any = device_of(options, options.target)
    with progress("making inputs"):
        work = workload(tree, device.arch, options.seed)
    bench = Bench(device, kernel, work, options.device == "hip", options.launches)
    with progress(f"timing {kernel.name}"):
        first, times, steady = launched(kernel.name, bench.measure)
    clock = clock_mhz(device.index) if options.device == "hip" else None
    with progress("comparing with float64"):
        verdict = work.compare(first)
    agreement = _against_sim(options, kernel, work, first) if options.against_sim else None
    figures = Figures(times, tree.problem.flops, work.moved_bytes, device.descriptor.matrix_tflops(tree.problem.dtype))
    passed = verdict.passed and steady and (agreement is None or agreement.agrees)
    where = device.name if options.device == "hip" else f"the simulated {device.arch}, host time"
    if options.json:
        print_json({
            **operator_document(tree, options.op), "kernel": kernel.name, "device": where, "real": options.device == "hip",
            "launches": options.launches, "warm_up": WARM_UP, "buffer_sets": bench.sets, "clock_mhz": clock,
            **figures.document(options.device == "hip"), "error": verdict.document(), "same_bits": steady,
            "against_sim": agreement and agreement.document(), "pass": passed,
        })  # fmt: skip
        return 0 if passed else 1
    show(f"{tree.derivation.title}, {tree.derivation.policy} tiles", f"{kernel.name} on {where}")
    show(f"{options.launches} launches after {WARM_UP} to warm up, {bench.sets} set(s) of buffers in turn")
    show(table("Time of a launch", ("figure", "value", "unit"), figures.rows(options.device == "hip", clock)), "")
    show(*verdict.lines(), *([agreement.line()] if agreement else []))
    if not steady:
        show("The launches did not all give the same bits")
    show("PASS" if passed else "FAIL")
    return 0 if passed else 1


@dataclass(frozen=True)
class Figures:
    """seconds of each launch; flops and nbytes of one; peak: TFLOPS of the matrix unit by its datasheet."""

    seconds: Sequence[float]
    flops: int
    nbytes: int
    peak: float

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """Seconds: a quarter, half and three quarters of the launches took no longer."""
        low, median, high = np.percentile(self.seconds, (25, 50, 75))
        return float(low), float(median), float(high)

    @property
    def spread(self) -> float:
        """The middle half of the launches, as a share of the median."""
        low, median, high = self.quartiles
        return (high - low) / median

    def document(self, real: bool) -> dict[str, Any]:
        """For JSON; the share of the peak only for a real GPU."""
        low, median, high = self.quartiles
        tflops = self.flops / median / 1e12
        return {
            "seconds": {"median": median, "min": min(self.seconds), "max": max(self.seconds), "quartiles": [low, high],
                        "spread": self.spread, "all": list(self.seconds)},
            "tflops": tflops, "peak_tflops": self.peak if real else None,
            "percent_of_peak": 100 * tflops / self.peak if real else None,
            "gb_per_s": self.nbytes / median / 1e9,
        }  # fmt: skip

    def rows(self, real: bool, clock: int | None) -> list[tuple[str, object, str]]:
        """For a table."""
        made = self.document(real)
        rows: list[tuple[str, object, str]] = [
            ("median", f"{1e6 * made['seconds']['median']:,.1f}", "us"),
            ("fastest", f"{1e6 * min(self.seconds):,.1f}", "us"),
            ("slowest", f"{1e6 * max(self.seconds):,.1f}", "us"),
            ("spread", 100 * self.spread, "% of the median, the middle half of the launches"),
            ("product", made["tflops"], "TFLOPS"),
            ("operands", made["gb_per_s"], "GB/s, each byte once"),
        ]
        if real:
            rows.append(("matrix peak", made["percent_of_peak"], f"% of {self.peak:.1f} TFLOPS (datasheet)"))
            rows.append(("clock", clock if clock else "unknown", "MHz (amdsmi)"))
        return rows


class Bench:
    """A kernel on a device with its buffers: as many sets as it takes to leave the caches behind."""

    def __init__(self, device: Any, kernel: EmittedKernel, work: Workload, real: bool, launches: int) -> None:
        self.device = device
        self.kernel = kernel
        self.work = work
        self.real = real
        self.launches = launches
        set_bytes = sum(array.nbytes for array in work.arrays)
        self.cold_bytes = COLD * (device.descriptor.xcds * device.descriptor.l2_bytes + device.descriptor.mall_bytes)
        most = 1 + math.ceil(self.cold_bytes / max(set_bytes, 1))
        self.sets = min(most, launches + WARM_UP) if real else 1
        require_memory(set_bytes * (2 if real else 3), kernel.name)
        self.buffers = [[device.upload(array) for array in work.arrays] for _ in range(self.sets)]
        self.scratch = {name: device.alloc(nbytes) for name, nbytes in kernel.scratch}
        self.steps = [(device.load(step.assemble())[step.name], step) for step in kernel.steps]

    def measure(self) -> tuple[np.ndarray, list[float], bool]:
        """The output of the first launch, seconds of each timed one, and whether every set of buffers that they used
        ends with the same bits."""
        self._time([0])
        first = self._output(0)
        self._time([self.sets - 1 - index % self.sets for index in range(WARM_UP)])
        if self.real:  # what the warm-up and the uploads left in the caches
            self.device.free(self.device.upload(np.zeros(self.cold_bytes, np.uint8)))
        order = [index % self.sets for index in range(self.launches)]
        seconds = self._time(order)
        used = set(order) if self.work.repeatable else ()
        steady = all(self._output(index).tobytes() == first.tobytes() for index in used)
        return first, seconds, steady

    def _output(self, index: int) -> np.ndarray:
        before = self.work.arrays[self.work.output]
        return self.buffers[index][self.work.output].download(before.dtype, before.shape)

    def _time(self, sets: Sequence[int]) -> list[float]:
        """Seconds of a run on each of these sets of buffers, its kernels one behind the other: by events on a GPU, which
        has all of them queued; by the host's clock in the simulator."""
        calls = [
            (entry, {"grid": step.grid, "block": step.block, "args": step.bind(named)})
            for named in ({**dict(zip(self.kernel.operands, self.buffers[index], strict=True)), **self.scratch} for index in sets)
            for entry, step in self.steps
        ]
        if self.real:
            seconds = self.device.time([entry.prepare(**call) for entry, call in calls])
        else:
            seconds = [entry.launch(**call).seconds for entry, call in calls]
        each = len(self.steps)
        return [sum(seconds[first : first + each]) for first in range(0, len(seconds), each)]


def _against_sim(options: Namespace, kernel: EmittedKernel, work: Workload, real: np.ndarray) -> Agreement:
    """The real GPU's output of one launch beside the simulated one."""
    import asm

    device = simulated_device(options, kernel.target)
    buffers = [device.upload(array) for array in work.arrays]
    runs = launched(kernel.name, lambda: asm.launch(kernel, device, *buffers))
    result = buffers[work.output].download(real.dtype, real.shape)
    return Agreement.of("output", real, result, all(all_exact(run.fidelity) for run in runs))
