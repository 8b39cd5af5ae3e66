"""Triton's autotuner on simulated devices: numpy's arrays, a choice for each target, candidates compiled in parallel and sampled.

A candidate's time is modelled from samples of its workgroups (`simgpu.sampling`). The tuner runs the chosen candidate whole
afterwards. In checked mode each candidate runs whole, so that its findings are reported.
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
    """An array with the methods of PyTorch that the autotuner resets and restores arguments by."""

    def zero_(self) -> None:
        """Sets all elements to zero."""
        self[...] = 0

    def clone(self) -> TunedArray:
        """Returns a copy."""
        return self.copy()

    def copy_(self, other: np.ndarray) -> None:
        """Copies other's values."""
        self[...] = other


def wrap_tuner(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the autotuner's `run`: it accepts numpy's arrays, and keeps its choices separately for each target."""

    def run_tuner(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        handled = {*tuner.reset_to_zero, *tuner.restore_value}
        named = zip(tuner.arg_names, args)
        args = tuple(_resettable(value) if name in handled else value for name, value in named) + args[len(tuner.arg_names) :]
        kwargs = {name: _resettable(value) if name in handled else value for name, value in kwargs.items()}
        chosen = tuner.__dict__.setdefault("chosen_by_target", {})
        tuner.cache = chosen.setdefault(active_driver().session.gpu.descriptor.name, {})
        return run(tuner, *args, **kwargs)

    return run_tuner


def _resettable(value: Any) -> Any:
    return value.view(TunedArray) if isinstance(value, np.ndarray) else value


def limit_candidates(prune: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the autotuner's choice of candidates: keeps the first SIMGPU_AUTOTUNE that fit, if that is set, and compiles the
    candidates in parallel."""

    def prune_limited(tuner: Any, kwargs: Mapping[str, Any], *rest: Any) -> Any:
        limit = os.environ.get(LIMIT)
        found = prune(tuner, kwargs, *rest)
        if limit is not None:
            if not limit.isdecimal() or int(limit) < 1:
                raise LaunchError(f"{LIMIT}={limit!r}: give the number of candidates to try, 1 or more")
            if len(found) > int(limit):
                found = _that_fit(tuner, kwargs, found, int(limit))
        if len(found) > 1 and not _many_are_compiled():
            with ThreadPoolExecutor(os.cpu_count()) as pool, _async_compile.AsyncCompileMode(pool, ignore_errors=True):
                for candidate in found:  # in parallel; one that cannot be compiled reports that in its turn
                    if candidate.pre_hook is None:  # hooks change the arguments of a launch
                        _compile_candidate(tuner, kwargs, candidate)
        return found

    return prune_limited


def _many_are_compiled() -> bool:
    """True if the caller already compiles kernels in parallel, so that none is available at once."""
    return _async_compile.active_mode.get() is not None


def _compile_candidate(tuner: Any, kwargs: Mapping[str, Any], candidate: Any) -> Any:
    """Returns a candidate's kernel; None if it is not available before its launch."""
    given = {**tuner.nargs, **kwargs}
    if given.keys() & candidate.kwargs.keys():
        return None
    return tuner.fn.run(**given | candidate.all_kwargs() | {"warmup": True})


def _that_fit(tuner: Any, kwargs: Mapping[str, Any], candidates: Sequence[Any], count: int) -> Sequence[Any]:
    """Returns the first `count` candidates that the device can run; the first `count` of all if it can run none."""
    if _many_are_compiled():
        return candidates[:count]
    lds_bytes = active_driver().session.gpu.descriptor.lds_bytes
    found: list[Any] = []
    for candidate in candidates:
        if candidate.pre_hook is not None:  # as before a launch, of which the compiler sees the arguments
            candidate.pre_hook({**tuner.nargs, **kwargs, **candidate.all_kwargs()})
        try:
            kernel = _compile_candidate(tuner, kwargs, candidate)
        except (OutOfResources, CompileTimeAssertionFailure):
            continue
        if kernel is None or kernel.metadata.shared <= lds_bytes:
            found.append(candidate)
        if len(found) == count:
            break
    return found or candidates[:count]


def show_progress(bench: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the autotuner's timing of a candidate: only samples run, unless in checked mode, and a terminal shows the candidate."""

    def bench_shown(tuner: Any, *args: Any, config: Any, **meta: Any) -> Any:
        session = active_driver().session
        with session.clock.sampling(not session.checked), _terminal_line(f"autotuning {tuner.base_fn.__name__}: {config}"):
            found = bench(tuner, *args, config=config, **meta)
        if session.tried is not None:
            session.tried(tuner.base_fn.__name__, config.all_kwargs(), min(found) if isinstance(found, Sequence) else found)
        return found

    return bench_shown


@contextmanager
def _terminal_line(text: str) -> Iterator[None]:
    """Shows a line on a terminal during the block."""
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
