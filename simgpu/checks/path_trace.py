"""Traces each wave of a workgroup in program order: jumps, cache lines of memory accesses, clocks of LDS accesses.

This check is not one of `CHECKS`: `simgpu.sampling` uses it to run sampled workgroups, one at a time. Code between two jumps is
fixed, so only jumps and accesses are recorded, and all other handlers are those of plain mode.

A wave's stream ends when it is full or after `PathBlock.keep` records. Later instructions are only counted. A stream holds u32
words: kind << 30 | record, then by kind

    JUMP    the target record
    LDS     clocks for which the access occupies the banks, in bytes as below
    MEMORY  clocks of address coalescing and lines, in bytes as below; then that many numbers of 64-byte lines, as addresses
            count them
    END     nothing: the wave's last instruction

The bytes of the word after LDS and MEMORY, the highest first: clocks; clocks of an access of as many lanes without bank
conflicts, or to consecutive addresses; its lines; lines (both 0 for LDS). The highest bit is set if all lanes want the same
address in memory.
"""

from __future__ import annotations

from ctypes import Structure, addressof, c_int64, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.checks.performance import lost_clocks, rule_of, rules_of
from simgpu.engine.allocations import ALIGNMENT, FIRST_ADDRESS
from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, Status
from simgpu.machine.runtime import load32, part, runtime, store32, structure, words
from simgpu.machine.trace_buffer import TraceBuffer, TraceMemory, reserve
from simgpu.machine.values import I64
from simgpu.memory.lane_copy import constant
from simgpu.timing.trace import END, JUMP, LDS, MEMORY

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

LINE_SHIFT = 6  # log2 of the smallest line of the vector caches
ROOM = 1 << 22  # most words of a wave's stream; the host allocates its pages when they are touched
WORD = 4  # bytes of a stream's word
(BLOCK,) = context_fields("path_trace", 1)  # address of the worker's PathBlock
DISTINCT = 4 * LANES + 64  # i64 of scratch space for `lost_clocks`: distinct dwords of an access, and banks


class PathBlock(Structure):
    """Addresses by which handlers find a worker's memory."""

    _fields_ = (
        ("tallies", c_int64),  # address of a PathTally for each wave
        ("keep", c_int64),  # records that a wave steps over before its stream ends
        ("limit", c_int64),  # records that a wave steps over before it stops itself
        ("rules", c_int64),  # address of `performance.rules_of`
        ("scratch", c_int64 * DISTINCT),  # for `lost_clocks`
    )


class PathTally(Structure):
    """Progress of a wave."""

    _fields_ = (
        ("stream", TraceBuffer),
        ("steps", c_int64),  # records stepped over
        ("at", c_int64),  # record where its current straight-line code began
        ("ended", c_int64),  # 1 if it ended
        ("closed", c_int64),  # `steps` when its stream ended, 0 while it is open
    )


PATH_BLOCK, PATH_TALLY = np.dtype(PathBlock), np.dtype(PathTally)
TALLY_BYTES = sizeof(PathTally)


@part
def block_of(wave: int) -> Any:
    """Returns the worker's block."""
    return structure(context(wave, BLOCK), PATH_BLOCK)


@part
def tally_of(block: Any, wave: int) -> Any:
    """Returns the wave's tally."""
    return structure(block.tallies + TALLY_BYTES * load32(wave + layout.WAVE_ID), PATH_TALLY)


@part
def put(stream: Any, word: int) -> None:
    """Appends a word."""
    at = reserve(stream, WORD)
    if at:
        store32(at, word)


@runtime
def note_jump(wave: int, index: int, target: int) -> int:
    """Appends a jump. Returns 1 if the wave has reached its limit."""
    block = block_of(wave)
    tally = tally_of(block, wave)
    steps = tally.steps + index - tally.at + 1
    tally.steps = steps
    tally.at = target
    if tally.closed == 0:
        put(tally.stream, JUMP << 30 | index)
        put(tally.stream, target)
        if steps > block.keep or tally.stream.used > tally.stream.room:
            tally.closed = steps
    return 1 if steps > block.limit else 0


