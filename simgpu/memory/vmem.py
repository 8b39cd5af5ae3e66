"""Emits memory instructions except LDS and scalar memory: plans their operands and chooses a strategy (`WAYS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Imm, Instruction, Off, Reg
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import mover
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.values import IrValue
from simgpu.memory import buffers, flat, scratch
from simgpu.memory.lane_copy import popcount, rows_of
from simgpu.memory.lds_dma import address_bits
from simgpu.memory.whole_wave import direct

REGISTER_FIELDS = ("vdst", "vaddr", "vdata", "saddr", "srsrc", "soffset", "sdst", "sbase", "addr")

Condition = Callable[[Frame, Instruction, dict[str, OperandPlace]], bool]
Strategy = Callable[[Frame, Instruction, dict[str, OperandPlace], IrValue], None]


class Way(NamedTuple):
    """A way to emit instructions of a space, used if all conditions hold."""

    space: str
    moves: str  # see `moves_of`
    conditions: tuple[Condition, ...]
    strategy: Strategy


def dwords(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> bool:
    """True if it moves 1, 2 or 4 dwords a lane, and no hooks do that."""
    return direct.serves(frame, rows_of(inst)) and mover(frame) is None


def at_once(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> bool:
    """True if `whole_wave` serves an access of this width."""
    return direct.serves_narrow(frame, rows_of(inst)) or dwords(frame, inst, places)


def raw(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> bool:
    """True if a buffer instruction has an offset register (offen) and no index."""
    return buffers.is_raw(inst)


def is_unobserved(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> bool:
    """True if no hooks read staged data."""
    return not frame.hooks


def by_lane(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> bool:
    """True if the instruction has a vector address or offset."""
    return "vaddr" in places


# The first row that fits an instruction is used. Rows for a whole wave also emit code for any lanes as an alternative.
WAYS = (
    Way("buffer", "plain", (raw, at_once), buffers.whole_wave),
    Way("buffer", "plain", (raw,), buffers.raw),
    Way("buffer", "plain", (), buffers.any_resource),
    Way("buffer", "to LDS", (raw, dwords, is_unobserved), buffers.whole_wave_to_lds),
    Way("buffer", "to LDS", (), buffers.to_lds),
    Way("buffer", "from LDS", (), buffers.from_lds),
    Way("buffer", "formatted", (), buffers.access_by_format),
    Way("tbuffer", "formatted", (), buffers.access_by_format),
    Way("buffer", "atomic", (), buffers.atomic),
    Way("scratch", "plain", (), scratch.plain),
    Way("scratch", "to LDS", (), scratch.to_lds),
    Way("global", "plain", (by_lane, at_once), flat.whole_wave),
    Way("global", "plain", (), flat.any_lanes),
    Way("global", "to LDS", (by_lane, dwords, is_unobserved), flat.whole_wave_to_lds),
    Way("global", "to LDS", (), flat.to_lds),
    Way("global", "atomic", (), flat.atomic),
    Way("flat", "plain", (at_once,), flat.whole_wave_flat),
    Way("flat", "plain", (), flat.flat_lanes),
    Way("flat", "atomic", (), flat.flat_atomic),
)  # fmt: skip


def moves_of(inst: Instruction) -> str:
    """Returns how an instruction moves data: "plain" is between memory and registers, byte by byte."""
    memory = inst.spec.memory
    assert memory is not None
    if memory.op == "atomic":
        return "atomic"
    if memory.format:
        return "formatted"
    if memory.lds or inst.mods.get("lds"):
        return "to LDS" if memory.op == "load" else "from LDS"
    return "plain"


def leans(inst: Instruction) -> bool:
    """True if the instruction has a lean handler: a load or store of private memory, or of a buffer without an index."""
    memory = inst.spec.memory
    if memory is None or inst.spec.encoding == "smem" or moves_of(inst) != "plain":
        return False
    return memory.space == "scratch" or (memory.space == "buffer" and not inst.mods.get("idxen"))


def begin_lean(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
    """Emits the beginning of a lean handler with checks, which leaves it in unusual cases before a check has any effect."""
    memory = inst.spec.memory
    assert memory is not None
    if frame.hooks:
        leave_unusual = scratch.leave_unusual if memory.space == "scratch" else buffers.leave_unusual
        leave_unusual(frame, inst, places, frame.exec_bits())


def emit(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
    """Emits the instruction's body."""
    memory, moves = inst.spec.memory, moves_of(inst)
    assert memory is not None
    lanes = frame.exec_bits()
    ways = (way for way in WAYS if (way.space, way.moves) == (memory.space, moves))
    way = next(way for way in ways if all(holds(frame, inst, places) for holds in way.conditions))
    way.strategy(frame, inst, places, lanes)
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), popcount(frame, lanes))


def plan(inst: Instruction, plan: Plan) -> dict[str, OperandPlace]:
    memory = inst.spec.memory
    assert memory is not None
    places: dict[str, OperandPlace] = {}
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
