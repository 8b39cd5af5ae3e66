"""The kernels that Triton compiled for each simulated target: its caches use the device's index, and each target has a device 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver

from simgpu.triton.driver import SimDriver, active_driver
from simgpu.triton.session import LoadedBinary

_CACHES = "simgpu_caches"


def _of_target(function: Any) -> Any:
    """Returns a `JITFunction`'s caches for the session in use, by device, like its `device_caches` outside of sessions."""
    by_target = function.__dict__.setdefault(_CACHES, {})
    name = active_driver().session.name
    if name not in by_target:
        by_target[name] = defaultdict(function.create_binder)
    return by_target[name]


def _give_caches(function: Any, caches: Any) -> None:
    """Sets the caches of a new function for the time after the session."""
    function.__dict__["device_caches"] = caches


KERNELS = property(_of_target, _give_caches)


def compiled_kernels(function: Any) -> Iterator[Any]:
    """Yields the kernels that were compiled from a `JITFunction`, for all targets."""
    for by_device in function.__dict__.get(_CACHES, {}).values():
        for cache in by_device.values():
            yield from cache[0].values()


def forget_quietly() -> None:
    """Lets Triton's kernels that were loaded here die silently after the last session: no driver is left to unload them."""
    if _unload is not None and CompiledKernel.__del__ is not _let_go:
        CompiledKernel.__del__ = _let_go


def _let_go(kernel: CompiledKernel) -> None:
    assert _unload is not None
    if isinstance(kernel.module, LoadedBinary) and not isinstance(driver._active, SimDriver):
        kernel.module = None
    _unload(kernel)


_unload: Callable[[Any], None] | None = getattr(CompiledKernel, "__del__", None)  # Triton before 3.8 unloads nothing
