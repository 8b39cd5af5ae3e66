"""The simulated GPU as a user meets it: the engine's device, with the checks of checked mode by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simgpu.engine import device as engine
from simgpu.engine.device import Buffer
from simgpu.engine.launch import launch
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import LaunchError, says_it_all

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from simgpu.engine.check import Check
    from simgpu.engine.result import Run
    from simgpu.timing.predict import Prediction

__all__ = ["Buffer", "Device", "Kernel", "Module"]

__tracebackhide__ = says_it_all


class Kernel(engine.Kernel):
    """One kernel of a module: `arguments` (explicit ones), `resources`, `launch`, `time`."""

    def launch(
        self, grid: int | Sequence[int] | None = None, block: int | Sequence[int] = 64, args: Sequence[object] = (),
        dynamic_lds: int = 0, *, global_size: int | Sequence[int] | None = None, cooperative: bool = False,
        executor: Executor | None = None, slices: int | None = None,
    ) -> Run:  # fmt: skip
        """Run the kernel to its end. `Run.time` says what that takes on a GPU, `Run.html` shows it.

        grid: workgroups in x, y, z, or global_size: work-items (its last workgroups may be partial); block: work-items of a
        workgroup; args: one entry per explicit argument; dynamic_lds: bytes; cooperative: have all workgroups resident at once,
        so that they may wait for each other. Raises LaunchError before running, and MemoryFault, Deadlock, InstructionLimit,
        TimeLimit, HostCallError, KernelTrap, UnsupportedInstruction or DecodeError where the kernel fails. An exception in
        this thread, a KeyboardInterrupt or a signal handler's, ends the launch; its buffers then hold what was written so far.

        executor: where to run the workgroups, in `slices` ranges of them (default: as many as this host has cores), with the
        result of the ranges one after another; docs/cluster.md. What cannot be cut runs whole, as `Run.notes` then says.
        """
        geometry = Geometry.of(grid, block, dynamic_lds, global_size)
        extents = {"grid": grid, "block": block, "dynamic_lds": dynamic_lds, "global_size": global_size}
        call = {**extents, "args": list(args)}
        if executor is None:
            if slices is not None:
                raise LaunchError(f"slices={slices}: give the executor that is to run them")
            check_geometry(self.info, geometry)
            self.check_buffers(args)
            return launch(self, geometry, args, cooperative, call)
        from simgpu.slices.sliced import launch_sliced

        run = launch_sliced(self, geometry, args, executor, slices or os.cpu_count() or 1, cooperative)
        return replace(run, kernel=self, call=call)

    def time(
        self, grid: int | Sequence[int] | None = None, block: int | Sequence[int] = 64, args: Sequence[object] = (),
        dynamic_lds: int = 0, *, global_size: int | Sequence[int] | None = None, mhz: float | None = None, warm: bool = False,
        events: int = 0,
    ) -> Prediction:  # fmt: skip
        """The time that the model gives a launch on a real GPU: cycles, seconds and a band; docs/timing.md.

        Only samples of its workgroups run, and the device's memory stays as it is. mhz: the engine's clock (default: what the
        board is known to hold); warm: whether the caches hold what a launch before left; events: how many of a CU's first
        instructions to keep for a timeline; otherwise as `launch`, which says what is raised. LaunchError, too, where no time
        can be told.
        """
        from simgpu.sampling.samples import time_launch

        geometry = Geometry.of(grid, block, dynamic_lds, global_size)
        return time_launch(self, geometry, args, mhz=mhz, warm=warm, events=events)


class Module(engine.Module):
    """A loaded code object: kernels by name."""

    kernel_class = Kernel

    def __getitem__(self, name: str) -> Kernel:
        found = super().__getitem__(name)
        assert isinstance(found, Kernel)
        return found


class Device(engine.Device):
    """A simulated GPU.

    target: gfx908, gfx90a, gfx942, gfx950 or a board's name (see `hardware.targets`).
    check: True looks for what the hardware would not forgive, see `Run.findings` and docs/check.md; "performance" adds notes on
    what costs time; "numerics", alone, where NaN, infinities and losses first appear, see docs/numerics.md.
    threads: host threads (default: all cores).
    max_instructions: budget of a launch, in wave-instructions, all workgroups together; docs/engine.md says how closely it is kept.
    timeout: seconds that a launch may last, None for any.
    unique_bytes: whether launches count `unique_read_bytes` and `unique_write_bytes`.

    Raises TargetError for an unknown target, LaunchError for other bad arguments.
    """

    module_class = Module

    def __init__(
        self,
        target: str,
        *,
        check: bool | str = False,
        threads: int | None = None,
        max_instructions: int | None = None,
        timeout: float | None = None,
        unique_bytes: bool = True,
    ) -> None:
        if check not in (False, True, "performance") and not str(check).startswith("numerics"):
            raise LaunchError(f"check={check!r}: give False, True, \"performance\" or \"numerics\"")
        super().__init__(
            target, check=check, checks=_checks(check), threads=threads, max_instructions=max_instructions, timeout=timeout,
            unique_bytes=unique_bytes,
        )  # fmt: skip

    def load(self, source: str | os.PathLike[str] | bytes, place: engine.Place | None = None) -> Module:
        """Load a code object (ELF or clang offload bundle) from a path or from bytes; place: see `engine.device.Device.load`.

        Raises DecodeError for damaged files and LaunchError for another target's.
        """
        found = super().load(source, place)
        assert isinstance(found, Module)
        return found


def _checks(check: bool | str) -> tuple[Check, ...]:
    """What the mode looks for; imported here, as plain mode starts faster without it."""
    if not check:
        return ()
    if isinstance(check, str) and check.startswith("numerics"):
        from simgpu.checks.numerics.check import Numerics
        from simgpu.checks.numerics.wanted import Wanted
        from simgpu.engine.events import Retired

        return Retired(), Numerics(Wanted.of(check))
    from simgpu.checks.suite import CHECKS, NOTES

    return NOTES if check == "performance" else CHECKS
