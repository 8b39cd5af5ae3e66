"""Accesses to LDS and memory, appended to a wave's stream."""

from __future__ import annotations

from simgpu.checks.path_trace.patterns import begin_pattern, find_lds, find_memory, fits, pattern_of
from simgpu.checks.path_trace.tally import LINE_SHIFT, WORD, block_of, put, tally_of
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import runtime, store32, words
from simgpu.machine.trace_buffer import reserve
from simgpu.timing.native.streams import LDS, MEMORY


@runtime
def note_lds(wave: int, index: int, lanes: int, size: int, write: int) -> None:
    """Appends an access to LDS. size: bytes a lane."""
    block = block_of(wave)
    tally = tally_of(block, wave)
    if tally.closed != 0:
        return
    offsets, pattern = words(wave + layout.ADDRESSES, LANES), pattern_of(block.patterns, wave, index, WORD)
    if not fits(pattern, index, lanes, size, WORD, offsets, 0):
        begin_pattern(pattern, index, lanes, size, WORD, offsets, 0)
        find_lds(pattern, block.rules, write, block.scratch)
    put(tally.stream, LDS << 30 | index)
    put(tally.stream, pattern.packed)


@runtime
def note_scalar(wave: int, index: int, start: int, size: int) -> None:
    """Appends an access to scalar memory. start: address minus the device's first address."""
    tally = tally_of(block_of(wave), wave)
    if tally.closed != 0:
        return
    first = start >> LINE_SHIFT
    count = ((start + size - 1) >> LINE_SHIFT) + 1 - first
    put(tally.stream, MEMORY << 30 | index)
    put(tally.stream, count << 8 | count)
    for line in range(count):
        put(tally.stream, first + line)


@runtime
def note_memory(wave: int, index: int, lanes: int, size: int, base: int) -> None:
    """Appends an access to memory. base: aligned address of the allocation minus the device's first address. size: bytes a lane."""
    block = block_of(wave)
    tally = tally_of(block, wave)
    if tally.closed != 0:
        return
    line = 1 << block.line_shift
    offsets, pattern = words(wave + layout.ADDRESSES, LANES), pattern_of(block.patterns, wave, index, line)
    if not fits(pattern, index, lanes, size, line, offsets, base):
        begin_pattern(pattern, index, lanes, size, line, offsets, base)
        find_memory(pattern, block.line_shift)
    stream, lines, starts = tally.stream, pattern.lines, pattern.starts
    moved = (base + offsets[pattern.leader] - starts[pattern.leader]) >> LINE_SHIFT
    put(stream, MEMORY << 30 | index)
    put(stream, pattern.packed)
    count = pattern.count
    room = (stream.room - stream.used) // WORD  # lines that fit; negative if the stream is full
    first = reserve(stream, 0)
    stream.used += WORD * count
    if first:
        for at in range(min(count, room)):
            store32(first + WORD * at, lines[at] + moved)
