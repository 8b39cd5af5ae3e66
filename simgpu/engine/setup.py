"""A launch's memory: arguments, private memory, LDS and waves of its workers, from the kept ones or new."""

from __future__ import annotations

from ctypes import addressof
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.device import Device, Kernel
from simgpu.engine.dispatch import Dispatch
from simgpu.engine.hostcall import heap, packets
from simgpu.engine.hostcall.packets import HostCalls
from simgpu.engine.workers import initial_state, scheduler
from simgpu.engine.workers.desk import EXTENTS, Desk, RecordCounts
from simgpu.engine.workers.initial_state import LaunchInputs
from simgpu.engine.workers.scheduler import SharedState, Slot
from simgpu.engine.workers.worker import Worker
from simgpu.hardware.code_object.arguments import Geometry, assumptions, fill, pack
from simgpu.machine.host_memory import aligned_room

if TYPE_CHECKING:
    from simgpu.machine.layout import Context
    from simgpu.memory.table import AllocationTable

HEAP_VERSION = 5  # code object version since which kernels with malloc have hidden_heap_v1 (LLVM's AMDGPUUsage)
# Most workgroups of a grid that one worker keeps resident at once, within its memory budget. A grid that the GPU has room for at
# once is resident as a whole: its workgroups may wait for each other.
RESIDENT_GROUPS = 64
RESIDENT_BYTES = 1 << 28


