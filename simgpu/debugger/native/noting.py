"""What the waves of a workgroup execute and access, in order: the jumps, EXEC and the addresses, noted natively in one run.

Between two jumps a wave executes what lies there, so these say which instruction any number of retired instructions is, which
lanes it served, and which bytes it read and wrote. Values are not noted: a replay has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.debugger.native.clock import focused
from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import copy, load32, load64, part, runtime, store64
from simgpu.machine.values import I64

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

(BLOCK,) = context_fields("flow", 1)  # address of the worker's block; its words:
STREAMS, ROOM, TALLIES, CLOCK = range(4)  # of the streams: address, words of each; their lengths; events so far
TOTAL = 1 << 27  # words of all streams, memory only as they fill
JUMP, EXEC, ACCESS = range(3)
HEAD = 3  # words of an event: kind << 32 | record, and two more; of an access, the lanes' addresses follow
SPACES = ("global", "scalar", "lds")


@part
def put(wave: int, first: int, second: int, third: int, addresses: int) -> None:
    """Append an event to the stream of a wave in focus; what does not fit is counted only."""
    if focused(wave) == 0:
        return
    block, number = context(wave, BLOCK), load32(wave + layout.WAVE_ID)
    room, tally = load64(block + 8 * ROOM), load64(block + 8 * TALLIES) + 8 * number
    used, count = load64(tally), HEAD + LANES * addresses
    if used + count <= room:
        at = load64(block + 8 * STREAMS) + 8 * (number * room + used)
        store64(at, first)
        store64(at + 8, second)
        store64(at + 16, third)
        if addresses:
            copy(at + 8 * HEAD, wave + layout.ADDRESSES, 8 * LANES)
    store64(tally, used + count)


@runtime
def note(wave: int, first: int, second: int, third: int) -> None:
    """Appends a jump, or what EXEC became."""
    put(wave, first, second, third, 0)


@runtime
def note_access(wave: int, first: int, lanes: int, how: int) -> None:
    """Appends an access with the lanes' addresses, and its number among all waves'."""
    block = context(wave, BLOCK)
    number = load64(block + 8 * CLOCK) + 1
    store64(block + 8 * CLOCK, number)
    put(wave, first, lanes, how | number << 24, 1)


class Flow(Check):
    """Notes what waves do; of a debugger's device."""

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
        room = TOTAL // launch.waves
        streams, tallies = np.empty((launch.waves, room), np.int64), np.zeros(launch.waves, np.int64)
        block = np.array([streams.ctypes.data, room, tallies.ctypes.data, 0], np.int64)
        worker.checks["flow"] = streams, tallies, block
        worker.set_context(BLOCK, block.ctypes.data)
