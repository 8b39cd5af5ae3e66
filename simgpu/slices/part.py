"""Some of a launch's workgroups, in the caller's process or in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.alu.hwreg import HW_ID, fields
from simgpu.engine import checked
from simgpu.engine.launch import Launch
from simgpu.engine.result import Run, executed
from simgpu.hardware.errors import InstructionLimit
from simgpu.hardware.isa.instruction import Imm
from simgpu.hardware.isa.kinds import MESSAGES, ControlKind
from simgpu.slices.touched import Touched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.engine.device import Kernel
    from simgpu.engine.finding import Finding
    from simgpu.engine.workers.worker import Worker
    from simgpu.hardware.code_object.arguments import Geometry
    from simgpu.hardware.isa import Instruction

# Wave-instructions in which some workgroup of a slice is to begin or all are to end; else it is taken to wait for another slice.
PATIENCE = 1 << 28


class Part(Launch):
    """Workgroups `parts` of a launch, by their number in the order of dispatch.

    After `run`: touched, the bytes that they read and wrote; seen: findings, see `checked.seen`.
    """

    touched: Touched

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object], *parts: range) -> None:
        super().__init__(kernel, geometry, args)
        self.parts = parts
        self.workers = min(self.workers, sum(map(len, parts)))
        self.seen: list[Finding] = []

    def _run(self, workers: list[Worker]) -> Run:
        run = super()._run(workers)
        self.touched = Touched.of(self.table)
        return run

    def _findings(self, workers: list[Worker]) -> list[Finding]:
        if self.device.checks:
            self.seen = checked.seen(self, workers)
        return []


class PartElsewhere(Part):
    """The same where the other workgroups do not run: one that waits for them ends with InstructionLimit.

    After `run`, alone: why its result may depend on where it ran, or "".
    """

    alone = ""

    def prepare(self) -> list[Worker]:
        if heap := self.device.made_heap:
            heap.clear()
        workers = super().prepare()
        self._begun = -1
        self.shared.budget = min(PATIENCE, self.device.max_instructions)
        return workers

    def _refill(self, workers: list[Worker]) -> None:
        super()._refill(workers)
        begun = self.shared.counter
        if begun == self._begun:
            raise InstructionLimit(f"{self.info.name}: no workgroup of the slice began or ended in {PATIENCE:,} wave-instructions")
        self._begun = begun
        self.shared.budget = min(PATIENCE, self.shared.budget)

    def _run(self, workers: list[Worker]) -> Run:
        run = super()._run(workers)
        ran = self.accounts.records[executed(self, workers) > 0].tolist()
        seen = (tells(inst) for record in ran if (inst := self.instruction(record)) is not None)
        self.alone = next((why for why in seen if why), "")
        heap = self.device.made_heap
        if heap is not None and heap.structure.data.any():
            self.alone = "its workgroups share the heap of malloc and new"
        return run


def tells(inst: Instruction) -> str:
    """What an instruction tells a kernel, or others, of more than its own workgroup and memory; or ""."""
    control, field = inst.spec.control, inst.args.get("simm16")
    if inst.mnemonic in ("s_memtime", "s_memrealtime"):
        return f"{inst.mnemonic} reads a clock"
    if control is ControlKind.GETREG and isinstance(field, Imm) and fields(field.value)[0] == HW_ID:
        return "s_getreg_b32 reads where the wave runs"
    if control in MESSAGES:
        return f"{inst.mnemonic} calls the host"
    if inst.mnemonic.startswith("ds_gws_"):
        return f"{inst.mnemonic} waits for all workgroups"
    return ""