@runtime
def note_end(wave: int, index: int) -> None:
    """Appends the wave's end."""
    tally = tally_of(block_of(wave), wave)
    tally.steps += index - tally.at + 1
    tally.ended = 1
    if tally.closed == 0:
        put(tally.stream, END << 30 | index)


@runtime
def note_lds(wave: int, index: int, lanes: int, size: int, write: int) -> None:
    """Appends an access to LDS. size: bytes a lane."""
    block = block_of(wave)
    tally = tally_of(block, wave)
    if tally.closed != 0:
        return
    offsets = words(wave + layout.ADDRESSES, LANES)
    dwords = max(1, size >> 2)
    rule = rule_of(block.rules, write, dwords)
    phases = 0
    for lane in range(LANES):
        if lanes >> lane & 1:
            phases |= 1 << rule.phases[lane]
    served = 0
    while phases:
        phases &= phases - 1
        served += 1
    put(tally.stream, LDS << 30 | index)
    put(tally.stream, served + lost_clocks(rule, offsets, lanes, dwords, block.scratch) << 24 | served << 16)


@part
def group_clocks(offsets: np.ndarray, lanes: int, first: int, count: int, base: int, size: int) -> int:
    """Returns the clocks that the coalescer takes for the addresses of `count` lanes from `first` on. size: bytes a lane.

    Lanes in one 64-byte line take one clock. Otherwise there are four clocks for each distinct dword of the bank with the most
    of them (16 banks), and at least one for each line, up to seven lines. The maximum is one clock a lane. Source:
    te42kyfo/gpu-benches, gpu-strides on MI210.

    Both lines of an access that crosses from one to the next count. Consecutive lanes take one clock a line, wherever they
    begin. Source: ROCm's seismic stencils on MI250X; the stencil along y with nine loads off a line's start takes at most 10
    clocks an access.
    """
    lines = low = deepest = served = lowest = highest = 0
    banks = 0  # for each of 16 banks, 4 bits: the number of distinct dwords in it
    for lane in range(first, first + count):
        if not lanes >> lane & 1:
            continue
        if served == 0:
            lowest = highest = base + offsets[lane]
        lowest, highest = min(lowest, base + offsets[lane]), max(highest, base + offsets[lane])
        line, last = (base + offsets[lane]) >> LINE_SHIFT, (base + offsets[lane] + size - 1) >> LINE_SHIFT
        bank = (base + offsets[lane]) >> 2 & 15
        if served == 0 or line < low:
            low = line
        new, cut = True, last > line  # an unaligned access may be in two lines
        for other in range(first, lane):
            if lanes >> other & 1:
                start, end = (base + offsets[other]) >> LINE_SHIFT, (base + offsets[other] + size - 1) >> LINE_SHIFT
                new = new and start != line and end != line
                cut = cut and start != last and end != last
        lines += (1 if new else 0) + (1 if cut else 0)
        fresh = True  # lanes that want the same dword share it
        for other in range(first, lane):
            if lanes >> other & 1 and (base + offsets[other]) >> 2 == (base + offsets[lane]) >> 2:
                fresh = False
                break
        if fresh:
            depth = min((banks >> 4 * bank & 15) + 1, 15)
            banks = banks & ~(15 << 4 * bank) | depth << 4 * bank
            deepest = max(deepest, depth)
        served += 1
    if lines <= 1:
        return min(served, 1)
    if highest - lowest == (served - 1) * size:
        return lines
    return min(count, max(min(lines, 7), 4 * deepest))


