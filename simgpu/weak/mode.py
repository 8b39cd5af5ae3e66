"""Weak mode as hooks of handlers; see `docs/explanation/memory-model.md`."""

from __future__ import annotations

import ctypes
import random
from ctypes import addressof, c_int64
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.alu.control import ENDS
from simgpu.checks.races.storage import lazy_zeros
from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.workers.scheduler import WorkerJob, seed_job
from simgpu.hardware.isa.instruction import Imm, Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.memory_model import L2_ONLY, Scope, cache_bits, cache_operation, lowering, scope_of
from simgpu.hardware.timing_rules.waits import awaited_counters
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import Status
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.values import I64, IrValue
from simgpu.memory.any_lanes import field
from simgpu.memory.lane_copy import rows_of
from simgpu.memory.vmem import moves_of
from simgpu.weak import accesses
from simgpu.weak.caches import CACHE, LINE_BYTES, LINE_SHIFT, SHARED, WeakBlock
from simgpu.weak.late import LATE_BYTES

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

L1_LINES, L2_LINES = 256, 4096  # 16 KiB, as on gfx908 and gfx90a; 256 KiB, far below MI300X's 4 MiB, so that lines run short
DIE_CUS, DEVICE_CUS = 4, 16  # CUs of an XCD, and of a device that is one die: a few, so that workgroups meet on each
AGENT, SYSTEM = int(Scope.AGENT), int(Scope.SYSTEM)
MOST_COPIED = 1 << 26  # bytes of the largest allocation whose old copies another device may hold
CONTROL = (ControlKind.WAITCNT, ControlKind.CACHE, ControlKind.BARRIER, *ENDS)
SPACES = ("global", "flat", "buffer", "tbuffer", "smem", "scratch")
# The seed chooses one for each chance of a `WeakBlock`.
CHANCES = {
    "lose": (1, 2, 4), "keep": (0, 1, 3), "perform": (0, 1, 1, 3), "write_back": (0, 1, 2, 4), "advance": (2, 4, 6),
    "postpone": (0, 0, 1), "pause": (0, 0, 1, 3),
}  # fmt: skip


