"""A wave's stream, and how far the wave has come."""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import load32, part, runtime, store32, structure
from simgpu.machine.trace_buffer import TraceBuffer, reserve
from simgpu.timing.native.streams import END, JUMP

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
        ("patterns", c_int64),  # address of `patterns.PATTERNS` patterns
        ("line_shift", c_int64),  # log2 of the bytes of a line of the vector cache
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
