"""Hooks of the check, and a worker's memory for it."""

from __future__ import annotations

from ctypes import addressof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.checks.path_trace.accesses import note_lds, note_memory, note_scalar
from simgpu.checks.path_trace.patterns import ACCESS_PATTERN, PATTERNS
from simgpu.checks.path_trace.tally import BLOCK, PATH_TALLY, ROOM, PathBlock, note_end, note_jump
from simgpu.checks.performance import rules_of
from simgpu.engine.allocations import ALIGNMENT, FIRST_ADDRESS
from simgpu.engine.check import Check
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import Status
from simgpu.machine.trace_buffer import TraceMemory
from simgpu.machine.values import I64
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker


@dataclass(frozen=True)
class PathStorage:
    """Memory of a worker."""

    tallies: np.ndarray  # (waves,) PATH_TALLY
    streams: TraceMemory  # u32 words of the waves' streams
    rules: np.ndarray  # `performance.rules_of`
    patterns: np.ndarray  # (PATTERNS,) ACCESS_PATTERN
    block: PathBlock

    def begin(self, entry: int, keep: int, limit: int) -> None:
        """Clears the traces for a workgroup that begins at record `entry`. keep, limit: see `PathBlock`."""
        self.streams.clear()
        for name in ("steps", "ended", "closed"):
            self.tallies[name] = 0
        self.tallies["at"] = entry
        self.block.keep, self.block.limit = keep, limit


class PathTrace(Check):
    """Traces the waves of one workgroup at a time. `PathStorage.begin` starts a trace.

    values: False to leave out matrix instructions whose results reach only stored data; `Program.demands` names them.
    """

    def __init__(self, values: bool = True) -> None:
        self.values = values

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.kind == "control" or inst.spec.memory is not None

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        build = frame.build
        enough = note_jump.call(build, frame.wave, build.zext(index, I64), build.zext(target, I64))
        with build.if_then(build.icmp_signed("!=", enough, ir.Constant(I64, 0)), likely=False):
            frame.exit(Status.PATH, target)
            build.ret_void()

    def end(self, frame: Frame, index: Any) -> None:
        note_end.call(frame.build, frame.wave, frame.build.zext(index, I64))

    def access(self, frame: Frame, access: Access) -> None:
        build = frame.build
        index = build.zext(frame.slot(layout.SLOT_INDEX), I64)
        if access.lanes is None:
            note_scalar.call(build, frame.wave, index, build.add(access.offsets, _base(frame, access)), access.size)
            return
        frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
        if access.space != "global":
            note_lds.call(build, frame.wave, index, access.lanes, access.size, int(access.writes))
            return
        note_memory.call(build, frame.wave, index, access.lanes, access.size, _base(frame, access))

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        rules, tallies = rules_of(launch.arch), np.zeros(launch.waves, PATH_TALLY)
        streams = TraceMemory(tallies["stream"], ROOM, np.uint32)
        patterns = np.zeros(PATTERNS, ACCESS_PATTERN)
        shift = pipelines(launch.arch).cache_line.bit_length() - 1
        block = PathBlock(
            tallies=tallies.ctypes.data, rules=rules.ctypes.data, patterns=patterns.ctypes.data, line_shift=shift
        )  # fmt: skip
        worker.checks["path_trace"] = PathStorage(tallies, streams, rules, patterns, block)
        worker.set_context(BLOCK, addressof(block))


def _base(frame: Frame, access: Access) -> Any:
    """Returns the aligned address of an access's allocation minus the device's first address; the host's own memory begins
    anywhere."""
    address = frame.build.sub(frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8), constant(FIRST_ADDRESS))
    return frame.build.and_(address, constant(-ALIGNMENT))
