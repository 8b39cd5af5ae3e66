"""What a launch leaves behind: counts and counters, findings, fidelity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.finding import Finding
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.worker import live_waves
from simgpu.hardware import mfma
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.fidelity import Fidelity, fidelity_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch
    from simgpu.engine.workers.worker import Worker


@dataclass(frozen=True)
class Inexact:
    """Executed wave-instructions of one mnemonic whose results may not be the hardware's bits, and why."""

    mnemonic: str
    fidelity: Fidelity
    count: int


@dataclass(frozen=True, repr=False)
class Run:
    """One finished launch.

    instructions: wave-instructions executed; seconds: wall time; counters: see `docs/counters.md`;
    findings: what checked mode saw, empty in plain mode; fidelity: executed wave-instructions by how
    far their results are those of hardware; inexact: those that are not exact, by mnemonic, most executed
    first, with the error's bound and its source or what is not public; timer: what `time` calls;
    profile: executions by code offset from the kernel's first instruction; lanes: of its memory instructions, the lanes
    served; lds_conflicts: clocks that they lost to LDS banks, with check="performance"; notes: what was assumed of arguments.
    """

    instructions: int
    seconds: float
    counters: Mapping[str, int]
    findings: list[Finding] = field(default_factory=list)
    fidelity: Mapping[str, int] = field(default_factory=dict)
    profile: Mapping[int, int] = field(default_factory=dict)
    lanes: Mapping[int, int] = field(default_factory=dict)
    lds_conflicts: Mapping[int, int] = field(default_factory=dict)
    inexact: Sequence[Inexact] = ()
    notes: Sequence[str] = ()
    timer: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    def time(self, **options: Any) -> Any:
        """The time that the model gives the launch on a real GPU: a `simgpu.timing.predict.Prediction`.

        options: those of `Kernel.time`. Samples of the launch run anew, on what its buffers hold now, which stays as it is.
        LaunchError where nothing can run anew, and what a launch raises.
        """
        if self.timer is None:
            raise LaunchError("this run cannot be timed: it is not one of simgpu.Device's launches")
        return self.timer(**options)

    def __repr__(self) -> str:
        found = f", {len(self.findings)} finding(s)" if self.findings else ""
        return f"<Run of {self.instructions:,} wave-instructions in {self.seconds:.3g} s{found}>"


WAITS = (ControlKind.WAITCNT, ControlKind.BARRIER, ControlKind.NOP, ControlKind.SLEEP)
BRANCHES = {ControlKind.BRANCH, *CONDITIONAL_BRANCHES, ControlKind.GETPC, ControlKind.SETPC, ControlKind.SWAPPC}
CLASSES = ("valu", "salu", "mfma", "vmem", "smem", "lds", "branch", "wait", "other")


def instruction_class(inst: Instruction) -> str:
    """The class an instruction counts in."""
    spec = inst.spec
    if spec.kind == "matrix":
        return "mfma"
    if spec.encoding == "ds":
        return "lds"
    if spec.encoding == "smem":
        return "smem"
    if spec.encoding in ("flat", "mubuf", "mtbuf"):
        return "vmem"
    if spec.kind == "control":
        return "wait" if spec.control in WAITS else "branch" if spec.control in BRANCHES else "other"
    return "salu" if spec.encoding.startswith("sop") else "valu"


@dataclass(frozen=True)
class Account:
    """What each execution of an instruction counts as; flops: of a matrix instruction."""

    category: str
    fidelity: Fidelity
    flops: int

    @classmethod
    def of(cls, inst: Instruction) -> Account:
        return cls(instruction_class(inst), fidelity_of(inst), matrix_flops(inst) if inst.spec.kind == "matrix" else 0)


