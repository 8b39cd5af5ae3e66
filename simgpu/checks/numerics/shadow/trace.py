"""Records the vector, matrix and memory instructions of a workgroup's waves, with the values of their operands and results.

No suite has this check: `replay` puts it on a device for one workgroup. The trace is u32 words, in consecutive parts:

    BEGIN   record, wave, EXEC (two words)
    ROW     type (of `TYPES`), 1 for a result, 64 values of one word, or of two for types of 64 bits
    LANES   64 words: for each lane, the lane that its DPP operand comes from
    ACCESS  bytes a lane, space (0 memory, 1 LDS), lanes (two words), the allocation's address (two), 64 offsets (two words each)
    END     count of written registers, then the number and 64 values of each
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_int64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.alu.dpp import permute
from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.lane import Value
from simgpu.hardware.isa.types import Type
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.mode import Mode
from simgpu.machine.runtime import copy, load32, part, runtime, store32, store64, structure
from simgpu.machine.trace_buffer import TraceBuffer, TraceMemory, reserve
from simgpu.machine.values import I32, I64
from simgpu.machine.wave_frame import ROW32
from simgpu.matrix.fragments import stack

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

BEGIN, ROW_PART, LANES_PART, ACCESS, END = range(1, 6)
TYPES: tuple[Type, ...] = tuple(value for value in vars(t).values() if isinstance(value, Type))
ROOM = 1 << 28  # most words of a trace; memory is used only as they fill
(BLOCK,) = context_fields("shadow", 1)  # address of the worker's ShadowBlock
REGISTERS = 512  # v0 to v255, a0 to a255


class ShadowBlock(Structure):
    """Addresses by which handlers find a worker's memory."""

    _fields_ = (
        ("trace", TraceBuffer),
        ("writes", c_int64),  # address of an i32 for each register that a record writes, record by record
        ("first_write", c_int64),  # address of an i32 for each record: the start of its registers there
    )


SHADOW_BLOCK = np.dtype(ShadowBlock)


@part
def block_of(wave: int) -> Any:
    """Returns the worker's block."""
    return structure(context(wave, BLOCK), SHADOW_BLOCK)


@runtime
def put_begin(wave: int, record: int, lanes: int) -> None:
    """Appends the beginning of an instruction."""
    at = reserve(block_of(wave).trace, 4 * 5)
    if at:
        store32(at, BEGIN)
        store32(at + 4, record)
        store32(at + 8, load32(wave + layout.WAVE_ID))
        store64(at + 12, lanes)


@runtime
def put_row(wave: int, part: int, kind: int, result: int, rows: int, words: int) -> None:
    """Appends 64 values. part: ROW_PART, or LANES_PART, which has neither type nor result. kind: index in TYPES. rows: the values'
    address. words: all values' number of words."""
    head = 3 if part == ROW_PART else 1
    at = reserve(block_of(wave).trace, 4 * (head + words))
    if at:
        store32(at, part)
        if head == 3:
            store32(at + 4, kind)
            store32(at + 8, result)
        copy(at + 4 * head, rows, 4 * words)


@runtime
def put_access(wave: int, size: int, space: int, lanes: int, base: int) -> None:
    """Appends an access whose offsets are in the wave's ADDRESSES. space: 0 memory, 1 LDS. base: the allocation's address."""
    at = reserve(block_of(wave).trace, 4 * (7 + 2 * LANES))
    if at:
        store32(at, ACCESS)
        store32(at + 4, size)
        store32(at + 8, space)
        store64(at + 12, lanes)
        store64(at + 20, base)
        copy(at + 28, wave + layout.ADDRESSES, 8 * LANES)


