"""One launch: memory and workers from what is kept, host threads that run them, what comes back."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.allocations import Allocation
from simgpu.engine.faults import describe, out_of_budget, out_of_time
from simgpu.engine.finding import Finding
from simgpu.engine.hostcall.packets import ARGUMENT, HostCalls
from simgpu.engine.program import Program
from simgpu.engine.result import Accounts, Run, instructions_so_far, summarise
from simgpu.engine.workers import initial_state, scheduler
from simgpu.engine.workers.initial_state import Given, mode_register
from simgpu.engine.workers.scheduler import Slot
from simgpu.engine.workers.team import Cancelled, Team, TimeOver
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_of
from simgpu.hardware.code_object.arguments import Geometry, assumptions, pack
from simgpu.hardware.errors import InstructionLimit, LaunchError, SimError, UnsupportedInstruction, says_it_all
from simgpu.hardware.isa import Instruction
from simgpu.machine import layout, mode
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import Context, Status
from simgpu.machine.mode import Mode
from simgpu.machine.shield import unbroken

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from simgpu.engine.device import Kernel
    from simgpu.memory.table import Table

__tracebackhide__ = says_it_all

# Workgroups that one worker may keep resident at once, as many as its memory budget allows.
RESIDENT_GROUPS = 64
RESIDENT_BYTES = 1 << 28
# Private memory of a kernel with a stack of unknown depth, bytes a lane beyond the declared size.
DYNAMIC_STACK = 16384
# Settings of MODE's arithmetic bits in one launch: each has records of its own.
MODES = 64
# Bytes a lane: a wave's scratch is at most 2^13 - 1 times 1 KiB (LLVM, getMaxWaveScratchSize).
PRIVATE_LIMIT = ((1 << 13) - 1) * 1024 // 64


class Launch:
    """The state of one launch, until `run` returns."""

    fuse = True  # see `Program`

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        self.kernel = kernel
        self.info = kernel.info
        self.device = kernel.module.device
        self.geometry = geometry
        self.temporary: list[Allocation] = []
        self._returns: list[Callable[[], None]] = []  # of what was taken to the next launch
        self._drops: list[Callable[[], None]] = []
        self._table: tuple[int, Table] | None = None
        descriptor = self.info.descriptor
        self.lds_bytes = self.info.group_segment_size + geometry.dynamic_lds
        limit = self.device.descriptor.lds_bytes
        if self.lds_bytes > limit:
            raise LaunchError(
                f"{self.info.name}: {self.lds_bytes} bytes of LDS (static and dynamic); "
                f"{self.device.arch} has {limit} for a workgroup"
            )
        self.args = list(args)
        self.kernarg = pack(self.info, args, geometry)
        self.notes = assumptions(self.info, args)
        self.items = geometry.block[0] * geometry.block[1] * geometry.block[2]
        self.waves = -(-self.items // 64)
        groups = geometry.groups
        self.groups = groups[0] * groups[1] * groups[2]
        if self.groups >= 1 << 62:
            raise LaunchError(f"{self.info.name}: {self.groups} workgroups; the limit is 2^62")
        self.host: HostCalls | None = None
        self.calls_host = ARGUMENT not in geometry.extra and any(a.value_kind == ARGUMENT for a in self.info.arguments)
        # One thread where the host is called: what is printed keeps its order.
        self.workers = 1 if self.calls_host else min(self.device.threads, self.groups)
        stack = DYNAMIC_STACK if self.info.uses_dynamic_stack else 0
        self.private = -(-(self.info.private_segment_size + stack) // 16) * 16
        if self.private > PRIVATE_LIMIT:
            raise LaunchError(
                f"{self.info.name}: {self.private} bytes of private memory for a lane; "
                f"the hardware has at most {PRIVATE_LIMIT}"
            )
        self.stride = layout.WAVE_BYTES + sum(check.wave_bytes for check in self.device.checks)
        self.programs: dict[int, Program] = {}
        self.checks: dict[str, Any] = {}  # what a check keeps for all workers
        self.lock = threading.Lock()
        self.team = Team(self.device.timeout)
        self.program = self.program_for(mode_register(descriptor))
        self.entry = (self.info.start + kernel.module.bias - self.program.base) // 4

    # -- the records of each MODE --------------------------------------------------------------

    def program_for(self, word: int) -> Program:
        """The records for a value of the MODE register."""
        number = mode.number(word)
        with self.lock:
            if number not in self.programs:
                if len(self.programs) == MODES:
                    raise UnsupportedInstruction(f"{self.info.name}: more than {MODES} settings of MODE in a launch")
                wanted = Mode.of_register(word)
                self.programs[number] = self.kernel.module.program(self.info, wanted, self.fuse)
            return self.programs[number]

    def instruction(self, index: int) -> Instruction | None:
        """The instruction at a record, if any of the programs lowered it."""
        found = (program.instructions.get(index) for program in self.programs.values())
        return next((inst for inst in found if inst is not None), None)

    def problem(self, index: int) -> str:
        """Why a record cannot be executed, or nothing."""
        return next((p.problems[index] for p in self.programs.values() if index in p.problems), "")

    # -- memory --------------------------------------------------------------------------------

    def _kept(self, key: Hashable, nbytes: int, make: Callable[[], Any], drop: Callable[[Any], None] = lambda thing: None) -> Any:
        """What an earlier launch left under the key, or what `make` makes; for the next launch when this one ended well.

        Checks look at what is written into memory, and from when on: their launches have memory of their own.
        """
        if self.device.checks:
            thing = make()
            self._drops.append(lambda: drop(thing))
            return thing
        thing = self.device.kept.take(key, make)
        self._drops.append(lambda: drop(thing))
        self._returns.append(lambda: self.device.kept.give_back(key, thing, nbytes, drop))
        return thing

    def _bytes(self, purpose: str, nbytes: int) -> np.ndarray:
        """Aligned host memory of so many bytes or up to twice as many, zeroed when it is new."""
        size = 1 << max(nbytes - 1, 4095).bit_length()
        kept: np.ndarray = self._kept((purpose, size), size, lambda: aligned_bytes(size))
        return kept

    def _temporary(self, nbytes: int, data: bytes, label: str, private: bool = False) -> int:
        """The address of device memory that only this launch uses, with the data at its begin."""
        memory, size = self.device.memory, max(nbytes, 16)

        def make() -> Allocation:
            return memory.allocate(size, writable=private, label=label, tracked=False, private=private)

        allocation: Allocation = self._kept(("device", size, label), size, make, memory.free)
        allocation.data[: len(data)] = np.frombuffer(data, np.uint8)
        self.temporary.append(allocation)
        return allocation.address

    def _kernargs(self, data: bytes) -> int:
        """A kernel argument segment; compilers read whole cache lines of it."""
        size = -(-len(data) // 64) * 64 + 64
        return self._temporary(size, data.ljust(size, b"\0"), "the kernel arguments")

    def _partial_kernargs(self) -> np.ndarray:
        """Addresses of the segment by which extents of a workgroup are partial (bit 0 x, 1 y, 2 z).

        Code compiled for uniform workgroups reads hidden_group_size only: a partial workgroup
        finds its own size there (docs/semantics.md).
        """
        table = np.full(8, self.kernarg_address, np.int64)
        block, size = self.geometry.block, self.geometry.global_size
        rest = [s % b for s, b in zip(size, block, strict=True)]
        axes = sum(1 << axis for axis in range(3) if rest[axis])
        for which in range(1, 8):
            if which & ~axes:
                continue
            extra = dict(self.geometry.extra)
            for axis in range(3):
                if which >> axis & 1:
                    extra[f"hidden_group_size_{'xyz'[axis]}"] = rest[axis]
            geometry = replace(self.geometry, extra=extra)
            table[which] = self._kernargs(pack(self.info, self.args, geometry))
        return table

    def _connect_host(self) -> None:
        """The buffer for calls of the host, among the arguments."""
        self.host = HostCalls(self.device.memory, min(RESIDENT_GROUPS, self.groups) * self.waves)
        self.temporary.append(self.host.allocation)
        host = self.host.allocation
        self._drops.append(lambda: self.device.memory.free(host))
        self._returns.append(self._drops[-1])
        self.geometry = replace(self.geometry, extra={**self.geometry.extra, ARGUMENT: self.host.address})
        self.kernarg = pack(self.info, self.args, self.geometry)

    def _end(self, well: bool) -> None:
        """Give back what the launch used, or, where it failed, give it up."""
        if self._table is not None:
            self.device.memory.give_back(*self._table)
        for each in self._returns if well and not self.device.checks else self._drops:
            each()

    # -- workers -------------------------------------------------------------------------------

    def prepare(self) -> list[Worker]:
        if self.calls_host:
            self._connect_host()
        self.kernarg_address = self._kernargs(self.kernarg)
        kernel_object = self.info.descriptor_address + self.kernel.module.bias
        packet = initial_state.packet(self.geometry, self.private, self.lds_bytes, kernel_object, self.kernarg_address)
        dispatch = self._temporary(64, packet, "the dispatch packet")
        queue = self._temporary(initial_state.QUEUE_BYTES, initial_state.queue(), "the queue")
        given = Given(self.kernarg_address, self.kernarg, dispatch, queue, 0, self.private)
        wave_bytes = 64 * self.private
        lds_stride = -(-max(self.lds_bytes, 1) // 64) * 64
        each = self.waves * (self.stride + wave_bytes) + lds_stride
        share = -(-self.groups // self.workers)
        resident = max(1, min(RESIDENT_GROUPS, RESIDENT_BYTES // each, share))
        self.counter = np.zeros(1, np.int64)
        self.budget = aligned_bytes(64).view(np.int64)  # [0]: record steps left, in a cache line of its own
        self.budget[0] = self.device.max_instructions
        total = resident * self.waves * wave_bytes
        scratches = [self._temporary(total, b"", "private memory", True) if total else 0 for _ in range(self.workers)]
        self.kernargs = self._partial_kernargs()
        self._table = self.device.memory.table()
        self.table = self._table[1]
        workers = [self._worker(resident, lds_stride, wave_bytes, replace(given, scratch=scratch)) for scratch in scratches]
        if self.device.checks:
            from simgpu.engine import checked

            checked.prepare(self, workers)
        return workers

    def _worker(self, resident: int, lds_stride: int, wave_bytes: int, given: Given) -> Worker:
        count = self.program.count + 1
        # Zero outside of a launch, see `_clear_counts`.
        free = self.program.counts
        counts = free.pop() if free else np.zeros((3, count), np.int64)
        self._returns.append(lambda: free.append(counts))
        entered, exited, lanes = counts
        # What it holds of operands and of lines to fetch is as good in another launch.
        context = self._kept("context", layout.CTX_BYTES, lambda: aligned_bytes(layout.CTX_BYTES)).view(np.int64)
        programs = np.zeros(mode.NUMBERS, np.int64)
        for number, program in self.programs.items():
            programs[number] = program.address
        fields = Context.from_buffer(context.data)
        fields.allocations, fields.count = self.table.address, len(self.table)
        fields.bitmap_pages = self.table.page_zero
        fields.entered, fields.exited, fields.lanes = (counts.ctypes.data for counts in (entered, exited, lanes))
        fields.programs = programs.ctypes.data
        fields.record_count, fields.code_base = self.program.count, self.program.base
        fields.clock = 0
        waves = self._bytes("waves", resident * self.waves * self.stride)
        lds = self._bytes("LDS", resident * lds_stride)
        template = initial_state.template(
            self.info, given, self.lds_bytes, self.entry, self.program.address, context.ctypes.data
        )
        job = initial_state.job(self.info, self.geometry, self.device.arch)
        job.counter, job.budget = self.counter.ctypes.data, self.budget.ctypes.data
        job.waves, job.wave_memory, job.wave_bytes = self.waves, waves.ctypes.data, self.stride
        job.slots, job.lds, job.lds_stride = resident, lds.ctypes.data, lds_stride
        job.scratch, job.scratch_wave = given.scratch, wave_bytes
        job.context, job.template, job.kernargs = context.ctypes.data, template.ctypes.data, self.kernargs.ctypes.data
        job.entered = entered[self.entry :].ctypes.data
        return Worker(job, (Slot * resident)(), context, entered, exited, lanes, programs, [waves, lds, template])

    @property
    def accounts(self) -> Accounts:
        """What the launch's instructions count as."""
        programs = tuple(self.programs.values())
        version = tuple(program.version for program in programs)
        known = self.program.kept.get(("accounts", self.entry))
        if known is None or known[0] != version:
            known = version, Accounts.of(programs, self.entry)
            self.program.kept["accounts", self.entry] = known
        found: Accounts = known[1]
        return found

    def _clear_counts(self, workers: list[Worker]) -> None:
        """Zero what a launch that ended well has counted."""
        records = self.accounts.records
        for worker in workers:
            for counts in (worker.entered, worker.exited, worker.lanes):
                counts[records] = 0

    # -- running -------------------------------------------------------------------------------

    def run(self) -> Run:
        well = False
        try:
            self._lower(self.program, self.entry)
            workers = self.prepare()
            try:
                run = self._run(workers)
            except SimError as error:
                error.findings = tuple(self._findings(workers))
                raise
            run = replace(run, findings=self._findings(workers), notes=self.notes)
            self._clear_counts(workers)
            well = True
            return run
        finally:
            if self.host is not None:
                self.host.flush()
            self._end(well)

    def _findings(self, workers: list[Worker]) -> list[Finding]:
        if not self.device.checks:
            return []
        from simgpu.engine import checked

        return checked.findings(self, workers)

    def _run(self, workers: list[Worker]) -> Run:
        begun, checks = time.perf_counter(), self.device.checks
        together = min((check.together(self) for check in checks), default=self.groups)
        for first in range(0, self.groups, max(1, together)):
            last = min(self.groups, first + together)
            self._run_groups(workers, first, last)
            for worker in workers:
                if worker.error is not None:
                    raise worker.error
            for check in checks:
                check.ran(self, first, last)
        seconds = time.perf_counter() - begun
        run = summarise(self, workers, seconds)
        if self.device.profiler:
            self.device.profiler.finished(self, run)
        if run.instructions > self.device.max_instructions:
            # The budget is looked at where control flow branches: a short kernel ends before.
            raise InstructionLimit(
                f"{self.info.name}: executed {run.instructions} instructions, more than "
                f"max_instructions={self.device.max_instructions}; raise it if that is meant"
            )
        return run

    def _run_groups(self, workers: list[Worker], first: int, last: int) -> None:
        """Workgroups first to last - 1, in the order of dispatch, on all workers."""
        self.counter[0] = first
        for worker in workers:
            worker.job.groups, worker.job.exhausted, worker.job.current = last, 0, 0
            worker.status = scheduler.PAUSED
        unfinished = workers
        while unfinished:
            try:
                self.team.run(unfinished, self._work)
                for worker in workers:
                    if worker.error is not None:
                        raise worker.error
            except TimeOver:
                raise out_of_time(self, unfinished) from None
            if all(worker.status != scheduler.LIMIT for worker in unfinished):
                return
            self._refill(workers)
            unfinished = [worker for worker in unfinished if worker.status != scheduler.FINISHED]

    def _refill(self, workers: list[Worker]) -> None:
        """The budget of record steps anew, when it is spent: an instruction of 8 bytes took two, and counts as one."""
        left = self.device.max_instructions - instructions_so_far(self, workers)
        if left < 0:
            raise out_of_budget(self, next((worker for worker in workers if worker.status == scheduler.LIMIT), workers[0]))
        self.budget[0] = left
        for worker in workers:
            worker.job.spent = 0

    def _work(self, worker: Worker) -> None:
        try:
            with self.device.profiler.working() if self.device.profiler else nullcontext():
                self._loop(worker)
            if worker.status == scheduler.LIMIT:
                self.team.stop()
        except Cancelled:
            pass
        except BaseException as error:
            worker.error = error
            self.team.stop()

    def _loop(self, worker: Worker) -> None:
        """Run a worker to its end, or until the team stops or the budget is spent."""
        while True:
            if worker.status != scheduler.NEED_PYTHON:
                self.team.advance(worker)
            if worker.status != scheduler.NEED_PYTHON:
                return
            self._serve(worker)
            worker.status = scheduler.PAUSED

    def _serve(self, worker: Worker) -> None:
        """What the current wave came back to Python for; raises what stops the launch."""
        state = current_wave(worker)
        if state.status == Status.PATH and any(check.resume(self, worker) for check in self.device.checks):
            return
        if state.status == Status.MESSAGE:
            self.answer(worker)
            return
        if state.status not in (Status.LOWER, Status.MODE):
            raise describe(self, worker)
        program = self.program_for(state.mode)
        self._lower(program, state.resume)
        if state.status == Status.MODE:
            self.change_mode(worker, state.mode, program)

    def _lower(self, program: Program, index: int) -> None:
        """Lower a record and what follows it, for as long as the launch goes on."""
        if not program.is_lowered(index):
            unbroken(lambda: program.lower(index, self.team.goes_on), self.team.stop)

    def answer(self, worker: Worker) -> None:
        """Serve what the current wave sent a message about, and let it go on."""
        if self.host is not None:
            self.host.serve()
        wave_of(worker, *place_of_wave(worker)).status = Status.RUNNING

    def change_mode(self, worker: Worker, word: int, program: Program) -> None:
        """The current wave goes on with the handlers of its new MODE register."""
        worker.programs[mode.number(word)] = program.address
        wave = wave_of(worker, *place_of_wave(worker))
        wave.records, wave.status = program.address, Status.RUNNING


def launch(kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> Run:
    """Run a kernel to its end; see `Kernel.launch`."""
    return Launch(kernel, geometry, args).run()


