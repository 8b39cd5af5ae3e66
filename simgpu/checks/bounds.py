"""Finds memory misuse: faults, with the allocation that the pointer came from, and misuse that does not fault.

An access outside all allocations stops the launch in checked mode as in plain mode; checked mode also makes it a finding.
Handlers report misuse that does not fault:
* an access through a pointer to one allocation that lands in another
* a buffer resource without records
* scalar loads whose address loses its low bits
* misaligned LDS atomics
* accesses past the kernel's arguments
* plain accesses to padding bytes, in a dword that belongs to an allocation only in part
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.engine.allocations import allocation_name, whole_granules
from simgpu.engine.check import Check
from simgpu.engine.events import event, finding_of, report, retired_before
from simgpu.engine.finding import Finding, moment
from simgpu.engine.positions import Event, argument_names, finding_at
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workers.worker import StoppedWave, current_wave, wave_bytes_of
from simgpu.hardware.errors import MemoryFault
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, Fault
from simgpu.machine.operands import PRIVATE_APERTURE, OperandPlace, Plan
from simgpu.machine.values import I32, I64
from simgpu.memory.lane_copy import WIDE64, constant
from simgpu.memory.smem import SCRATCH_LOG2

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

# Context fields: device address of the kernel argument segment, and the bytes of it that belong to the kernel.
KERNARG, KERNARG_BYTES = context_fields("bounds", 2)
class Misuse(IntEnum):
    """Events that handlers report."""

    FOREIGN = event("another allocation than the pointer's")
    NO_RECORDS = event("buffer without records")
    SCALAR_ALIGNMENT = event("misaligned scalar load")
    LDS_ALIGNMENT = event("misaligned LDS atomic")
    KERNARG = event("load past the arguments")
    FILLING = event("bytes that fill up a dword")


KERNARG_GRANULE = 16  # bytes: a compiler's wide load may begin past the arguments, but never beyond this granule
BASE_BITS = (1 << 48) - 1
WORKING = (Fault.MEMORY, Fault.READONLY, Fault.LDS, Fault.SCRATCH, Fault.MISALIGNED)  # faults that become findings


@dataclass(frozen=True)
class BasePointer:
    """Scalar base address of a memory instruction."""

    kind: str  # "pointer" (64 bits), "scalar" (SBASE with its offsets) or "resource" (128 bits)
    base: OperandPlace  # place of its registers
    offset: OperandPlace | None = None  # scalar: place of the immediate offset
    register: OperandPlace | None = None  # scalar: place of the offset register, None without one
    register_log2: int = 0  # log2 of the unit of the offset register, in bytes


class Bounds(Check):
    """Watches pointers, alignment and resources at accesses. Makes findings of faults at the end."""

    tiles = True
    exact_lds = True

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.memory is not None or inst.spec.control in (ControlKind.APPEND, ControlKind.CONSUME)

    def plan(self, inst: Instruction, plan: Plan) -> BasePointer | None:
        found = base_of(inst)
        if found is None:
            return None
        kind, reg = found
        base = plan.register(reg, 32 * reg.count)
        if kind != "scalar":
            return BasePointer(kind, base)
        extra = inst.args.get("soffset")
        register = plan.register(extra, 32) if isinstance(extra, Reg) else None
        shift = SCRATCH_LOG2 if inst.spec.memory is not None and inst.spec.memory.space == "scratch" else 0
        return BasePointer(kind, base, plan.immediate(int(inst.mods.get("offset", 0))), register, shift)

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if not isinstance(planned, BasePointer):
            return
        # Load it now: a scalar load may overwrite its own pointer.
        frame.planned[Bounds] = _base(frame, planned)
        if planned.kind == "resource":
            _records(frame, planned)
        elif planned.kind == "scalar":
            _scalar_alignment(frame, planned)

    def access(self, frame: Frame, access: Access) -> None:
        inst = frame.inst
        assert inst is not None
        if access.space == "lds":
            if access.atomic and access.size > 1:
                _report_misaligned(frame, access, Misuse.LDS_ALIGNMENT, access.size)
            return
        if access.private:
            return  # no argument, and as large as the launch made it
        if not access.atomic:
            _filling(frame, access)
        _arguments(frame, access)
        base = frame.planned[Bounds]
        if base is not None:
            _foreign(frame, access, base)

    def takes_rows(self) -> bool:
        return True  # of LDS accesses, only atomics are checked

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        declared = -(-launch.info.kernarg_size // KERNARG_GRANULE) * KERNARG_GRANULE
        worker.set_context(KERNARG, worker.given.kernarg)
        worker.set_context(KERNARG_BYTES, declared)

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        failed = (worker for worker in workers if isinstance(worker.error, MemoryFault))
        found = (_fault(launch, worker, current_wave(worker)) for worker in failed)
        return [finding for finding in found if finding is not None]


def base_of(inst: Instruction) -> tuple[str, Reg] | None:
    """Returns the kind (see `BasePointer`) and the registers of an access's scalar base address, None if it has none."""
    memory = inst.spec.memory
    if memory is None:
        return None
    for name, kind in (("saddr", "pointer"), ("srsrc", "resource"), ("sbase", "scalar")):
        reg = inst.args.get(name)
        if isinstance(reg, Reg) and reg.count >= 2:
            return ("resource" if reg.count == 4 else kind), reg
    return None


