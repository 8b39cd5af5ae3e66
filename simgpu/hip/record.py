"""Record of a program's run: figures by kernel, findings reported once each, and the document of both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simgpu.engine.finding import Finding
from simgpu.engine.result import Run
from simgpu.engine.suppressions import Suppressions

NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass
class KernelRecord:
    """Launches of a kernel of a program."""

    name: str  # as users write it
    board: str
    launches: int = 0  # launches that ended without an error
    checked: int = 0  # those with checks
    failed: int = 0  # launches that ended with an error
    instructions: int = 0  # wave-instructions
    read_bytes: int = 0  # `global_read_bytes`
    write_bytes: int = 0  # `global_write_bytes`
    seconds: float = 0.0  # wall time
    findings: int = 0  # findings of its launches that are not suppressed
    modelled: float = 0.0  # seconds that the launches would take on a real GPU, by the timing model
    untimed: int = 0  # launches that the model has no time for
    fidelity: Counter[str] = field(default_factory=Counter)

    def note(self, run: Run, checked: bool, launches: int) -> None:
        """Counts launches that ended well. run: the sum of their runs."""
        self.launches += launches
        self.checked += launches * checked
        self.instructions += run.instructions
        self.read_bytes += run.counters["global_read_bytes"]
        self.write_bytes += run.counters["global_write_bytes"]
        self.seconds += run.seconds
        for kind, count in run.fidelity.items():  # Counter.update takes 2 µs, in each launch
            self.fidelity[kind] += count

    def time(self, seconds: float | None) -> None:
        """Counts a launch's predicted time. seconds: None if there is no prediction."""
        self.modelled += seconds or 0.0
        self.untimed += seconds is None

    def document(self) -> dict[str, Any]:
        """Returns the record for JSON."""
        return {**vars(self), "fidelity": dict(self.fidelity)}


@dataclass(frozen=True)
class CallFinding(Finding):
    """Something wrong with a call of HIP; source: the line of the call, other_source: that of an earlier one."""

    def __str__(self) -> str:
        places = (("at", self.source), ("earlier", self.other_source))
        return f"{self.severity}: {self.kind}: {self.message}" + "".join(f"\n  {word} {line}" for word, line in places if line)


class ProcessRecord:
    """Record of a process. tell: prints a message for people, at once."""

    def __init__(self, path: str, process: int, tell: Callable[[str], None], suppressions: Suppressions) -> None:
        self.path, self.process = path, process
        self.kernels: dict[tuple[str, str], KernelRecord] = {}
        self.findings: dict[tuple[Any, ...], Finding] = {}
        self.times: Counter[tuple[Any, ...]] = Counter()
        self.errors: list[str] = []
        self.failed_calls: list[tuple[str, str, int]] = []  # call, error, times
        self.observed: list[dict[str, Any]] = []  # of the first launch of each kernel, see `Options`
        self._tell = tell
        self._suppressions = suppressions

    def kernel(self, name: str, board: str) -> KernelRecord:
        """Returns the record of a kernel on a board."""
        found = self.kernels.get((name, board))
        if found is None:
            found = self.kernels[name, board] = KernelRecord(name, board)
        return found

    def note(self, finding: Finding, launch: int = 0) -> bool:
        """Counts a finding, and reports the first of its kind at its place. False if it is suppressed."""
        if self._suppressions.match(finding):
            return False
        what = finding.pc or NUMBER.sub("#", finding.message)
        key = (finding.kernel, finding.kind, what, finding.source)
        self.times[key] += 1
        if key in self.findings:
            return True
        self.findings[key] = finding
        self._tell(f"{finding}" + (f"\n    in launch {launch} of the kernel" if launch > 1 else ""))
        return True

    def error(self, text: str) -> None:
        """Records and reports a kernel's failure."""
        self.errors.append(text)
        self._tell(text)

    @property
    def wrong(self) -> bool:
        """True if anything was found that a correct program does not have."""
        return bool(self.errors) or any(f.severity == "error" and not f.is_internal for f in self.findings.values())

    def document(self) -> dict[str, Any]:
        """Returns the record for JSON, and for the process that started this one."""
        return {
            "program": self.path, "process": self.process, "wrong": self.wrong, "errors": self.errors,
            "failed_calls": self.failed_calls,
            "kernels": [kernel.document() for kernel in self.kernels.values()],
            "observed": self.observed, "suppressed": dict(self._suppressions.used),
            "findings": [{**finding.document(), "launches": self.times[key]} for key, finding in self.findings.items()],
        }  # fmt: skip
