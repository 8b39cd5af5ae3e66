"""Data of a worker that handlers and the scheduler's loop read: host memory that is kept from launch to launch.

Data that has not changed since the last launch is not rewritten, because most programs launch one kernel many times.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int64
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.workers import initial_state
from simgpu.engine.workers.scheduler import WorkerJob
from simgpu.machine import layout, mode
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import Context, Wave

if TYPE_CHECKING:
    from simgpu.engine.workers.initial_state import LaunchInputs
    from simgpu.hardware.code_object.arguments import Geometry
    from simgpu.hardware.code_object.kernels import KernelInfo as KernelInfo

EXTENTS = 8  # combinations of axes in which a workgroup is partial


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """Counts of a worker for a program's records; see `Worker`."""

    all: np.ndarray  # (3, records + 1) int64
    rows: tuple[int, int, int]  # the rows' addresses

    @classmethod
    def of(cls, records: int) -> RecordCounts:
        """Returns zeroed counts."""
        counts = np.zeros((3, records), np.int64)
        first, step = int(counts.ctypes.data), counts.strides[0]
        return cls(counts, (first, first + step, first + 2 * step))


class Desk:
    """A worker's context, and the data that it points to.

    context: (CTX_BYTES / 8,) int64; its data about operands and lines to fetch stays valid in other launches
    fields: the same memory as a structure
    programs: host address of the records by `mode.number`, or 0
    kernargs: device address of the kernel arguments by the axes in which a workgroup is partial (bit 0 x, 1 y, 2 z)
    """

    nbytes = layout.CTX_BYTES + layout.ADDRESSES + 8 * (mode.NUMBERS + EXTENTS)

    def __init__(self) -> None:
        raw = aligned_bytes(layout.CTX_BYTES)
        self.context = raw.view(np.int64)
        self.fields = Context.from_buffer(raw.data)
        self.address = int(raw.ctypes.data)
        self.programs = (c_int64 * mode.NUMBERS)()
        self.fields.programs = ctypes.addressof(self.programs)
        self._addresses: dict[int, int] = {}  # what `programs` has that is not 0
        self.kernargs = (c_int64 * EXTENTS)()
        self._template = (ctypes.c_uint8 * layout.ADDRESSES)()
        self._written: object = None  # inputs of the template
        self._job = WorkerJob()
        self._known: object = None  # inputs of the job

    def begin(self, info: KernelInfo, given: LaunchInputs, lds_room: int, entry: int, records: int) -> None:
        """Writes the state that every wave begins with; see `initial_state.template`."""
        wanted = entry, records, lds_room, info, given
        if self._written != wanted:
            self._written = None
            ctypes.memset(self._template, 0, layout.ADDRESSES)
            initial_state.template(Wave.from_buffer(self._template), info, given, lds_room, entry, records, self.address)
            self._written = wanted

    def set_programs(self, addresses: Mapping[int, int]) -> None:
        """Sets the records' addresses by `mode.number`; all others become 0."""
        if self._addresses != addresses:
            for number in self._addresses:
                self.programs[number] = 0
            self._addresses = {}
            for number, address in addresses.items():
                self.set_program(number, address)

    def set_program(self, number: int, address: int) -> None:
        """Sets the records' address for a `mode.number`."""
        self._addresses[number] = self.programs[number] = address

    def job(self, info: KernelInfo, geometry: Geometry, arch: str) -> WorkerJob:
        """Returns a new job with the kernel's and geometry's fields, and the addresses of this object's data."""
        wanted = geometry.block, geometry.global_size, arch, info
        if self._known != wanted:
            self._known = None
            self._job = initial_state.job(info, geometry, arch)
            self._job.context, self._job.template = self.address, ctypes.addressof(self._template)
            self._job.kernargs = ctypes.addressof(self.kernargs)
            self._known = wanted
        return WorkerJob.from_buffer_copy(self._job)
