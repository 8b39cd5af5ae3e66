"""`device`: a simulated GPU as Triton's current one, for the length of a `with` block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import triton.testing
from triton.runtime import driver, jit
from triton.runtime.autotuner import Autotuner

from simgpu.hardware.errors import LaunchError
from simgpu.triton.driver import SimDriver, active_driver
from simgpu.triton.kernels import KERNELS, forget_quietly
from simgpu.triton.session import Session
from simgpu.triton.tensors import STORAGE, ArrayPointer


@contextmanager
def device(
    target: str, *, check: bool | str = False, threads: int | None = None, max_instructions: int | None = None,
    guard: str = STORAGE, suppressions: str | Path | None = None,
) -> Iterator[Session]:  # fmt: skip
    """Run the Triton kernels that the block launches on a simulated GPU.

    target: as for `simgpu.Device`; check: True raises KernelFinding at a launch's first finding, "collect" gathers
    findings in the session's `findings` (a launch that faults ends there), "performance" is True with notes on what
    costs time, which raise nothing; threads,
    max_instructions: as for `simgpu.Device`; guard: "storage" has a kernel reach all of the memory that an argument is a view of,
    "view" only what lies between the view's own elements; suppressions: a file of findings that are not told
    (`simgpu.checks.suppressions`). Tensors are numpy arrays or CPU tensors. Blocks may be nested.
    """
    session = Session(target, check, threads, max_instructions, guard, suppressions)
    forget_quietly()
    with ExitStack() as stack:
        chosen = SimDriver(session)
        for name in ("_active", "_default"):  # the one in use, and the one that `reset_active` goes back to
            stack.enter_context(_changed(driver, name, chosen))
        stack.enter_context(_changed(jit, "native_specialize_impl", _with_arrays(jit.native_specialize_impl)))
        stack.enter_context(_changed(jit.JITFunction, "device_caches", KERNELS))
        stack.enter_context(_changed(Autotuner, "run", _tuned(Autotuner.run)))
        stack.enter_context(_changed(Autotuner, "prune_configs", _limited(Autotuner.prune_configs)))
        for name in [name for name in vars(triton.testing) if name.startswith("do_bench")]:  # by events, graphs, proton
            stack.enter_context(_changed(triton.testing, name, modelled_bench))
        yield session


_ABSENT = object()


@contextmanager
def _changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Another value of an attribute, for the block."""
    before = getattr(owner, name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _with_arrays(specialize: Any) -> Any:
    """Triton's choice of a type and alignment for an argument, numpy's arrays and scalars included."""

    def wrapped(backend: Any, value: Any, *rest: Any) -> Any:
        return specialize(backend, _shown(value), *rest)

    return wrapped


class TunedArray(np.ndarray[Any, Any]):
    """An array with the methods of PyTorch's that the autotuner resets and restores arguments by."""

    def zero_(self) -> None:
        """All zeros."""
        self[...] = 0

    def clone(self) -> TunedArray:
        """A copy."""
        return self.copy()

    def copy_(self, other: np.ndarray) -> None:
        """Other's values."""
        self[...] = other


def _tuned(run: Callable[..., Any]) -> Callable[..., Any]:
    """Autotuning of numpy's arrays, and for each target of its own: what fits one may not fit the next."""

    def wrapped(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        handled = {*tuner.reset_to_zero, *tuner.restore_value}
        named = zip(tuner.arg_names, args)
        args = tuple(_resettable(value) if name in handled else value for name, value in named) + args[len(tuner.arg_names) :]
        kwargs = {name: _resettable(value) if name in handled else value for name, value in kwargs.items()}
        chosen = tuner.__dict__.setdefault("chosen_by_target", {})
        tuner.cache = chosen.setdefault(active_driver().session.gpu.descriptor.name, {})
        return run(tuner, *args, **kwargs)

    return wrapped


def _limited(prune: Callable[..., Any]) -> Callable[..., Any]:
    """Autotuning of the first SIMGPU_AUTOTUNE candidates, where that is set."""

    def wrapped(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        limit = os.environ.get("SIMGPU_AUTOTUNE")
        found = prune(tuner, *args, **kwargs)
        if limit is None:
            return found
        if not limit.isdecimal() or int(limit) < 1:
            raise LaunchError(f"SIMGPU_AUTOTUNE={limit!r}: give the number of candidates to try, 1 or more")
        return found[: int(limit)]

    return wrapped


def _resettable(value: Any) -> Any:
    return value.view(TunedArray) if isinstance(value, np.ndarray) else value


def modelled_bench(fn: Callable[[], Any], *args: Any, **options: Any) -> Any:
    """In place of `triton.testing.do_bench`: modelled time on the device in use (docs/timing.md)."""
    return active_driver().session.clock.do_bench(fn, *args, **options)


def _shown(value: Any) -> Any:
    """An argument as Triton's specialisation takes it."""
    if isinstance(value, np.ndarray):
        return ArrayPointer(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_shown(item) for item in value)
    return value
