"""Counts a wave's operations of each in-order queue at run time: those issued, and those certainly complete.

`races.lds_dma`, `races.lds.carried` and `races.releases` need the counts. The memory that an operation touches is known only when
it runs, so `paths`, which follows registers along a path, cannot track it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.positions import Event, finding_at, location_of
from simgpu.engine.workers.fields import wave_fields
from simgpu.hardware.isa.instruction import Imm, Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.hardware.timing_rules.waits import DS, ROOM, VM, awaited_counters
from simgpu.machine.frame import Frame
from simgpu.machine.operands import Plan
from simgpu.machine.values import I64, IrValue
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

# Wave fields for both in-order queues: operations issued, and operations certainly complete.
VM_ISSUED, VM_DONE, DS_ISSUED, DS_DONE = wave_fields("in_flight", 4)
# By queue: its counter, and its two fields.
FIELDS = {VM.name: ("vmcnt", VM_ISSUED, VM_DONE), DS.name: ("lgkmcnt", DS_ISSUED, DS_DONE)}
# Fields of the address that a missing-wait event of LDS reports: LDS offset, then the count that a wait would have needed, then a
# bit. The bit means for `lds_dma` that the load is another wave's, for `carried` that the access writes.
LEFT_SHIFT, FLAG_SHIFT = 32, 48


def missing_wait(launch: Dispatch, event: Event, tell: Callable[[str, int, bool], str]) -> Finding:
    """Returns the finding of an event with such an address.

    tell: called with the earlier instruction, the count and the bit; returns text about the use of the LDS and the missing wait
    """
    offset = event.address & (1 << LEFT_SHIFT) - 1
    left = event.address >> LEFT_SHIFT & 0xFFFF
    earlier = location_of(launch, event.extra).text
    message = f"LDS at offset {offset:#x} is {tell(earlier, left, bool(event.address >> FLAG_SHIFT))}"
    place = f"LDS {offset:#x}"
    return finding_at(launch, event.record, "missing-wait", message, earlier=event.extra, event=event, place=place, needed=left)


class InFlight(Check):
    """Updates the counts at operations of both queues and at each s_waitcnt."""

    tiles = True

    def concerns(self, inst: Instruction) -> bool:
        queue = effect_of(inst).queue
        return inst.spec.control is ControlKind.WAITCNT or (queue is not None and queue.name in FIELDS)

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """Returns the slots of an s_waitcnt's counts by queue; {} for other instructions."""
        immediate = inst.args.get("simm16")
        if inst.spec.control is not ControlKind.WAITCNT or not isinstance(immediate, Imm):
            return {}
        counts = awaited_counters(immediate.value)
        slots = {name: plan.immediate(counts[row[0]]).slot for name, row in FIELDS.items() if row[0] in counts}
        plan.note("outstanding", *slots)
        return slots

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        build = frame.build
        for name, slot in planned.items():
            self._limit_left(frame, name, build.zext(frame.slot(slot), I64))
        queue = effect_of(inst).queue
        if queue is not None and queue.name in FIELDS:
            counter, issued, _ = FIELDS[queue.name]
            self._limit_left(frame, queue.name, constant(ROOM[queue.name][counter]))
            frame.set_state(issued, build.add(frame.state(issued, I64), constant(1)))

    def _limit_left(self, frame: Frame, name: str, count: IrValue) -> None:
        """Records that at most `count` operations of a queue are left."""
        _, issued, done = FIELDS[name]
        certain, known = frame.build.sub(frame.state(issued, I64), count), frame.state(done, I64)
        more = frame.build.icmp_signed(">", certain, known)
        frame.set_state(done, frame.build.select(more, certain, known))
