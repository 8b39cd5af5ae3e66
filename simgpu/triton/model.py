"""Modelled time for `do_bench` and autotuning: there is no GPU to measure.

The model is `simgpu.timing`'s (docs/explanation/timing.md): samples of a launch run again, on empty caches.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


class ModelledTime(UserWarning):
    """Warning for each requested time: it comes from a model."""


class BenchClock:
    """Adds up modelled times of launches for Triton's timing functions."""

    def __init__(self) -> None:
        self._timed: list[float] | None = None
        self._spent: float | None = None
        self.samples = False  # True if only samples of timed launches run
        self.sweeps = False  # True if launches that are not timed do not run, because nothing reads their results
        self.profile: Callable[[str, float], None] | None = None  # called with each launch's kernel and ms, while Proton records

    @contextlib.contextmanager
    def sampling(self, alone: bool) -> Iterator[None]:
        """Runs a block of benchmarks. alone: True if launches end after their samples, because nothing reads their results."""
        outer, self.samples = self.samples, self.samples or alone
        try:
            yield
        finally:
            self.samples = outer

    @contextlib.contextmanager
    def sweeping(self, alone: bool) -> Iterator[None]:
        """Runs a block that goes through the shapes of a benchmark. alone: True if launches that are not timed do not run."""
        outer, self.sweeps = self.sweeps, self.sweeps or alone
        try:
            with self.sampling(alone):
                yield
        finally:
            self.sweeps = outer

    @property
    def runs(self) -> bool:
        """True if launches are timed: a benchmark is running, Proton records, or the time was requested."""
        return self._timed is not None or self._spent is not None or self.profile is not None

    def note(self, name: str, milliseconds: float) -> None:
        """Counts a kernel's launch of this many milliseconds."""
        if self.profile is not None:
            self.profile(name, milliseconds)
        if self._timed is not None:
            self._timed.append(milliseconds)
        if self._spent is not None:
            self._spent += milliseconds

    def modelled_ms(self) -> float:
        """Returns modelled ms of all launches since the first call."""
        if self._spent is None:
            self._spent = 0.0
        return self._spent

    def do_bench(
        self, fn: Callable[[], Any], warmup: int = 25, rep: int = 100, grad_to_none: Iterable[Any] | None = None,
        quantiles: Sequence[float] | None = None, return_mode: str = "mean",
    ) -> Any:  # fmt: skip
        """Replaces `triton.testing.do_bench`. Returns modelled ms of one call of `fn`; repetitions would take the same time.

        Returns NaN if `fn` launches nothing: PyTorch's own operators have no modelled time. Launches of autotuning inside `fn`
        are not part of its time.
        """
        warnings.warn(
            "simgpu: do_bench gives modelled milliseconds (simgpu help timing), no GPU was timed", ModelledTime, stacklevel=3
        )
        outer, self._timed = self._timed, []
        try:
            fn()
            spent = sum(self._timed) if self._timed else math.nan
        finally:
            self._timed = outer
        if quantiles is not None:
            return spent if len(quantiles) == 1 else [spent] * len(quantiles)
        return [spent] if return_mode == "all" else spent
