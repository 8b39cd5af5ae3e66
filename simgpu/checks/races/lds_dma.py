"""Finds LDS that is touched too early: a load to LDS may still write it, because its wave has not waited for the load.

The LDS that such a load writes is known only when it runs, so this check works at run time. `in_flight` counts the operations
of the in-order vmcnt queue and the certainly complete ones. A load to LDS marks the dwords that it writes with its
number. At its own access to a marked dword, a wave must have waited for that number. At another wave's access, the owner must
have waited before both passed the last barrier (without a barrier between, it is a race).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.checks.waits.in_flight import FLAG_SHIFT, LEFT_SHIFT, VM_DONE, VM_ISSUED, missing_wait
from simgpu.engine.check import Check
from simgpu.engine.events import enter, event, finding_of
from simgpu.engine.finding import Finding
from simgpu.engine.positions import Event
from simgpu.engine.program import Program
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workgroup import context, number_of, slot_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import SLOT_INDEX
from simgpu.machine.runtime import load64, part, runtime, store64
from simgpu.machine.values import I32, I64, IrValue
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

# A cell for each dword of LDS: `group_of` the wave that marked it, the wave's address, and the number of its operation with the
# record above it. Cells are never cleared: those of another workgroup do not count. The first word of a slot's cells holds
# `group_of` the last wave that marked any.
CELL, GROUP, OWNER, OPERATION = 24, 0, 8, 16
RECORD_SHIFT = 40
HEADER = 64
# Context fields: address of the worker's cells; bytes of a slot's cells.
CELLS, CELLS_STRIDE = context_fields("lds_dma", 2)
# Wave fields: number of barriers that it reached; operations (issued, done) at the last two of them, by the barrier's parity.
BARRIERS, SYNCED, _, _, _ = wave_fields("lds_dma", 5)
READ, OVERWRITTEN = event("LDS of a DMA read"), event("LDS of a DMA overwritten")
WRITES = 256  # flag of an access; the bytes a lane are below


@part
def cells_of(wave: int) -> int:
    """Returns the address of the cells of the wave's workgroup."""
    return context(wave, CELLS) + number_of(wave) * context(wave, CELLS_STRIDE)


@part
def group_of(wave: int) -> int:
    """Returns a hash of the workgroup's id, for `GROUP`; consecutive workgroups of a slot have different ones."""
    group = slot_of(wave).group
    return group[0] * 0x9E3779B97F4A7C1 + group[1] * 0x85EBCA6B + group[2] + 1