def summarise(launch: Launch, workers: list[Worker], seconds: float) -> Run:
    """Counters of a finished launch from its workers' counts."""
    executed = np.zeros(launch.program.count + 1, np.int64)
    lanes = np.zeros_like(executed)
    for worker in workers:
        executed += scheduler.executions(worker.entered, worker.exited)
        lanes += worker.lanes
    counters: Counter[str] = Counter({f"instructions_{name}": 0 for name in CLASSES})
    for name in (
        "mfma_flops", "global_read_bytes", "global_write_bytes", "lds_read_bytes", "lds_write_bytes",
        "scalar_read_bytes",
    ):  # fmt: skip
        counters[name] = 0
    fidelity: Counter[str] = Counter({"exact": 0, "bounded": 0, "unverified": 0, "unsupported": 0})
    inexact: list[Inexact] = []
    total = 0
    profile: dict[int, int] = {}
    served: dict[int, int] = {}
    conflicts: dict[int, int] = {}
    accounts: dict[int, Account] = {}
    instructions: dict[int, Instruction] = {}
    for program in launch.programs.values():
        instructions |= program.instructions
        accounts |= program.each(Account.of)
    counts, lane_counts = executed.tolist(), lanes.tolist()
    for index, account in accounts.items():
        times, inst = counts[index], instructions[index]
        if not times:
            continue
        total += times
        profile[4 * (index - launch.entry)] = times
        counters[f"instructions_{account.category}"] += times
        fidelity[account.fidelity.kind] += times
        if account.fidelity.why:
            inexact.append(Inexact(inst.mnemonic, account.fidelity, times))
        counters["mfma_flops"] += times * account.flops
        if inst.spec.memory is not None:
            served[4 * (index - launch.entry)] = lane_counts[index]
            for key, nbytes in bytes_moved(inst, lane_counts[index]).items():
                counters[key] += nbytes
    read, written = launch.table.unique_bytes()
    counters["unique_read_bytes"] = read
    counters["unique_write_bytes"] = written
    counters["instructions"] = total
    for lost in (check.conflicts(workers) for check in launch.device.checks):
        if lost is None:
            continue
        conflicts = {4 * (index - launch.entry): clocks for index, clocks in lost.items()}
        counters["lds_bank_conflicts"] = sum(conflicts.values())
    return Run(total, seconds, dict(counters), [], dict(fidelity), profile, served, conflicts, merged(inexact))


def instructions_so_far(launch: Launch, workers: list[Worker]) -> int:
    """Wave-instructions that a launch executed until its workers came back."""
    executed = np.zeros(launch.program.count + 1, np.int64)
    for worker in workers:
        entered = worker.entered.copy()
        for wave in live_waves(worker):
            entered[wave.resume] -= 1  # it began the run that it is in, and executed what lies before
        executed += scheduler.executions(entered, worker.exited)
    known: set[int] = set().union(*(program.instructions for program in launch.programs.values()))
    return int(executed[sorted(known)].sum())


def merged(entries: Iterable[Inexact]) -> tuple[Inexact, ...]:
    """One entry for each mnemonic and reason, most executed first."""
    counts: Counter[tuple[str, Fidelity]] = Counter()
    for entry in entries:
        counts[entry.mnemonic, entry.fidelity] += entry.count
    return tuple(Inexact(mnemonic, fidelity, count) for (mnemonic, fidelity), count in counts.most_common())


def bytes_moved(inst: Instruction, lanes: int) -> dict[str, int]:
    """Bytes that a memory instruction moves for so many lanes, by the counter that they belong to."""
    memory = inst.spec.memory
    assert memory is not None
    moved = lanes * memory.bits * memory.count // 8
    if memory.space == "ds":
        reads, writes = "lds_read_bytes", "lds_write_bytes"
    elif inst.spec.encoding == "smem":
        reads, writes = "scalar_read_bytes", "global_write_bytes"
    else:
        reads, writes = "global_read_bytes", "global_write_bytes"
    found = {}
    if memory.op in ("load", "atomic"):
        found[reads] = moved
    if memory.op in ("store", "atomic"):
        found[writes] = moved
    return found


def matrix_flops(inst: Instruction) -> int:
    row: Any = mfma.find(inst.mnemonic, inst.target)
    return 2 * row.m * row.n * row.k * row.blocks