# -- checks of handlers ---------------------------------------------------------------------------


def _base(frame: Frame, based: BasePointer) -> Any:
    base = frame.load(frame.operand(based.base.slot), I64)
    return frame.build.and_(base, constant(BASE_BITS)) if based.kind == "resource" else base


def _foreign(frame: Frame, access: Access, base: Any) -> None:
    """Reports a base address outside the allocation in which the access lands. The address of its end counts as inside."""
    build = frame.build
    first = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
    size = frame.load(frame.at(access.entry, layout.ALLOC_SIZE), I64, 8)
    outside = build.icmp_unsigned(">", build.sub(base, first), size)
    with build.if_then(outside, likely=False):
        lanes = access.lanes if access.lanes is not None else constant(0)
        report(frame, Misuse.FOREIGN, lanes, base, first)


def _records(frame: Frame, based: BasePointer) -> None:
    build = frame.build
    resource = frame.operand(based.base.slot)
    records = frame.load(frame.at(resource, 8), I32)
    lanes = frame.exec_bits()
    empty = build.icmp_unsigned("==", records, ir.Constant(I32, 0))
    with build.if_then(build.and_(empty, build.icmp_unsigned("!=", lanes, constant(0))), likely=False):
        report(frame, Misuse.NO_RECORDS, lanes, _base(frame, based), 0)


def _scalar_alignment(frame: Frame, based: BasePointer) -> None:
    base = frame.operand(based.base.slot).load(I64)
    bits = base
    if based.offset is not None:
        bits = bits | frame.slot(based.offset.slot).sext(I64)
    if based.register is not None:
        bits = bits | frame.operand(based.register.slot).load(I32).zext(I64) << based.register_log2
    with frame.build.if_then((bits & 3) != 0, likely=False):
        report(frame, Misuse.SCALAR_ALIGNMENT, 0, base, 0)


def _report_misaligned(frame: Frame, access: Access, event: int, size: int) -> None:
    """Reports the lanes whose offset is no multiple of `size`, a power of two."""
    build = frame.build
    low = build.and_(access.offsets, ir.Constant(WIDE64, [size - 1] * LANES))
    wrong = build.and_(access.lanes, build.icmp_unsigned("!=", low, ir.Constant(WIDE64, None)).bitcast(I64))
    with build.if_then(build.icmp_unsigned("!=", wrong, constant(0)), likely=False):
        report(frame, event, wrong, 0, size)


