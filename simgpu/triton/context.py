"""`device`: a simulated GPU as Triton's current one, for the length of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.testing
from triton.runtime import driver, jit

from simgpu.triton.driver import SimDriver
from simgpu.triton.session import Session
from simgpu.triton.tensors import ArrayPointer


@contextmanager
def device(
    target: str, *, check: bool | str = False, threads: int | None = None, max_instructions: int | None = None
) -> Iterator[Session]:
    """Run the Triton kernels that the block launches on a simulated GPU.

    target: as for `simgpu.Device`; check: True raises KernelFinding at a launch's first finding, "collect" gathers
    findings in the session's `findings` (a launch that faults ends there), "performance" is True with notes on what
    costs time, which raise nothing; threads,
    max_instructions: as for `simgpu.Device`. Tensors are numpy arrays or CPU tensors. Blocks may be nested.
    """
    session = Session(target, check, threads, max_instructions)
    before = driver._active, jit.native_specialize_impl, triton.testing.do_bench
    driver.set_active(SimDriver(session))
    jit.native_specialize_impl = _with_arrays(before[1])
    triton.testing.do_bench = session.clock.do_bench
    try:
        yield session
    finally:
        driver._active, jit.native_specialize_impl, triton.testing.do_bench = before


def _with_arrays(specialize: Any) -> Any:
    """Triton's choice of a type and alignment for an argument, numpy's arrays and scalars included."""

    def wrapped(backend: Any, value: Any, *rest: Any) -> Any:
        return specialize(backend, _shown(value), *rest)

    return wrapped


def _shown(value: Any) -> Any:
    """An argument as Triton's specialisation takes it."""
    if isinstance(value, np.ndarray):
        return ArrayPointer(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_shown(item) for item in value)
    return value
