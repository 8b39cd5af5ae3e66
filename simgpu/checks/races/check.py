"""Finds races between waves on LDS and on device memory, and barriers that some waves miss.

Handlers call `accesses.watch` for each access; it reports races as events, which `findings` turns into findings.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir

from simgpu.alu.control import ENDS
from simgpu.checks.races import accesses, barriers, findings, order, pending, uses  # noqa: F401  (registers findings)
from simgpu.checks.races.expected import expected_loads
from simgpu.checks.races.footprint import footprint_of
from simgpu.checks.races.lds import carried, shadow
from simgpu.checks.races.ordering import give_order, model_of, shared_order
from simgpu.checks.races.overlap import OVERLAP, OverlapMember, alone_note, join
from simgpu.checks.races.storage import AREA, Shadow, allocation_shadows, give_back, lazy_zeros, lds_shadow
from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.footprint import FOOTPRINT
from simgpu.engine.workgroup import WAVES
from simgpu.hardware import memory_model
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.memory_model import L2_ONLY, Scope
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

COMPARES = "_atomic_cmpswap"  # in the name of a compare-and-swap of device memory
SWAP = re.compile(r"ds_(cmpst|cmpswap|wrxchg)_rtn")  # atomics on LDS that take a lock
CONCERNED = (
    ControlKind.BARRIER, ControlKind.GWS, ControlKind.APPEND, ControlKind.CONSUME, ControlKind.CACHE, ControlKind.DCACHE, *ENDS,
)  # fmt: skip


class Races(Check):
    """Emits calls of `accesses` at accesses and cache operations, and of `barriers` at barriers and ends."""

    tiles = True

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.memory is not None or inst.spec.control in CONCERNED

    def plan(self, inst: Instruction, plan: Plan) -> None:
        # Instructions of a kind share handlers, so the kind includes everything that `flags_of` depends on.
        plan.note("past the caches" if is_coherent(inst) else "", cache_operation(inst))

    def access(self, frame: Frame, access: Access) -> None:
        if access.space == "global" and access.atomic:
            self._call(frame, access, accesses.note_atomic)
        elif access.space == "scalar" or access.reads:
            self._watch(frame, access)

    def overwrite(self, frame: Frame, access: Access) -> None:
        # Before the store, because `watch` compares its data with LDS (identical writes are harmless), and because a wave that
        # sees a flag must find its release.
        self._watch(frame, access)

    def takes_rows(self) -> bool:
        return True

    def row(self, frame: Frame, first: IrValue) -> IrValue:
        assert frame.inst is not None and frame.inst.spec.memory is not None
        writes = frame.inst.spec.memory.op == "store"
        if writes:
            uses.emit_write(frame, index_of(frame))
        flags = carried.STRAIGHT | carried.QUEUED | (carried.WRITES if writes else 0)

        def check_lanes() -> IrValue:
            return frame.value(accesses.row.call(frame.build, frame.wave, index_of(frame), first, flags)) != 0

        return frame.emit_choice(frame.context(WAVES).signed > 1, check_lanes, lambda: ir.Constant(I1, 1))

    def _watch(self, frame: Frame, access: Access) -> None:
        if access.writes:
            lanes = constant(1) if access.lanes is None else access.lanes
            with frame.build.if_then(frame.build.icmp_unsigned("!=", lanes, constant(0))):
                uses.emit_write(frame, index_of(frame))
        self._call(frame, access, accesses.watch)

    def _call(self, frame: Frame, access: Access, function: Any) -> None:
        """Calls a function of `accesses` if the access may concern other waves."""
        if access.private:
            return
        build = frame.build
        if access.space == "lds":
            area = constant(0)
            wanted = build.icmp_signed(">", frame.context(WAVES), constant(1))
        else:
            area = frame.load(frame.at(access.entry, AREA), I64, 8)
            wanted = build.icmp_unsigned("!=", area, constant(0))
        lanes = constant(1) if access.lanes is None else access.lanes
        some = build.icmp_unsigned("!=", lanes, constant(0))
        with build.if_then(build.and_(wanted, some)):
            frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
            assert frame.inst is not None
            flags: Any = constant(flags_of(frame.inst, access))
            if access.contiguous is not None:
                everyone = build.icmp_unsigned("==", lanes, constant(ALL_LANES))
                straight = build.zext(build.and_(everyone, access.contiguous), I64)
                flags = build.or_(flags, build.mul(straight, constant(carried.STRAIGHT)))
            function.call(build, frame.wave, index_of(frame), lanes, access.size, flags, area)

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        build = frame.build
        if (what := cache_operation(inst)) is not None:
            accesses.keep_caches.call(build, frame.wave, constant(what))
        if inst.mnemonic == "ds_gws_barrier":
            barriers.arrive_at_grid.call(build, frame.wave, index_of(frame))
        if inst.spec.control is not ControlKind.BARRIER:
            return
        several = build.icmp_signed(">", frame.context(WAVES), constant(1))
        with build.if_then(several):
            barriers.barrier.call(build, frame.wave, index_of(frame))

    def end(self, frame: Frame, index: Any) -> None:
        barriers.end.call(frame.build, frame.wave, index_of(frame))

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        if "races" not in launch.checks:
            model = model_of(launch.program, launch.entry, launch.arch, launch.info.descriptor.tg_split)
            member = launch.checks[OVERLAP] = join(launch, model.scopes)
            shared = shared_order(launch, model, member)
            launch.checks["races"] = shared, order.RaceClock(), _shadows(launch, shared.synchronises, member)
            launch.checks["expected"] = _tables(launch)
            launch.checks["uses"] = []
        shared, clock, _ = launch.checks["races"]
        used = lazy_zeros(uses.USE_BYTES * (launch.program.count + 1))
        launch.checks["uses"].append(used)
        of_lds = lds_shadow(launch, worker.job.slots)
        states = (order.SlotState * worker.job.slots)()
        block = order.RaceBlock(
            lds_shadow=of_lds.memory.ctypes.data,
            lds_stride=shadow.shadow_bytes(launch.lds_bytes, launch.waves),
            lds_words=shadow.map_words(launch.lds_bytes),
            states=ctypes.addressof(states),
            clock=ctypes.addressof(clock),
            grid=launch.geometry.groups[:2],
            uses=used.ctypes.data,
        )
        worker.checks["order"] = give_order(launch, shared, launch.checks[OVERLAP], block, worker.job.slots)
        found = launch.checks["expected"]
        if found.loads:
            waiting = aligned_bytes(worker.job.slots * order.WAVES * found.loads * pending.PENDING_BYTES)
            block.loads, block.pending = found.loads, waiting.ctypes.data
            block.roles, block.expects, block.rivals = (table.ctypes.data for table in found)
            worker.checks["pending"] = waiting
        worker.checks["races"] = of_lds, states, block
        worker.set_context(order.BLOCK_AT, ctypes.addressof(block))

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        well = all(worker.error is None for worker in workers)
        if well:
            lds = [worker.checks["races"][0] for worker in workers]
            own, member = launch.checks["races"][2], launch.checks[OVERLAP]
            if launch.footprints:
                shadows, groups = (own, None) if member is None else (member.overlap.shadows.values(), member.groups)
                launch.checks[FOOTPRINT] = footprint_of(shadows, groups)
            give_back(launch.shadows, [*lds, *own])
        return alone_note(launch)


def _shadows(launch: Dispatch, synchronises: bool, member: OverlapMember | None) -> list[Shadow]:
    """Returns the launch's own shadows of allocations. Launches that overlap have common ones."""
    if member is None or launch.node is None:
        return allocation_shadows(launch, synchronises)
    with launch.node.lock:
        return allocation_shadows(launch, synchronises, member.overlap.shadows)


