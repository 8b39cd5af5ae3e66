"""The autotuner on simulated devices: numpy's arrays, a choice for each target, candidates compiled side by side and sampled.

A candidate's time is the model's (`simgpu.sampling`), which needs samples of its workgroups alone: the tuner runs the chosen one
whole afterwards. In checked mode each candidate runs whole, so that its findings are told.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import _async_compile
from triton.runtime.errors import OutOfResources

from simgpu.hardware.errors import LaunchError, says_it_all
from simgpu.triton.driver import active_driver

__tracebackhide__ = says_it_all

LIMIT = "SIMGPU_AUTOTUNE"


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


def tuned(run: Callable[..., Any]) -> Callable[..., Any]:
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


def _resettable(value: Any) -> Any:
    return value.view(TunedArray) if isinstance(value, np.ndarray) else value


def limited(prune: Callable[..., Any]) -> Callable[..., Any]:
    """The candidates to try: the first SIMGPU_AUTOTUNE that fit, where that is set; they are compiled when they are chosen."""

    def wrapped(tuner: Any, kwargs: Mapping[str, Any], *rest: Any) -> Any:
        limit = os.environ.get(LIMIT)
        found = prune(tuner, kwargs, *rest)
        if limit is not None:
            if not limit.isdecimal() or int(limit) < 1:
                raise LaunchError(f"{LIMIT}={limit!r}: give the number of candidates to try, 1 or more")
            if len(found) > int(limit):
                found = _that_fit(tuner, kwargs, found, int(limit))
        if len(found) > 1 and not _many_are_compiled():
            with ThreadPoolExecutor(os.cpu_count()) as pool, _async_compile.AsyncCompileMode(pool, ignore_errors=True):
                for candidate in found:  # side by side; one that cannot be compiled says so when its turn comes
                    _compiled(tuner, kwargs, candidate)
        return found

    return wrapped


def _many_are_compiled() -> bool:
    """Whether the caller compiles many kernels side by side, so that none is there when it is asked for."""
    return _async_compile.active_mode.get() is not None


def _compiled(tuner: Any, kwargs: Mapping[str, Any], candidate: Any) -> Any:
    """A candidate's kernel; None where it cannot be had ahead of its launch."""
    given = {**tuner.nargs, **kwargs}
    if candidate.pre_hook is not None or given.keys() & candidate.kwargs.keys():
        return None  # hooks change the arguments of a launch
    return tuner.fn.run(**given | candidate.all_kwargs() | {"warmup": True})


def _that_fit(tuner: Any, kwargs: Mapping[str, Any], candidates: Sequence[Any], count: int) -> Sequence[Any]:
    """The first candidates that the device can run, as the tuner itself passes over the others; the very first where none can."""
    if _many_are_compiled():
        return candidates[:count]
    lds_bytes = active_driver().session.gpu.descriptor.lds_bytes
    found: list[Any] = []
    for candidate in candidates:
        try:
            kernel = _compiled(tuner, kwargs, candidate)
        except (OutOfResources, CompileTimeAssertionFailure):
            continue
        if kernel is None or kernel.metadata.shared <= lds_bytes:
            found.append(candidate)
        if len(found) == count:
            break
    return found or candidates[:count]


def shown(bench: Callable[..., Any]) -> Callable[..., Any]:
    """The autotuner's time of a candidate: only samples run, and a terminal is told which one it is."""

    def wrapped(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        session = active_driver().session
        with session.clock.sampling(not session.checked), _told(f"autotuning {tuner.base_fn.__name__}: {config}"):
            return bench(tuner, *args, config=config, **meta)

    return wrapped


@contextmanager
def _told(text: str) -> Iterator[None]:
    """For a block: a line on a terminal, gone afterwards."""
    terminal = sys.stderr.isatty()
    if terminal:
        sys.stderr.write(f"\r\x1b[K{text[:79]}")
        sys.stderr.flush()
    try:
        yield
    finally:
        if terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