class WeakMemory(Check):
    """Moves the bytes of accesses through `caches`."""

    moves = True

    def concerns(self, inst: Instruction) -> bool:
        memory = inst.spec.memory
        return inst.spec.control in CONTROL or (memory is not None and memory.space in SPACES)

    def plan(self, inst: Instruction, plan: Plan) -> OperandPlace | None:
        """Returns the registers that a load fills, if it may take effect late."""
        memory = inst.spec.memory
        plan.note(cache_bits(inst.mods), _awaits_memory(inst))
        if memory is None or memory.space not in ("global", "flat", "buffer") or memory.op != "load" or moves_of(inst) != "plain":
            return None
        place: OperandPlace | None = plan.operands.get("vdst")
        whole = rows_of(inst).bits >= 32 and not inst.mods.get("tfe")
        return place if whole else None

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if inst.spec.memory is not None and inst.spec.encoding != "smem":
            pauses = accesses.pause_before.call(frame.build, frame.wave)
            with frame.build.if_then(frame.value(pauses) != 0):
                frame.exit(Status.WAITS, frame.slot(layout.SLOT_INDEX))
                frame.leave()
        elif _awaits_memory(inst):
            accesses.wait.call(frame.build, frame.wave)
        elif inst.spec.control is ControlKind.BARRIER:
            accesses.fix.call(frame.build, frame.wave)
        elif inst.spec.control is ControlKind.CACHE:
            operation = cache_operation(inst.target, inst.mnemonic, cache_bits(inst.mods))
            if operation is None:
                return
            if operation.kind == "write back":
                accesses.owe_write_back.call(frame.build, frame.wave, int(operation.scope))
            elif operation.kind == "invalidate":
                accesses.invalidate.call(frame.build, frame.wave, int(inst.mnemonic != L2_ONLY), int(operation.scope))

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if inst.spec.memory is None or inst.spec.encoding == "smem":
            return
        pauses = accesses.pause_after.call(frame.build, frame.wave)
        with frame.build.if_then(frame.value(pauses) != 0):
            frame.pause(Status.WAITS, inst.size // 4)

    def end(self, frame: Frame, index: Any) -> None:
        accesses.fix.call(frame.build, frame.wave)

    def move(self, frame: Frame, access: Access) -> None:
        inst, place = frame.inst, frame.planned.get(WeakMemory)
        assert inst is not None and inst.spec.memory is not None
        # Outside tgsplit mode, a plain load's scope may be wider. It uses the L1 nevertheless.
        level = int(scope_of(inst.target, "store" if access.writes else "load", cache_bits(inst.mods), split=True))
        base, delta = _spill(frame, access)
        if access.writes:
            accesses.store.call(frame.build, frame.wave, base, delta, access.lanes, access.size, level)
            return
        target = ir.Constant(I64, 0)
        if place is not None and access.size == rows_of(inst).lane_bytes:
            target = frame.operand(place.slot).address()
        accesses.load.call(frame.build, frame.wave, base, delta, access.lanes, access.size, level, target)

    def approach(self, frame: Frame, access: Access) -> None:
        if access.lanes is None:
            base, delta = (field(access.entry, which) for which in (layout.ALLOC_BASE, layout.ALLOC_DELTA))
            accesses.reach_scalar.call(frame.build, frame.wave, base, delta, access.offsets, access.size)
            return
        base, delta = _spill(frame, access)
        accesses.reach_memory.call(frame.build, frame.wave, base, delta, access.lanes, access.size)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        assert launch.weak is not None
        block = WeakBlock(random=addressof(worker.job) + WorkerJob.random.offset, private=worker.job.scratch)
        apart = scope_of(launch.arch, "store", ()) < Scope.AGENT
        block.dies, block.share, block.reach = (launch.chip.xcds, DIE_CUS, AGENT) if apart else (0, DEVICE_CUS, AGENT)
        shared = _shared_memory(launch)
        if shared is not None:
            block.dies, block.share, block.reach, block.begun = 1, DEVICE_CUS, SYSTEM, 1
            block.shared, block.count, block.alike = shared[0].ctypes.data, len(shared[0]), not apart
        block.split = launch.info.descriptor.tg_split
        block.pass_l1 = int(Scope.WORKGROUP) if block.split else AGENT
        block.cus = block.share * max(block.dies, 1)
        kept = [_caches(block.cus, L1_LINES), _caches(block.dies, L2_LINES)]
        block.near, block.far = (caches.ctypes.data for caches, _ in kept)
        late = lazy_zeros(LATE_BYTES * worker.job.slots * launch.waves)
        block.late, block.grid = late.ctypes.data, (c_int64 * 2)(*launch.geometry.groups[:2])
        chosen = random.Random(launch.weak)
        for name, powers in CHANCES.items():
            setattr(block, name, chosen.choice(powers))
        worker.checks["weak"] = block, kept, late, shared
        worker.set_context(accesses.AT, addressof(block))

    def restart(self, launch: Dispatch, worker: Worker) -> None:
        assert launch.weak is not None
        self.prepare(launch, worker)
        seed_job(worker.job, launch.weak)

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        for worker in workers:
            ctypes.CFUNCTYPE(None, c_int64)(accesses.flush.address)(addressof(worker.checks["weak"][0]))
        return []


def _awaits_memory(inst: Instruction) -> bool:
    """True for an s_waitcnt that waits for accesses to device memory."""
    counts = inst.args.get("simm16")
    if inst.spec.control is not ControlKind.WAITCNT or not isinstance(counts, Imm):
        return False
    return "vmcnt" in awaited_counters(counts.value)


def _shared_memory(launch: Dispatch) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """Returns the memory that other devices may also access, with a copy of each allocation; None for a single device, and for
    targets without instructions that write back and invalidate for all devices."""
    if launch.node is None or not lowering(launch.arch, "fence", "release", Scope.SYSTEM).before:
        return None
    own = {allocation.address for allocation in launch.borrowed.allocations}
    found = [one for one in launch.memory.allocations if one.writable and one.nbytes <= MOST_COPIED and one.address not in own]
    table, copies = np.zeros(len(found), SHARED), []
    for row, one in zip(table, found, strict=True):
        old, seen = one.data.copy(), lazy_zeros((one.data.size >> LINE_SHIFT) + 1)
        row["base"], row["size"], row["fine"] = one.base, one.data.size, one.fine
        row["old"], row["seen"] = old.ctypes.data - one.base, seen.ctypes.data
        copies += [old, seen]
    return (table, copies) if found else None


def _spill(frame: Frame, access: Access) -> tuple[IrValue, IrValue]:
    """Writes an access's offsets to the wave. Returns the base and the delta of its allocation."""
    frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
    return field(access.entry, layout.ALLOC_BASE), field(access.entry, layout.ALLOC_DELTA)


def _caches(count: int, lines: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns caches, and the memory of their lines."""
    caches, memory = np.zeros(count, CACHE), lazy_zeros(LINE_BYTES * count * lines)
    caches["lines"] = memory.ctypes.data + LINE_BYTES * lines * np.arange(count)
    caches["mask"] = lines - 1
    return caches, memory
