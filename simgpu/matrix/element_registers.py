"""Registers that hold elements of a ring instead of floats while only matrix instructions of tiles read them.

A GEMM's sums stay in the same registers from tile to tile. To convert them to floats after each tile, and back before the next,
takes longer than the products. So a tile of f32 sums in ring mode leaves elements in the registers of D, and notes that in the
wave. Every other instruction that accesses registers of some tile's D, or changes MODE, first makes all of the wave's registers
floats again (`Program._guard`). Factors are converted once for all tiles of a straight-line run (`tiles.factor_lists`): the worker
has a mirror of each wave's registers, and notes which wave has used it last.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.machine import layout
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.frame import Frame, SharedPart
from simgpu.machine.jit import CALLED, compiler
from simgpu.machine.layout import ROW
from simgpu.machine.values import I64, IrValue, where
from simgpu.matrix.ring import ELEMENT_GROUPS, copy_row

KEY = f"{__name__}.release"
WORD = 64  # registers of a word of layout.ELEMENT_BITS
CHANGES_MODE = (
    ControlKind.SETREG, ControlKind.SETVSKIP, ControlKind.SET_GPR_IDX_ON, ControlKind.SET_GPR_IDX_OFF, ControlKind.SET_GPR_IDX_MODE,
)  # fmt: skip


def changes_mode(inst: Instruction) -> bool:
    """True if the code after an instruction may run by other handlers."""
    return inst.spec.control in CHANGES_MODE


def hold(frame: Frame, registers: Any, rows: int) -> None:
    """Makes the first `rows` registers at `registers` hold elements, if they hold floats."""
    lanes = ELEMENT_GROUPS["f32"]
    first = _number(frame, registers)
    every = frame.value(ir.Constant(I64, (1 << rows) - 1)) << (first & 7)  # the bits from the first one's byte on
    noted = frame.at(frame.wave, layout.ELEMENT_BITS).at(first >> 3).load(I64, 1)

    def hold_one(row: IrValue) -> tuple[()]:
        word, bit = _note_of(frame, first + row)
        with frame.build.if_then((word.load(I64, 8) & bit) == 0):
            at = registers.at(row * ROW)
            copy_row(at, lanes, at, lanes.summed)
            word.store(word.load(I64, 8) | bit, 8)
        return ()

    with frame.build.if_then((noted & every) != every, likely=False):
        frame.loop(rows, hold_one)
        frame.set_state(layout.HOLDS_ELEMENTS, ir.Constant(I64, 1))


def release(frame: Frame) -> None:
    """Makes all registers of the wave hold floats."""
    with frame.build.if_then(frame.state(layout.HOLDS_ELEMENTS, I64) != 0, likely=False):
        frame.call(KEY, ir.Constant(I64, 0))


def refresh(frame: Frame, register: IrValue) -> None:
    """Converts the floats of a register. register: its offset in the wave, i64."""
    lanes = ELEMENT_GROUPS["f32"]
    copy_row(frame.at(frame.wave, register), lanes, mirror(frame, register), lanes.summed)


def owns_mirror(frame: Frame, begins: IrValue) -> IrValue:
    """Returns i1: True if no other wave of this worker has used the mirror since the last tile at which `begins` (i1) was true.

    Once it is false, it stays so up to the next such tile: this tile refreshes its own factors only.
    """
    owner = frame.context_at(layout.CTX_MIRROR_OWNERS).at(_mirror_number(frame) * 8)
    mine = frame.state(layout.HW_ID).zext(I64) + 1
    found: IrValue = begins | (owner.load(I64, 8) == mine)
    owner.store(where(found, mine, 0), 8)
    return found


def mirror(frame: Frame, register: IrValue) -> IrValue:
    """Returns a pointer to the elements of a register's floats, 64 words of the wave's mirror, as of the last `refresh`."""
    first = frame.context_at(layout.CTX_MIRRORS - layout.VGPR)
    found: IrValue = first.at(_mirror_number(frame) * layout.MIRROR_BYTES).at(register)
    return found


def _mirror_number(frame: Frame) -> IrValue:
    """Returns which of the worker's mirrors the wave uses, i64: waves of a workgroup have different ones."""
    return frame.value(frame.state(layout.HW_ID).zext(I64)) & layout.MIRRORS - 1


def _number(frame: Frame, registers: Any) -> IrValue:
    """Returns the number (i64) of a vector register among VGPRs and AccVGPRs."""
    build = frame.build
    return frame.value(build.ptrtoint(registers, I64) - build.ptrtoint(frame.wave, I64) - layout.VGPR) >> 8


def _note_of(frame: Frame, number: IrValue) -> tuple[IrValue, IrValue]:
    """Returns the address and the bit (i64) that note a register."""
    word = frame.at(frame.wave, layout.ELEMENT_BITS).at((number >> 6) * 8)
    return word, frame.value(ir.Constant(I64, 1)) << (number & WORD - 1)


def _release(name: str) -> ModuleSource:
    """Returns the source of a function that makes all registers of the wave hold floats."""
    lanes = ELEMENT_GROUPS["f32"]

    def build(module: ir.Module, name: str) -> None:
        part = SharedPart(module, name)

        def release_one(number: IrValue) -> tuple[()]:
            word, bit = _note_of(part, number)
            with part.build.if_then((word.load(I64, 8) & bit) != 0):
                at = part.at(part.wave, layout.VGPR).at(number * ROW)
                copy_row(at, lanes.summed, at, lanes)
            return ()

        def release_word(at: IrValue) -> tuple[()]:
            word = part.at(part.wave, layout.ELEMENT_BITS).at(at * 8)
            with part.build.if_then(word.load(I64, 8) != 0):
                part.loop((at + 1) * WORD, release_one, first=at * WORD)
                word.store(part.value(ir.Constant(I64, 0)), 8)
            return ()

        part.loop(layout.ELEMENT_WORDS, release_word)
        part.set_state(layout.HOLDS_ELEMENTS, ir.Constant(I64, 0))
        part.finish()

    return compiler().source(build, name)


CALLED[KEY] = _release