def _filling(frame: Frame, access: Access) -> None:
    """Reports a plain access to bytes of the allocation's first or last dword that do not belong to it."""
    first, size, lead, asked = (
        frame.value(access.entry).at(field).load(I64, 8)
        for field in (layout.ALLOC_BASE, layout.ALLOC_SIZE, layout.ALLOC_LEAD, layout.ALLOC_ASKED)
    )
    with frame.build.if_then(size != asked, likely=False):
        offsets = frame.value(access.offsets)
        before = offsets.unsigned < lead
        behind = (offsets + access.size).unsigned > lead + asked
        wrong = before | behind
        lanes = frame.value(constant(1)) if access.lanes is None else wrong.bitcast(I64) & access.lanes
        with frame.build.if_then(wrong if access.lanes is None else lanes != 0, likely=False):
            report(frame, Misuse.FILLING, lanes, first, int(access.writes))


def _arguments(frame: Frame, access: Access) -> None:
    """Reports an access that begins in the allocation of the kernel's arguments, but past them."""
    build = frame.build
    first = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
    here = build.icmp_unsigned("==", first, frame.context(KERNARG))
    with build.if_then(here, likely=False):
        limit = frame.context(KERNARG_BYTES)
        if access.lanes is None:
            past = build.icmp_unsigned(">=", access.offsets, limit)
            with build.if_then(past, likely=False):
                report(frame, Misuse.KERNARG, 0, access.offsets, 0)
            return
        beyond = build.icmp_unsigned(">=", access.offsets, frame.splat(limit)).bitcast(I64)
        wrong = build.and_(access.lanes, beyond)
        with build.if_then(build.icmp_unsigned("!=", wrong, constant(0)), likely=False):
            report(frame, Misuse.KERNARG, wrong, limit, 0)


# -- findings ---------------------------------------------------------------------------------------


def _finding(launch: Dispatch, event: Event, kind: str, message: str, place: str = "") -> Finding:
    return finding_at(launch, event.record, kind, message, event=event, place=place)


@finding_of(Misuse.FOREIGN)
def _of_foreign(launch: Dispatch, event: Event) -> Finding | None:
    memory = launch.memory
    origin, landed = memory.find(event.address), memory.find(event.extra)
    if origin is None or landed is None or origin is landed:
        return None
    names = argument_names(launch)
    pointer, place = allocation_name(origin, names), allocation_name(landed, names)
    message = (
        f"the pointer {event.address:#x} is one to {pointer}, the access lands in {place}: "
        "the offset added to the pointer leads out of its allocation"
    )
    return _finding(launch, event, "out-of-bounds", message, f"{landed.address:#x}")


@finding_of(Misuse.FILLING)
def _of_filling(launch: Dispatch, event: Event) -> Finding | None:
    landed = launch.memory.find(event.address)
    if landed is None or (not event.extra and launch.table.was_padding_written(event.address)):
        return None  # a compare-and-swap first loads the expected value of that dword
    whose = allocation_name(landed, argument_names(launch))
    padded = landed.data.size > whole_granules(landed.lead + landed.nbytes)
    there = ", into its padding" if padded else ": only atomics may touch the rest of its last dword"
    message = f"the access reaches beyond {whose}{there}"
    return _finding(launch, event, "out-of-bounds", message, f"{landed.address:#x}")


@finding_of(Misuse.NO_RECORDS)
def _of_no_records(launch: Dispatch, event: Event) -> Finding | None:
    if launch.table.was_touched(event.address):  # kernels clip accesses past the end so, and reach the rest
        return None
    message = (
        f"the buffer resource with base {event.address:#x} has num_records 0: every load gives 0 and every store is "
        "dropped; give its size in bytes (in records with idxen and a stride)"
    )
    return _finding(launch, event, "buffer", message, f"{event.address:#x}")


@finding_of(Misuse.SCALAR_ALIGNMENT)
def _of_scalar(launch: Dispatch, event: Event) -> Finding:
    message = (
        "scalar memory takes dwords at multiples of 4: the hardware drops the low two bits of the base, "
        f"here {event.address:#x}, of the offset and of the offset's register"
    )
    return _finding(launch, event, "misaligned", message, f"{event.address:#x}")


@finding_of(Misuse.LDS_ALIGNMENT)
def _of_lds(launch: Dispatch, event: Event) -> Finding:
    message = f"an LDS atomic of {event.extra} bytes at an address that is not a multiple of {event.extra}: the hardware faults"
    return _finding(launch, event, "misaligned", message)