class ExpectedTables(NamedTuple):
    """Tables for `watch` of loads whose values compare-and-swaps expect; `order.RaceBlock` describes them."""

    roles: np.ndarray
    expects: np.ndarray
    rivals: np.ndarray

    @property
    def loads(self) -> int:
        return len(self.rivals)


def _tables(launch: Dispatch) -> ExpectedTables:
    """Returns the tables, cached with the code from launch to launch."""
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


def cache_operation(inst: Instruction) -> int | None:
    """Returns an instruction's cache operation, WRITE_BACK to SCALAR_INVALIDATE of `accesses`.

    Returns None for other instructions, and for operations that do not affect other waves.
    """
    if inst.spec.control not in (ControlKind.CACHE, ControlKind.DCACHE):
        return None
    row = memory_model.cache_operation(inst.target, inst.mnemonic, memory_model.cache_bits(inst.mods))
    if row is None or row.scope < Scope.WORKGROUP:
        return None
    if row.mnemonic == L2_ONLY:
        return accesses.INVALIDATE_L2
    if row.scope == Scope.WORKGROUP:
        return accesses.INVALIDATE_L1
    far = row.scope == Scope.SYSTEM
    return {
        "write back": accesses.WRITE_BACK_FAR if far else accesses.WRITE_BACK,
        "invalidate": accesses.INVALIDATE_FAR if far else accesses.INVALIDATE,
        "scalar invalidate": accesses.SCALAR_INVALIDATE,
    }[row.kind]


def is_coherent(inst: Instruction) -> bool:
    """True if a load or store bypasses a cache, as atomic loads and stores do."""
    return bool(memory_model.cache_bits(inst.mods))


def flags_of(inst: Instruction, access: Access) -> int:
    """Returns the kind of an access, as flags of `lds.carried`."""
    flags = carried.WRITES if access.writes else 0
    if access.lanes is None:
        flags |= carried.SCALAR
    if effect_of(inst).queue is DS:
        flags |= carried.QUEUED
    if access.atomic:
        flags |= carried.ATOMIC
        returns = "vdst" in inst.args if access.space == "lds" else bool(inst.mods.get("glc") or inst.mods.get("sc0"))
        flags |= carried.RETURNS if returns else 0
        swaps = returns and SWAP.match(inst.mnemonic) if access.space == "lds" else COMPARES in inst.mnemonic
        flags |= carried.SWAPS if swaps else 0
    elif is_coherent(inst) and access.space != "lds":
        flags |= carried.COHERENT
    return flags
