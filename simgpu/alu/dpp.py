"""Data-parallel primitives: the lane that a DPP source reads (ISA guides, "DPP").

GFX9: a source lane outside the row, or switched off in EXEC, is invalid. bound_ctrl then makes the value 0; otherwise the
destination lane keeps its old value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.values import IrValue, where
from simgpu.machine.wave_frame import MASK


def source_lanes(control: int) -> list[int | None]:
    """Returns for each lane the lane that `dpp_ctrl` reads, or None if that is outside."""
    return [_source(control, lane) for lane in range(LANES)]


def _source(control: int, lane: int) -> int | None:
    row, at = lane & ~15, lane & 15
    if control <= 0xFF:  # quad_perm
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    amount = control & 15
    if 0x101 <= control <= 0x10F:  # row_shl
        return lane + amount if at + amount < 16 else None
    if 0x111 <= control <= 0x11F:  # row_shr
        return lane - amount if at >= amount else None
    if 0x121 <= control <= 0x12F:  # row_ror
        return row | (at - amount) & 15
    if 0x150 <= control <= 0x15F:  # row_newbcast (gfx90a and later)
        return row | amount
    whole = {
        0x130: lane + 1 if lane < 63 else None,  # wave_shl:1
        0x134: (lane + 1) & 63,  # wave_rol:1
        0x138: lane - 1 if lane > 0 else None,  # wave_shr:1
        0x13C: (lane - 1) & 63,  # wave_ror:1
        0x140: row | 15 - at,  # row_mirror
        0x141: lane & ~7 | 7 - (lane & 7),  # row_half_mirror
        0x142: row - 1 if row else None,  # row_bcast:15
        0x143: 31 if lane >= 32 else None,  # row_bcast:31
    }
    if control not in whole:
        raise UnsupportedInstruction(f"dpp_ctrl {control:#x} is not defined")
    return whole[control]


def permute(
    frame: Frame, row: IrValue, mods: Mapping[str, Any], exec_bits: IrValue
) -> tuple[IrValue, IrValue]:
    """Returns the permuted source row, and the <64 x i1> of lanes that may be written."""
    lanes = source_lanes(int(mods.get("dpp_ctrl", 0)))
    index = [0 if lane is None else lane for lane in lanes]
    inside = ir.Constant(MASK, [int(lane is not None) for lane in lanes])
    moved = row.shuffle(index)
    valid = frame.lanes(exec_bits).shuffle(index) & inside
    moved = where(valid, moved, 0)
    rows = int(mods.get("row_mask", 15))
    banks = int(mods.get("bank_mask", 15))
    enabled = frame.value(ir.Constant(MASK, [rows >> lane // 16 & 1 & banks >> lane % 16 // 4 for lane in range(LANES)]))
    return moved, enabled if mods.get("bound_ctrl") else enabled & valid
