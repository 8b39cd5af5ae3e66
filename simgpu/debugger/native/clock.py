"""Counts the instructions that each wave retired, only in the handlers of jumps.

In straight-line code the count follows from the wave's place, so only control transfers pay for it. `ordinal(i)` is the number
of lowered instructions before record i. A wave at record i has retired `base + ordinal(i) - ordinal(entry)`: the base is 0 at
the kernel's entry, and a jump updates it. Goals are compared with `base + ordinal(i)`.

A wave with a goal returns to Python at the jump into the straight-line code that may reach it. The debugger then knows the
instruction and stops there. In a whole launch, only the waves of the workgroup in focus have goals and stop.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.alu.control import ENDS
from simgpu.engine import workgroup
from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workers.scheduler import WorkerJob
from simgpu.engine.workgroup import context, slot_of
from simgpu.hardware.isa.code.flow import INDIRECT
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import Status
from simgpu.machine.runtime import part, runtime, structure
from simgpu.machine.values import I32, I64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.program import Program
    from simgpu.engine.workers.worker import Worker

# Context fields: addresses of the ordinals' table, of the FocusBlock and of the worker's `stop`; 1 + stops to let pass.
ORDINALS, BLOCK, STOP, PASSES = context_fields("debugger", 4)
# Wave fields: the base; 1 + record at which it continues past the points; 1 + last record with a `points.nan`, 0 if none.
BASE, GO_ON, BEFORE = wave_fields("debugger", 3)
NEVER = np.iinfo(np.int64).max
ENDINGS = (*ENDS, *INDIRECT, ControlKind.BRANCH, ControlKind.CALL)  # straight-line code ends after these


class FocusBlock(Structure):
    """Head of the block. The goals of the waves in focus follow."""

    _fields_ = (("sole", c_int64), ("group", c_int64 * 3))  # 1 if only one workgroup is in focus, 0 if all are; its id


FOCUS_BLOCK, GOALS_AT = np.dtype(FocusBlock), sizeof(FocusBlock)


@dataclass(frozen=True)
class Ordinals:
    """Lowered instructions in order."""

    order: np.ndarray  # their records
    # int32 (records + 1, 2): lowered instructions before a record; those from it to the end of its straight-line code, itself
    # included, 0 if it is not lowered
    table: np.ndarray

    @classmethod
    def of(cls, programs: Iterable[Program]) -> Ordinals:
        """Returns the ordinals of the lowered code of some programs of one module."""
        programs = tuple(programs)
        known: dict[int, Instruction] = {}
        for program in programs:
            known |= program.instructions
        order = np.array(sorted(known), np.int64)
        count = programs[0].count + 1
        table = np.zeros((count, 2), np.int32)
        flags = np.zeros(count, np.int32)
        flags[order] = 1
        table[:, 0] = np.cumsum(flags) - flags
        left = 0
        after = -1
        for at in order[::-1].tolist():
            inst = known[at]
            goes_on = inst.spec.control not in ENDINGS and at + inst.size // 4 == after
            left = left + 1 if goes_on else 1
            table[at, 1] = left
            after = at
        return cls(order, table)

    def record_after(self, record: int, count: int) -> int:
        """Returns the record `count` instructions later in the same straight-line code."""
        return int(self.order[int(self.table[record, 0]) + count])


@part
def is_focused(wave: int) -> int:
    """Returns 1 if the wave is of the workgroup in focus."""
    block = structure(context(wave, BLOCK), FOCUS_BLOCK)
    if block.sole == 0:
        return 1
    group, wanted = slot_of(wave).group, block.group
    return 1 if group[0] == wanted[0] and group[1] == wanted[1] and group[2] == wanted[2] else 0


@runtime
def in_focus(wave: int) -> int:
    """Calls `is_focused`, for handlers."""
    return is_focused(wave)


def focus_on(worker: Worker, waves: int) -> np.ndarray:
    """Gives the worker its FocusBlock, and returns it: all workgroups in focus, no goals.

    The result is an array of one record of `sole`, `group` and `goals` (one a wave). waves: number of waves in a workgroup.
    """
    workgroup.prepare(worker, waves)
    worker.checks["focus"] = block = np.zeros(1, [*FOCUS_BLOCK.descr, ("goals", np.int64, waves)])
    block["goals"] = NEVER
    worker.set_context(BLOCK, block.ctypes.data)
    worker.set_context(PASSES, 0)
    return block


class RetiredClock(Check):
    """Counts instructions that waves retire, on a debugger's device."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.kind == "control"

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        build = frame.build
        ordinals = frame.context(ORDINALS).pointer()

        def entry(record: Any, column: int) -> Any:
            return ordinals.at(frame.value(record).zext(I64) * 8).at(4 * column).load(I32).zext(I64)

        retired = frame.state(BASE, I64) + entry(index, 0) + 1
        frame.set_state(BASE, retired - entry(target, 0))
        wave = frame.state(layout.WAVE_ID).zext(I64)
        goal = frame.context(BLOCK).pointer().at(GOALS_AT).at(wave * 8).load(I64, 8)
        near = (retired + entry(target, 1)).signed > goal
        with build.if_then(near, likely=False), build.if_then(frame.value(in_focus.call(build, frame.wave)) != 0):
            frame.exit(Status.BREAK, target)
            build.ret_void()

    def end(self, frame: Frame, index: Any) -> None:
        """Makes the worker return to Python when a wave ends, so that callers can look at it."""
        frame.context(STOP).pointer().store(ir.Constant(I64, 1), 8)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        focus_on(worker, launch.waves)
        worker.set_context(STOP, ctypes.addressof(worker.job) + WorkerJob.stop.offset)
