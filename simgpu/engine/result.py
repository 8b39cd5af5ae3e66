"""Results of a launch: counts and counters, findings, fidelity."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.accounts import CLASSES, COUNTED, FIDELITIES, MOVED, MOVED_NOTHING, Accounts
from simgpu.engine.dispatch import Dispatch
from simgpu.engine.finding import Finding
from simgpu.engine.footprint import Footprint
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.worker import live_waves
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.fidelity import Fidelity

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


@dataclass(frozen=True)
class Inexact:
    """Executed wave-instructions of one mnemonic whose results may not be the hardware's bits, and the reason."""

    mnemonic: str
    fidelity: Fidelity
    count: int


@dataclass(frozen=True, repr=False)
class Run:
    """Results of a finished launch.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
    >>> run.counters["mfma_flops"] == 2 * 64**3, run.findings
    (True, [])
    """

    instructions: int  # wave-instructions executed
    seconds: float  # wall time
    counters: Mapping[str, int]  # see `docs/reference/counters.md`
    findings: list[Finding] = field(default_factory=list)  # findings of checked mode, empty in plain mode
    fidelity: Mapping[str, int] = field(default_factory=dict)  # executed wave-instructions by `Fidelity.kind`
    profile: Mapping[int, int] = field(default_factory=dict)  # executions by code offset from the kernel's first instruction
    lanes: Mapping[int, int] = field(default_factory=dict)  # lanes served by memory instructions, by code offset
    lds_conflicts: Mapping[int, int] = field(default_factory=dict)  # clocks lost to LDS banks (check="performance")
    inexact: Sequence[Inexact] = ()  # executed instructions that may differ from the hardware's bits, most executed first
    notes: Sequence[str] = ()  # assumptions about arguments
    footprint: Footprint | None = field(default=None, compare=False)  # bytes that it touched; None unless `Device.footprints`
    kernel: Any = field(default=None, compare=False)  # the launched kernel
    call: Mapping[str, Any] = field(default_factory=dict, compare=False)  # arguments of the launch

    def time(self, **options: Any) -> Any:
        """Predicts the launch's time on a real GPU with the time model: a `simgpu.timing.predict.Prediction`.

        options: those of `Kernel.time`. Samples of the launch run again, on the current contents of its buffers, which do not
        change. Raises LaunchError if nothing can run again, and the errors of a launch.
        """
        self._require_launch("timed")
        return self.kernel.time(**self.call, **options)

    def html(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Returns the page of this launch, a `simgpu.tools.page.page.Page`, which Jupyter shows. Writes it to `path` if given.

        docs/how-to/look.md describes it. The beginning of a wave runs again, on the current contents of the buffers, which do not
        change. Raises LaunchError for a run that is none of simgpu.Device's launches.
        """
        self._require_launch("shown")
        import simgpu  # the front door: pages are built on this engine, which does not import them

        page = simgpu.page(self)
        if path is not None:
            page.save(path)
        return page

    def _require_launch(self, wanted: str) -> None:
        if self.kernel is None:
            raise LaunchError(f"this run cannot be {wanted}: it is not one of simgpu.Device's launches")

    def _repr_html_(self) -> str:
        """Returns HTML for Jupyter: executed instructions and findings. `html` is the whole page."""
        from html import escape

        rows = "".join(f"<tr><td>{name}</td><td align='right'>{value:,}</td></tr>" for name, value in self.counters.items())
        told = "".join(finding._repr_html_() for finding in self.findings)
        return f"<p>{escape(repr(self))}</p>{told}<details><summary>counters</summary><table>{rows}</table></details>"

    def __repr__(self) -> str:
        found = f", {len(self.findings)} finding(s)" if self.findings else ""
        return f"<Run of {self.instructions:,} wave-instructions in {self.seconds:.3g} s{found}>"


def execution_counts(launch: Dispatch, workers: list[Worker]) -> np.ndarray:
    """Returns how often each record of `launch.accounts` ran, as int64 (rows,)."""
    entered, exited, _ = totals(launch.accounts, workers).reshape(3, -1)
    return scheduler.executions(entered, exited)


def totals(accounts: Accounts, workers: list[Worker]) -> np.ndarray:
    """Returns the counts of all workers together at `accounts.places`."""
    first, *others = (worker.counts.take(accounts.places) for worker in workers)
    total: np.ndarray = sum(others, first)
    return total


@dataclass(frozen=True)
class _Summary:
    """Part of a Run that the workers' counts determine. Launches of one kernel often have equal counts, and share it."""

    accounts: Accounts
    totals: bytes  # the counts
    counters: Mapping[str, int]
    fidelity: Mapping[str, int]
    profile: Mapping[int, int]
    lanes: Mapping[int, int]
    inexact: tuple[Inexact, ...]

    @classmethod
    def of(cls, accounts: Accounts, totals: np.ndarray) -> _Summary:
        entered, exited, lanes = totals.reshape(3, -1)
        times = scheduler.executions(entered, exited)
        counted = (times @ accounts.counted).tolist()
        counters = dict(zip(COUNTED, counted, strict=False))
        fidelity = dict(zip(FIDELITIES, counted[len(CLASSES) : -1], strict=True))
        counters["mfma_flops"] = counted[-1]
        counters.update(MOVED_NOTHING)
        served = {}
        if len(accounts.memory):
            ran, lanes = times[accounts.memory], lanes[accounts.memory]
            counters.update(zip(MOVED, (lanes @ accounts.moved).tolist(), strict=True))
            (touched,) = ran.nonzero()
            served = dict(zip(accounts.offsets[accounts.memory[touched]].tolist(), lanes[touched].tolist(), strict=True))
        counters["instructions"] = int(times.sum())
        (ran,) = times.nonzero()
        profile = dict(zip(accounts.offsets[ran].tolist(), times[ran].tolist(), strict=True))
        inexact = [Inexact(mnemonic, why, int(times[at])) for at, mnemonic, why in accounts.inexact if times[at]]
        return cls(accounts, totals.tobytes(), counters, fidelity, profile, served, merge_inexact(inexact))


def summarise(
    launch: Dispatch, totals: np.ndarray, seconds: float, lost: Mapping[int, int] | None, kernel: Any, call: Mapping[str, Any]
) -> Run:
    """Summarises a finished launch.

    totals: its workers' counts, see `totals`
    lost: clocks lost to LDS bank conflicts by record, None if not counted. kernel, call: see `Run`.
    """
    accounts = launch.accounts
    kept, key = launch.program.kept, ("summary", launch.entry)
    known: _Summary | None = kept.get(key)
    if known is None or known.accounts is not accounts or known.totals != totals.tobytes():
        known = kept[key] = _Summary.of(accounts, totals)
    counters = dict(known.counters)
    total = counters.pop("instructions")
    if launch.table.bitmaps is not None:
        counters["unique_read_bytes"], counters["unique_write_bytes"] = launch.table.unique_bytes()
    counters["instructions"] = total
    conflicts: dict[int, int] = {}
    if lost is not None:
        conflicts = {4 * (index - launch.entry): clocks for index, clocks in lost.items()}
        counters["lds_bank_conflicts"] = sum(conflicts.values())
    fidelity, profile, lanes = dict(known.fidelity), dict(known.profile), dict(known.lanes)
    inexact = known.inexact
    return Run(total, seconds, counters, [], fidelity, profile, lanes, conflicts, inexact, kernel=kernel, call=call)


def instructions_so_far(launch: Dispatch, workers: list[Worker]) -> int:
    """Returns the number of wave-instructions that a launch has executed so far. Its workers must not run."""
    executed = np.zeros(launch.program.count + 1, np.int64)
    for worker in workers:
        entered = worker.entries.copy()
        for wave in live_waves(worker):
            entered[wave.resume] -= 1  # cancels the wave's pending run, which stopped before this record
        executed += scheduler.executions(entered, worker.exits)
    known: set[int] = set().union(*(program.instructions for program in launch.programs.values()))
    return int(executed[sorted(known)].sum())


def merge_inexact(entries: Iterable[Inexact]) -> tuple[Inexact, ...]:
    """Merges entries to one for each mnemonic and reason, most executed first."""
    counts: Counter[tuple[str, Fidelity]] = Counter()
    for entry in entries:
        counts[entry.mnemonic, entry.fidelity] += entry.count
    return tuple(Inexact(mnemonic, fidelity, count) for (mnemonic, fidelity), count in counts.most_common())
