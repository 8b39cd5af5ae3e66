"""Atomics on device memory: one lane after another, atomic between host threads.

The instruction's body computes the new value from the old one, in a compare-and-swap loop on the host. So workgroups on
different threads see each other's updates, as on a GPU.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import approach, observe, overwrites
from simgpu.machine.layout import LANES, Fault
from simgpu.machine.operands import OperandPlace
from simgpu.machine.rounding import ops_of
from simgpu.machine.values import I64, IrValue
from simgpu.memory.any_lanes import mark, per_allocation
from simgpu.memory.lane_copy import Addresses, LaneCopy, Spill, constant, each_lane, first_lane_fault, staging
from simgpu.memory.lds import joined_scalar, stage_operand, typed_scalar


def returns_old(inst: Instruction) -> bool:
    """True if the instruction writes the old value back (glc, or sc0 on gfx942 and later)."""
    return bool(inst.mods.get("glc") or inst.mods.get("sc0"))


def global_atomic(
    frame: Frame,
    inst: Instruction,
    places: dict[str, OperandPlace],
    addresses: Addresses,
    lanes: Any,
    host_addresses: bool = False,
) -> None:
    """Emits a read-modify-write of each active lane's location, in the order of the lanes.

    host_addresses: True if the addresses are host pointers that were checked (LDS through a flat address)
    """
    memory = inst.spec.memory
    assert memory is not None
    bits = memory.bits
    spill = Spill(frame, addresses)
    demand_alignment(frame, spill, bits // 8, lanes)
    kind = ir.IntType(bits)
    area = LANES * bits // 8
    operands = sum(param.name not in ("old", "mem") for param in inst.spec.params[1:])
    data = frame.operand(places["vdata"].slot)
    for number in range(operands):
        # A compare-and-swap's data holds the new value, then the value to compare with.
        stage_operand(frame, data.at(number * (bits // 32) * layout.ROW), bits, number * area)
    returned = staging(frame).at(operands * area)

    def serve(mask: Any, base: Any, delta: Any, entry: Any) -> None:
        def serve_lane(lane: IrValue) -> None:
            step = lane * (bits // 8)
            values = [staging(frame).at(number * area).at(step).load(kind) for number in range(operands)]
            old = indivisible(frame, inst, (spill.of(lane) + delta).pointer(), values)
            returned.at(step).store(old)

        if host_addresses:
            each_lane(frame, mask, serve_lane)
            return
        access = Access("global", spill.offsets(base), mask, bits // 8, True, True, True, entry)
        approach(frame, access)
        overwrites(frame, access)
        spill.restore()
        each_lane(frame, mask, serve_lane)
        copy = LaneCopy(frame, spill, bits // 8, True)

        def mark_table(number: IrValue) -> tuple[()]:
            mark(frame, entry, base, mask, copy, layout.ALLOC_READ + number * (layout.ALLOC_WRITTEN - layout.ALLOC_READ))
            return ()

        if not frame.dry:
            frame.loop(2, mark_table)
        observe(frame, access)

    if host_addresses:
        serve(lanes, None, constant(0), None)
    else:
        per_allocation(frame, spill, lanes, bits // 8, True, serve)
    if returns_old(inst):
        frame.set_state(layout.ATOMICS, frame.state(layout.ATOMICS, I64) + 1)
        result = returned.load(ir.VectorType(kind, LANES))
        field = "vdst" if "vdst" in places else "vdata"
        frame.write_wide(frame.operand(places[field].slot), result, frame.lanes(lanes))


def demand_alignment(frame: Frame, addresses: Spill, size: int, lanes: IrValue) -> None:
    """Faults if an active lane's address is no multiple of `size`: atomics have no unaligned mode."""
    wrong = lanes & addresses.lanes_with(lambda group: (group & size - 1) != 0)
    with frame.build.if_then(wrong != 0, likely=False):
        first_lane_fault(frame, Fault.MISALIGNED, addresses, wrong)


def indivisible(frame: Frame, inst: Instruction, place: IrValue, data: list[IrValue]) -> IrValue:
    """Emits a loop that compare-and-swaps [place] from old to body(old, *data) until that succeeds. Returns old."""
    spec, build = inst.spec, frame.build
    assert spec.body is not None
    types = [param.type for param in spec.params]
    kind = ir.IntType(types[0].bits)
    first = build.load(place, align=types[0].bits // 8, typ=kind)
    before = build.block
    loop = build.append_basic_block("retry")
    done = build.append_basic_block("swapped")
    build.branch(loop)
    build.position_at_end(loop)
    old = build.phi(kind)
    old.add_incoming(first, before)
    ops = ops_of(frame)
    values = [typed_scalar(ops, type_, raw) for type_, raw in zip(types, [old, *data], strict=True)]
    new = joined_scalar(frame, spec.body(*values), kind)
    pair = build.cmpxchg(place, old, new, "seq_cst", "seq_cst")
    seen = build.extract_value(pair, 0)
    ok = build.extract_value(pair, 1)
    old.add_incoming(seen, build.block)
    build.cbranch(ok, done, loop)
    build.position_at_end(done)
    return seen

