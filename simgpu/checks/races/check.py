"""Races between waves on LDS and on device memory, and barriers that some waves miss.

Handlers call `accesses.watch` with each access; what it finds comes back as events.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir

from simgpu.alu.control import ENDS
from simgpu.checks.races import accesses, cells, order, pending, uses
from simgpu.checks.races.expected import expected_loads
from simgpu.checks.races.lds import carried, clashes, shadow
from simgpu.checks.races.storage import AREA, allocation_shadows, give_back, groups_table, lazy_zeros, lds_shadow
from simgpu.checks.races.unused import is_unused
from simgpu.checks.waits.in_flight import missing_wait
from simgpu.engine.check import Check
from simgpu.engine.events import finding_of
from simgpu.engine.finding import Finding
from simgpu.engine.positions import Event, element, finding_at
from simgpu.engine.workgroup import WAVES
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.hardware.timing_rules.waits import DS
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.operands import Plan
from simgpu.machine.values import I1, I32, I64, IrValue
from simgpu.machine.wave_frame import ALL_LANES
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

CONCERNED = (ControlKind.BARRIER, ControlKind.APPEND, ControlKind.CONSUME, *ENDS)
COHERENT_BITS = ("glc", "sc0", "sc1")


class Races(Check):
    """Calls the functions of `accesses` at accesses, barriers and ends."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.memory is not None or inst.spec.control in CONCERNED

    def plan(self, inst: Instruction, plan: Plan) -> None:
        # Handlers are shared by instructions of a kind: what `flags_of` asks is part of it.
        plan.note("past the caches" if is_coherent(inst) else "")

    def access(self, frame: Frame, access: Access) -> None:
        if access.space != "lds" or access.reads:
            self._watch(frame, access)

    def overwrite(self, frame: Frame, access: Access) -> None:
        # Before the store, as waves that write the same bytes do no harm.
        self._watch(frame, access)

    def takes_rows(self) -> bool:
        return True

    def row(self, frame: Frame, first: IrValue) -> IrValue:
        assert frame.inst is not None and frame.inst.spec.memory is not None
        writes = frame.inst.spec.memory.op == "store"
        if writes:
            uses.wrote(frame, index_of(frame))
        flags = carried.STRAIGHT | carried.QUEUED | (carried.WRITES if writes else 0)

        def alone() -> IrValue:
            return frame.value(accesses.row.call(frame.build, frame.wave, index_of(frame), first, flags)) != 0

        return frame.chosen(frame.context(WAVES).signed > 1, alone, lambda: ir.Constant(I1, 1))

    def _watch(self, frame: Frame, access: Access) -> None:
        build = frame.build
        if access.space == "lds":
            area = constant(0)
            wanted = build.icmp_signed(">", frame.context(WAVES), constant(1))
        else:
            area = frame.load(frame.at(access.entry, AREA), I64, 8)
            wanted = build.icmp_unsigned("!=", area, constant(0))
        scalar = access.lanes is None
        lanes = constant(1) if scalar else access.lanes
        some = build.icmp_unsigned("!=", lanes, constant(0))
        if access.writes:
            with build.if_then(some):
                uses.wrote(frame, index_of(frame))
        with build.if_then(build.and_(wanted, some)):
            frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
            assert frame.inst is not None
            flags: Any = constant(flags_of(frame.inst, access))
            if access.contiguous is not None:
                everyone = build.icmp_unsigned("==", lanes, constant(ALL_LANES))
                straight = build.zext(build.and_(everyone, access.contiguous), I64)
                flags = build.or_(flags, build.mul(straight, constant(carried.STRAIGHT)))
            accesses.watch.call(build, frame.wave, index_of(frame), lanes, access.size, flags, area)

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if inst.spec.control is not ControlKind.BARRIER:
            return
        build = frame.build
        several = build.icmp_signed(">", frame.context(WAVES), constant(1))
        with build.if_then(several):
            accesses.barrier.call(build, frame.wave, index_of(frame))

    def end(self, frame: Frame, index: Any) -> None:
        accesses.end.call(frame.build, frame.wave, index_of(frame))

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        if "races" not in launch.checks:
            launch.checks["races"] = groups_table(launch), order.RaceClock(), allocation_shadows(launch)
            launch.checks["expected"] = _tables(launch)
            launch.checks["uses"] = []
        table, clock, _ = launch.checks["races"]
        used = lazy_zeros(uses.USE_BYTES * (launch.program.count + 1))
        launch.checks["uses"].append(used)
        of_lds = lds_shadow(launch, worker.job.slots)
        states = (order.SlotState * worker.job.slots)()
        block = order.RaceBlock(
            lds_shadow=of_lds.memory.ctypes.data,
            lds_stride=shadow.shadow_bytes(launch.lds_bytes, launch.waves),
            lds_words=shadow.map_words(launch.lds_bytes),
            states=ctypes.addressof(states),
            table=table.ctypes.data,
            clock=ctypes.addressof(clock),
            grid=launch.geometry.groups[:2],
            uses=used.ctypes.data,
        )
        found = launch.checks["expected"]
        if found.loads:
            waiting = aligned_bytes(worker.job.slots * order.WAVES * found.loads * pending.PENDING_BYTES)
            block.loads, block.pending = found.loads, waiting.ctypes.data
            block.roles, block.expects, block.rivals = (table.ctypes.data for table in found)
            worker.checks["pending"] = waiting
        worker.checks["races"] = of_lds, states, block
        worker.set_context(order.BLOCK_AT, ctypes.addressof(block))

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        if all(worker.error is None for worker in workers):
            lds = [worker.checks["races"][0] for worker in workers]
            give_back(launch.shadows, [*lds, *launch.checks["races"][2]])
        return []


