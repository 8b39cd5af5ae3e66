"""Slices: supervise some of a launch's workgroups, in the caller's process or in another, and keep what they touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.alu.hwreg import HW_ID, fields
from simgpu.engine import checked
from simgpu.engine.launch import Launch, Supervisor
from simgpu.engine.result import execution_counts
from simgpu.hardware.errors import InstructionLimit
from simgpu.hardware.isa.instruction import Imm
from simgpu.hardware.isa.kinds import MESSAGES, ControlKind
from simgpu.slices.touched import TouchedBytes

if TYPE_CHECKING:
    from simgpu.engine.finding import Finding
    from simgpu.engine.workers.worker import Worker
    from simgpu.hardware.isa import Instruction

# Wave-instructions within which some workgroup of a slice must begin or all must end. Otherwise the slice is assumed to
# wait for another slice.
PATIENCE = 1 << 28


class Slice(Supervisor):
    """Some of a launch's workgroups. After the run, `seen` holds findings: see `checked.unsorted_findings`."""

    touched: TouchedBytes  # the bytes that they read and wrote

    def __init__(self) -> None:
        self.seen: list[Finding] = []

    def after_run(self, launch: Launch, workers: list[Worker]) -> None:
        self.touched = TouchedBytes.of(launch.table)

    def findings(self, launch: Launch, workers: list[Worker]) -> list[Finding]:
        if launch.device.checks:
            self.seen = checked.unsorted_findings(launch, workers, launch.device.checks)
        return []


class SliceElsewhere(Slice):
    """A slice that runs without the other workgroups. If it waits for them, it ends with InstructionLimit.

    alone: after the run, the reason why its result may differ from that in the whole launch, or "".
    """

    alone = ""

    def before_run(self, launch: Launch, workers: list[Worker]) -> None:
        self._begun = -1
        launch.shared.budget = min(PATIENCE, launch.device.max_instructions)

    def after_refill(self, launch: Launch) -> None:
        begun = launch.shared.counter
        if begun == self._begun:
            name = launch.info.name
            raise InstructionLimit(f"{name}: no workgroup of the slice began or ended in {PATIENCE:,} wave-instructions")
        self._begun = begun
        launch.shared.budget = min(PATIENCE, launch.shared.budget)

    def after_run(self, launch: Launch, workers: list[Worker]) -> None:
        super().after_run(launch, workers)
        ran = launch.accounts.records[execution_counts(launch, workers) > 0].tolist()
        seen = (tells(inst) for record in ran if (inst := launch.instruction(record)) is not None)
        self.alone = next((why for why in seen if why), "")
        heap = launch.device.made_heap
        if heap is not None and heap.structure.data.any():
            self.alone = "its workgroups share the heap of malloc and new"


def tells(inst: Instruction) -> str:
    """Returns the reason why an instruction's effect may depend on where a slice runs, or ""."""
    control, field = inst.spec.control, inst.args.get("simm16")
    if inst.mnemonic in ("s_memtime", "s_memrealtime"):
        return f"{inst.mnemonic} reads a clock"
    if control is ControlKind.GETREG and isinstance(field, Imm) and fields(field.value)[0] == HW_ID:
        return "s_getreg_b32 reads HW_ID, the wave's hardware slot"
    if control in MESSAGES:
        return f"{inst.mnemonic} calls the host"
    if inst.mnemonic.startswith("ds_gws_"):
        return f"{inst.mnemonic} waits for all workgroups"
    return ""
