"""`device`: makes a simulated GPU Triton's current one in a `with` block."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import triton.runtime
import triton.testing
from triton import knobs
from triton.backends import backends
from triton.backends.amd.compiler import HIPBackend
from triton.runtime import jit
from triton.runtime.autotuner import Autotuner

from simgpu.engine.lowering import ahead
from simgpu.hardware.errors import LaunchError
from simgpu.triton.driver import SimDriver, active_driver
from simgpu.triton.kernels import KERNELS, forget_quietly
from simgpu.triton.proton import profile
from simgpu.triton.session import LoadedBinary, Session
from simgpu.triton.tensors import STORAGE, ArrayPointer
from simgpu.triton.tuning import limit_candidates, show_progress, wrap_tuner

BENCH, WHOLE, SAMPLE = "SIMGPU_BENCH", "whole", "sample"  # environment variable: the part of a benchmark's launches that runs


@contextmanager
def device(
    target: str, *, check: bool | str = False, threads: int | None = None, max_instructions: int | None = None,
    guard: str = STORAGE, suppressions: str | Path | None = None, weak: int | None = None, late: int | None = None,
    ring: bool | None = None,
) -> Iterator[Session]:  # fmt: skip
    """Runs the Triton kernels that the block launches on a simulated GPU.

    target: as for `simgpu.Device`, or several equal devices, "mi300x:2"; each thread has a current one.
    check: True raises KernelFinding after a launch with errors among its findings. "collect" gathers findings in the session's
    `findings`; a launch that faults ends there. "performance" is like True, with notes on slow code, which raise nothing.
    threads, max_instructions: as for `simgpu.Device`.
    guard: with "storage" a kernel may access all of the memory that an argument is a view of; with "view" only the range from the
    view's lowest element to its highest.
    suppressions: a file of findings that are not reported (`simgpu.engine.suppressions`).
    weak, late: seed of weak or late mode, as for `simgpu.Device`. ring: True for floats that are elements of a ring, as there.
    Tensors are numpy arrays or CPU tensors. Blocks may be nested.

    >>> with device("mi300x", check=True) as session:
    ...     session.board
    'mi300x'
    """
    session = Session(target, check, threads, max_instructions, guard, suppressions, weak, late, ring)
    forget_quietly()
    if not check:
        ahead.begin(session.gpu.arch, session.gpu.compiler)  # while Triton compiles
    with ExitStack() as stack:
        chosen = SimDriver(session)
        # The module of Triton's compiler and that of programs: they differ if a program reloaded the module.
        for held in {id(held): held for held in (jit.driver, triton.runtime.driver)}.values():
            for name in ("_active", "_default"):  # the one in use, and the one that `reset_active` restores
                stack.enter_context(_patch_attribute(held, name, chosen))
        stack.enter_context(_offer_driver(chosen))
        stack.enter_context(_patch_attribute(HIPBackend, "_torch_available", getattr(HIPBackend, "_torch_available", None)))
        stack.enter_context(_patch_attribute(jit, "native_specialize_impl", _with_arrays(jit.native_specialize_impl)))
        stack.enter_context(_patch_attribute(jit.JITFunction, "device_caches", KERNELS))
        stack.enter_context(_patch_attribute(Autotuner, "run", wrap_tuner(Autotuner.run)))
        stack.enter_context(_patch_attribute(Autotuner, "prune_configs", limit_candidates(Autotuner.prune_configs)))
        stack.enter_context(_patch_attribute(Autotuner, "_bench", show_progress(Autotuner._bench)))
        for name in [name for name in vars(triton.testing) if name.startswith("do_bench")]:  # by events, graphs, proton
            stack.enter_context(_patch_attribute(triton.testing, name, modelled_bench))
        stack.enter_context(_patch_attribute(triton.testing.Mark, "run", _wrap_sweep(triton.testing.Mark.run)))
        stack.enter_context(profile(session, _samples_alone))
        stack.enter_context(_noting_addresses())
        yield session


_ABSENT = object()
_FOLLOWS = ("int_to_ptr", "inline_asm", "!tt.ptr<!tt.ptr")  # by these, a kernel may use an address that is no argument


@contextmanager
def _noting_addresses() -> Iterator[None]:
    """Makes each kernel that is loaded in the block note whether it may use addresses that are no arguments.

    For others, no tensor is looked for at numbers in tensors: a new tensor of int64 often holds old addresses.
    """

    def note(_module: object, function: object, _name: str, files: Mapping[str, str], _hash: str) -> None:
        texts = [Path(path).read_text() for name, path in files.items() if name.endswith((".ttir", ".ttgir"))]
        if isinstance(function, LoadedBinary):
            function.follows = not texts or any(word in text for text in texts for word in _FOLLOWS)

    knobs.runtime.kernel_load_end_hook.add(note)
    try:
        yield
    finally:
        knobs.runtime.kernel_load_end_hook.remove(note)


@contextmanager
def _patch_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Changes an attribute for the block."""
    before = getattr(owner, name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


class _Offer(type):
    """A backend's driver class, as Triton and Inductor expect it: tells if there is a GPU, and returns the driver.

    driver: the only instance of this class; None if there is no GPU.
    """

    def __new__(cls, driver: SimDriver | None) -> _Offer:
        return super().__new__(cls, "Offer", (), {})

    def __init__(cls, driver: SimDriver | None) -> None:
        super().__init__("Offer", (), {})
        cls._driver = driver

    def is_active(cls) -> bool:
        return cls._driver is not None

    def __call__(cls) -> SimDriver | None:
        return cls._driver

    def __instancecheck__(cls, value: object) -> bool:
        return value is cls._driver


@contextmanager
def _offer_driver(driver: SimDriver) -> Iterator[None]:
    """Makes the AMD backend the only one with a GPU in the block, with this driver."""
    before = dict(backends)
    backends.update({name: replace(one, driver=_Offer(driver if name == "amd" else None)) for name, one in before.items()})
    try:
        yield
    finally:
        backends.update(before)


def _with_arrays(specialize: Any) -> Any:
    """Extends Triton's specialisation of an argument (its type and alignment) to numpy's arrays and scalars."""

    def specialize_arrays(backend: Any, value: Any, *rest: Any) -> Any:
        # Triton imports PyTorch, for 1.5 s, to see if an argument is its tensor. If nobody has imported it, none is.
        if not HIPBackend._torch_available:
            HIPBackend._torch_available = None if "torch" in sys.modules else False
        return specialize(backend, _as_pointer(value), *rest)

    return specialize_arrays


def modelled_bench(fn: Callable[[], Any], *args: Any, **options: Any) -> Any:
    """Replaces `triton.testing.do_bench`: modelled time on the device in use (`SIMGPU_BENCH`, docs/reference/triton.md)."""
    clock = active_driver().session.clock
    with clock.sampling(_samples_alone()):
        return clock.do_bench(fn, *args, **options)


def _wrap_sweep(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `triton.testing.Mark.run`, which goes through a benchmark's shapes: nothing reads the results of its launches."""

    def sweep(mark: Any, *args: Any, **options: Any) -> Any:
        with active_driver().session.clock.sweeping(_samples_alone()):
            return run(mark, *args, **options)

    return sweep


def _samples_alone() -> bool:
    """True if benchmarks run only samples of their launches; raises LaunchError for an unknown value of SIMGPU_BENCH."""
    how = os.environ.get(BENCH, WHOLE)
    if how not in (WHOLE, SAMPLE):
        raise LaunchError(f"{BENCH}={how!r}: give {WHOLE} or {SAMPLE}")
    return how == SAMPLE and not active_driver().session.checked


def _as_pointer(value: Any) -> Any:
    """Returns an argument in a form that Triton's specialisation accepts."""
    if isinstance(value, np.ndarray):
        return ArrayPointer(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_as_pointer(item) for item in value)
    return value