@runtime
def mark(wave: int, record: int, lanes: int, size: int, offsets: int) -> None:
    """Handles a load to LDS: marks the dwords that it writes with the wave and its operation."""
    cells, group = cells_of(wave), group_of(wave)
    operation = load64(wave + VM_ISSUED) | record << RECORD_SHIFT
    store64(cells, group)
    for lane in range(layout.LANES):
        if lanes >> lane & 1:
            first = load64(offsets + 8 * lane)
            for dword in range(first // 4, (first + size - 1) // 4 + 1):
                cell = cells + HEADER + CELL * dword
                store64(cell + GROUP, group)
                store64(cell + OWNER, wave)
                store64(cell + OPERATION, operation)


@part
def in_flight(wave: int, owner: int, number: int) -> bool:
    """True if operation `number` of the owner may still be in flight at an access of `wave`."""
    if wave == owner:
        return load64(owner + VM_DONE) < number
    passed = load64(wave + BARRIERS)
    if load64(owner + BARRIERS) < passed:  # the owner has ended
        return False
    synced = owner + SYNCED + 16 * (passed & 1)
    return load64(synced) >= number and load64(synced + 8) < number


@runtime
def touch(wave: int, record: int, lanes: int, how: int, offsets: int) -> None:
    """Handles another access to LDS: reports the first dword that a load in flight may still write. how: bytes a lane, plus WRITES
    for a write."""
    cells, group = cells_of(wave), group_of(wave)
    if load64(cells) != group:
        return
    size, code = how % WRITES, OVERWRITTEN if how >= WRITES else READ
    for lane in range(layout.LANES):
        if lanes >> lane & 1:
            first = load64(offsets + 8 * lane)
            for dword in range(first // 4, (first + size - 1) // 4 + 1):
                cell = cells + HEADER + CELL * dword
                if load64(cell + GROUP) != group:
                    continue
                owner, operation = load64(cell + OWNER), load64(cell + OPERATION)
                number = operation & ((1 << RECORD_SHIFT) - 1)
                if in_flight(wave, owner, number):
                    left = load64(owner + VM_ISSUED) - number
                    place = dword * 4 | left << LEFT_SHIFT | int(owner != wave) << FLAG_SHIFT
                    enter(wave, record, code, 1 << lane, place, operation >> RECORD_SHIFT)
                    return


def _has_cells(frame: Frame) -> IrValue:
    """Returns i1: true if the kernel loads to LDS."""
    return frame.context(CELLS) != 0


class LdsDma(Check):
    """Marks cells at loads to LDS and checks them at other accesses. `InFlight` must come before it."""

    tiles = True

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.control is ControlKind.BARRIER or inst.spec.memory is not None

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if inst.spec.control is ControlKind.BARRIER:
            self._at_barrier(frame)

    def _at_barrier(self, frame: Frame) -> None:
        build = frame.build
        passed = build.add(frame.state(BARRIERS, I64), constant(1))
        frame.set_state(BARRIERS, passed)
        place = build.add(build.mul(build.and_(passed, constant(1)), constant(16)), constant(SYNCED))
        frame.store(frame.state(VM_ISSUED, I64), frame.at(frame.wave, place), 8)
        frame.store(frame.state(VM_DONE, I64), frame.at(frame.wave, build.add(place, constant(8))), 8)

    def access(self, frame: Frame, access: Access) -> None:
        assert frame.inst is not None
        if access.space != "lds":
            return
        build = frame.build
        effect = effect_of(frame.inst)
        marks = effect.dma and access.writes
        with build.if_then(_has_cells(frame), likely=False):
            where = frame.at(frame.wave, layout.ADDRESSES)
            frame.store(access.offsets, where, align=8)
            how = access.size if marks or not access.writes else access.size + WRITES
            record = build.zext(frame.slot(SLOT_INDEX, I32), I64)
            (mark if marks else touch).call(build, frame.wave, record, access.lanes, how, where)

    def takes_rows(self) -> bool:
        return True

    def row(self, frame: Frame, first: IrValue) -> IrValue:
        return ~_has_cells(frame)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        """Makes cells for kernels that load to LDS; without cells the hooks do nothing."""
        if not launch.lds_bytes or not any(map(_has_loads_to_lds, launch.programs.values())):
            return
        stride = HEADER + CELL * -(-launch.lds_bytes // 4)
        cells = aligned_bytes(len(worker.slots) * stride)
        worker.checks["dma"] = cells
        worker.set_context(CELLS, cells.ctypes.data)
        worker.set_context(CELLS_STRIDE, stride)


def _has_loads_to_lds(program: Program) -> bool:
    accesses = (index for index, inst in program.instructions.items() if inst.spec.memory is not None)
    return any(program.effect(index).dma for index in accesses)


def _finding(launch: Dispatch, event: Event, what: str) -> Finding:
    def tell(load: str, left: int, other_wave: bool) -> str:
        whose, where = ("another wave's ", "between that load and the barrier") if other_wave else ("", "before it")
        return f"{what} before {whose}`{load}` is sure to have written it: s_waitcnt vmcnt({left}) is needed {where}"

    return missing_wait(launch, event, tell)


@finding_of(READ)
def _read(launch: Dispatch, event: Event) -> Finding:
    return _finding(launch, event, "read")


@finding_of(OVERWRITTEN)
def _overwritten_finding(launch: Dispatch, event: Event) -> Finding:
    return _finding(launch, event, "overwritten")
