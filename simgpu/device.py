"""Public simulated GPU: the engine's device, with the checks of checked mode by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simgpu.engine import device as engine
from simgpu.engine.device import Buffer
from simgpu.engine.launch import launch
from simgpu.engine.suppressions import Suppressions, read
from simgpu.engine.uploads import upload_arrays
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError, says_it_all

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from simgpu.engine.check import Check
    from simgpu.engine.result import Run
    from simgpu.hardware import HardwareDescriptor
    from simgpu.timing.caches import Warm
    from simgpu.timing.history import LaunchHistory
    from simgpu.timing.predict import Prediction

__all__ = ["Buffer", "Device", "Kernel", "Module"]

__tracebackhide__ = says_it_all

RING = "SIMGPU_RING"  # environment variable: the default of `ring`


class Kernel(engine.Kernel):
    """A kernel of a module: `arguments` (explicit ones), `resources`, `launch`, `time`.

    >>> from simgpu import asm, operators
    >>> emitted = asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x"))
    >>> Device("mi300x").load(emitted.assemble())[emitted.name].resources["max_workgroup_size"]
    256
    """

    def launch(
        self, grid: int | Sequence[int] | None = None, block: int | Sequence[int] = 64, args: Sequence[object] = (),
        dynamic_lds: int = 0, *, global_size: int | Sequence[int] | None = None, cooperative: bool = False,
        executor: Executor | None = None, slices: int | None = None,
    ) -> Run:  # fmt: skip
        """Runs the kernel to its end. `Run.time` predicts its time on a GPU, `Run.html` shows the run.

        grid: workgroups in x, y, z, or global_size: work-items (its last workgroups may be partial).
        block: work-items of a workgroup. dynamic_lds: bytes.
        args: one entry per explicit argument: a buffer, a number, bytes, or an array. An array is uploaded, and holds what the
        kernel wrote afterwards (`engine.uploads`).
        cooperative: have all workgroups resident at once, so that they may wait for each other.

        executor: where to run the workgroups, in `slices` consecutive ranges (default: a range per core of this host).
        The result is that of the ranges run in order (docs/how-to/cluster.md). A launch that cannot be cut runs whole, and
        `Run.notes` gives the reason.

        Raises LaunchError before running. Raises MemoryFault, Deadlock, InstructionLimit, TimeLimit, HostCallError,
        KernelTrap, UnsupportedInstruction or DecodeError if the kernel fails. An exception in this thread, such as
        KeyboardInterrupt or one from a signal handler, ends the launch; its buffers then hold the values written so
        far.

        >>> from simgpu import asm, operators
        >>> gpu = Device("mi300x")
        >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
        >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
        >>> run.kernel.launch(**run.call).counters["mfma_flops"]   # the kernel again, with the same arguments
        524288
        """
        geometry = Geometry.of(grid, block, dynamic_lds, global_size)
        extents = {"grid": grid, "block": block, "dynamic_lds": dynamic_lds, "global_size": global_size}
        call = {**extents, "args": list(args)}
        if executor is None:
            if slices is not None:
                raise LaunchError(f"slices={slices}: give the executor that is to run them")
            self.hidden_segment(geometry)  # checks the geometry before arrays are uploaded
            with upload_arrays(self, args) as given:
                self.check_buffers(given)
                return launch(self, geometry, given, cooperative, call)
        from simgpu.slices.sliced import launch_sliced

        with upload_arrays(self, args) as given:
            run = launch_sliced(self, geometry, given, executor, slices or os.cpu_count() or 1, cooperative)
        return replace(run, kernel=self, call=call)

    def time(
        self, grid: int | Sequence[int] | None = None, block: int | Sequence[int] = 64, args: Sequence[object] = (),
        dynamic_lds: int = 0, *, global_size: int | Sequence[int] | None = None, mhz: float | None = None,
        warm: Warm | LaunchHistory = False, events: int = 0, restore: bool = True,
    ) -> Prediction:  # fmt: skip
        """Predicts the launch's time on a real GPU: cycles, seconds and a band (docs/explanation/timing.md).

        Only samples of its workgroups run, and the device's memory is restored. mhz: the engine's clock (default: the clock that
        the board is known to hold). warm: True if the caches hold what an earlier launch left, "last" if only the last cache
        does, as in a benchmark that takes turns on several sets of buffers; "stored" if that launch stored what this one loads,
        so that other XCDs hold some of it; or `left` of the prediction of the launch before, which says which XCD loaded and
        stored what. events: the number of instructions of a CU to keep for a timeline. restore: False if buffers of 16 MB and
        more may keep what samples wrote, which saves time. The other arguments and the exceptions are those of `launch`. Also
        raises LaunchError if no time can be predicted.

        >>> from simgpu import asm, operators
        >>> gpu = Device("mi300x")
        >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
        >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
        >>> predicted = run.kernel.time(**run.call)
        >>> predicted.low < predicted.seconds < predicted.high, predicted.limit
        (True, 'launch')
        >>> run.kernel.time(**run.call, warm=predicted.left).seconds < predicted.seconds
        True
        """
        from simgpu.sampling.samples import time_launch

        geometry = Geometry.of(grid, block, dynamic_lds, global_size)
        with upload_arrays(self, args) as given:
            return time_launch(self, geometry, given, mhz=mhz, warm=warm, events=events, restore=restore)


class Module(engine.Module):
    """A loaded code object: kernels by name.

    >>> from simgpu import asm, operators
    >>> list(Device("mi300x").load(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")).assemble()))
    ['gemm_f32_nn_32x32x64']
    """

    kernel_class = Kernel

    def __getitem__(self, name: str) -> Kernel:
        found = super().__getitem__(name)
        assert isinstance(found, Kernel)
        return found


class Device(engine.Device):
    """A simulated GPU with its memory.

    target: gfx908, gfx90a, gfx942, gfx950 or a board's name (see `hardware.targets`), or a HardwareDescriptor: a board that nobody
    built, with more LDS or fewer CUs, which executes its `arch`.
    check: True looks for faults that hardware does not report (`Run.findings`, docs/reference/findings.md). "performance" also
    notes what costs time. "numerics" only finds where NaN, infinities and losses first appear (docs/how-to/numerics.md).
    threads: host threads (default: all cores).
    max_instructions: budget of a launch, in wave-instructions of all workgroups (docs/reference/limits.md).
    timeout: seconds that a launch may last, None for any.
    unique_bytes: True if launches count `unique_read_bytes` and `unique_write_bytes`.
    suppressions: a file of known findings, which are not reported (`engine.suppressions`).
    weak: seed of weak mode, whose caches hold old copies and whose waves run in an order that the seed chooses, on one host
    thread (docs/how-to/find-a-missing-fence.md). None: memory shows each access at once.
    late: seed of late mode, in which loads and LDS writes complete when the kernel waits for them, or earlier at moments that the
    seed chooses (docs/how-to/find-a-missing-wait.md). None: they complete at once.
    schedule: seed of the order in which waves run, on one host thread, for checked mode. None: in order.
    ring: True if floats are elements of a ring of integers, so that kernels can be compared exactly (docs/explanation/ring.md).
    Default: as the environment variable SIMGPU_RING says, 1 or 0.

    Raises TargetError for an unknown target, OSError for a file that cannot be read, LaunchError for other bad arguments.

    >>> gpu = Device("mi300x", check=True)
    >>> gpu.upload([1.0, 2.0]).download()
    array([1., 2.])
    """

    module_class = Module

    def __init__(
        self,
        target: str | HardwareDescriptor,
        *,
        check: bool | str = False,
        threads: int | None = None,
        max_instructions: int | None = None,
        timeout: float | None = None,
        unique_bytes: bool = True,
        suppressions: Suppressions | str | os.PathLike[str] | None = None,
        weak: int | None = None,
        late: int | None = None,
        schedule: int | None = None,
        ring: bool | None = None,
    ) -> None:
        if schedule is not None and (schedule < 0 or weak is not None):
            raise LaunchError(f"schedule={schedule}: give a seed of 0 or more, and no weak, which has its own order")
        if weak is not None and late is not None:
            raise LaunchError(f"weak={weak}, late={late}: each changes when loads take effect; give one, and launch twice")
        for name, mode_seed in (("weak", weak), ("late", late)):
            if mode_seed is not None and mode_seed < 0:
                raise LaunchError(f"{name}={mode_seed}: give a seed of 0 or more")
            if mode_seed is not None and check:
                raise LaunchError(f"{name}={mode_seed}: {name} mode reports no findings; leave check out, or launch twice")
        if check not in (False, True, "performance") and not str(check).startswith("numerics"):
            raise LaunchError(f"check={check!r}: give False, True, \"performance\" or \"numerics\"")
        ring = _ring_by_default() if ring is None else ring
        if ring and str(check).startswith("numerics"):
            raise LaunchError(f"check={check!r} looks at numbers, which a ring has not: leave ring (or {RING}) out")
        known = read(suppressions) if isinstance(suppressions, (str, os.PathLike)) else suppressions
        super().__init__(
            target, check=check, checks=_checks(check, weak, late), threads=threads, max_instructions=max_instructions,
            timeout=timeout, unique_bytes=unique_bytes, suppressions=known, schedule=schedule, ring=ring,
        )  # fmt: skip
        self.weak, self.late = weak, late

    def load(self, source: str | os.PathLike[str] | bytes, place: engine.Place | None = None) -> Module:
        """Loads a code object (ELF or clang offload bundle) from a path or from bytes; place: see
        `engine.device.Device.load`.

        Raises DecodeError for a damaged file and LaunchError for another target's.
        """
        found = super().load(source, place)
        assert isinstance(found, Module)
        return found


def _ring_by_default() -> bool:
    """Returns what SIMGPU_RING says. Raises LaunchError for an unknown value."""
    said = os.environ.get(RING) or "0"
    if said not in ("0", "1"):
        raise LaunchError(f"{RING}={said}: give 1, or 0 for ordinary numbers")
    return said == "1"


def _checks(check: bool | str, weak: int | None, late: int | None) -> tuple[Check, ...]:
    """Returns the checks of a mode. They are imported here because plain mode starts faster without them."""
    if weak is not None:
        from simgpu.weak.mode import WeakMemory

        return (WeakMemory(),)
    if late is not None:
        from simgpu.checks.waits.late_arrival import LateArrival

        return (LateArrival(),)
    if not check:
        return ()
    if isinstance(check, str) and check.startswith("numerics"):
        from simgpu.checks.numerics.check import Numerics
        from simgpu.checks.numerics.wanted import NumericsOptions
        from simgpu.engine.events import RetiredCounter

        return RetiredCounter(), Numerics(NumericsOptions.of(check))
    from simgpu.checks.suite import CHECKS, NOTES

    return NOTES if check == "performance" else CHECKS
