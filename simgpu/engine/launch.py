"""Launch: runs its workers on host threads, and returns the results."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from simgpu.engine.device import Kernel
from simgpu.engine.faults import all_wait, describe, out_of_budget, out_of_time, outside_lds
from simgpu.engine.finding import Finding
from simgpu.engine.footprint import FOOTPRINT
from simgpu.engine.hostcall.output import Output
from simgpu.engine.program import Program
from simgpu.engine.result import Run, instructions_so_far, summarise, totals
from simgpu.engine.setup import RESIDENT_GROUPS, LaunchSetup
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.borrowed import LaunchLoan
from simgpu.engine.workers.global_sync import GlobalSync
from simgpu.engine.workers.scheduler import SharedState
from simgpu.engine.workers.team import Team, TeamCancelled, TimeOver
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_of
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import InstructionLimit, LaunchError, SimError, UnsupportedInstruction, says_it_all
from simgpu.machine import layout, mode
from simgpu.machine.layout import Status
from simgpu.machine.shield import run_shielded

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from simgpu.hardware.code_object.kernels import KernelInfo as KernelInfo
    from simgpu.memory.table import AllocationTable

__tracebackhide__ = says_it_all

# Private memory of a kernel with a stack of unknown depth, bytes a lane beyond the declared size.
DYNAMIC_STACK = 16384
# Most settings of MODE's arithmetic bits in one launch: each has its own records.
MODES = 64
# Work that takes as long as to start a thread and to end it, some 75 us. A wave-instruction counts 1. A matrix instruction counts 1
# more for each OPERATIONS of it: 8,192 of f16 take some 300 ns, 2,048 of f32 take 33 ns.
THREAD, OPERATIONS = 1 << 12, 1 << 9
AGAIN_BYTES = 1 << 26  # most memory of a launch that is kept
LAST = 8  # geometries of a kernel's last launches
GWS_DWORDS = 2  # size of a ds_gws instruction
# Bytes a lane: a wave's scratch is at most 2^13 - 1 times 1 KiB (LLVM, getMaxWaveScratchSize).
PRIVATE_LIMIT = ((1 << 13) - 1) * 1024 // 64


def amount_of_work(run: Run) -> int:
    """Returns the work of a launch's execution, which is in proportion to its processor time by and large."""
    return run.instructions + run.counters["mfma_flops"] // OPERATIONS