class ExpectedTables(NamedTuple):
    """What `watch` asks about loads that compare-and-swaps expect: see `order.Block`."""

    roles: np.ndarray
    expects: np.ndarray
    rivals: np.ndarray

    @property
    def loads(self) -> int:
        return len(self.rivals)


def _tables(launch: Dispatch) -> ExpectedTables:
    """Kept with the code from launch to launch."""
    kept, key = launch.program.kept, ("expected", launch.entry)
    if key not in kept:
        found = expected_loads(launch.program, launch.entry)
        made = ExpectedTables(
            np.zeros(launch.program.count + 1, np.uint8), np.zeros(len(found.swaps), np.int64), np.zeros(len(found.loads), np.int64)
        )
        for record, number in found.loads.items():
            made.roles[record] = number + 1
        for number, (record, loads) in enumerate(found.swaps.items()):
            made.roles[record] = pending.SWAP | number
            made.expects[number] = loads
            for load in found.loads.values():
                made.rivals[load] |= loads & ~(1 << load) if loads >> load & 1 else 0
        kept[key] = made
    tables: ExpectedTables = kept[key]
    return tables


def index_of(frame: Frame) -> Any:
    return frame.build.zext(frame.slot(layout.SLOT_INDEX, I32), I64)


def is_coherent(inst: Instruction) -> bool:
    """Whether a load or store goes past a cache, as atomic ones do."""
    return any(inst.mods.get(bit) for bit in COHERENT_BITS)


def flags_of(inst: Instruction, access: Access) -> int:
    """What kind of access it is, as bits of `carried`."""
    flags = carried.WRITES if access.writes else 0
    if access.lanes is None:
        flags |= carried.SCALAR
    if effect_of(inst).queue is DS:
        flags |= carried.QUEUED
    if access.atomic:
        flags |= carried.ATOMIC
        returns = "vdst" in inst.args if access.space == "lds" else bool(inst.mods.get("glc") or inst.mods.get("sc0"))
        flags |= carried.RETURNS if returns else 0
    elif is_coherent(inst) and access.space != "lds":
        flags |= carried.COHERENT
    return flags


# -- findings ---------------------------------------------------------------------------------------

BARRIER_MISSING = "nothing orders them; put an s_barrier between"
GROUPS_APART = "no barrier orders workgroups; use atomics or another launch"


def _site(launch: Dispatch, low: int) -> int:
    """The record of which a cell holds the low bits."""
    return low if launch.program.count <= cells.SITES else next(
        (index for index in range(low, launch.program.count, cells.SITES + 1) if launch.instruction(index)), low
    )


