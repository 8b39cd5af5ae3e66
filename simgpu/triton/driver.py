"""Driver for Triton: it gives the target, loads code objects and launches kernels.

The protocol is triton/backends/driver.py (DriverBase), and the calls of triton/runtime/jit.py and triton/compiler/compiler.py
on `driver.active`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import _allocation

from simgpu.hardware.errors import LaunchError, says_it_all
from simgpu.triton.arguments import ArgumentValue, flatten
from simgpu.triton.session import WARP, LoadedBinary, Session, properties
from simgpu.triton.tensors import plain_torch

__tracebackhide__ = says_it_all


class Utilities:
    """Functions that Triton calls as `driver.utils`: device properties and code objects."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_device_properties(self, device: object) -> Mapping[str, Any]:
        """Returns the descriptor's figures under HIP's names."""
        return properties(self._session)

    def load_binary(self, name: str, code: bytes, shared: int, device: object) -> tuple[LoadedBinary, LoadedBinary, int, int, int]:
        """Returns module, function, registers, spills and the largest workgroup of a compiled kernel."""
        binary = LoadedBinary(name, code, shared)
        info = self._session.kernel(binary).info
        return binary, binary, info.vgpr_count, info.vgpr_spill_count, info.max_flat_workgroup_size

    def unload_module(self, module: LoadedBinary) -> None:
        """Does nothing: code objects live as long as their session."""


class Launcher:
    """Launches one compiled kernel on the active session's device."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self._signature = dict(source.signature)
        self._metadata = metadata

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: LoadedBinary, packed: object, launch_metadata: Any,
        enter: Callable[[Any], None] | None, leave: Callable[[Any], None] | None, *values: Any,
    ) -> None:  # fmt: skip
        grid = _extent(grid_x), _extent(grid_y), _extent(grid_z)
        session = active_driver().session
        flat = flatten(self._signature, values)
        groups = grid[0] * grid[1] * grid[2]
        for name, allocator in (("global", _allocation._allocator), ("profile", _allocation._profile_allocator)):
            flat.append(self._scratch(name, groups, allocator, stream))
        # Kernels without scratch may lack its pointers (Triton before 3.4 had none for profiles).
        taken = flat[: len(session.kernel(function).arguments)]
        if enter is not None:
            enter(launch_metadata)
        with plain_torch():
            session.launch(function, grid, self._metadata.num_warps, taken, self._metadata.launch_cooperative_grid)
        if leave is not None:
            leave(launch_metadata)

    def _scratch(self, name: str, groups: int, allocator: Any, stream: int) -> ArgumentValue:
        """Allocates global memory that the compiler requested, by the user's allocator."""
        size = getattr(self._metadata, f"{name}_scratch_size", 0) * groups
        align = getattr(self._metadata, f"{name}_scratch_align", 1)
        return ArgumentValue(f"{name} scratch", "*i8", allocator.get()(size, align, stream) if size else None)


def _extent(extent: Any) -> int:
    """Returns a grid's extent as an integer. Raises TypeError for a float, and OverflowError beyond 32 bits.

    So does Triton's launcher: `launchKernel` in its backends/amd/driver.c reads the extents by PyArg_ParseTuple's "i".
    """
    whole = operator.index(extent)
    if not -(1 << 31) <= whole < 1 << 31:
        raise OverflowError(f"a grid's extent of {whole} does not fit 32 bits")
    return whole


class DeviceInterface:
    """Passes attributes of `torch.cuda`, whose events have modelled times. Raises LaunchError for Triton's own `do_bench`, which
    `simgpu.triton.device` replaces."""

    def current_device(self) -> int:
        """Returns this thread's device."""
        return active_driver().session.current

    def __getattr__(self, name: str) -> Any:
        if sys._getframe(1).f_globals.get("__name__") != "triton.testing":  # a program's own loop of launches
            return getattr(import_module("torch").cuda, name)
        raise LaunchError(
            "triton.testing.do_bench was imported before simgpu.triton.device replaced it by a model: "
            "call it as triton.testing.do_bench(...), or import it inside the block"
        )


class SimDriver(DriverBase):
    """Driver of a session's devices, with stream 0 of each."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.utils = Utilities(session)
        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        """Returns False: only `simgpu.triton.device` activates it."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Returns a type from Triton's own table; only its compiled launchers use it."""
        from triton.backends.amd.driver import ty_to_cpp

        return str(ty_to_cpp(ty))

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", self.session.gpu.arch, WARP)

    def get_current_device(self) -> int:
        """Returns this thread's device."""
        return self.session.current

    def set_current_device(self, device: int) -> None:
        """Chooses this thread's device."""
        self.session.use(device)

    def get_current_stream(self, device: object) -> int:
        return 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        """Returns the capability as PyTorch does for HIP: 9.4 for gfx942."""
        arch = self.session.gpu.arch
        return int(arch[3]), int(arch[4], 16)

    def get_active_torch_device(self) -> Any:
        """Returns the CPU: its tensors are the simulated device's memory."""
        return import_module("torch").device("cpu")

    def get_device_interface(self) -> DeviceInterface:
        return DeviceInterface()

    def get_empty_cache_for_benchmark(self) -> Any:
        """Returns an empty tensor to clear between launches: the timing model predicts each launch without its predecessors."""
        return import_module("torch").empty(0, device=self.get_active_torch_device())

    def clear_cache(self, cache: Any) -> None:
        """Does nothing; see `get_empty_cache_for_benchmark`."""

    def get_benchmarker(self) -> Callable[..., Any]:
        return benchmark


def benchmark(fn: Callable[[], Any], *, quantiles: Sequence[float], **_options: Any) -> Any:
    """Runs the autotuner's benchmark on the current session, which it looks up, because tuners keep this function."""
    return active_driver().session.clock.do_bench(fn, quantiles=quantiles)


def active_driver() -> SimDriver:
    """Returns the driver of the innermost `simgpu.triton.device`."""
    from triton.runtime import driver

    assert isinstance(driver.active, SimDriver)
    return driver.active
