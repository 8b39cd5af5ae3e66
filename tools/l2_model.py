"""HBM bytes behind an LRU model of the target's L2, replayed from what each wave of a simulated launch touched.

Assumed: workgroups are dispatched in order, CUs x occupancy of them at a time, round robin over the XCDs; those that run together advance
in step, a line of each wave in turn. Each XCD has an L2 of its own, fully associative, least recently used out first, lines of 128 bytes.
Writes allocate without a read and go to HBM once, when evicted or at the end. The figure does not depend on the host's threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from hardware.descriptor import HardwareDescriptor
from operators.resources import residency
from simgpu.checks.lines import LINE_SHIFT, LaunchTrace

if TYPE_CHECKING:
    from asm import EmittedKernel

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


def replay(trace: LaunchTrace, descriptor: HardwareDescriptor, blocks_per_cu: int) -> L2Traffic:
    """The traffic of one launch from an empty cache."""
    together = descriptor.num_cus * max(1, blocks_per_cu)
    used = trace.counts > 0
    lines = 1 + max((int(row[:count].max()) >> 1 for row, count in zip(trace.lines[used], trace.counts[used])), default=0)
    capacity = descriptor.l2_bytes // LINE_BYTES
    read = written = 0
    for xcd in range(descriptor.xcds):
        misses, dirty = _one_cache(trace.lines, trace.counts, trace.waves, together, xcd, descriptor.xcds, capacity, lines)
        read, written = read + misses * LINE_BYTES, written + dirty * LINE_BYTES
    return L2Traffic(read, written, int(trace.counts.sum()) * LINE_BYTES)


def launch_bytes(kernel: EmittedKernel, trace: LaunchTrace, descriptor: HardwareDescriptor) -> int:
    """HBM bytes of one launch of an emitted kernel, as many workgroups at a time as its registers and LDS let reside."""
    used = kernel.resources
    _, blocks = residency(descriptor, used.vgprs, used.agprs, used.sgprs, used.lds, trace.waves)
    return replay(trace, descriptor, blocks).hbm_bytes


@numba.njit(cache=True)
def _one_cache(lines, counts, waves, together, xcd, xcds, capacity, size):  # type: ignore[no-untyped-def]
    """(read misses, lines written back) of the workgroups of one XCD."""
    after, before = np.full(size + 1, -1, np.int32), np.full(size + 1, -1, np.int32)  # a ring through `size`, newest behind it
    state = np.zeros(size, np.uint8)  # 0 absent, 1 clean, 2 dirty
    after[size] = before[size] = size
    held = misses = dirty = 0
    groups = len(counts) // waves
    position = np.zeros(together * waves, np.int64)
    for first in range(0, groups, together):
        last = min(groups, first + together)
        position[:] = 0
        active = True
        while active:
            active = False
            for group in range(first + (xcd - first) % xcds, last, xcds):
                for wave in range(waves):
                    row, slot = group * waves + wave, (group - first) * waves + wave
                    at = position[slot]
                    if at >= counts[row]:
                        continue
                    active = True
                    position[slot] = at + 1
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
    for line in range(size):
        dirty += state[line] == 2
    return misses, dirty
