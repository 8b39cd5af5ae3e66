"""A simulated device that Triton launches on, and the results of its launches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from simgpu.device import Device, Kernel, Module
from simgpu.engine.finding import Finding, KernelFinding, errors_among
from simgpu.engine.launch import launch
from simgpu.engine.result import Run
from simgpu.engine.suppressions import Suppressions, read
from simgpu.hardware import target_count
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError, MemoryFault, SimError, says_it_all
from simgpu.hip.properties import values
from simgpu.sampling.samples import time_launch
from simgpu.triton.arguments import ArgumentValue, encode
from simgpu.triton.frames import with_calls
from simgpu.triton.model import BenchClock
from simgpu.triton.tensors import (
    GUARDS,
    HEAP,
    STORAGE,
    VIEW,
    SharedTensors,
    Unreachable,
    is_tensor,
    lies_elsewhere,
    pointees,
    pointer_of,
    span_of,
)
from simgpu.triton.usage import Launched, LaunchUse, OperatorUse

__tracebackhide__ = says_it_all

WARP = 64
ADVICE = (
    "if it points to a tensor that is not an argument, such as an entry of a table of pointers, register that tensor before: "
    "session.register(tensor), with `as session` after simgpu.triton.device(...)"
)


@dataclass
class LoadedBinary:
    """A compiled kernel as Triton holds it; each session loads it for itself."""

    name: str
    code: bytes
    dynamic_lds: int
    follows: bool = True  # may load through addresses in memory
    last: Launched | None = None  # its latest launch


Before = Callable[[Kernel, Geometry, list[object], Sequence[ArgumentValue]], None]


class Session:
    """A simulated device that Triton uses, or several equal ones; each thread has a current one.

    name: the target, as it was given. board: the name without the number of devices. gpus: the `simgpu.Device`s.
    checked: True in checked mode. suppressions: findings that are not reported.
    findings: findings of all launches, if `check="collect"`.
    launches: number of launches that began. used: their totals by kernel name. clock: modelled time (docs/explanation/timing.md).
    operators: calls of PyTorch's operators by name, if these are simulated (`simgpu.tools.torch.operators`).
    before: called before each launch, when the tensors are mapped; it is set on the class, for all sessions.
    tried: called after the autotuner timed a candidate, with the kernel's name, the candidate's values and its ms; set as `before`.

    >>> from simgpu.triton import device
    >>> with device("mi300x:2") as session:
    ...     session.use(1)
    >>> session.board, len(session.gpus), session.current
    ('mi300x', 2, 1)
    """

    before: Before | None = None
    tried: Callable[[str, Mapping[str, Any], float], None] | None = None

    def __init__(
        self,
        target: str,
        check: bool | str,
        threads: int | None = None,
        max_instructions: int | None = None,
        guard: str = STORAGE,
        suppressions: str | Path | None = None,
        weak: int | None = None,
        late: int | None = None,
        ring: bool | None = None,
    ) -> None:
        if guard not in GUARDS:
            raise LaunchError(f"guard={guard!r}: give one of {', '.join(GUARDS)}")
        self.name = target
        self.board, count = target_count(target)
        self.collect = check == "collect"
        self.checked = bool(check)
        checked = True if self.collect else check
        self.suppressions = Suppressions() if suppressions is None else read(suppressions)
        self.gpus = tuple(
            Device(
                self.board, check=checked, threads=threads, max_instructions=max_instructions, suppressions=self.suppressions,
                weak=weak, late=late, ring=ring,
            )
            for _ in range(count)
        )
        for gpu in self.gpus:
            gpu.memory.advice = ADVICE
        self._chosen = threading.local()
        self.guard = guard
        self.findings: list[Finding] = []
        self.launches = 0
        self.used: dict[str, LaunchUse] = {}
        self.operators: dict[str, OperatorUse] = {}
        self.clock = BenchClock()
        self._registered: list[tuple[str, Any]] = []
        self._modules: dict[tuple[int, bytes], Module] = {}
        self._profiled: dict[object, float] = {}

    @property
    def current(self) -> int:
        """Number of this thread's device; 0 in a thread that chose none."""
        return getattr(self._chosen, "index", 0)

    @property
    def gpu(self) -> Device:
        """This thread's device."""
        return self.gpus[self.current]

    def use(self, index: int) -> None:
        """Makes a device this thread's current one. Raises LaunchError if no device has that number."""
        if not 0 <= index < len(self.gpus):
            raise LaunchError(f"device {index} of {self.name}: there are {len(self.gpus)}, numbered from 0")
        self._chosen.index = index

    def kernel(self, binary: LoadedBinary) -> Kernel:
        """Returns a compiled kernel, loaded on this thread's device."""
        key = self.current, binary.code
        module = self._modules.get(key)
        if module is None:
            module = self._modules[key] = self.gpu.load(binary.code)
        return module[binary.name]

    def register(self, *tensors: Any) -> None:
        """Lets kernels of later launches access these tensors, through pointers stored in other tensors.

        The session keeps them alive. Raises LaunchError for an object that is no tensor in host memory.
        """
        for tensor in tensors:
            if not is_tensor(tensor):
                raise LaunchError(f"{type(tensor).__name__} was to be registered: pass numpy arrays or CPU tensors")
            name = f"registered tensor {len(self._registered)}"
            span_of(name, tensor)
            self._registered.append((name, tensor))

    def launch(
        self, binary: LoadedBinary, grid: tuple[int, int, int], warps: int, values: Sequence[ArgumentValue], cooperative: bool
    ) -> None:
        """Runs a kernel on the tensors among its arguments, on this thread's device. cooperative: all workgroups reside at once.

        Raises Unreachable for a tensor on another device, KernelFinding in checked mode unless findings are collected,
        and the exceptions of `Kernel.launch`.
        """
        if 0 in grid:
            return
        self.launches += 1
        if self.clock.sweeps and not self.clock.runs:
            return
        # Benchmarks that Proton records launch a kernel thousands of times on tensors of the same form: each takes as long.
        form = (binary.code, grid, *map(_form, values)) if self.clock.sweeps and self.clock.profile is not None else None
        if form in self._profiled:
            self.clock.note(binary.name, self._profiled[form])
            return
        kernel = self.kernel(binary)
        use = self.used.setdefault(binary.name, LaunchUse(binary.name))
        use.launches += 1
        tensors = [(f"argument {value.name}", value.value) for value in values if value.is_pointer and is_tensor(value.value)]
        geometry = Geometry.of(grid, WARP * warps, binary.dynamic_lds)
        for name, tensor in tensors:
            if there := lies_elsewhere(tensor, self.current):
                raise Unreachable(
                    f"{name} is on {there}, but {binary.name} is launched on cuda:{self.current}, the current device, which "
                    f"cannot reach it: launch inside `with torch.cuda.device({there[5:]}):`"
                )
        known = [*tensors, *self._registered]
        numbers = [value.value for value in values]
        may_follow = binary.follows or any(isinstance(number, int) and number >= HEAP for number in numbers)
        behind = pointees(known, numbers) if may_follow else []
        held = [(name, tensor) for name, tensor in (*known, *behind) if not lies_elsewhere(tensor, self.current)]
        with SharedTensors(self.gpu.memory, held, self.guard) as shared:
            args = [_plain(value) for value in values]
            if self.before is not None:
                self.before(kernel, geometry, args, values)
            run, milliseconds = self._run(kernel, geometry, args, shared, use, cooperative=cooperative)
        if run is None:
            if form is not None and milliseconds is not None and self.clock.samples:
                self._profiled[form] = milliseconds
            return
        lds_bytes = kernel.info.group_segment_size + binary.dynamic_lds
        binary.last = Launched(kernel, grid, warps, lds_bytes, run, time.monotonic_ns())
        use.findings += len(run.findings)
        use.add(binary.last, milliseconds)
        self._report(run.findings)

    def launch_for(
        self, operator: str, kernel: Kernel, geometry: Geometry, args: Sequence[object], tensors: Sequence[tuple[str, Any]]
    ) -> float | None:
        """Runs a kernel of simgpu's own for an operator of PyTorch, which findings and errors name; returns its modelled ms, None
        if no time is requested.

        args: numbers, and addresses of these tensors, of which the kernel may access the elements only. The launch counts in
        `used`, not in `launches`, which are the program's. Raises as `launch`.
        """
        if self.clock.sweeps and not self.clock.runs:
            return None  # as in `launch`
        use = self.used.setdefault(kernel.name, LaunchUse(kernel.name))
        use.launches += 1
        with SharedTensors(self.gpu.memory, tensors, VIEW) as shared:
            run, milliseconds = self._run(kernel, geometry, args, shared, use, operator)
        if run is not None:
            warps, lds_bytes = prod(geometry.block) // WARP, kernel.info.group_segment_size
            use.findings += len(run.findings)
            use.add(Launched(kernel, geometry.groups, warps, lds_bytes, run, time.monotonic_ns()), milliseconds)
            self._report(run.findings)
        return milliseconds

    def _run(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[object], shared: SharedTensors, use: LaunchUse, operator: str = "",
        cooperative: bool = False,
    ) -> tuple[Run | None, float | None]:
        """Runs a kernel on mapped tensors; returns the run and its modelled ms. The run is None if only a time was wanted, or if
        it ended with a fault that the findings have."""
        milliseconds, suppressed = None, self.suppressions.used.total()
        try:
            if self.clock.runs:  # before the launch changes its inputs
                milliseconds = self._time(kernel, geometry, args)
                if self.clock.samples and milliseconds is not None:
                    return None, milliseconds
            run = launch(kernel, geometry, args, cooperative)
            told = self._user_findings(kernel, run.findings, shared, operator)
        except SimError as error:
            error.findings = tuple(self._user_findings(kernel, error.findings, shared, operator))
            error.args = (shared.with_index(str(error)) + _of(operator),)
            use.findings += len(error.findings)
            self._report(error.findings, error)
            explained = error.findings or self.suppressions.used.total() > suppressed
            if self.collect and isinstance(error, MemoryFault) and explained:
                return None, None  # the fault is among the findings that were collected or suppressed
            raise
        return replace(run, findings=told), milliseconds

    def _time(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> float | None:
        """Returns modelled ms of a launch; None if it fails, which the launch itself reports."""
        try:
            milliseconds = 1e3 * time_launch(kernel, geometry, args, restore=not self.clock.sweeps).seconds
        except SimError:
            return None
        self.clock.note(kernel.name, milliseconds)
        return milliseconds

    def _user_findings(
        self, kernel: Kernel, findings: Iterable[Finding], shared: SharedTensors, operator: str
    ) -> list[Finding]:
        """Returns the findings with calls, with indices of tensors in their messages, and with the operator of PyTorch."""
        told = (with_calls(kernel.module.code, finding) for finding in findings)
        return [replace(finding, message=shared.with_index(finding.message) + _of(operator)) for finding in told]

    def _report(self, findings: Sequence[Finding], cause: SimError | None = None) -> None:
        errors = errors_among(findings)
        if self.collect:
            self.findings += findings
        elif errors:
            raise KernelFinding(errors) from cause


def _of(operator: str) -> str:
    """Names an operator of PyTorch at the end of a message."""
    return f" (in PyTorch's {operator})" if operator else ""


def _form(value: ArgumentValue) -> object:
    """Returns the part of an argument that a launch's time depends on: a number, or a tensor's shape, strides and dtype."""
    tensor = value.value
    if not (value.is_pointer and is_tensor(tensor)):
        return tensor
    strides = tensor.strides if isinstance(tensor, np.ndarray) else tensor.stride()
    return tuple(tensor.shape), strides, str(tensor.dtype)


def _plain(value: ArgumentValue) -> object:
    """Returns a number's bytes, or a pointer argument's address (None: null)."""
    if not value.is_pointer:
        return encode(value)
    if is_tensor(value.value):
        return pointer_of(value.value)
    return 0 if value.value is None else value.value


def properties(session: Session) -> Mapping[str, Any]:
    """Returns the device properties that Triton and its users read, under HIP's names."""
    told = values(session.gpu.descriptor, 0)
    return {
        "max_shared_mem": told["sharedMemPerBlock"],
        "max_num_regs": told["regsPerBlock"],
        "max_threads_per_sm": told["maxThreadsPerMultiProcessor"],
        "multiprocessor_count": told["multiProcessorCount"],
        "sm_clock_rate": told["clockRate"],
        "mem_clock_rate": told["memoryClockRate"],
        "mem_bus_width": told["memoryBusWidth"],
        "arch": session.gpu.arch,
        "warpSize": WARP,
        "cooperativeLaunch": told["cooperativeLaunch"],
    }
