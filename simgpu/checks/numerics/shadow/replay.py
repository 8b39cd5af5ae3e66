"""Launches for shadows: who wrote an address, and one workgroup alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.numerics.shadow.trace import ROOM, USED, Trace
from simgpu.engine.check import Check
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import Access
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import load64, runtime, store64, words
from simgpu.machine.values import I64

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker

(WRITER,) = context_fields("writer", 1)  # address of the worker's block; its words:
ADDRESS, FOUND, X, Y, Z = range(5)  # what is looked for, whether it was written, by which workgroup


@runtime
def note_writer(wave: int, lanes: int, size: int, base: int) -> None:
    """Keep the workgroup if one of the lanes writes the address."""
    block, offsets = context(wave, WRITER), words(wave + layout.ADDRESSES, LANES)
    wanted = load64(block + 8 * ADDRESS)
    for lane in range(LANES):
        if lanes >> lane & 1 and base + offsets[lane] <= wanted < base + offsets[lane] + size:
            store64(block + 8 * FOUND, 1)
            for axis in range(3):
                store64(block + 8 * (X + axis), slot_of(wave).group[axis])


class Writer(Check):
    """Who writes an address; the last of a worker's workgroups that do."""

    def concerns(self, inst: Instruction) -> bool:
        memory = inst.spec.memory
        return memory is not None and memory.op != "load" and memory.space != "ds" and inst.spec.encoding != "smem"

    def access(self, frame: Frame, access: Access) -> None:
        if access.space == "global" and access.writes and access.lanes is not None:
            frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
            base = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
            note_writer.call(frame.build, frame.wave, access.lanes, access.size, base)

    def prepare(self, launch: Launch, worker: Worker) -> None:
        block = np.zeros(5, np.int64)
        block[ADDRESS] = launch.device.shadows["writer"]
        worker.checks["writer"] = block
        worker.set_context(WRITER, block.ctypes.data)
        launch.checks.setdefault("writer", []).append(block)


class OneGroup(Launch):
    """A launch of which one workgroup runs."""

    fuse = False

    def alone(self, group: int) -> Worker:
        """Runs it; returns the worker."""
        self.workers = 1
        try:
            (worker,) = self.begin()
            self._run_groups([worker], group, group + 1)
            return worker
        finally:
            self.end(False)


class Searching(Launch):
    """A launch that is asked for its writer afterwards."""

    def writer(self) -> tuple[int, int, int] | None:
        """The workgroup that wrote the address; None where none did."""
        self.run()
        found = [block for block in self.checks["writer"] if block[FOUND]]
        return (int(found[-1][X]), int(found[-1][Y]), int(found[-1][Z])) if found else None


def writer_of(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int) -> tuple[int, int, int] | None:
    """The workgroup of a launch that writes an address (device), None where none does; memory is as after the launch."""
    device = kernel.module.device.sharing([Writer()])
    device.shadows = {**device.shadows, "writer": address}
    check_geometry(kernel.info, geometry)
    return Searching(Kernel(kernel.module.on(device), kernel.info), geometry, args).writer()


def traced(kernel: Kernel, geometry: Geometry, args: Sequence[object], group: tuple[int, int, int]) -> tuple[np.ndarray, Launch]:
    """The trace of one workgroup (see `trace`), and its launch. LaunchError where it is too long."""
    device = kernel.module.device.sharing([Trace()])
    launch = OneGroup(Kernel(kernel.module.on(device), kernel.info), geometry, args)
    across, down, _ = geometry.groups
    worker = launch.alone(group[0] + across * (group[1] + down * group[2]))
    storage = worker.checks["shadow"]
    used = int(storage.block[USED])
    if used > ROOM:
        raise LaunchError(
            f"{kernel.name}: workgroup {group} does {used / ROOM:.1f} times as much as can be followed, "
            f"{4 * ROOM >> 20} MiB of values: take a smaller problem"
        )
    return storage.words[:used], launch
