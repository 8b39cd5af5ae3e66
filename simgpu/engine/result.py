"""What a launch leaves behind: counts and counters, findings, fidelity."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
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
    from simgpu.engine.program import Program
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
    first, with the error's bound and its source or what is not public; kernel, call: what was launched, and how;
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
    kernel: Any = field(default=None, compare=False)
    call: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def time(self, **options: Any) -> Any:
        """The time that the model gives the launch on a real GPU: a `simgpu.timing.predict.Prediction`.

        options: those of `Kernel.time`. Samples of the launch run anew, on what its buffers hold now, which stays as it is.
        LaunchError where nothing can run anew, and what a launch raises.
        """
        self._require_launch("timed")
        return self.kernel.time(**self.call, **options)

    def html(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The page to look at of this launch, a `simgpu.tools.page.page.Page`, which Jupyter shows; written to `path` where one is
        given. docs/look.md says what it holds.

        The beginning of a wave runs anew, on what the buffers hold now, which stays as it is. LaunchError for a run that is none of
        simgpu.Device's launches.
        """
        self._require_launch("shown")
        import simgpu  # its front door: what makes pages is built on this engine, which does not know it

        page = simgpu.page(self)
        if path is not None:
            page.save(path)
        return page

    def _require_launch(self, wanted: str) -> None:
        if self.kernel is None:
            raise LaunchError(f"this run cannot be {wanted}: it is not one of simgpu.Device's launches")

    def _repr_html_(self) -> str:
        """For Jupyter: what was executed, and what was found; `html` is the whole page."""
        rows = "".join(f"<tr><td>{name}</td><td align='right'>{value:,}</td></tr>" for name, value in self.counters.items())
        told = "".join(finding._repr_html_() for finding in self.findings)
        return f"<p>{escape(repr(self))}</p>{told}<details><summary>counters</summary><table>{rows}</table></details>"

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
    """What each execution of an instruction counts as; flops: of a matrix instruction; moved: bytes for each lane of a memory
    instruction, by counter."""

    category: str
    fidelity: Fidelity
    flops: int
    moved: Mapping[str, int] | None

    @classmethod
    def of(cls, inst: Instruction) -> Account:
        flops = matrix_flops(inst) if inst.spec.kind == "matrix" else 0
        return cls(instruction_class(inst), fidelity_of(inst), flops, bytes_moved(inst) if inst.spec.memory else None)


FIDELITIES = ("exact", "bounded", "unverified", "unsupported")
COUNTED = tuple(f"instructions_{name}" for name in CLASSES)
MOVED = ("global_read_bytes", "global_write_bytes", "lds_read_bytes", "lds_write_bytes", "scalar_read_bytes")
MOVED_NOTHING = dict.fromkeys(MOVED, 0)


@dataclass(frozen=True)
class Accounts:
    """What the instructions that a launch may execute count as, a row each in the order of the code.

    records: (rows,); offsets: (rows,), their bytes of code from the entry; counted: (rows, columns), what an execution adds to each
    class, each fidelity and mfma_flops; memory: the rows of memory instructions; moved: (of these, columns of MOVED), bytes a lane;
    inexact: rows whose results may not be the hardware's bits, with mnemonic and reason.
    """

    records: np.ndarray
    offsets: np.ndarray
    counted: np.ndarray
    memory: np.ndarray
    moved: np.ndarray
    inexact: Sequence[tuple[int, str, Fidelity]]

    @classmethod
    def of(cls, programs: Sequence[Program], entry: int) -> Accounts:
        """Those of the one program's code from an entry on, or of all that was lowered in several."""
        instructions: dict[int, Instruction] = {}
        accounts: dict[int, Account] = {}
        for program in programs:
            instructions |= program.instructions
            accounts |= program.each(Account.of)
        records = sorted(programs[0].executable(entry) if len(programs) == 1 else instructions)
        rows = [accounts[record] for record in records]
        counted = np.zeros((len(rows), len(CLASSES) + len(FIDELITIES) + 1), np.int64)
        for row, account in zip(counted, rows, strict=True):
            row[CLASSES.index(account.category)] = 1
            row[len(CLASSES) + FIDELITIES.index(account.fidelity.kind)] = 1
            row[-1] = account.flops
        memory = [at for at, account in enumerate(rows) if account.moved is not None]
        moved = [[(rows[at].moved or {}).get(key, 0) for key in MOVED] for at in memory]
        inexact = [
            (at, instructions[record].mnemonic, rows[at].fidelity) for at, record in enumerate(records) if rows[at].fidelity.why
        ]
        at, bytes_ = np.array(records, np.int64), np.array(moved, np.int64).reshape(-1, len(MOVED))
        return cls(at, 4 * (at - entry), counted, np.array(memory, np.int64), bytes_, inexact)


def executed(launch: Launch, workers: list[Worker]) -> np.ndarray:
    """How often each record of `launch.accounts` ran."""
    return _tallied(launch.accounts, workers)[0]


def _tallied(accounts: Accounts, workers: list[Worker]) -> tuple[np.ndarray, np.ndarray]:
    """The same, and the lanes that each record served, of memory instructions."""
    first, *others = (worker.counts[:, accounts.records] for worker in workers)
    entered, exited, lanes = sum(others, first)
    return scheduler.executions(entered, exited), lanes


def summarise(launch: Launch, workers: list[Worker], seconds: float) -> Run:
    """Counters of a finished launch from its workers' counts."""
    accounts = launch.accounts
    times, lanes = _tallied(accounts, workers)
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
    if launch.table.bitmaps is not None:
        counters["unique_read_bytes"], counters["unique_write_bytes"] = launch.table.unique_bytes()
    total = counters["instructions"] = int(times.sum())
    (ran,) = times.nonzero()
    profile = dict(zip(accounts.offsets[ran].tolist(), times[ran].tolist(), strict=True))
    conflicts: dict[int, int] = {}
    for lost in (check.conflicts(workers) for check in launch.device.checks):
        if lost is None:
            continue
        conflicts = {4 * (index - launch.entry): clocks for index, clocks in lost.items()}
        counters["lds_bank_conflicts"] = sum(conflicts.values())
    inexact = [Inexact(mnemonic, why, int(times[at])) for at, mnemonic, why in accounts.inexact if times[at]]
    kernel, call = (launch.kernel, launch.call) if launch.call else (None, {})
    return Run(total, seconds, counters, [], fidelity, profile, served, conflicts, merged(inexact), (), kernel, call)


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


def bytes_moved(inst: Instruction) -> dict[str, int]:
    """Bytes that a memory instruction moves for each lane, by the counter that they belong to."""
    memory = inst.spec.memory
    assert memory is not None
    moved = memory.bits * memory.count // 8
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
