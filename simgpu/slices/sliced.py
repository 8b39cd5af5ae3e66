"""Runs a launch in slices, in an executor. Each slice starts from the memory before the launch.

The writes of the slices are committed in order. A slice that read bytes that an earlier one wrote runs again in this process, on
the memory so far. So the result is that of running the slices in order. This follows from the bytes that they touched, without
assumptions. In checked mode, slices that touch the same byte, one of them by a write, run again together, so that checks see both
sides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from simgpu import hardware
from simgpu.engine.checked import arrange
from simgpu.engine.finding import CHECK_FAILED, Finding
from simgpu.engine.launch import Launch
from simgpu.engine.result import Run, merge_inexact
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import LaunchError, SimError
from simgpu.slices.blobs import leave, name_of
from simgpu.slices.part import Slice
from simgpu.slices.touched import TouchedBytes, count, meet, scatter_bytes
from simgpu.slices.worker import Answer, SentAllocation, Task, run_slice, version

if TYPE_CHECKING:
    from pathlib import Path

    from simgpu.engine.allocations import Allocation
    from simgpu.engine.device import Kernel

Key = TypeVar("Key", int, str)
# Kinds of findings that a launch has once, however often the instruction ran.
OF_LAUNCH = ("resource", "argument-type", CHECK_FAILED)
TRIES = 3  # attempts at a slice if an executor loses it or its worker lacks bytes


def launch_sliced(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], executor: Executor, slices: int, cooperative: bool = False
) -> Run:
    """Runs a kernel to its end in `slices` slices; arguments and exceptions: see `simgpu.Kernel.launch`."""
    if slices < 1:
        raise LaunchError(f"slices={slices}: at least one is needed")
    check_geometry(kernel.info, geometry)
    kernel.check_buffers(args)
    begun = time.perf_counter()
    launch = SlicedLaunch(kernel, geometry, args, executor)
    why = "it is cooperative: its workgroups wait for each other" if cooperative else launch.why_whole()
    tasks = [] if why else launch.tasks(slices)
    answers: list[Answer] = []
    if not why:
        answers, why = launch.answers(tasks)
    meetings: Sequence[Sequence[int]] = ()
    if not why and kernel.module.device.checks:
        meetings, why = launch.meetings(answers)
    if why:
        run = Launch(kernel, geometry, args, cooperative).run()
        return replace(run, notes=(*run.notes, f"the launch ran whole, not in slices: {why}"))
    return replace(launch.commit(tasks, answers, meetings), seconds=time.perf_counter() - begun)


class SlicedLaunch:
    """Slices of one launch."""

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object], executor: Executor) -> None:
        self.kernel = kernel
        self.device = kernel.module.device
        self.geometry = geometry
        self.args = args
        self.executor = executor
        self.folder: Path | None = getattr(executor, "folder", None)  # see `Processes`
        self.arrays: dict[str, np.ndarray] = {}  # arrays that tasks name, by hash

    def why_whole(self) -> str:
        """Returns why the launch is not cut, as far as it is known before it runs, or ""."""
        if self.device.check == "performance":
            return 'check="performance" reports on all workgroups together'
        if not self.device.memory.counts:
            return "Device(unique_bytes=False) does not note the bytes that slices touch"
        if self.device.descriptor.lds_bytes != hardware.target(self.device.arch).lds_bytes:
            return f"this device's LDS is not that of {self.device.arch}, whose figures the slices' processes use"
        return ""

    # -- the task of a worker --------------------------------------------------------------------

    def _array_name(self, data: np.ndarray) -> str:
        name = name_of(data)
        if name:
            self.arrays[name] = data
            if self.folder is not None:
                leave(self.folder, name, data)
        return name

    def _block(self, held: Allocation) -> SentAllocation:
        undefined = "" if held.undefined is None else self._array_name(held.undefined)
        return SentAllocation(
            held.address, held.nbytes, held.data.size, held.writable, held.label, self._array_name(held.data), undefined
        )  # fmt: skip

    def task(self) -> Task:
        """Returns the whole launch as a task. A slice that needs an allocation left out here fails, and then runs in this
        process."""
        device, module, info = self.device, self.kernel.module, self.kernel.info
        own = set(map(id, module.segments))
        others = [held for held in device.memory.allocations if held.tracked and not held.lead and id(held) not in own]
        args = tuple(getattr(value, "address", value) for value in self.args)
        code = np.frombuffer(module.code.data, np.uint8)
        groups = self.geometry.groups
        return Task(
            version(), device.arch, bool(device.checks), device.max_instructions, device.timeout, device.threads,
            self._array_name(code), code.size, tuple(map(self._block, module.segments)), tuple(map(self._block, others)),
            info.name, self.geometry, args, range(groups[0] * groups[1] * groups[2]), str(self.folder or ""),
        )  # fmt: skip

    # -- running --------------------------------------------------------------------------------

    def tasks(self, slices: int) -> list[Task]:
        """Cuts the launch into `slices` tasks, or one per workgroup if it has fewer."""
        task = self.task()
        groups = len(task.part)
        parts = min(slices, groups)
        cuts = [groups * at // parts for at in range(parts + 1)]
        return [replace(task, part=range(first, last)) for first, last in pairwise(cuts)]

    def answers(self, tasks: Sequence[Task]) -> tuple[list[Answer], str]:
        """Returns the tasks' answers, and the reason to run the launch whole instead, or ""."""
        pending = [self._submit(task) for task in tasks]
        found: list[Answer] = []
        try:
            for task, future in zip(tasks, pending, strict=True):
                answer = self._answer(task, future)
                if answer.refused:
                    raise LaunchError(f"{self.kernel.name}: {answer.refused}")
                if answer.alone:
                    return [], answer.alone
                found.append(answer)
        finally:
            for future in pending:
                if future is not None:
                    future.cancel()
        if sum(answer.run.instructions for answer in found if answer.run) > self.device.max_instructions:
            return [], f"its slices executed more than max_instructions={self.device.max_instructions}"
        return found, ""

    def _submit(self, task: Task) -> Future[Answer] | None:
        try:
            return self.executor.submit(run_slice, task)
        except RuntimeError:  # broken, or shut down
            return None

    def _answer(self, task: Task, future: Future[Answer] | None) -> Answer:
        """Waits for a worker's answer. If there is none, returns that the slice failed, so that it runs here."""
        lost = "the executor accepts no more tasks"
        for _ in range(TRIES):
            if future is None:
                break
            try:
                answer = future.result()
            except Exception as error:  # any exception of an executor whose worker died or whose connection broke
                lost = f"{type(error).__name__}: {error}".rstrip(": ")
                future = self._submit(task)
                continue
            if not answer.missing:
                return answer
            lost = "workers do not keep the arrays that they are sent"
            future = self._submit(replace(task, given={name: self.arrays[name].tobytes() for name in answer.missing}))
        return Answer(failed=f"no worker ran it: {lost}")

    # -- putting it together --------------------------------------------------------------------

    def meetings(self, answers: Sequence[Answer]) -> tuple[list[list[int]], str]:
        """Groups slices that touch the same byte, one of them by a write, for checked mode.

        Returns the groups of slice numbers, which have no byte in common, and the reason to run all workgroups together, or "".
        """
        groups: list[tuple[list[int], TouchedBytes]] = []
        for number, answer in enumerate(answers):
            if answer.failed:
                return [], f"slice {number} failed on its own: {answer.failed}"
            mine, members = TouchedBytes.unpack(answer.touched), [number]
            apart = []
            for group, touched in groups:
                if meet(mine.written, touched.read) or meet(mine.read, touched.written) or meet(mine.written, touched.written):
                    members, mine = [*group, *members], mine | touched
                else:
                    apart.append((group, touched))
            groups = [*apart, (members, mine)]
        if len(groups) == 1 and len(answers) > 1:
            return [], "every slice touches bytes of another"
        return [sorted(members) for members, _ in groups if len(members) > 1], ""

    def commit(self, tasks: Sequence[Task], answers: Sequence[Answer], meetings: Sequence[Sequence[int]]) -> Run:
        """Commits the slices' results in order. Slices of one meeting run together in this process. Raises the kernel's errors."""
        total, runs, notes = TouchedBytes({}, {}), [], []
        seen: list[Finding] = []
        together_with = {number: members for members in meetings for number in members}
        for number, (task, answer) in enumerate(zip(tasks, answers, strict=True)):
            members = together_with.get(number, [number])
            if number != members[0]:
                continue  # it ran with the first of them
            mine = TouchedBytes.unpack(answer.touched)
            again = answer.failed or ("it reads data that an earlier one wrote" if meet(mine.read, total.written) else "")
            if not again and len(members) == 1:
                self._write(answer, mine)
                runs.append(answer.run)
                seen += answer.findings
                total = total | mine
                continue
            waits = answer.waits  # perhaps for later ones, which then run with it
            parts = [range(task.part.start, tasks[-1].part.stop)] if waits else [tasks[member].part for member in members]
            part = Slice()
            try:
                runs.append(Launch(self.kernel, self.geometry, self.args, parts=parts, supervisor=part).run())
            except SimError as error:
                error.findings = self._arrange([*seen, *part.seen])
                raise
            seen += part.seen
            total = total | part.touched
            if len(members) > 1:
                numbers = f"{', '.join(map(str, members[:-1]))} and {members[-1]}"
                notes.append(f"slices {numbers} ran together in the caller's process: they touch the same bytes")
            else:
                notes.append(f"slice {number} ran in the caller's process{', with all later ones' if waits else ''}: {again}")
            if waits:
                break
        run = join_runs([run for run in runs if run is not None], notes)
        unique = {"unique_read_bytes": total.read, "unique_write_bytes": total.written}
        counters = {**run.counters, **{name: count(bits, self.device.memory) for name, bits in unique.items()}}
        return replace(run, counters=counters, findings=list(self._arrange(seen)))

    def _arrange(self, seen: Sequence[Finding]) -> tuple[Finding, ...]:
        return tuple(arrange(self.device.suppressions.left_of(merge_findings(seen)), self.kernel.module.origins))

    def _write(self, answer: Answer, mine: TouchedBytes) -> None:
        for base, values, undefined in answer.values:
            held = self.device.memory.find(base)
            assert held is not None
            scatter_bytes(mine.written[base], held.data, values)
            if held.undefined is not None:
                scatter_bytes(mine.written[base], held.undefined, undefined)