class LaunchSetup(Dispatch):
    """A dispatch that makes its workers."""

    kernel: Kernel
    device: Device
    kernarg: bytes  # its kernel argument segment, without addresses that only a worker has
    cooperative: bool
    workers: int  # number of workers
    stride: int  # bytes of a wave's state, with those of checks
    _table: tuple[int, AllocationTable] | None  # number and view of the allocations, until they are given back

    # -- memory --------------------------------------------------------------------------------

    def _kernargs(self, data: bytes) -> int:
        """Returns the address of a new kernel argument segment. It is padded, because compiled code reads whole cache lines."""
        size = -(-len(data) // 64) * 64 + 64
        return self.borrowed.device(size, data.ljust(size, b"\0"), "the kernel arguments")

    def _partial_kernargs(self, geometry: Geometry, kernarg: int) -> list[int]:
        """Returns 8 addresses of argument segments, indexed by the axes in which a workgroup is partial (bit 0 x, 1 y, 2 z).

        Code compiled for uniform workgroups only reads hidden_group_size, so a partial workgroup finds its own size there
        (docs/reference/semantics.md). kernarg: the segment of whole workgroups
        """
        table = [kernarg] * EXTENTS
        (x, y, z), (bx, by, bz) = geometry.global_size, geometry.block
        rest = x % bx, y % by, z % bz
        if not any(rest):
            return table
        axes = sum(1 << axis for axis in range(3) if rest[axis])
        for which in range(1, EXTENTS):
            if which & ~axes:
                continue
            extra = dict(geometry.extra)
            for axis in range(3):
                if which >> axis & 1:
                    extra[f"hidden_group_size_{'xyz'[axis]}"] = rest[axis]
            table[which] = self._kernargs(pack(self.info, self.args, replace(geometry, extra=extra)))
        return table

    def _shared_arguments(self) -> dict[str, int]:
        """Returns hidden arguments that point to memory, the same for all workers."""
        found: dict[str, int] = {}
        if self._wants(heap.ARGUMENT):
            found[heap.ARGUMENT] = self.device.heap.structure.address
        # Before version 5, malloc has no account: it asks the host itself (`__ockl_devmem_request`, in HIP 5.2's headers).
        asks = self.code.version < HEAP_VERSION and self._wants(packets.ARGUMENT)
        if held := self.device.heap if asks else self.device.made_heap:
            self.borrowed.allocations += held.structure, held.blocks
        if self.cooperative and self._wants(initial_state.GRID_SYNC):
            data = initial_state.grid_sync(self.groups)
            found[initial_state.GRID_SYNC] = self.borrowed.device(len(data), data, initial_state.GRID_BARRIER, writable=True)
        return found

    def _wants(self, argument: str) -> bool:
        """True if the launch must provide a hidden argument."""
        return argument in self.info.hidden_kinds and argument not in self.geometry.extra

    def _host_calls(self, resident: int) -> HostCalls | None:
        """Returns a worker's buffer for host calls, None if the kernel makes none. resident: its resident workgroups."""
        if not self._wants(packets.ARGUMENT):
            return None
        memory, count = self.memory, resident * self.waves
        made = self.borrowed.take(
            ("host calls", count), packets.nbytes(count), lambda: HostCalls(memory, count), lambda it: memory.free(it.allocation)
        )
        made.reset(self.output, self.device.made_heap)
        self.borrowed.allocations.append(made.allocation)
        return made

    def fill_arguments(self) -> None:
        """Sets the kernel argument segment and its notes. Raises LaunchError for arguments that the kernel does not take."""
        self.kernarg = fill(self.info, self.args, self.kernel.hidden_segment(self.geometry))
        self.notes = assumptions(self.info, self.args)

    @property
    def is_uniform(self) -> bool:
        """True if the arguments are the only memory that depends on the launch: no partial workgroups, host calls or heap."""
        whole = all(size % block == 0 for size, block in zip(self.geometry.global_size, self.geometry.block, strict=True))
        return whole and not self.geometry.extra and not any(map(self._wants, (heap.ARGUMENT, packets.ARGUMENT)))

    # -- workers -------------------------------------------------------------------------------

    def prepare(self) -> list[Worker]:
        """Allocates the launch's memory and makes its workers."""
        wave_bytes = 64 * self.private
        lds_stride = -(-max(self.lds_room, 1) // 64) * 64
        each = self.waves * (self.stride + wave_bytes) + lds_stride
        share = -(-self.count // self.workers)
        resident = share
        if not self.cooperative:
            whole = share > RESIDENT_GROUPS and self.groups <= self.kernel.resident_groups(
                self.geometry.block, self.geometry.dynamic_lds
            )
            most = share if whole else RESIDENT_GROUPS
            room = max(1, self.waves * wave_bytes) if whole else each  # the GPU's own size bounds registers and LDS of a whole grid
            resident = max(1, min(most, RESIDENT_BYTES // room, share))
        self.shared.budget = self.max_instructions
        shared = self._shared_arguments()
        given = [self._worker_memory(shared, resident, resident * self.waves * wave_bytes) for _ in range(self.workers)]
        self._take_table()
        workers = [self._worker(resident, lds_stride, wave_bytes, *each) for each in given]
        if self.device.checks:
            from simgpu.engine import checked

            checked.prepare(self, workers, self.device.checks)
        return workers

    def _take_table(self) -> None:
        self._table = self.memory.table()
        self.table = self._table[1]

    def renew(self) -> None:
        """Prepares the workers, which ended, for the launch again, with the present arguments."""
        self.fill_arguments()
        self._take_table()
        for worker in self.at_work:
            self.arguments_memory(worker)[:] = self.kernarg
            if self.info.descriptor.preload_length:
                worker.given = replace(worker.given, arguments=self.kernarg)
                worker.desk.begin(self.info, worker.given, self.lds_room, self.entry, self.program.address)
            self._set_fields(worker.desk.fields)
            worker.counts = self._take_counts(worker.desk.fields)
            worker.job.entered = worker.desk.fields.entered + 8 * self.entry
            self.begin_again(worker)

    def arguments_memory(self, worker: Worker) -> memoryview:
        """Returns the memory of a worker's kernel argument segment."""
        segment = self.memory.find(worker.given.kernarg)
        assert segment is not None
        return segment.data.data[: len(self.kernarg)]

    def begin_again(self, worker: Worker) -> None:
        """Lets a worker that ended begin with the first workgroup again."""
        self.shared.counter, self.shared.budget, worker.desk.fields.clock = 0, self.max_instructions, 0
        scheduler.begin_job(worker.job, worker.slots)

    def _set_fields(self, fields: Context) -> None:
        """Sets a worker's fields that depend on memory, on the code lowered so far, or on the last launch."""
        fields.allocations, fields.count = self.table.address, len(self.table)
        fields.bitmap_pages = self.table.page_zero
        fields.clock, fields.outside_lds = 0, -1
        fields.in_step = self.waves > 1 and self.lds_bytes > 0 and self.program.may_meet(self.entry)

    def _take_counts(self, fields: Context) -> np.ndarray:
        """Returns zeroed counts for a worker; see `Worker`."""
        free = self.program.counts
        counts = free.pop() if free else RecordCounts.of(self.program.count + 1)
        self.borrowed.add_return(lambda: free.append(counts))
        fields.entered, fields.exited, fields.lanes = counts.rows
        return counts.all

    def _worker_memory(
        self, shared: dict[str, int], resident: int, scratch: int
    ) -> tuple[LaunchInputs, HostCalls | None, list[int]]:
        """Allocates a worker's arguments and private memory. Returns them, its host-call buffer, and the argument segments by
        partial axes.

        shared: hidden arguments of all workers. resident: its resident workgroups. scratch: bytes of private memory
        """
        host = self._host_calls(resident)
        geometry, arguments = self.geometry, self.kernarg
        if host is not None or shared:
            mine = {} if host is None else {packets.ARGUMENT: host.address}
            geometry = replace(geometry, extra={**geometry.extra, **shared, **mine})
            arguments = pack(self.info, self.args, geometry)
        kernarg = self._kernargs(arguments)
        descriptor, packet, queue = self.info.descriptor, 0, 0
        if descriptor.enable_dispatch_ptr:
            kernel_object = self.info.descriptor_address + self.kernel.module.bias
            data = initial_state.packet(geometry, self.private, self.lds_bytes, kernel_object, kernarg)
            packet = self.borrowed.device(64, data, "the dispatch packet")
        if descriptor.enable_queue_ptr:
            queue = self.borrowed.device(initial_state.QUEUE_BYTES, initial_state.queue(), "the queue")
        private = self.borrowed.device(scratch, b"", "private memory", writable=True, private=True) if scratch else 0
        given = LaunchInputs(kernarg, arguments, packet, queue, private, self.private)
        return given, host, self._partial_kernargs(geometry, kernarg)

    def _worker(
        self, resident: int, lds_stride: int, wave_bytes: int, given: LaunchInputs, host: HostCalls | None, kernargs: list[int]
    ) -> Worker:
        desk = self.borrowed.take("desk", Desk.nbytes, Desk)
        desk.begin(self.info, given, self.lds_room, self.entry, self.program.address)
        desk.set_programs({number: program.address for number, program in self.programs.items()})
        desk.kernargs[:] = list(kernargs)  # a list is the type that ctypes accepts
        fields = desk.fields
        self._set_fields(fields)
        counts = self._take_counts(fields)
        fields.record_count, fields.code_base = self.program.count, self.program.base
        fields.lds_faults = self.exact_lds
        size = resident * self.waves * self.stride
        # Untouched pages of a large room cost nothing, but what it displaced among the kept ones would.
        waves = self.borrowed.host("waves", size) if resident <= RESIDENT_GROUPS else aligned_room(size)
        lds = self.borrowed.host("LDS", resident * lds_stride)
        job = desk.job(self.info, self.geometry, self.arch)
        shared = addressof(self.shared)
        job.counter, job.budget = shared + SharedState.counter.offset, shared + SharedState.budget.offset
        job.waves, job.wave_memory, job.wave_bytes = self.waves, waves.address, self.stride
        job.slots, job.lds, job.lds_stride = resident, lds.address, lds_stride
        job.scratch, job.scratch_wave = given.scratch, wave_bytes
        job.entered = fields.entered + 8 * self.entry
        if self.seed is not None:
            scheduler.seed_job(job, self.seed)
        slots = (Slot * resident)()
        return Worker(job, slots, desk, counts, given, host, [waves.bytes, lds.bytes])
