"""An exhibit: a public bug as a small kernel of our own, before and after its repair, and checked mode's findings in both."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from simgpu import Device, Finding

# Registers that a kernel of the museum may use; its text names the ones that it uses.
VGPRS, AGPRS, SGPRS = 64, 16, 32
MISSING_WAIT = "missing-wait"  # an exhibit's `shows` if late mode may compute wrong numbers
LATE = range(1, 21)  # seeds of late mode
WRONG = "wrong numbers"  # an exhibit's `shows` if only the results reveal the bug
FOLDER = Path(__file__).parent / "exhibits"


@cache
def exhibits() -> dict[str, Exhibit]:
    """Reads all exhibits, by name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.toml"))}


def _read(path: Path) -> Exhibit:
    before, after = (path.with_suffix(f".{when}.s").read_text() for when in ("before", "after"))
    return Exhibit(before=before, after=after, **tomllib.loads(path.read_text()))


@dataclass(frozen=True)
class Exhibit:
    """A bug, its kernel and its launch."""

    title: str
    links: list[str]
    story: str  # the bug's history and cause
    target: str
    before: str  # the kernel's instructions with the bug
    after: str  # and after the repair
    arrays: Mapping[str, str]  # the arguments in order: expressions of numpy
    shows: str  # the kind of finding, the first words of a note, or WRONG
    expected: Mapping[str, str] = field(default_factory=dict)  # results: expressions of numpy and of the arrays before the launch
    block: int = 64
    grid: int = 1
    lds: int = 0  # bytes

    @property
    def body(self) -> str:
        """Diff of the kernel: lines with - are the bug's, lines with + the repair's."""
        lines = difflib.ndiff(self.before.splitlines(), self.after.splitlines())
        return "\n".join(line[0].strip() + line[2:] for line in lines if line[0] != "?")

    def text(self, repaired: bool) -> str:
        """Returns the kernel's assembly."""
        from simgpu.asm.builder.metadata import Header, KernelArgument, Resources, epilogue, prologue

        arguments = tuple(KernelArgument(name, 8 * at, 8, "global_buffer") for at, name in enumerate(self.arrays))
        header = Header("kernel", self.target, self.block, arguments, workgroup_ids=(True, False, False))
        lines = (self.after if repaired else self.before).splitlines()
        return "\n".join((*prologue(header), *lines, *epilogue(header, Resources(VGPRS, AGPRS, SGPRS, self.lds, 0)))) + "\n"

    def run(self, repaired: bool) -> ExhibitOutcome:
        """Launches the kernel in checked mode on a simulated GPU."""
        from simgpu import Device

        findings, fault, wrong = self._launch(Device(self.target, check="performance", threads=1), repaired)
        shown = [finding for finding in findings if finding.severity == "error" or finding.message.startswith(self.shows)]
        kinds = {finding.kind if finding.severity == "error" else self.shows for finding in shown}
        return ExhibitOutcome(shown, fault, wrong, kinds | ({WRONG} if any(count for count, _ in wrong.values()) else set()))

    def wrong_when_late(self, repaired: bool, seeds: Iterable[int] = LATE) -> int | None:
        """Returns the first seed of late mode with wrong results; None if there is none."""
        from simgpu import Device

        gpu = Device(self.target, threads=1, late=0)
        for gpu.late in seeds:
            if any(count for count, _ in self._launch(gpu, repaired)[2].values()):
                return gpu.late
        return None

    def _launch(self, gpu: Device, repaired: bool) -> tuple[list[Finding], str, dict[str, tuple[int, int]]]:
        """Returns the findings, the fault, and the counts of wrong elements."""
        from simgpu import asm
        from simgpu.hardware.errors import MemoryFault

        arrays = {name: _evaluate(expression) for name, expression in self.arrays.items()}
        buffers = {name: gpu.upload(array) for name, array in arrays.items()}
        kernel = gpu.load(asm.assemble(self.text(repaired), self.target))["kernel"]
        fault, findings = "", []
        try:
            findings = kernel.launch(grid=self.grid, block=self.block, args=list(buffers.values())).findings
        except MemoryFault as error:
            fault, findings = str(error), list(error.findings)
        wrong = {}
        for name, expect in self.expected.items():
            want = _evaluate(expect, **arrays)
            wrong[name] = int(np.count_nonzero(buffers[name].download() != want)), want.size
        return findings, fault, wrong


@dataclass(frozen=True)
class ExhibitOutcome:
    """Findings and wrong results of a run of an exhibit."""

    findings: list[Finding]  # errors, and notes of the exhibit's kind
    fault: str
    wrong: Mapping[str, tuple[int, int]]  # by argument: number of elements that differ, and of all elements
    kinds: set[str]  # all values that the exhibit's `shows` may have


def _evaluate(expression: str, **arrays: np.ndarray) -> np.ndarray:
    """Evaluates an array expression of the files in `exhibits/`; never one from a user."""
    return eval(expression, {"np": np, "ml_dtypes": ml_dtypes, **arrays})
