"""Notes jumps, changes of EXEC, and accesses of a workgroup's waves, in order, natively in one run.

Code between two jumps is fixed. So the notes determine the instruction at any count of retired instructions, its active lanes,
and the bytes that it read and wrote. Values are not noted: a replay has them.
"""

from __future__ import annotations

from ctypes import Structure, addressof, c_int64, sizeof
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.debugger.native.clock import is_focused
from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import copy, load32, part, runtime, store64, structure
from simgpu.machine.trace_buffer import TRACE_BUFFER, TraceBuffer, TraceMemory, reserve
from simgpu.machine.values import I64

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

(BLOCK,) = context_fields("flow", 1)  # address of the worker's FlowBlock
TOTAL = 1 << 27  # words of all streams; memory is used only as they fill
JUMP, EXEC, ACCESS = range(3)
HEAD = 3  # words of an event: kind << 32 | record, and two more; an access has 64 addresses after them
SPACES = ("global", "scalar", "lds")


class FlowBlock(Structure):
    """Addresses by which handlers find a worker's memory."""

    _fields_ = (("streams", c_int64), ("clock", c_int64))  # address of a TraceBuffer for each wave; accesses so far


FLOW_BLOCK, STREAM_BYTES = np.dtype(FlowBlock), sizeof(TraceBuffer)


@part
def block_of(wave: int) -> Any:
    """Returns the worker's block."""
    return structure(context(wave, BLOCK), FLOW_BLOCK)


@part
def put(wave: int, first: int, second: int, third: int, addresses: int) -> None:
    """Appends an event to the stream of a wave in focus."""
    if is_focused(wave) == 0:
        return
    stream = structure(block_of(wave).streams + STREAM_BYTES * load32(wave + layout.WAVE_ID), TRACE_BUFFER)
    at = reserve(stream, 8 * (HEAD + LANES * addresses))
    if at:
        store64(at, first)
        store64(at + 8, second)
        store64(at + 16, third)
        if addresses:
            copy(at + 8 * HEAD, wave + layout.ADDRESSES, 8 * LANES)


@runtime
def note(wave: int, first: int, second: int, third: int) -> None:
    """Appends a jump (second: target record) or a write of EXEC (second: the new value)."""
    put(wave, first, second, third, 0)


@runtime
def note_access(wave: int, first: int, lanes: int, how: int) -> None:
    """Appends an access with the addresses in the wave's ADDRESSES, and its number among all waves' accesses.

    how: bytes a lane, | index in SPACES << 16 | reads << 20 | writes << 21.
    """
    block = block_of(wave)
    block.clock += 1
    put(wave, first, lanes, how | block.clock << 24, 1)


class FlowNotes(Check):
    """Notes jumps, EXEC and accesses, on a debugger's device."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.kind in ("control", "memory") or inst.spec.memory is not None or "exec" in effect_of(inst).access.writes

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        build = frame.build
        note.call(build, frame.wave, build.zext(index, I64), build.zext(target, I64), 0)

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if "exec" in effect_of(inst).access.writes:
            note.call(frame.build, frame.wave, self._head(frame, EXEC), frame.exec_bits(), 0)

    def _head(self, frame: Frame, kind: int) -> Any:
        return frame.value(frame.build.zext(frame.slot(layout.SLOT_INDEX), I64)) | kind << 32

    def access(self, frame: Frame, access: Access) -> None:
        where = frame.at(frame.wave, layout.ADDRESSES)
        base: Any = ir.Constant(I64, 0)
        if access.entry is not None:
            base = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
        offsets = frame.value(access.offsets)
        where.store((offsets + base) if not offsets.lanes else offsets + frame.splat(base), align=8)
        lanes = ir.Constant(I64, 1) if access.lanes is None else access.lanes
        how = access.size | SPACES.index(access.space) << 16 | int(access.reads) << 20 | int(access.writes) << 21
        note_access.call(frame.build, frame.wave, self._head(frame, ACCESS), lanes, how)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        streams = TraceMemory(np.zeros(launch.waves, TRACE_BUFFER), TOTAL // launch.waves, np.int64)
        block = FlowBlock(streams=streams.headers.ctypes.data)
        worker.checks["flow"] = streams, block
        worker.set_context(BLOCK, addressof(block))
