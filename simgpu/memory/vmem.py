"""Memory instructions outside LDS: scalar loads, flat, global, scratch and buffer accesses."""

from __future__ import annotations

from collections.abc import Callable

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Imm, Instruction, Off, Reg
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import observe
from simgpu.machine.operands import PRIVATE_APERTURE, SHARED_APERTURE, Place, Plan
from simgpu.machine.values import I64, Value
from simgpu.machine.wave_frame import ALL_LANES
from simgpu.memory import scratch
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.atomics import global_atomic
from simgpu.memory.buffers import buffer_access
from simgpu.memory.lane_copy import Narrow, Rows, popcount, read_staged, write_staged
from simgpu.memory.lds import LDSAccess
from simgpu.memory.lds_dma import address_bits, load_to_lds
from simgpu.memory.whole_wave import direct, direct_global
from simgpu.memory.whole_wave.direct_global import DirectGlobal

REGISTER_FIELDS = ("vdst", "vaddr", "vdata", "saddr", "srsrc", "soffset", "sdst", "sbase", "addr")


def plan(inst: Instruction, plan: Plan) -> dict[str, Place]:
    memory = inst.spec.memory
    assert memory is not None
    places: dict[str, Place] = {}
    for name in REGISTER_FIELDS:
        operand = inst.args.get(name)
        if operand is None or isinstance(operand, Off):
            continue
        if isinstance(operand, Reg):
            places[name] = plan.register(operand, 32 * operand.count)
        elif isinstance(operand, Imm):
            places[name] = plan.immediate(operand.value)
        else:
            places[name] = plan.source(operand, t.u32)
    places["offset"] = plan.immediate(int(inst.mods.get("offset", 0)))
    for name in ("offen", "idxen", "lds", "tfe", "glc", "sc0", "addr64"):
        if inst.mods.get(name):
            plan.note(name)
    if memory.lds or inst.mods.get("lds"):
        plan.note(address_bits(inst))
    if memory.format:
        plan.note("format", inst.mods.get("format", 0))
    return places


def signed_offset(frame: Frame, place: Place) -> Value:
    return frame.slot(place.slot).sext(I64)


def emit(frame: Frame, inst: Instruction, places: dict[str, Place]) -> None:
    memory = inst.spec.memory
    assert memory is not None
    lanes = frame.exec_bits()
    count_lanes(frame, lanes)
    if memory.space in ("buffer", "tbuffer"):
        buffer_access(frame, inst, places, lanes)
        return
    if memory.space == "scratch":
        scratch.scratch(frame, inst, places, lanes)
        return
    if memory.lds or inst.mods.get("lds"):
        load_to_lds(frame, inst, places, global_addresses(frame, places), lanes)
        return
    if memory.space == "flat":
        _flat(frame, inst, places, global_addresses(frame, places), lanes)
    else:
        transfer(frame, inst, places, lanes)


def count_lanes(frame: Frame, lanes: Value) -> None:
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), popcount(frame, lanes))


def global_addresses(frame: Frame, places: dict[str, Place]) -> Value:
    """<64 x i64>: vaddr (64 bits), or saddr + vaddr (32 bits), plus the signed offset."""
    offset = signed_offset(frame, places["offset"])
    if "saddr" not in places:
        return frame.read_wide(frame.operand(places["vaddr"].slot), 64) + offset
    base = frame.operand(places["saddr"].slot).load(I64) + offset
    if "vaddr" not in places:
        return frame.splat(base)
    return frame.row(frame.operand(places["vaddr"].slot)).zext(I64) + base


def rows_of(inst: Instruction) -> Rows:
    memory = inst.spec.memory
    assert memory is not None
    return Rows(memory.bits * memory.count, memory.sign, memory.d16)


def transfer(frame: Frame, inst: Instruction, places: dict[str, Place], lanes: Value) -> None:
    """A load, store or atomic of the lanes at their device addresses."""
    memory = inst.spec.memory
    assert memory is not None
    if memory.op == "atomic":
        global_atomic(frame, inst, places, global_addresses(frame, places), lanes)
        return
    rows = rows_of(inst)
    _whole_wave(frame, inst, places, rows, lanes, otherwise=lambda: _any_lanes(frame, inst, places, rows, lanes))


def _whole_wave(
    frame: Frame, inst: Instruction, places: dict[str, Place], rows: Rows, lanes: Value, otherwise: Callable[[], None]
) -> None:
    """A load or store of all lanes within the allocation that this record hit last, or else what `otherwise` emits."""
    if "vaddr" not in places or not direct.serves(frame, rows):
        otherwise()
        return
    memory = inst.spec.memory
    assert memory is not None
    store = memory.op == "store"
    offset, vaddr = signed_offset(frame, places["offset"]), frame.operand(places["vaddr"].slot)
    whole = lanes == ALL_LANES
    if "saddr" in places:
        start = frame.operand(places["saddr"].slot).load(I64) + offset
        access = DirectGlobal(frame, start, vaddr, rows.lane_bytes, store)
    else:
        access, near = direct_global.of_addresses(frame, vaddr, offset, rows.lane_bytes, store)
        whole = whole & near
    access.run(whole, frame.operand(places["vdata" if store else "vdst"].slot), otherwise)


