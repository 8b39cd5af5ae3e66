"""An exhibit: a public bug as a small kernel of our own, before and after its repair, and what checked mode says of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from simgpu import Finding

# Registers that a kernel of the museum may use; its text says which it does.
VGPRS, AGPRS, SGPRS = 32, 16, 32
WRONG = "wrong numbers"  # what an exhibit shows where nothing is found but by the results
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Exhibit:
    """One bug. The body is a unified diff: lines with - are the bug's, lines with + the repair's."""

    title: str
    links: tuple[str, ...]
    story: str  # what happened, and why
    target: str
    body: str
    arrays: Callable[[], Arrays]  # the arguments, by name, in order
    shows: str  # the kind of finding, the first words of a note, or WRONG
    expected: Mapping[str, Callable[[Arrays], np.ndarray]] = field(default_factory=dict)  # from the arrays before
    block: int = 64
    grid: int = 1
    lds: int = 0  # bytes

    def text(self, repaired: bool) -> str:
        """The kernel's assembly."""
        from simgpu.asm.builder.metadata import Header, KernelArgument, Resources, epilogue, prologue

        names = list(self.arrays())
        arguments = tuple(KernelArgument(name, 8 * at, 8, "global_buffer") for at, name in enumerate(names))
        header = Header("kernel", self.target, self.block, arguments, user_sgprs=2, workgroup_ids=(True, False, False))
        dropped, kept = ("-", "+") if repaired else ("+", "-")
        lines = [line.removeprefix(kept) for line in self.body.strip("\n").splitlines() if not line.startswith(dropped)]
        return "\n".join((*prologue(header), *lines, *epilogue(header, Resources(VGPRS, AGPRS, SGPRS, self.lds, 0)))) + "\n"

    def run(self, repaired: bool) -> Outcome:
        """The kernel launched in checked mode on a simulated GPU."""
        from simgpu import Device, asm
        from simgpu.hardware.errors import MemoryFault

        gpu = Device(self.target, check="performance", threads=1)
        arrays = self.arrays()
        buffers = {name: gpu.upload(array) for name, array in arrays.items()}
        kernel = gpu.load(asm.assemble(self.text(repaired), self.target))["kernel"]
        fault, findings = "", []
        try:
            findings = kernel.launch(grid=self.grid, block=self.block, args=list(buffers.values())).findings
        except MemoryFault as error:
            fault, findings = str(error), list(error.findings)
        wrong = {}
        for name, expect in self.expected.items():
            want = expect(arrays)
            wrong[name] = int(np.count_nonzero(buffers[name].download() != want)), want.size
        shown = [finding for finding in findings if finding.severity == "error" or finding.message.startswith(self.shows)]
        kinds = {finding.kind if finding.severity == "error" else self.shows for finding in shown}
        return Outcome(shown, fault, wrong, kinds | ({WRONG} if any(count for count, _ in wrong.values()) else set()))


@dataclass(frozen=True)
class Outcome:
    """What a run of an exhibit showed."""

    findings: list[Finding]  # errors, and notes of the exhibit's kind
    fault: str
    wrong: Mapping[str, tuple[int, int]]  # elements that differ, and of how many, by argument
    kinds: set[str]  # all that can stand in an exhibit's `shows`