@finding_of(Misuse.KERNARG)
def _of_kernarg(launch: Dispatch, event: Event) -> Finding:
    message = (
        f"a load at byte {event.address} of the kernel argument segment, which has {launch.info.kernarg_size} bytes "
        "by the metadata: it reads past the arguments"
    )
    return _finding(launch, event, "out-of-bounds", message, f"kernarg+{event.address:#x}")


def _fault(launch: Dispatch, worker: Worker, state: StoppedWave) -> Finding | None:
    """Returns the finding of the fault that ended a worker's part of the launch."""
    if state.fault_kind not in WORKING:
        return None
    address = state.fault_address
    kind, message = "out-of-bounds", ""
    if state.fault_kind == Fault.MEMORY:
        near = launch.memory.describe(address, argument_names(launch))
        kind = "use-after-free" if "freed" in near else "out-of-bounds"
        message = f"access to {address:#x}, {near}{_origin(launch, worker, state, near)}"
        if _resource_reaches(launch, worker, state):
            kind = "buffer"
    elif state.fault_kind == Fault.READONLY:
        message = f"write to read-only memory at {address:#x}{_origin(launch, worker, state)}"
    elif state.fault_kind == Fault.LDS:
        room = f"the {launch.lds_bytes} bytes of the workgroup"
        message = f"LDS offset {address:#x} is outside {room}: a GPU reads 0 there, and drops stores"
    elif state.fault_kind == Fault.SCRATCH:
        message = f"private offset {address:#x} is outside the {launch.private} bytes of a lane: raise private_segment_fixed_size"
    else:
        kind, message = "misaligned", f"atomic at {address:#x}, which is no multiple of its size"
    lanes = (state.fault_lane,) if state.fault_lane >= 0 else ()
    retired = retired_before(launch, wave_bytes_of(worker, worker.job.current, state.wave), state.resume)
    return finding_at(
        launch, state.resume, kind, message, wave=state.wave, workgroup=state.group, lanes=lanes, place=f"{address:#x}",
        when=moment(state.group, state.wave, retired) if retired >= 0 else "",
    )  # fmt: skip


def _scalars(worker: Worker, state: StoppedWave) -> np.ndarray:
    """Returns the SGPRs of the wave that stopped."""
    return wave_bytes_of(worker, worker.job.current, state.wave)[:512].view(np.uint32)


def _pointer(launch: Dispatch, worker: Worker, state: StoppedWave) -> int | None:
    """Returns the scalar base address of the faulting instruction, None if it has none."""
    inst = launch.instruction(state.resume)
    found = base_of(inst) if inst is not None else None
    if found is None:
        return None
    kind, reg = found
    words = _scalars(worker, state)[reg.index : reg.index + 2]
    base = int(words[0]) | int(words[1]) << 32
    return base & BASE_BITS if kind == "resource" else base


def _origin(launch: Dispatch, worker: Worker, state: StoppedWave, near: str = "") -> str:
    """Returns the words on the allocation of the access's pointer; "" if `near`, the words on its address, name that already."""
    pointer = _pointer(launch, worker, state)
    if pointer is None or pointer >> 32 == PRIVATE_APERTURE:
        return ""
    owner = launch.memory.find(pointer)
    named = allocation_name(owner, argument_names(launch)) if owner is not None else ""
    return "" if not named or named in near else f"; its pointer {pointer:#x} is one to {named}"


def _resource_reaches(launch: Dispatch, worker: Worker, state: StoppedWave) -> bool:
    """True if the faulting access uses a buffer resource whose range ends past the allocation of its base."""
    inst = launch.instruction(state.resume)
    found = base_of(inst) if inst is not None else None
    pointer = _pointer(launch, worker, state)
    if found is None or pointer is None or found[0] != "resource":
        return False
    owner = launch.memory.find(pointer)
    words = _scalars(worker, state)[found[1].index : found[1].index + 4]
    stride = int(words[1]) >> 16 & 0x3FFF if inst is not None and inst.mods.get("idxen") else 0
    return owner is not None and pointer + int(words[2]) * max(stride, 1) > owner.end
