"""Emits flat and global accesses: at 64-bit addresses of the lanes, or at a common address plus 32 bits of each lane.

Functions whose names begin with `whole_wave` emit a fast path, for all lanes within the allocation that this record hit last,
and the code for any lanes as an alternative. `vmem.WAYS` assigns functions to instructions.
"""

from __future__ import annotations

from functools import partial

from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import observe
from simgpu.machine.operands import PRIVATE_APERTURE, SHARED_APERTURE, OperandPlace
from simgpu.machine.values import I64, IrValue
from simgpu.machine.wave_frame import ALL_LANES
from simgpu.memory import scratch
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.atomics import global_atomic
from simgpu.memory.lane_copy import CopyForms, Narrow, rows_of, stage_registers, write_loaded
from simgpu.memory.lds import LDSAccess
from simgpu.memory.lds_dma import block_of, load_to_lds
from simgpu.memory.whole_wave import direct, direct_global
from simgpu.memory.whole_wave.direct_global import DirectGlobal, DirectToLDS


def signed_offset(frame: Frame, place: OperandPlace) -> IrValue:
    return frame.slot(place.slot).sext(I64)


def global_addresses(frame: Frame, places: dict[str, OperandPlace]) -> IrValue:
    """Returns 64-bit addresses of the lanes: vaddr (64 bits), or saddr + vaddr (32 bits), plus the signed offset."""
    offset = signed_offset(frame, places["offset"])
    if "saddr" not in places:
        return frame.read_wide(frame.operand(places["vaddr"].slot), 64) + offset
    base = frame.operand(places["saddr"].slot).load(I64) + offset
    if "vaddr" not in places:
        return frame.splat(base)
    return frame.row(frame.operand(places["vaddr"].slot)).zext(I64) + base


def to_lds(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a load to LDS."""
    load_to_lds(frame, inst, places, partial(global_addresses, frame, places), lanes)


def atomic(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a global atomic."""
    global_atomic(frame, inst, places, partial(global_addresses, frame, places), lanes)


def _registers(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> IrValue:
    """Returns the registers that are loaded or stored."""
    memory = inst.spec.memory
    assert memory is not None
    return frame.operand(places["vdata" if memory.op == "store" else "vdst"].slot)


def whole_wave(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a global load or store."""
    access, whole = _whole_access(frame, inst, places, lanes, direct_global.kind_of(rows_of(inst)))
    access.run(whole, _registers(frame, inst, places), otherwise=lambda: any_lanes(frame, inst, places, lanes))


def whole_wave_to_lds(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a load to LDS."""
    block, fits = block_of(frame, inst, places, rows_of(inst).lane_bytes)
    access, whole = _whole_access(frame, inst, places, lanes, DirectToLDS)
    access.run(whole & fits, block, otherwise=lambda: to_lds(frame, inst, places, lanes))


def whole_wave_flat(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a flat load or store. The fast path is right because addresses in an allocation are not in an aperture."""
    addresses = global_addresses(frame, places)
    access, whole = _whole_access(frame, inst, places, lanes, direct_global.kind_of(rows_of(inst)))
    access.run(whole, _registers(frame, inst, places), lambda: _flat_lanes(frame, inst, places, addresses, lanes))


def _whole_access(
    frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue, kind: type[DirectGlobal]
) -> tuple[DirectGlobal, IrValue]:
    """Returns the access at saddr + vaddr or at 64-bit addresses, and i1: all lanes are active and near enough for it."""
    memory, rows = inst.spec.memory, rows_of(inst)
    assert memory is not None
    offset, vaddr, whole = signed_offset(frame, places["offset"]), frame.operand(places["vaddr"].slot), lanes == ALL_LANES
    if "saddr" in places:
        start = frame.operand(places["saddr"].slot).load(I64) + offset
        return kind(frame, start, vaddr, rows, memory.op == "store"), whole
    access, near = direct_global.of_addresses(frame, vaddr, offset, rows, memory.op == "store", kind)
    return access, whole & near


def any_lanes(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a global load or store of any lanes."""
    memory, rows = inst.spec.memory, rows_of(inst)
    assert memory is not None
    narrow = None
    if "saddr" in places and "vaddr" in places:
        start = frame.operand(places["saddr"].slot).load(I64) + signed_offset(frame, places["offset"])
        narrow = Narrow(frame.operand(places["vaddr"].slot), start)
    addresses = partial(global_addresses, frame, places)
    forms = CopyForms(narrow, together=not direct.serves(frame, rows))
    access = GlobalAccess(frame, addresses, rows.lane_bytes, memory.op == "store", forms)
    registers = _registers(frame, inst, places)
    if memory.op == "store":
        stage_registers(frame, rows, registers)
    access.run(lanes)
    if memory.op == "load":
        write_loaded(frame, rows, registers, lanes)


def flat_lanes(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a flat load or store of any lanes."""
    _flat_lanes(frame, inst, places, global_addresses(frame, places), lanes)


def _spaces(frame: Frame, places: dict[str, OperandPlace], lanes: IrValue) -> tuple[IrValue, IrValue, IrValue]:
    """Returns masks of the lanes in LDS, in private and in device memory, by the high half of each lane's address register.

    The offset does not affect the choice (LLVM, SelectFlatOffsetImpl). In LDS and private memory it is added in 32 bits.
    """
    high = frame.row(frame.operand(places["vaddr"].slot), 1)
    shared, own = ((high == aperture).bitcast(I64) & lanes for aperture in (SHARED_APERTURE, PRIVATE_APERTURE))
    return shared, own, lanes & ~(shared | own)


def flat_atomic(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a flat atomic."""
    build, memory = frame.build, inst.spec.memory
    assert memory is not None
    addresses = global_addresses(frame, places)
    shared, own, elsewhere = _spaces(frame, places, lanes)
    low = addresses & 0xFFFFFFFF
    with build.if_then(shared != 0, likely=False):
        access = LDSAccess(frame, low, memory.bits // 8)
        access.check(shared)
        host = low + access.base.address()
        global_atomic(frame, inst, places, host, shared, host_addresses=True)
        observe(frame, Access("lds", low, shared, memory.bits // 8, True, True, True))
    with build.if_then(elsewhere != 0):
        global_atomic(frame, inst, places, addresses, elsewhere)
    with build.if_then(own != 0, likely=False):
        scratch.atomic(frame, inst, places, low, own)


def _flat_lanes(
    frame: Frame, inst: Instruction, places: dict[str, OperandPlace], addresses: IrValue, lanes: IrValue
) -> None:
    build, memory, rows = frame.build, inst.spec.memory, rows_of(inst)
    assert memory is not None
    shared, own, elsewhere = _spaces(frame, places, lanes)
    low = addresses & 0xFFFFFFFF
    store = memory.op == "store"
    registers = _registers(frame, inst, places)
    if store:
        stage_registers(frame, rows, registers)
    with build.if_then(shared != 0, likely=False):
        LDSAccess(frame, low, rows.lane_bytes).copy(shared, store)
    with build.if_then(elsewhere != 0):
        GlobalAccess(frame, addresses, rows.lane_bytes, store).run(elsewhere)
    if not store:
        write_loaded(frame, rows, registers, shared | elsewhere)
    with build.if_then(own != 0, likely=False):
        scratch.access(frame, inst, places, low, own)