def worthwhile_threads(work: int, groups: int) -> int:
    """Returns how many threads make a launch shortest, by its amount of work and workgroups.

    They start one after another, so n of them take n·THREAD + work / n. This is least at the root of work / THREAD.

    >>> worthwhile_threads(10_000, groups=8), worthwhile_threads(1_000_000, groups=8), worthwhile_threads(1_000_000, groups=100)
    (1, 8, 15)
    """
    fewest = 2 if groups > RESIDENT_GROUPS else 1  # on one thread, more workgroups would take fresh memory for their waves
    return min(groups, max(fewest, math.isqrt(work // THREAD)))


class Supervisor:
    """Hooks for a launch's caller while the launch runs. This base class serves waves and collects findings as usual."""

    def before_run(self, launch: Launch, workers: list[Worker]) -> None:
        """Called before the first workgroup begins."""

    def serve(self, launch: Launch, worker: Worker) -> None:
        """Serves the worker's current wave, which returned to Python, on its thread. Errors end the launch."""
        launch.serve(worker)

    def after_refill(self, launch: Launch) -> None:
        """Called after the budget of record steps was used up and renewed. Errors end the launch."""

    def after_run(self, launch: Launch, workers: list[Worker]) -> None:
        """Called after all workgroups ended, while the launch still has its memory."""

    def findings(self, launch: Launch, workers: list[Worker]) -> list[Finding]:
        """Returns the findings for `Run.findings`, or for the error that ended the launch."""
        if not launch.device.checks:
            return []
        from simgpu.engine import checked

        return checked.findings(launch, workers, launch.device.checks)


UNATTENDED = Supervisor()


@final
class Launch(LaunchSetup):
    """A launch: `run` executes it. If it ended well, a later one of the same kernel and geometry may be this one `again`.

    call: the user's arguments, for `Run`; None for internal launches
    parts: numbers of the workgroups that run, in dispatch order (default: all)
    threads: most host threads (default: the device's)
    fuse: see `Program`

    A caller that runs workgroups more than once uses `begin`, `run_groups` and `end` instead of `run`.
    """

    def __init__(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[object], cooperative: bool = False,
        call: Mapping[str, Any] | None = None, *,
        parts: Sequence[range] = (), threads: int | None = None, fuse: bool = True, supervisor: Supervisor = UNATTENDED,
    ) -> None:  # fmt: skip
        self.kernel, self.call = kernel, call
        self.fuse, self.supervisor = fuse, supervisor
        self.info, self.geometry, self.args = kernel.info, geometry, list(args)
        self.code, self.bias, self.origins = kernel.module.code, kernel.module.bias, kernel.module.origins
        self.device = device = kernel.module.device
        self.chip, self.memory, self.shadows, self.check = device.descriptor, device.memory, device.shadows, device.check
        self.node, self.number, self.footprints = device.node, device.number, device.footprints
        self.suppressions, self.weak, self.late = device.suppressions, device.weak, device.late
        self.seed = device.schedule if device.weak is None else device.weak
        self.max_instructions, self.timeout = device.max_instructions, device.timeout
        # Checks examine all writes to memory, so launches with checks do not reuse kept memory.
        self.borrowed = LaunchLoan(device.memory, None if device.checks else device.kept)
        self._table: tuple[int, AllocationTable] | None = None
        self.lds_bytes = self.info.group_segment_size + geometry.dynamic_lds
        limit = self.chip.lds_bytes
        if self.lds_bytes > limit:
            raise LaunchError(
                f"{self.info.title}: {self.lds_bytes} bytes of LDS (static and dynamic); "
                f"{self.arch} has {limit} for a workgroup"
            )
        self.exact_lds = any(check.exact_lds for check in device.checks)
        self.lds_room = self.lds_bytes if self.exact_lds else self.chip.lds_allocation(self.lds_bytes)
        self.fill_arguments()
        self.waves = -(-geometry.block[0] * geometry.block[1] * geometry.block[2] // 64)
        groups = geometry.groups
        self.groups = groups[0] * groups[1] * groups[2]
        if self.groups >= 1 << 62:
            raise LaunchError(f"{self.info.title}: {self.groups} workgroups; the limit is 2^62")
        self.shared = SharedState()
        self.at_work = ()
        self.cooperative = cooperative
        if cooperative and self.groups > (room := kernel.resident_groups(geometry.block, geometry.dynamic_lds)):
            raise LaunchError(
                f"{self.info.title}: a cooperative launch of {self.groups} workgroups; {room} reside at once on "
                f"{self.chip.num_cus} CUs, which all must"
            )
        self.parts = parts or (range(self.groups),)
        self.count = sum(map(len, parts)) if parts else self.groups
        self.output = Output(device.stdout, device.stderr)
        self.sync = GlobalSync(self.groups - 1)
        self.private = _private_bytes(self.info)
        self.stride = layout.WAVE_BYTES + sum(check.wave_bytes for check in device.checks)
        self.programs, self.checks = {}, {}
        self.lock = threading.Lock()
        self.team = Team(self.timeout)
        self.program = self.program_for(kernel.mode)
        self.entry = (self.info.start + kernel.module.bias - self.program.base) // 4
        self.workers = self._workers(threads)
        settled = parts or threads or cooperative or not fuse or supervisor is not UNATTENDED
        self.settings = None if settled else device.settings
        self.place = _place(kernel, geometry)
        self.recurs = False  # True if it was kept

    def _workers(self, threads: int | None) -> int:
        """Returns the number of workers: by the work of earlier launches, if that is known."""
        if self.seed is not None:
            return 1
        most = min(threads or self.device.threads, self.count)
        each: int | None = self.program.kept.get(("work", self.entry))  # of a workgroup, if known
        if threads or each is None or self.device.checks:
            return most
        return min(most, worthwhile_threads(each * self.count, self.count))

    def note_work(self, run: Run, launches: int = 1) -> None:
        """Keeps a workgroup's amount of work for later launches. Arguments change it, so a decrease counts half."""
        kept, key = self.program.kept, ("work", self.entry)
        kept[key] = max(amount_of_work(run) // (self.count * launches), kept.get(key, 0) // 2)

    # -- the records of each MODE --------------------------------------------------------------

    def program_for(self, word: int) -> Program:
        """Returns the records for a value of the MODE register."""
        number = mode.number(word)
        with self.lock:
            if number not in self.programs:
                if len(self.programs) == MODES:
                    raise UnsupportedInstruction(f"{self.info.title}: more than {MODES} settings of MODE in a launch")
                self.programs[number] = self.kernel.module.program(self.info, word, self.fuse)
            return self.programs[number]

    def clear_counts(self, workers: list[Worker]) -> None:
        """Zeroes the counts after a launch that ended without an error, for the next launch."""
        places = self.accounts.places
        for worker in workers:
            worker.counts.reshape(-1)[places] = 0

    # -- running -------------------------------------------------------------------------------

    def run(self) -> Run:
        """Executes the launch. Raises the errors of `simgpu.Kernel.launch`, with the findings so far in `findings`."""
        shown = self.device.shown
        with nullcontext() if shown is None else shown(self):
            return self._run_shown()

    def _run_shown(self) -> Run:
        well = False
        try:
            workers = self.at_work = self.begin()
            run = self.ran(workers, lambda: self._run_parts(workers))
            well = True
            return run
        finally:
            self.close(well)

    def ran(self, workers: list[Worker], execute: Callable[[], None]) -> Run:
        """Runs `execute`, which ends the launch's work, and returns the results. Adds the findings so far to its errors."""
        try:
            begun = time.perf_counter()
            execute()
            run = self._result(workers, time.perf_counter() - begun)
        except SimError as error:
            error.findings = tuple(self.supervisor.findings(self, workers))
            raise
        notes = (*self.notes, *outside_lds(self, workers))
        if self.device.checks or notes:
            found = self.supervisor.findings(self, workers)
            run = replace(run, findings=found, notes=notes, footprint=self.checks.get(FOOTPRINT))
        self.clear_counts(workers)
        return run

    def close(self, well: bool) -> None:
        """Keeps the launch for later ones or gives back its resources. well: True if it ended without an error."""
        try:
            self.output.flush()
        finally:
            if well and self._comes_again():
                self._keep()
            else:
                self.end(well)

    def begin(self) -> list[Worker]:
        """Lowers the code and makes the workers, if there are none. Call `end` afterwards, even after an error."""
        self._lower(self.program, self.entry)
        if self.at_work:
            self.renew()
        return [*self.at_work] or self.prepare()

    def end(self, well: bool) -> None:
        """Gives back the launch's resources. well: True if later launches may reuse them."""
        try:
            if self._table is not None:
                self.memory.give_back(*self._table)
        finally:
            self.borrowed.end(well)

    # -- again ---------------------------------------------------------------------------------

    @classmethod
    def again(cls, kernel: Kernel, geometry: Geometry, args: Sequence[object], call: Mapping[str, Any] | None) -> Launch | None:
        """Returns an earlier launch of this kernel and geometry, to run with other arguments; None if none was kept."""
        device = kernel.module.device
        found: Launch | None = device.kept.take(_place(kernel, geometry), _nothing)
        if found is None:
            return None
        found.kernel, found.device, found.args, found.call = kernel, device, list(args), call
        same = found.info is kernel.info and found.settings == device.settings and found.workers == found._workers(None)
        if same and kernel.module.segments and not geometry.extra:
            return found
        _drop(found)
        return None

    def _comes_again(self) -> bool:
        """True if the launch can run again, and if one of the last launches had its geometry."""
        if self.settings is None or self.sync.used or len(self.programs) > 1:
            return False
        if self.recurs:
            return True
        last: deque[Hashable] = self.program.kept.setdefault(("geometries", self.entry), deque(maxlen=LAST))
        if self.place not in last:
            last.append(self.place)
            return False
        self.recurs = self.is_uniform and self.borrowed.nbytes <= AGAIN_BYTES
        return self.recurs

    def _keep(self) -> None:
        """Keeps the launch with its memory and workers, but without what the caller owns."""
        assert self._table is not None
        self.memory.give_back(*self._table)
        kept = self.device.kept
        del self.kernel, self.device
        self.args, self.call = [], None
        self.borrowed.leave()
        kept.give_back(self.place, self, self.borrowed.nbytes, _drop)

    # -- workgroups ----------------------------------------------------------------------------

    def _run_parts(self, workers: list[Worker]) -> None:
        self.supervisor.before_run(self, workers)
        for part in self.parts:
            self.run_groups(workers, part.start, part.stop)
        self.supervisor.after_run(self, workers)

    def _result(self, workers: list[Worker], seconds: float) -> Run:
        """Returns the results of workers that ended. Raises InstructionLimit for too many instructions."""
        lost = next((clocks for check in self.device.checks if (clocks := check.conflicts(workers)) is not None), None)
        kernel, call = (self.kernel, self.call) if self.call else (None, {})
        run = summarise(self, totals(self.accounts, workers), seconds, lost, kernel, call)
        self.note_work(run)
        if self.device.profiler:
            self.device.profiler.after_launch(self, run)
        if run.instructions > self.max_instructions:
            # Waves check the budget only where control flow branches, so a short kernel may end first.
            raise InstructionLimit(
                f"{self.info.title}: executed {run.instructions} instructions, more than "
                f"max_instructions={self.max_instructions}; raise it if that is meant"
            )
        return run

    def run_groups(self, workers: list[Worker], first: int, last: int) -> None:
        """Runs workgroups first to last - 1, in the order of dispatch, on all workers."""
        self.shared.counter = first
        for worker in workers:
            worker.job.groups, worker.job.exhausted, worker.job.current = last, 0, 0
            worker.status = scheduler.PAUSED
        self.finish(workers)

    def finish(self, workers: list[Worker]) -> None:
        """Runs workers that began until their workgroups ended."""
        unfinished = workers
        while unfinished:
            try:
                self.sync.begin(len(unfinished))
                self.team.run(unfinished, self._work)
                for worker in workers:
                    if worker.error is not None:
                        raise worker.error
            except TimeOver:
                raise out_of_time(self, unfinished) from None
            if all(worker.status != scheduler.LIMIT for worker in unfinished):
                return
            self.refill(workers)
            unfinished = [worker for worker in unfinished if worker.status != scheduler.FINISHED]

    def refill(self, workers: list[Worker]) -> None:
        """Renews the used-up budget of record steps by the instructions that are left: an instruction of 8 bytes takes two steps,
        but counts once. Raises the error of `out_of_budget` if none is left."""
        left = self.max_instructions - instructions_so_far(self, workers)
        if left < 0:
            raise out_of_budget(self, next((worker for worker in workers if worker.status == scheduler.LIMIT), workers[0]))
        self.shared.budget = left
        for worker in workers:
            worker.job.spent = 0
        self.supervisor.after_refill(self)

    def _work(self, worker: Worker) -> None:
        try:
            with self.device.profiler.working() if self.device.profiler else nullcontext():
                self._loop(worker)
            if worker.status == scheduler.LIMIT:
                self.team.stop()
        except TeamCancelled:
            pass
        except BaseException as error:
            worker.error = error
            self.team.stop()
        finally:
            self.sync.leave()

    def _loop(self, worker: Worker) -> None:
        """Runs a worker to its end, or until the team stops or the budget is used up."""
        while True:
            seen = self.sync.released
            if worker.status != scheduler.NEED_PYTHON:
                self.team.advance(worker)
            if worker.status == scheduler.IDLE:
                if not self.sync.wait(worker, seen):
                    raise all_wait(self, worker)
            elif worker.status == scheduler.NEED_PYTHON:
                self.supervisor.serve(self, worker)
            else:
                return
            worker.status = scheduler.PAUSED

    def serve(self, worker: Worker) -> None:
        """Serves the current wave, which returned to Python. Raises errors that stop the launch."""
        state = current_wave(worker)
        if state.status == Status.PATH and any(check.resume(self, worker) for check in self.device.checks):
            return
        if state.status == Status.MESSAGE:
            self.answer(worker)
            return
        if state.status == Status.GWS:
            inst = self.instruction(state.resume - GWS_DWORDS)
            assert inst is not None
            self.sync.serve(worker, inst)
            return
        if state.status not in (Status.LOWER, Status.MODE, Status.WHOLE):
            raise describe(self, worker)
        program = self.program_for(state.mode)
        if state.status == Status.WHOLE:
            run_shielded(lambda: program.complete(state.resume, self.team.goes_on), self.team.stop)
            wave_of(worker, *place_of_wave(worker)).status = Status.RUNNING
            return
        self._lower(program, state.resume)
        if state.status == Status.MODE:
            self.change_mode(worker, state.mode, program)

    def _lower(self, program: Program, index: int) -> None:
        """Lowers a record and the code that control flow reaches from it, as long as the launch continues."""
        if not program.is_lowered(index):
            run_shielded(lambda: program.lower(index, self.team.goes_on), self.team.stop)

    def answer(self, worker: Worker) -> None:
        """Serves the message of the current wave, and lets the wave continue."""
        if worker.host is not None:
            worker.host.serve(self.geometry.number(current_wave(worker).group))
        wave_of(worker, *place_of_wave(worker)).status = Status.RUNNING

    def change_mode(self, worker: Worker, word: int, program: Program) -> None:
        """Makes the current wave use the handlers of its new MODE register."""
        worker.desk.set_program(mode.number(word), program.address)
        wave = wave_of(worker, *place_of_wave(worker))
        wave.records, wave.status = program.address, Status.RUNNING


def launch(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], cooperative: bool = False, call: Mapping[str, Any] | None = None
) -> Run:
    """Runs a kernel to its end; see `Kernel.launch`."""
    kept = None if cooperative else Launch.again(kernel, geometry, args, call)
    return (kept or Launch(kernel, geometry, args, cooperative, call)).run()


def _private_bytes(info: KernelInfo) -> int:
    """Returns the bytes of private memory of a lane. Raises LaunchError if the hardware has fewer."""
    stack = DYNAMIC_STACK if info.uses_dynamic_stack else 0
    private = -(-(info.private_segment_size + stack) // 16) * 16
    if private > PRIVATE_LIMIT:
        raise LaunchError(f"{info.title}: {private} bytes of private memory for a lane; the hardware has at most {PRIVATE_LIMIT}")
    return private


def _place(kernel: Kernel, geometry: Geometry) -> Hashable:
    """Returns what launches that can take each other's place have in common: the code's address and the geometry."""
    return kernel.info.start + kernel.module.bias, geometry.block, geometry.global_size, geometry.dynamic_lds


def _nothing() -> None:
    """Makes nothing if no launch was kept."""


def _drop(launch: Launch) -> None:
    """Drops a kept launch."""
    launch.borrowed.end(False)