def join_runs(runs: Sequence[Run], notes: Sequence[str]) -> Run:
    """Merges the runs of several parts of a launch, without findings and seconds. Bytes that n parts touch count n times.

    notes: those about the slices
    """
    return Run(
        instructions=sum(run.instructions for run in runs),
        seconds=0.0,
        counters=add_counts(run.counters for run in runs),
        fidelity=add_counts(run.fidelity for run in runs),
        profile=add_counts(run.profile for run in runs),
        lanes=add_counts(run.lanes for run in runs),
        lds_conflicts=add_counts(run.lds_conflicts for run in runs),
        inexact=merge_inexact(chain.from_iterable(run.inexact for run in runs)),
        notes=(*dict.fromkeys(note for run in runs for note in run.notes), *notes),
    )


def add_counts(counts: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """Sums counts by key."""
    total: Counter[Key] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Merges the findings of several slices, each once; their counts are summed."""
    found: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        address = finding.place.startswith("0x")  # in memory: the first address that was seen
        place = "" if address else finding.place
        key = finding.kind, finding.severity, finding.pc, finding.other_pc, finding.needed, finding.found, place
        held = found.setdefault(key, finding)
        if held is not finding and finding.kind not in OF_LAUNCH:
            found[key] = replace(held, count=held.count + finding.count)
    return list(found.values())
