"""Loads straight to LDS: each lane's dword goes to M0 + offset + 4·lane (ISA guides, "LDS DMA").

The instruction's offset counts in both addresses. Wider forms (gfx950) put a lane's 12 or 16 bytes
at that multiple of its lane number; narrow ones extend to a dword.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from hardware.isa import instruction as isa
from hardware.isa.instruction import Instruction
from simgpu.access import WIDE64, GlobalAccess, Rows, constant, read_staged, write_staged
from simgpu.frame import Frame
from simgpu.lane_llvm import I32, I64
from simgpu.layout import LANES
from simgpu.lds import LDSAccess
from simgpu.operands import Place


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
    build = frame.build
    rows = Rows(memory.bits * memory.count, memory.sign)
    readable = lanes if in_range is None else build.and_(lanes, in_range)
    GlobalAccess(frame, addresses, rows.lane_bytes, False).run(readable)
    valid = frame.lanes(readable)
    values = read_staged(frame, rows, None)
    values = [build.select(valid, row, ir.Constant(row.type, None)) for row in values]
    stored = Rows(max(32, rows.bits))
    m0 = build.zext(frame.load(frame.at(frame.wave, frame.scalar(isa.M0)), I32), I64)
    base = build.add(m0, build.sext(frame.slot(places["offset"].slot), I64))
    steps = ir.Constant(WIDE64, [lane * stored.lane_bytes for lane in range(LANES)])
    target = build.add(frame.splat(base), steps)
    write_staged(frame, stored, values)
    LDSAccess(frame, target, stored.lane_bytes).copy(lanes, True)
