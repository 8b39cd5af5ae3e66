"""HBM bytes behind an LRU model of the target's L2, replayed from what each wave of a simulated launch touched.

Assumed: workgroups are dispatched in order, CUs x occupancy of them at a time, round robin over the XCDs; those that run together
advance in step, a line of each wave in turn. Each XCD has an L2 of its own, fully associative, least recently used out first, lines
of 128 bytes. Writes allocate without a read and go to HBM once, when evicted or at the end. The figure does not depend on the
host's threads. Traces are read as they come, those of workgroups that run together at a time: a launch of any length takes the
memory of one such round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numba
import numpy as np

from simgpu.checks.line_trace import LINE_SHIFT, LineTraces
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.resources import RESERVED_SGPRS, residency

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel

LINE_BYTES = 1 << LINE_SHIFT


@dataclass(frozen=True)
class L2Traffic:
    """Bytes that L2 reads from and writes to HBM, and those that waves asked of it, in lines."""

    read: int
    written: int
    asked: int

    @property
    def hbm_bytes(self) -> int:
        return self.read + self.written


class L2Model:
    """Reads the traces of launches (`line_trace.Reader`) as they come."""

    def __init__(self, descriptor: HardwareDescriptor, together: Mapping[str, int]) -> None:
        self.descriptor = descriptor
        self.together = together  # workgroups that reside at once, by kernel name
        self.capacity = descriptor.l2_bytes // LINE_BYTES
        self.launches: list[L2Traffic] = []  # of each launch, from an empty cache

    @classmethod
    def of(cls, kernel: EmittedKernel, descriptor: HardwareDescriptor) -> L2Model:
        """For the launches of an emitted kernel: as many workgroups as registers and LDS let reside."""
        return cls(descriptor, {step.name: _resident(step, descriptor) for step in kernel.steps})

    def begin(self, kernel: str, lines: int) -> int:
        self.asked = 0
        self.caches = [_Cache.of(lines) for _ in range(self.descriptor.xcds)]
        return self.together[kernel]

    def read(self, traces: LineTraces) -> None:
        self.asked += int(traces.counts.sum())
        for xcd, cache in enumerate(self.caches):
            _replay(traces.lines, traces.counts, traces.waves, traces.first, xcd, len(self.caches), self.capacity, *cache)

    def end(self) -> None:
        written = sum(int(c.tally[DIRTY]) + _held_dirty(c.before, c.state) for c in self.caches)
        read = sum(int(c.tally[MISSES]) for c in self.caches)
        self.launches.append(L2Traffic(read * LINE_BYTES, written * LINE_BYTES, self.asked * LINE_BYTES))
        self.caches = []


def _resident(kernel: EmittedKernel, descriptor: HardwareDescriptor) -> int:
    used = kernel.resources
    waves = -(-kernel.block[0] // descriptor.wavefront_size)
    _, blocks = residency(descriptor, used.vgprs, used.agprs, used.sgprs + RESERVED_SGPRS, used.lds, waves)
    return descriptor.num_cus * max(1, blocks)


HELD, MISSES, DIRTY, TALLIES = range(4)


class _Cache(NamedTuple):
    """Lines in the order of their use: a ring through its last place, the newest line behind that.

    Only lines that were touched take memory.
    """

    after: np.ndarray  # the next line of the ring, by line
    before: np.ndarray  # the one before
    state: np.ndarray  # of a line: 0 absent, 1 clean, 2 dirty
    tally: np.ndarray  # lines held, read misses, dirty lines evicted

    @classmethod
    def of(cls, lines: int) -> _Cache:
        after, before = (np.zeros(lines + 1, np.int32) for _ in range(2))
        after[lines] = before[lines] = lines
        return cls(after, before, np.zeros(lines, np.uint8), np.zeros(TALLIES, np.int64))


@numba.njit(cache=True)
def _replay(lines, counts, waves, first, xcd, xcds, capacity, after, before, state, tally):  # type: ignore[no-untyped-def]
    """The workgroups of one XCD, in step: a line of each wave in turn."""
    size, groups = len(state), len(counts) // waves
    held, misses, dirty = tally[HELD], tally[MISSES], tally[DIRTY]
    longest = counts.max()
    for at in range(longest):
        for group in range((xcd - first) % xcds, groups, xcds):
            for row in range(group * waves, (group + 1) * waves):
                if at >= counts[row]:
                    continue
                key = lines[row, at]
                line, written = key >> 1, key & 1
                if state[line]:
                    after[before[line]], before[after[line]] = after[line], before[line]
                else:
                    misses += written == 0
                    held += 1
                    state[line] = 1
                if written:
                    state[line] = 2
                newest = after[size]
                after[size], before[line], after[line], before[newest] = line, size, newest, line
                if held > capacity:
                    oldest = before[size]
                    before[size], after[before[oldest]] = before[oldest], size
                    dirty += state[oldest] == 2
                    state[oldest] = 0
                    held -= 1
    tally[HELD], tally[MISSES], tally[DIRTY] = held, misses, dirty


@numba.njit(cache=True)
def _held_dirty(before, state):  # type: ignore[no-untyped-def]
    """Dirty lines that are in the cache at the end."""
    dirty, line = 0, before[len(state)]
    while line != len(state):
        dirty += state[line] == 2
        line = before[line]
    return dirty