@runtime
def put_end(wave: int, record: int) -> None:
    """Appends the instruction's end: the vector registers that it wrote, with their contents."""
    block = block_of(wave)
    first, following = load32(block.first_write + 4 * record), load32(block.first_write + 4 * (record + 1))
    count = following - first
    at = reserve(block.trace, 4 * (2 + count * (1 + LANES)))
    if at:
        store32(at, END)
        store32(at + 4, count)
        for number in range(count):
            register = load32(block.writes + 4 * (first + number))
            place = at + 8 + 4 * number * (1 + LANES)
            store32(place, register)
            copy(place + 4, wave + layout.VGPR + ROW * register, ROW)


@dataclass(frozen=True)
class ShadowStorage:
    """Memory of a worker."""

    trace: TraceMemory
    block: np.ndarray  # one SHADOW_BLOCK
    writes: np.ndarray  # registers that records write, an i32 each
    first: np.ndarray  # start of each record's registers in `writes`


class ShadowTrace(Check):
    """Check that records the trace of this module's description."""

    def concerns(self, inst: Instruction) -> bool:
        spec = inst.spec
        if spec.memory is not None:
            return spec.encoding != "smem"
        return spec.kind != "control" and not spec.encoding.startswith("sop")

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        record = frame.slot(layout.SLOT_INDEX).zext(I64)
        put_begin.call(frame.build, frame.wave, record, frame.exec_bits())
        if inst.form == "dpp":
            numbers = frame.value(ir.Constant(ROW32, list(range(LANES))))
            lanes, _ = permute(frame, numbers, inst.mods, frame.exec_bits())
            self._row(frame, LANES_PART, 0, 0, lanes)

    def on_result(self, frame: Frame, mode: Mode, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        for values, result in ((arguments, 0), (results, 1)):
            for value in flat(values):
                raw = frame.value(value.ops._vector(value.raw))  # type: ignore[attr-defined]
                wide = ir.IntType(64 if value.type.bits == 64 else 32)
                integer = ir.VectorType(ir.IntType(raw.type.element.width) if not raw.is_float else wide, LANES)
                bits = raw if raw.type == integer else raw.bitcast(integer)
                bits = bits if integer.element == wide else bits.zext(wide)
                self._row(frame, ROW_PART, TYPES.index(value.type), result, bits)

    @staticmethod
    def _row(frame: Frame, part: int, kind: int, result: int, bits: Any) -> None:
        words = LANES * bits.type.element.width // 32
        place = stack(frame, 4 * words)
        place.store(bits, 64)
        put_row.call(frame.build, frame.wave, part, kind, result, place, words)

    def access(self, frame: Frame, access: Access) -> None:
        if access.lanes is None:
            return
        frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
        base: Any = 0
        if access.entry is not None:
            base = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
        put_access.call(frame.build, frame.wave, access.size, int(access.space == "lds"), access.lanes, base)

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        put_end.call(frame.build, frame.wave, frame.slot(layout.SLOT_INDEX, I32).zext(I64))

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        program = launch.program
        first = np.zeros(program.count + 2, np.int32)
        writes: list[int] = []
        for index in range(program.count + 1):
            first[index] = len(writes)
            if index in program.instructions:
                effect = program.effect(index)
                named = (r for r in effect.access.writes | effect.pending if isinstance(r, tuple) and r[0] in ("v", "a"))
                writes += sorted(register + 256 * (file == "a") for file, register in named)
        first[-1] = len(writes)
        listed = np.array(writes, np.int32)
        block = np.zeros(1, SHADOW_BLOCK)
        block["writes"], block["first_write"] = listed.ctypes.data, first.ctypes.data
        trace = TraceMemory(block["trace"], ROOM, np.uint32)
        worker.checks["shadow"] = ShadowStorage(trace, block, listed, first)
        worker.set_context(BLOCK, block.ctypes.data)


def flat(given: Sequence[Any]) -> list[Value]:
    """Returns the values in nested tuples, in order."""
    found: list[Value] = []
    for value in given:
        if isinstance(value, tuple):
            found += flat(value)
        elif isinstance(value, Value):
            found.append(value)
    return found
