"""Emits loads to LDS: each lane's dword goes to M0 + offset + 4·lane (ISA guides, "LDS DMA").

Only the low bits of M0 that LDS needs count, for global and scratch forms without the lowest two (CDNA4 guide, 9.1.9 and
10.3: M0[17:0], M0[17:2] * 4; CDNA3 guide: M0[15:0]). The instruction's offset is added to both addresses. Wider forms
(gfx950) put a lane's 12 or 16 bytes at 12·lane or 16·lane; narrower elements are extended to a dword. buffer_store_lds_dword
goes the other way.

Hardware drops a load to LDS that is out of range. Triton gives M0 0x7fffffff in waves that have nothing to load (its
LoadStoreOpToLLVM.cpp, `selectLdsAddressForPredicate`). So M0 above all addresses means no load; others outside LDS are faults.
"""

from __future__ import annotations

from typing import Any

from simgpu.hardware.architectures import GFX950
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I64, IrValue, where
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.lane_copy import Addresses, StagedRows, lane_numbers, read_staged, rows_of, write_staged
from simgpu.memory.lds import LDSAccess, lds_base


def load_to_lds(
    frame: Frame,
    inst: Instruction,
    places: dict[str, OperandPlace],
    addresses: Addresses,
    lanes: Any,
    in_range: Any | None = None,
) -> None:
    """Copies each active lane's element from its device address to its place in LDS.

    in_range: i64 mask of lanes whose address may be read; others store 0 (buffer loads).
    """
    rows, lanes = rows_of(inst), _loading(frame, inst, places, lanes)
    readable = lanes if in_range is None else lanes & in_range
    GlobalAccess(frame, addresses, rows.lane_bytes, False).run(readable)
    valid = frame.lanes(readable)
    values = [where(valid, row, 0) for row in read_staged(frame, rows)]
    store_rows(frame, inst, places, values, lanes)


def store_rows(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], values: list[Any], lanes: Any) -> None:
    """Stores the dwords of each active lane (<64 x i32> each) at its place in LDS."""
    rows = StagedRows(32 * len(values))
    write_staged(frame, rows, values)
    LDSAccess(frame, _lds_offsets(frame, inst, places, rows), rows.lane_bytes).copy(lanes, True)


def store_from_lds(
    frame: Frame, inst: Instruction, places: dict[str, OperandPlace], addresses: Addresses, lanes: Any
) -> None:
    """Copies each active lane's dword from its place in LDS to its device address."""
    rows = StagedRows(32)
    LDSAccess(frame, _lds_offsets(frame, inst, places, rows), rows.lane_bytes).copy(lanes, False)
    write_staged(frame, rows, read_staged(frame, rows))
    GlobalAccess(frame, addresses, rows.lane_bytes, True).run(lanes)


def block_of(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lane_bytes: int) -> tuple[IrValue, IrValue]:
    """Returns the destination of all lanes' bytes in LDS, as a host pointer, and i1: True if it is in bounds."""
    first, size = _first_offset(frame, inst, places), frame.state(layout.LDS_SIZE, I64)
    fits = (first + LANES * lane_bytes).unsigned <= size
    return lds_base(frame).at(first), fits & (first.signed >= 0)


def address_bits(inst: Instruction) -> int:
    """Returns the mask of the bits of M0 that form the instruction's address in LDS."""
    bits = 0x3FFFF if inst.target in GFX950 else 0xFFFF
    return bits if inst.spec.encoding in ("mubuf", "mtbuf") else bits & ~3


def _loading(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> Any:
    """Returns the lanes, none if M0 is positive, above all addresses in LDS, and its low bits are no address either."""
    above = frame.state(frame.scalar(isa.M0)).signed > address_bits(inst)
    outside = _first_offset(frame, inst, places).signed >= frame.state(layout.LDS_SIZE, I64)
    return where(above & outside, 0, lanes)


def _lds_offsets(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], rows: StagedRows) -> IrValue:
    """Returns M0 + the instruction's offset + the lane's distance, <64 x i64>; one below 0 is far outside LDS."""
    return _first_offset(frame, inst, places) + lane_numbers(rows.lane_bytes)


def _first_offset(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> IrValue:
    m0 = (frame.state(frame.scalar(isa.M0)) & address_bits(inst)).zext(I64)
    return m0 + frame.slot(places["offset"].slot).sext(I64)
