"""Loads straight to LDS: each lane's dword goes to M0 + offset + 4·lane (ISA guides, "LDS DMA").

The instruction's offset counts in both addresses. Wider forms (gfx950) put a lane's 12 or 16 bytes
at that multiple of its lane number; narrow ones extend to a dword.
buffer_store_lds_dword goes the other way.
"""

from __future__ import annotations

from typing import Any

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.frame import Frame
from simgpu.machine.operands import Place
from simgpu.machine.values import I64, Value, where
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.lane_copy import Rows, lane_numbers, read_staged, write_staged
from simgpu.memory.lds import LDSAccess


def load_to_lds(
    frame: Frame,
    inst: Instruction,
    places: dict[str, Place],
    addresses: Any,
    lanes: Any,
    in_range: Any | None = None,
) -> None:
    """Copy each active lane's element from its device address to its place in LDS.

    in_range: i64 mask of lanes whose address may be read; others store 0 (buffer loads).
    """
    memory = inst.spec.memory
    assert memory is not None
    rows = Rows(memory.bits * memory.count, memory.sign)
    readable = lanes if in_range is None else lanes & in_range
    GlobalAccess(frame, addresses, rows.lane_bytes, False).run(readable)
    valid = frame.lanes(readable)
    values = [where(valid, row, 0) for row in read_staged(frame, rows, None)]
    stored = Rows(max(32, rows.bits))
    write_staged(frame, stored, values)
    LDSAccess(frame, _lds_offsets(frame, places, stored), stored.lane_bytes).copy(lanes, True)


def store_row(frame: Frame, places: dict[str, Place], row: Any, lanes: Any) -> None:
    """Put a dword of each active lane (<64 x i32>) at its place in LDS."""
    rows = Rows(32)
    write_staged(frame, rows, [row])
    LDSAccess(frame, _lds_offsets(frame, places, rows), rows.lane_bytes).copy(lanes, True)


def store_from_lds(
    frame: Frame, inst: Instruction, places: dict[str, Place], addresses: Any, lanes: Any
) -> None:
    """Copy each active lane's dword from its place in LDS to its device address."""
    rows = Rows(32)
    LDSAccess(frame, _lds_offsets(frame, places, rows), rows.lane_bytes).copy(lanes, False)
    write_staged(frame, rows, read_staged(frame, rows, None))
    GlobalAccess(frame, addresses, rows.lane_bytes, True).run(lanes)


def _lds_offsets(frame: Frame, places: dict[str, Place], rows: Rows) -> Value:
    """M0 + the instruction's offset + the lane's share, <64 x i64>."""
    m0 = frame.state(frame.scalar(isa.M0)).zext(I64)
    return m0 + frame.slot(places["offset"].slot).sext(I64) + lane_numbers(rows.lane_bytes)
