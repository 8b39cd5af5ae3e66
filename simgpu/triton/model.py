"""Time by a model, for `do_bench` and autotuning: there is no GPU to measure.

A launch takes the longest of: the instructions of its waves, issued in turn on as many SIMDs as its waves fill
(4 clocks each, 64 lanes on 16-wide units; a matrix instruction its passes); the bytes that it touches, at HBM's
rate; the bytes that its lanes ask for, at L2's rate; the bytes of LDS traffic on the CUs in use. Latency, launch
overhead and overlap between launches are left out: the figures rank configurations, they predict no GPU.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from simgpu.hardware import mfma
from simgpu.hardware.descriptor import CLOCKS_PER_PASS
from simgpu.triton.instructions import executed

if TYPE_CHECKING:
    from simgpu.triton.session import Launched

ISSUE_CLOCKS = 4  # a wave's 64 lanes on a 16-lane SIMD (CDNA ISA guides, "Vector ALU")


class ModelledTime(UserWarning):
    """Said whenever a time is asked for: it comes from a model."""


def milliseconds(launched: Launched) -> float:
    """Modelled time of a launch."""
    chip, counters = launched.kernel.module.device.descriptor, launched.run.counters
    clocks = sum(times * _clocks(inst) for _offset, inst, times in executed(launched))
    groups = math.prod(launched.grid)
    cus = min(groups, chip.num_cus)
    simds = min(groups * launched.warps, cus * chip.simds_per_cu)
    hbm = counters["unique_read_bytes"] + counters["unique_write_bytes"]
    l2 = counters["global_read_bytes"] + counters["global_write_bytes"]
    lds = counters["lds_read_bytes"] + counters["lds_write_bytes"]
    seconds = max(
        clocks / simds / (chip.clock_mhz * 1e6),
        hbm / (chip.hbm_bandwidth_tb * 1e12),
        l2 / (chip.l2_bandwidth_tb * 1e12),
        lds / (chip.lds_bytes_per_clock * cus * chip.clock_mhz * 1e6),
    )
    return 1e3 * seconds


def _clocks(inst: Any) -> int:
    if inst.spec.kind == "matrix":
        return CLOCKS_PER_PASS * int(mfma.find(inst.mnemonic, inst.target).passes)
    return ISSUE_CLOCKS


class Clock:
    """Times what is launched during a benchmark, behind the interface that Triton times with."""

    def __init__(self) -> None:
        self._timed: list[Launched] | None = None
        self._spent: float | None = None

    def note(self, launched: Launched) -> None:
        """Count a launch if a benchmark is under way, or if the time was asked for."""
        if self._timed is not None:
            self._timed.append(launched)
        if self._spent is not None:
            self._spent += milliseconds(launched)

    def now(self) -> float:
        """Modelled ms of all launches since this was first asked."""
        if self._spent is None:
            self._spent = 0.0
        return self._spent

    def do_bench(
        self, fn: Callable[[], Any], warmup: int = 25, rep: int = 100, grad_to_none: Iterable[Any] | None = None,
        quantiles: Sequence[float] | None = None, return_mode: str = "mean",
    ) -> Any:  # fmt: skip
        """In place of `triton.testing.do_bench`: one call, in modelled ms; every other would take the same."""
        warnings.warn(
            "simgpu: do_bench gives modelled milliseconds (simgpu.triton.model), no GPU was timed", ModelledTime, stacklevel=3
        )
        self._timed = []
        try:
            fn()
            spent = sum(milliseconds(launched) for launched in self._timed)
        finally:
            self._timed = None
        if quantiles is not None:
            return spent if len(quantiles) == 1 else [spent] * len(quantiles)
        return [spent] if return_mode == "all" else spent

    def benchmark(self, fn: Callable[[], Any], *, quantiles: Sequence[float], **_options: Any) -> Any:
        """The autotuner's benchmark."""
        return self.do_bench(fn, quantiles=quantiles)
