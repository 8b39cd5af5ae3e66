"""Matrix instructions: undefined elements that count in a product are findings.

The maps of `simgpu.hardware.mfma` give the bits of registers and lanes that count: a broadcast of A or B leaves lanes unread.
EXEC does not count, because matrix instructions ignore it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.checks.uninitialized import runtime, shadow_layout
from simgpu.checks.uninitialized.flags import any_undefined, registers_of
from simgpu.checks.uninitialized.runtime import UndefinedUse
from simgpu.hardware import mfma
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I8, I32, I64, IrValue, constant
from simgpu.matrix import tiles
from simgpu.matrix.fma_tile import TileTable
from simgpu.matrix.instruction import MatrixPlaces

ALL_BITS, ALL_LANES = (1 << 32) - 1, (1 << 64) - 1
BLOCK_OF_FLAGS = ir.VectorType(I8, tiles.BLOCK)
ROLES = ("A", "B", "C", "IDX", "SCALE_A", "SCALE_B")


def read_masks(inst: Instruction, operand: str, registers: int) -> np.ndarray:
    """Returns the bits of an operand that the instruction reads: uint32 (registers, 64). operand: one of ROLES."""
    row: Any = mfma.find(inst.mnemonic, inst.target)
    mods = {name: int(inst.mods.get(name, 0)) for name in ("cbsz", "abid", "blgp")}
    masks = np.zeros((registers, LANES), np.uint64)
    select: dict[str, int] = {}
    if row.flexible:
        row = row.with_formats(mods["cbsz"], mods["blgp"])
    elif operand == ("IDX" if row.sparse else "A"):
        select = {"cbsz": mods["cbsz"], "abid": mods["abid"]}
    elif operand == "B" and row.cd_type != "f64":
        select = {"blgp": mods["blgp"]}
    width = row.width(operand)
    owners = row.map(operand, **select).reshape(-1, 3).astype(np.int64)
    start = scale_shift(inst, operand) if operand.startswith("SCALE") else 0
    for bit in range(start, start + width):
        at = owners[:, 2] + bit
        np.bitwise_or.at(masks, (owners[:, 0] + at // 32, owners[:, 1]), np.uint64(1) << (at % 32).astype(np.uint64))
    return masks.astype(np.uint32)


def scale_shift(inst: Instruction, operand: str) -> int:
    """Returns the first bit of the scale's byte in its dword. op_sel: low bit of the byte's number; op_sel_hi: high bit."""
    number = ("SCALE_A", "SCALE_B").index(operand)
    low, high = (int(inst.mods.get(name, default)) >> number & 1 for name, default in (("op_sel", 0), ("op_sel_hi", 3)))
    return 8 * (low | high << 1)


def emit(frame: Frame, inst: Instruction, places: MatrixPlaces) -> None:
    index = frame.build.zext(frame.slot(layout.SLOT_INDEX), I64)
    operands: list[tuple[str, OperandPlace | None]] = [("A", places.a), ("B", places.b), ("C", places.c), ("IDX", places.index)]
    if places.scales:
        operands += list(zip(("SCALE_A", "SCALE_B"), places.scales, strict=True))
    for name, place in operands:
        test = any_undefined(frame, place) if place is not None else None
        if place is None or test is None:
            continue
        registers = registers_of(place)
        with frame.build.if_then(test, likely=False):
            wanted = read_masks(inst, name, registers)
            masks: Any = 0 if (wanted == ALL_BITS).all() or place.kind != "row" else _table(frame, name, wanted)
            bits = 0xFF << scale_shift(inst, name) if name.startswith("SCALE") else ALL_BITS
            role = ROLES.index(name) << runtime.ROLE_SHIFT
            offset = frame.build.or_(frame.build.zext(frame.slot(place.slot), I64), ir.Constant(I64, role))
            runtime.demand(frame, index, UndefinedUse.MATRIX, offset, registers, ALL_LANES, bits, masks)
    with frame.build.if_then(any_undefined(frame, places.d), likely=False):
        runtime.define.call(frame.build, frame.wave, frame.build.zext(frame.slot(places.d.slot), I64), places.d.bits // 32)


def is_tile_defined(frame: Frame, table: TileTable) -> IrValue:
    """Returns i1: True if all registers of a tile are defined."""
    flags = frame.at(frame.wave, shadow_layout.FLAGS)
    entries, count = table.register_blocks()

    def look_at_block(number: IrValue, found: IrValue) -> list[IrValue]:
        entry = entries.at(number * (4 * tiles.BLOCK_WORDS))
        states = frame.at(flags, entry.load(I32).zext(I64) * tiles.BLOCK)
        return [found | states.load(BLOCK_OF_FLAGS, 1) & entry.at(4).load(BLOCK_OF_FLAGS)]

    (found,) = frame.loop(count, look_at_block, [constant(BLOCK_OF_FLAGS, 0)])
    return found.bitcast(ir.IntType(8 * tiles.BLOCK)) == 0


def _table(frame: Frame, name: str, masks: np.ndarray) -> Any:
    """Adds the masks as a constant to the handler's module. Returns the constant's address as an i64."""
    kind = ir.ArrayType(I32, masks.size)
    table = ir.GlobalVariable(frame.module, kind, f"{frame.function.name}_{name}")
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(kind, [int(mask) for mask in masks.reshape(-1)])
    return frame.build.ptrtoint(table, I64)
