"""Which cache lines of device memory each wave touches, in its own order: what a cache model replays.

Not one of `CHECKS`: `traced_device` makes a device whose checks are this alone. A launch runs as many
workgroups at a time as the reader of the traces wants, in dispatch order, and the next ones use the same memory. A small
direct-mapped filter a wave stands for the vector L1 cache, so that the neighbouring accesses to a line that coalescing and L1 serve
are one entry.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from simgpu.engine.allocations import FIRST_ADDRESS
from simgpu.engine.check import Check
from simgpu.engine.device import Device
from simgpu.engine.finding import Finding
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import Access
from simgpu.machine.runtime import load32, load64, runtime, store32, store64
from simgpu.machine.values import I64
from simgpu.memory.lane_copy import constant

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch
    from simgpu.engine.workers.worker import Worker

LINE_SHIFT = 7  # lines of 128 bytes: L2's on gfx90a to gfx950 (ROCm Compute Profiler); sources disagree on gfx908's
FILTER = 128  # lines that a wave's filter holds: 16 KiB, the vector L1 of gfx908 and gfx90a (AMD ROCm gpu-arch-specs)
CAPACITY = 1 << 20  # lines of a wave
# Bytes for the lines of all waves traced at a time, memory only as they fill: with many waves, fewer lines each.
ADDRESS_SPACE = 8 << 30
(BLOCK,) = context_fields("line_trace", 1)  # address of the launch's block; its words:
LINES, COUNTS, FILTERS, ROOM, GRID_X, GRID_Y, WAVES, FIRST, WORDS = range(9)


@dataclass(frozen=True)
class LineTraces:
    """Lines of some workgroups of a launch. lines: (waves, room) of line · 2 + 1 where written, lines counted from the device's
    first address; counts: of each wave; first: number of the first workgroup, in dispatch order; waves: of a workgroup. Wave w of
    workgroup g is row (g - first) · waves + w; rows behind the launch's last workgroup have no lines."""

    lines: np.ndarray
    counts: np.ndarray
    first: int
    waves: int


class Reader(Protocol):
    """What takes the traces as they come, so that those of a whole launch need not be held."""

    def begin(self, kernel: str, lines: int) -> int:
        """A launch begins; lines: of the device's address space. Returns how many workgroups to trace at a time."""

    def read(self, traces: LineTraces) -> None:
        """The next workgroups in dispatch order; the arrays are used again afterwards."""

    def end(self) -> None:
        """The launch ended."""


@runtime
def note(wave: int, base: int, lanes: int, how: int, offsets: int) -> None:
    """Appends the lines of an access; how: bytes a lane · 2, + 1 for a write; base: line bytes of the allocation."""
    block, place = context(wave, BLOCK), slot_of(wave).group
    grid_x, grid_y = load64(block + 8 * GRID_X), load64(block + 8 * GRID_Y)
    group = place[0] + grid_x * (place[1] + grid_y * place[2])
    row = (group - load64(block + 8 * FIRST)) * load64(block + 8 * WAVES) + load32(wave + layout.WAVE_ID)
    room, counts = load64(block + 8 * ROOM), load64(block + 8 * COUNTS) + 8 * row
    lines, seen = load64(block + 8 * LINES) + 4 * row * room, load64(block + 8 * FILTERS) + 8 * row * FILTER
    count = load64(counts)
    size, written = how >> 1, how & 1
    for lane in range(layout.LANES):
        if lanes >> lane & 1:
            start = base + load64(offsets + 8 * lane)
            for line in range(start >> LINE_SHIFT, ((start + size - 1) >> LINE_SHIFT) + 1):
                key = line << 1 | written
                at = seen + 8 * (line & (FILTER - 1))
                if load64(at) != key + 1:
                    store64(at, key + 1)
                    if count < room:
                        store32(lines + 4 * count, key)
                    count += 1
    store64(counts, count)


@dataclass(frozen=True)
class Storage:
    """The arrays of a launch's traces, as many workgroups at a time as `together`; block: what `note` finds them by."""

    together: int
    lines: np.ndarray
    counts: np.ndarray
    filters: np.ndarray
    block: np.ndarray


class LineTrace(Check):
    """Traces every launch of a device for a reader."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.memory is not None

    def access(self, frame: Frame, access: Access) -> None:
        if access.space != "global":
            return
        build = frame.build
        where = frame.at(frame.wave, layout.ADDRESSES)
        frame.store(access.offsets, where, align=8)
        base = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
        base = build.sub(base, constant(FIRST_ADDRESS))
        note.call(build, frame.wave, base, access.lanes, access.size << 1 | access.writes, where)

    def prepare(self, launch: Launch, worker: Worker) -> None:
        """One block for all workers of a launch: no two run the same wave."""
        if "lines" not in launch.checks:
            launch.checks["lines"] = self._storage(launch)
        worker.set_context(BLOCK, launch.checks["lines"].block.ctypes.data)

    def _storage(self, launch: Launch) -> Storage:
        together = min(launch.groups, self.reader.begin(launch.info.name, -(-launch.device.memory.extent >> LINE_SHIFT) + 1))
        rows = together * launch.waves
        room = min(CAPACITY, ADDRESS_SPACE // (4 * rows))
        lines, counts = _untouched(rows * room).reshape(rows, room), np.zeros(rows, np.int64)
        filters, block = np.zeros((rows, FILTER), np.int64), np.zeros(WORDS, np.int64)
        gx, gy, _ = launch.geometry.groups
        block[:WORDS] = [lines.ctypes.data, counts.ctypes.data, filters.ctypes.data, room, gx, gy, launch.waves, 0]
        return Storage(together, lines, counts, filters, block)

    def together(self, launch: Launch) -> int:
        return int(launch.checks["lines"].together)

    def ran(self, launch: Launch, first: int, last: int) -> None:
        held: Storage = launch.checks["lines"]
        longest, room = int(held.counts.max(initial=0)), held.lines.shape[1]
        if longest > room:
            raise LaunchError(f"a wave touched {longest:,} lines, the trace has room for {room:,}: trace a smaller problem")
        self.reader.read(LineTraces(held.lines, held.counts, first, launch.waves))
        held.counts[:] = 0
        held.filters[:] = 0
        held.block[FIRST] = last

    def finish(self, launch: Launch, workers: list[Worker]) -> list[Finding]:
        self.reader.end()
        return []


def _untouched(count: int) -> np.ndarray:
    """u32 zeros that take memory in small pages as they fill: rows are long, and most of them short of it."""
    memory = mmap.mmap(-1, 4 * count)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint32)


def traced_device(target: str, reader: Reader, threads: int | None = None) -> Device:
    """A simulated GPU whose launches give their lines to the reader; nothing else is checked, and no memory taken for what is."""
    return Device(target, checks=(LineTrace(reader),), threads=threads)
