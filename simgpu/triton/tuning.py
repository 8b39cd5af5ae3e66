"""The autotuner on simulated devices: numpy's arrays, a choice for each target, candidates compiled side by side and sampled.

A candidate's time is the model's (`simgpu.timed`), which needs samples of its workgroups alone: the tuner runs the chosen one
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
from triton.runtime import _async_compile

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
    """The candidates to try: the first SIMGPU_AUTOTUNE, where that is set; they are compiled when they are chosen."""

    def wrapped(tuner: Any, kwargs: Mapping[str, Any], *rest: Any) -> Any:
        limit = os.environ.get(LIMIT)
        found = prune(tuner, kwargs, *rest)
        if limit is not None:
            if not limit.isdecimal() or int(limit) < 1:
                raise LaunchError(f"{LIMIT}={limit!r}: give the number of candidates to try, 1 or more")
            found = found[: int(limit)]
        if len(found) > 1:
            _compile(tuner, kwargs, found)
        return found

    return wrapped


def _compile(tuner: Any, kwargs: Mapping[str, Any], candidates: Sequence[Any]) -> None:
    """Compiles candidates side by side; one that cannot be compiled says so when its turn comes."""
    if _async_compile.active_mode.get() is not None:
        return  # the caller compiles many kernels so
    given = {**tuner.nargs, **kwargs}
    with ThreadPoolExecutor(os.cpu_count()) as pool, _async_compile.AsyncCompileMode(pool, ignore_errors=True):
        for candidate in candidates:
            # Hooks change the arguments of a launch.
            if candidate.pre_hook is None and not given.keys() & candidate.kwargs.keys():
                tuner.fn.run(**given | candidate.all_kwargs() | {"warmup": True})


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
