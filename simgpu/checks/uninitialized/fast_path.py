"""Recognises loads and stores that move only defined bits, without a look at each byte's shadow.

An allocation that was wholly defined at the start of the launch stays so. If an access reaches only such an allocation and its
data registers are defined, its shadow need not run.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.checks.uninitialized.flags import any_undefined
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I1, IrValue
from simgpu.memory.any_lanes import field, hinted_entry
from simgpu.memory.buffers import is_raw, raw_addresses, read_resource
from simgpu.memory.flat import global_addresses
from simgpu.memory.lane_copy import is_inside, rows_of


def needless(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> Any | None:
    """Returns i1: true if a load or store moves only defined bits. Returns None for instructions without this test."""
    memory = inst.spec.memory
    assert memory is not None
    if memory.op == "atomic" or memory.lds or inst.mods.get("lds") or memory.format:
        return None
    data = places["vdata"] if "vdata" in places else places.get("vdst")
    if data is None or memory.space not in ("global", "buffer") or inst.mods.get("idxen"):
        return None
    entry = hinted_entry(frame)
    within = _lanes_within if memory.space == "global" else _resource_within
    reached = within(frame, inst, places, entry)
    known = reached & (field(entry, layout.ALLOC_UNDEFINED) == 0)
    return known & ~frame.value(any_undefined(frame, data))


def _lanes_within(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], entry: Any) -> Any:
    """Returns i1: true if all active lanes' bytes are in the allocation."""
    base, size = (field(entry, which) for which in (layout.ALLOC_BASE, layout.ALLOC_SIZE))
    nbytes = rows_of(inst).lane_bytes
    fits = frame.mask_by_groups(lambda: is_inside(global_addresses(frame, places) - base, size, nbytes))
    return (frame.exec_bits() & ~fits) == 0


def _resource_within(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], entry: Any) -> Any:
    """Returns i1: true for a linear buffer that is in the allocation, or whose active lanes' bytes in range are.

    Kernels advance a buffer's base from tile to tile, and leave its size.
    """
    resource = read_resource(frame, inst, places["srsrc"])
    base, size = (field(entry, which) for which in (layout.ALLOC_BASE, layout.ALLOC_SIZE))
    offset = resource.base - base
    linear = ~(resource.swizzle | resource.add_tid)
    whole = (offset.unsigned <= size) & ((offset + resource.records).unsigned <= size)
    if not is_raw(inst):
        return linear & whole

    def is_within() -> IrValue:
        access = raw_addresses(frame, inst, places)
        inside = is_inside(access.addresses - base, size, rows_of(inst).lane_bytes)
        return inside | ((access.offsets + access.soffset).unsigned >= resource.records)  # out of range: nothing moves

    def lanes_within() -> IrValue:
        return (frame.exec_bits() & ~frame.mask_by_groups(is_within)) == 0

    return linear & frame.emit_choice(whole, lambda: frame.value(ir.Constant(I1, 1)), lanes_within)