def _any_lanes(frame: Frame, inst: Instruction, places: dict[str, Place], rows: Rows, lanes: Value) -> None:
    memory = inst.spec.memory
    assert memory is not None
    addresses = global_addresses(frame, places)
    narrow = None
    if "saddr" in places and "vaddr" in places:
        start = frame.operand(places["saddr"].slot).load(I64) + signed_offset(frame, places["offset"])
        narrow = Narrow(frame.operand(places["vaddr"].slot), start)
    compact = direct.serves(frame, rows)
    access = GlobalAccess(frame, addresses, rows.lane_bytes, memory.op == "store", narrow, compact=compact)
    if memory.op == "store":
        source = frame.operand(places["vdata"].slot)
        write_staged(frame, rows, [frame.row(source, i) for i in range(rows.registers)])
        access.run(lanes)
        return
    access.run(lanes)
    load_result(frame, rows, places["vdst"], lanes)


def load_result(frame: Frame, rows: Rows, vdst: Place, lanes: Value) -> None:
    target = frame.operand(vdst.slot)
    old = frame.row(target) if rows.d16 else None
    mask = frame.lanes(lanes)
    for number, row in enumerate(read_staged(frame, rows, old)):
        frame.write_row(target, number, row, mask)


def _flat(
    frame: Frame, inst: Instruction, places: dict[str, Place], addresses: Value, lanes: Value
) -> None:
    """Flat addressing: what lies in an allocation lies neither in LDS nor in private memory."""
    memory = inst.spec.memory
    assert memory is not None
    if memory.op == "atomic":
        _flat_atomic(frame, inst, places, addresses, lanes)
        return
    rows = rows_of(inst)
    _whole_wave(frame, inst, places, rows, lanes, lambda: _flat_lanes(frame, inst, places, rows, addresses, lanes))


def _spaces(frame: Frame, places: dict[str, Place], lanes: Value) -> tuple[Value, Value, Value]:
    """Lanes in LDS, in private and in device memory, as the high half of the address register says, lane by lane.

    The offset does not count for that (LLVM, SelectFlatOffsetImpl); in LDS and private memory it is added in 32 bits.
    """
    high = frame.row(frame.operand(places["vaddr"].slot), 1)
    shared, own = ((high == aperture).bitcast(I64) & lanes for aperture in (SHARED_APERTURE, PRIVATE_APERTURE))
    return shared, own, lanes & ~(shared | own)


def _flat_atomic(
    frame: Frame, inst: Instruction, places: dict[str, Place], addresses: Value, lanes: Value
) -> None:
    build, memory = frame.build, inst.spec.memory
    assert memory is not None
    shared, own, elsewhere = _spaces(frame, places, lanes)
    low = addresses & 0xFFFFFFFF
    with build.if_then(shared != 0, likely=False):
        base = LDSAccess(frame, low, memory.bits // 8).base.address()
        LDSAccess(frame, low, memory.bits // 8).check(shared)
        host = low + base
        global_atomic(frame, inst, places, host, shared, host_addresses=True)
        observe(frame, Access("lds", low, shared, memory.bits // 8, True, True, True))
    with build.if_then(elsewhere != 0):
        global_atomic(frame, inst, places, addresses, elsewhere)
    with build.if_then(own != 0, likely=False):
        scratch.atomic(frame, inst, places, low, own)


def _flat_lanes(
    frame: Frame, inst: Instruction, places: dict[str, Place], rows: Rows, addresses: Value, lanes: Value
) -> None:
    """A flat load or store of any lanes."""
    build, memory = frame.build, inst.spec.memory
    assert memory is not None
    shared, own, elsewhere = _spaces(frame, places, lanes)
    low = addresses & 0xFFFFFFFF
    store = memory.op == "store"
    if store:
        source = frame.operand(places["vdata"].slot)
        write_staged(frame, rows, [frame.row(source, i) for i in range(rows.registers)])
    with build.if_then(shared != 0, likely=False):
        LDSAccess(frame, low, rows.lane_bytes).copy(shared, store)
    with build.if_then(elsewhere != 0):
        GlobalAccess(frame, addresses, rows.lane_bytes, store).run(elsewhere)
    if not store:
        load_result(frame, rows, places["vdst"], shared | elsewhere)
    with build.if_then(own != 0, likely=False):
        scratch.access(frame, inst, places, low, own)