def _race(launch: Dispatch, event: Event, where: str) -> Finding:
    swapped = bool(event.lanes & clashes.SWAPPED)  # then the wave that saw it stood at the earlier place
    sides = (event.workgroup, event.wave), _side(launch, event.lanes >> clashes.OTHER_SHIFT)
    records = _site(launch, event.record), _site(launch, event.extra)
    if records[0] == records[1]:  # one place: the lower workgroup is told first
        swapped = _number(launch, sides[1][0]) < _number(launch, sides[0][0])
    (group, wave), other = reversed(sides) if swapped else sides
    both = event.lanes & clashes.BOTH_WRITE
    reads = bool(event.lanes & clashes.WROTE) == swapped  # the later place
    if both:
        clash = "two writes (a race even where both write the same value)"
    else:
        clash = "a read and a write" if reads else "a write and a read"
    unused = not both and where != "LDS" and is_unused(launch, records[0 if reads else 1])
    if unused:
        reader = wave if reads else other[1]
        remedy = f"of no effect, as what wave {reader} loads goes into registers, and into stores by which none of its lanes writes"
    else:
        remedy = BARRIER_MISSING if other[0] == group else GROUPS_APART
    elsewhere = "" if other[0] == group else f" of workgroup {other[0]}"
    what = f"{where} {event.address:#x}{'' if where == 'LDS' else element(launch, event.address)}"
    message = f"{clash} of {what}, by wave {wave} and wave {other[1]}{elsewhere}: {remedy}"
    lanes = () if swapped else (event.lanes & clashes.LANE,)
    return finding_at(
        launch, records[0], "race", message, earlier=records[1], event=event, severity="note" if unused else "error",
        wave=wave, workgroup=group, lanes=lanes, place=f"{where} {event.address:#x}",
    )  # fmt: skip


def _number(launch: Dispatch, workgroup: tuple[int, int, int]) -> int:
    """A workgroup's number as cells hold it."""
    return launch.geometry.number(workgroup) & cells.GROUPS


def _side(launch: Dispatch, other: int) -> tuple[tuple[int, int, int], int]:
    """Workgroup and wave of a race's other side."""
    return launch.geometry.group(other >> 4), other & 15


@finding_of(clashes.RACE)
def _race_lds(launch: Dispatch, event: Event) -> Finding:
    # LDS cells hold no workgroup: the other wave is of the same one.
    mine = _number(launch, event.workgroup) << 4 + clashes.OTHER_SHIFT
    return _race(launch, replace(event, lanes=mine | event.lanes), "LDS")


@finding_of(accesses.RACE)
def _race_global(launch: Dispatch, event: Event) -> Finding:
    return _race(launch, event, "memory")


@finding_of(carried.CARRIED)
def _carried(launch: Dispatch, event: Event) -> Finding:
    def tell(earlier: str, left: int, writes: bool) -> str:
        return (
            f"{'overwritten' if writes else 'read'} behind a barrier that another wave's `{earlier}` is not sure to have "
            f"completed before: s_waitcnt lgkmcnt({left}) is needed behind that, before the barrier"
        )

    return missing_wait(launch, event, tell)


@finding_of(accesses.BARRIER)
def _barrier(launch: Dispatch, event: Event) -> Finding | None:
    if event.extra >> cells.SITE_BITS == accesses.ENDED:
        message = (
            "waves of the workgroup ended before this barrier; the hardware takes them for arrived, as HIP and CUDA count only "
            "threads that have not exited, but OpenCL lets no kernel count on it"
        )
        return finding_at(launch, event.record, "barrier", message, event=event, lanes=(), severity="note")
    if not launch.checks["races"][1].missed:
        return None  # waves with tasks of their own have barriers of their own: all passed as many
    message = (
        f"wave {event.wave} waits here and wave {event.address} at another barrier: each lets the other on, "
        "and some wave ends with fewer barriers than the others"
    )
    earlier = _site(launch, event.extra & cells.SITES)
    return finding_at(launch, event.record, "barrier", message, earlier=earlier, event=event, lanes=())


@finding_of(clashes.DUPLICATE)
def _duplicate(launch: Dispatch, event: Event) -> Finding | None:
    if launch.check != "performance":
        return None
    message = f"several waves write the same bytes to LDS {event.address:#x} by this instruction, without a barrier between"
    place = f"LDS {event.address:#x}"
    return finding_at(launch, event.record, "performance", message, event=event, lanes=(), severity="note", place=place)
