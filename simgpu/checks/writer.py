"""Finds the writer of an address: the last workgroup of a launch, in the order of dispatch, that stores to a byte of device
memory."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, addressof, c_int64
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.check import Check
from simgpu.engine.device import Kernel
from simgpu.engine.dispatch import Dispatch
from simgpu.engine.launch import Launch
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.hardware.code_object.arguments import Geometry, check_geometry, dispatch_number
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import part, runtime, structure, words
from simgpu.machine.values import I64

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker

(WRITER,) = context_fields("writer", 1)  # address of the worker's WriterBlock
NOBODY = -1


class WriterBlock(Structure):
    """Writer of the address among a worker's workgroups."""

    _fields_ = (
        ("address", c_int64),
        ("grid", c_int64 * 2),  # workgroups in x and y
        ("last", c_int64),  # number of the last workgroup that wrote it, or NOBODY
    )


WRITER_BLOCK = np.dtype(WriterBlock)
_dispatch_number = part(dispatch_number)


@runtime
def note_writer(wave: int, lanes: int, size: int, base: int) -> None:
    """Records the workgroup's number if one of the lanes writes the address and no later workgroup has."""
    block, offsets = structure(context(wave, WRITER), WRITER_BLOCK), words(wave + layout.ADDRESSES, LANES)
    for lane in range(LANES):
        if lanes >> lane & 1 and base + offsets[lane] <= block.address < base + offsets[lane] + size:
            group = slot_of(wave).group
            number = _dispatch_number(group[0], group[1], group[2], block.grid[0], block.grid[1])
            block.last = max(block.last, number)


class Writer(Check):
    """Records the last writer of the device address `shadows["writer"]`."""

    def concerns(self, inst: Instruction) -> bool:
        memory = inst.spec.memory
        return memory is not None and memory.op != "load" and memory.space != "ds" and inst.spec.encoding != "smem"

    def access(self, frame: Frame, access: Access) -> None:
        if access.space == "global" and access.writes and access.lanes is not None:
            frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
            base = frame.load(frame.at(access.entry, layout.ALLOC_BASE), I64, 8)
            note_writer.call(frame.build, frame.wave, access.lanes, access.size, base)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        across, down, _ = launch.geometry.groups
        worker.checks["writer"] = block = WriterBlock(launch.shadows["writer"], (across, down), NOBODY)
        worker.set_context(WRITER, addressof(block))


def writer_of(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int) -> tuple[int, int, int] | None:
    """Returns the last workgroup, in the order of dispatch, that stores to the byte at a device address; None if none does.

    Atomic operations count as stores. If several workgroups store to the byte, the one with the highest number
    (`Geometry.number`) is returned, whichever came last in this run. So the result does not depend on the host's threads. The
    launch runs completely, and memory is as after it. Raises the errors of a launch.
    """
    check_geometry(kernel.info, geometry)
    device = kernel.module.device.sharing([Writer()])
    device.shadows = {**device.shadows, "writer": address}
    launch = Launch(Kernel(kernel.module.on(device), kernel.info), geometry, args)
    launch.run()
    last = max(worker.checks["writer"].last for worker in launch.at_work)
    return None if last == NOBODY else geometry.group(last)
