"""Caches of the kernels that Triton compiled, by simulated target. Triton's own use the device's index, 0 for every target."""

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
    """Returns a `JITFunction`'s caches by device for the current session's target; replaces its `device_caches`."""
    by_target = function.__dict__.setdefault(_CACHES, {})
    name = active_driver().session.name
    if name not in by_target:
        by_target[name] = defaultdict(function.create_binder)
    return by_target[name]


def _give_caches(function: Any, caches: Any) -> None:
    """Sets the `device_caches` that a function has outside of sessions."""
    function.__dict__["device_caches"] = caches


KERNELS = property(_of_target, _give_caches)


def compiled_kernels(function: Any) -> Iterator[Any]:
    """Yields the kernels that were compiled from a `JITFunction`, for all targets."""
    for by_device in function.__dict__.get(_CACHES, {}).values():
        for cache in by_device.values():
            yield from cache[0].values()


def forget_quietly() -> None:
    """Makes the deletion of kernels that were loaded here harmless after the last session, when no driver can unload them."""
    if _unload is not None and CompiledKernel.__del__ is not _let_go:
        CompiledKernel.__del__ = _let_go


def _let_go(kernel: CompiledKernel) -> None:
    assert _unload is not None
    if isinstance(kernel.module, LoadedBinary) and not isinstance(driver._active, SimDriver):
        kernel.module = None
    _unload(kernel)


_unload: Callable[[Any], None] | None = getattr(CompiledKernel, "__del__", None)  # Triton before 3.8 unloads nothing