@runtime
def note_memory(wave: int, index: int, lanes: int, size: int, base: int) -> None:
    """Appends an access to memory. base: aligned address of the allocation minus the device's first address. size: bytes a lane."""
    tally = tally_of(block_of(wave), wave)
    if tally.closed != 0:
        return
    offsets = words(wave + layout.ADDRESSES, LANES)
    together = 16 if size <= 4 else 4  # lanes that pass in a clock at best (gpu-strides: float and double)
    clocks = least = active = several = leader = 0
    for first in range(0, LANES, together):
        clocks += group_clocks(offsets, lanes, first, together, base, size)
        served = 0
        for lane in range(first, first + together):
            if not lanes >> lane & 1:
                continue
            leader = offsets[lane] if active + served == 0 else leader
            several |= 1 if offsets[lane] != leader else 0
            served += 1
        least += 1 if served else 0
        active += served
    stream = tally.stream
    put(stream, MEMORY << 30 | index)
    head, first = reserve(stream, WORD), stream.address + stream.used
    most = (stream.room - stream.used) >> 2  # lines that fit
    count = 0
    for lane in range(LANES):
        if not lanes >> lane & 1:
            continue
        start = base + offsets[lane]
        for line in range(start >> LINE_SHIFT, ((start + size - 1) >> LINE_SHIFT) + 1):
            known = False
            held = max(0, min(count, most))
            for at in range(held - 1, -1, -1):
                if load32(first + WORD * at) == line:
                    known = True
                    break
            if not known:
                put(stream, line)
                count += 1
    if head:
        fewest = min(count, (active * size + (1 << LINE_SHIFT) - 1) >> LINE_SHIFT)
        uniform = 0 if several or active < 2 else 1
        store32(head, uniform << 31 | clocks << 24 | least << 16 | fewest << 8 | count)


@dataclass(frozen=True)
class PathStorage:
    """Memory of a worker."""

    tallies: np.ndarray  # (waves,) PATH_TALLY
    streams: TraceMemory  # u32 words of the waves' streams
    rules: np.ndarray  # `performance.rules_of`
    block: PathBlock

    def begin(self, entry: int, keep: int, limit: int) -> None:
        """Clears the traces for a workgroup that begins at record `entry`. keep, limit: see `PathBlock`."""
        self.streams.clear()
        for name in ("steps", "ended", "closed"):
            self.tallies[name] = 0
        self.tallies["at"] = entry
        self.block.keep, self.block.limit = keep, limit


class PathTrace(Check):
    """Traces the waves of one workgroup at a time. `PathStorage.begin` starts a trace."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.kind == "control" or (inst.spec.memory is not None and inst.spec.encoding != "smem")

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        build = frame.build
        enough = note_jump.call(build, frame.wave, build.zext(index, I64), build.zext(target, I64))
        with build.if_then(build.icmp_signed("!=", enough, ir.Constant(I64, 0)), likely=False):
            frame.exit(Status.PATH, target)
            build.ret_void()

    def end(self, frame: Frame, index: Any) -> None:
        note_end.call(frame.build, frame.wave, frame.build.zext(index, I64))

    def access(self, frame: Frame, access: Access) -> None:
        if access.lanes is None:
            return
        build = frame.build
        frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
        index = build.zext(frame.slot(layout.SLOT_INDEX), I64)
        if access.space != "global":
            note_lds.call(build, frame.wave, index, access.lanes, access.size, int(access.writes))
            return
        base = build.sub(frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8), constant(FIRST_ADDRESS))
        base = build.and_(base, constant(-ALIGNMENT))  # the host's own memory begins anywhere
        note_memory.call(build, frame.wave, index, access.lanes, access.size, base)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        rules, tallies = rules_of(launch.arch), np.zeros(launch.waves, PATH_TALLY)
        streams = TraceMemory(tallies["stream"], ROOM, np.uint32)
        block = PathBlock(tallies=tallies.ctypes.data, rules=rules.ctypes.data)
        worker.checks["path_trace"] = PathStorage(tallies, streams, rules, block)
        worker.set_context(BLOCK, addressof(block))
