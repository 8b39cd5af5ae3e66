"""Times of a computation's kernels over many launches, and figures from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.tools.cases.workload import Workload
from simgpu.tools.shared.arrays import require_memory

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel, Prepared
    from simgpu.tools.page.watching import WatchedLaunch

WARM_UP = 3  # launches before the timed ones
COLD = 2  # bytes touched between two uses of a buffer, as a multiple of L2 and Infinity Cache


@dataclass(frozen=True)
class Figures:
    """Times of launches, and the work of one launch."""

    seconds: Sequence[float]  # of each launch
    flops: int  # of one launch
    nbytes: int  # of one launch's operands
    peak: float  # TFLOPS of the matrix unit by its datasheet

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """First quartile, median and third quartile of the times, in seconds."""
        low, median, high = np.percentile(self.seconds, (25, 50, 75))
        return float(low), float(median), float(high)

    @property
    def median(self) -> float:
        """Median of the times, in seconds."""
        return self.quartiles[1]

    @property
    def spread(self) -> float:
        """Middle half of the launches, as a fraction of the median."""
        low, median, high = self.quartiles
        return (high - low) / median

    def document(self, real: bool) -> dict[str, Any]:
        """Returns a JSON document; the percentage of the peak only for a real GPU."""
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
        """Returns rows for a table."""
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


def first_workgroups(prepared: Prepared, buffers: Sequence[Any]) -> None:
    """Launches one workgroup of each kernel, which compiles most handlers that the kernels use."""
    for entry, call in prepared.calls(*buffers):
        entry.launch(**{**call, "grid": 1})


class Timer:
    """A computation on a device, with enough sets of buffers that none is still cached when it is used again."""

    def __init__(self, device: Any, kernel: EmittedKernel, work: Workload, real: bool, launches: int) -> None:
        from simgpu import asm

        self.device = device
        self.work = work
        self.real = real
        self.launches = launches
        set_bytes = sum(array.nbytes for array in work.arrays)
        self.cold_bytes = COLD * (device.descriptor.xcds * device.descriptor.l2_bytes + device.descriptor.mall_bytes)
        most = 1 + math.ceil(self.cold_bytes / max(set_bytes, 1))
        sets = min(most, launches + WARM_UP) if real else 1
        require_memory(set_bytes * (2 if real else 3), kernel.name)
        self.sets = [[device.upload(array) for array in work.arrays] for _ in range(sets)]
        self.prepared = asm.Prepared(kernel, device)

    def measure(self) -> tuple[np.ndarray, list[float], bool]:
        """Returns the output of the first launch, the seconds of each timed one, and whether all results are bit-identical."""
        self._time([0])
        first = self._output(0)
        self._time([len(self.sets) - 1 - index % len(self.sets) for index in range(WARM_UP)])
        if self.real:  # evicts the data of the warm-up and the uploads from the caches
            self.device.free(self.device.upload(np.zeros(self.cold_bytes, np.uint8)))
        order = [index % len(self.sets) for index in range(self.launches)]
        seconds = self._time(order)
        used = () if self.work.reads_result else set(order)
        steady = all(self._output(index).tobytes() == first.tobytes() for index in used)
        return first, seconds, steady

    def launch(self) -> None:
        """Launches once more, on the first set of buffers."""
        self._time([0])

    def watch_kernels(self) -> list[WatchedLaunch]:
        """Launches once more in the simulator and returns the records of each kernel for a page."""
        from simgpu.tools.page.watching import Watching

        watching = Watching()
        for entry, call in self.prepared.calls(*self.sets[0]):
            watching.launch(entry, **call)
        return watching.launches

    def free(self) -> None:
        """Frees the device's memory."""
        for buffers in self.sets:
            for buffer in buffers:
                self.device.free(buffer)
        self.prepared.free()

    def _output(self, index: int) -> np.ndarray:
        before = self.work.arrays[self.work.result]
        after: np.ndarray = self.sets[index][self.work.result].download(before.dtype, before.shape)
        return after

    def _time(self, sets: Sequence[int]) -> list[float]:
        """Times a run of the kernels, in order, on each of these sets of buffers, in seconds: by events on a GPU, where all
        runs are queued first; by the host's clock in the simulator."""
        calls = [self.prepared.calls(*self.sets[index]) for index in sets]
        each = len(calls[0])
        if self.real:
            seconds = self.device.time([entry.prepare(**call) for run in calls for entry, call in run])
        else:
            seconds = [entry.launch(**call).seconds for run in calls for entry, call in run]
        return [sum(seconds[first : first + each]) for first in range(0, len(seconds), each)]
