"""Time by a model, for `do_bench` and autotuning: there is no GPU to measure.

The model is `simgpu.timing`'s (docs/timing.md): samples of a launch run again, on caches that nothing has filled.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


class ModelledTime(UserWarning):
    """Said whenever a time is asked for: it comes from a model."""


class BenchClock:
    """Times what is launched during a benchmark, behind the interface that Triton times with."""

    def __init__(self) -> None:
        self._timed: list[float] | None = None
        self._spent: float | None = None
        self.samples = False  # whether nothing but the samples of a launch is to run
        self.sweeps = False  # whether nobody looks at what launches compute, so that those that are not timed need not run
        self.profile: Callable[[str, float], None] | None = None  # called with each launch's kernel and ms, while Proton records

    @contextlib.contextmanager
    def sampling(self, alone: bool) -> Iterator[None]:
        """For a block of benchmarks: whether launches end with their samples, their results as nobody needs them."""
        outer, self.samples = self.samples, self.samples or alone
        try:
            yield
        finally:
            self.samples = outer

    @contextlib.contextmanager
    def sweeping(self, alone: bool) -> Iterator[None]:
        """For a block that goes through the shapes of a benchmark: whether launches that are not timed do not run at all."""
        outer, self.sweeps = self.sweeps, self.sweeps or alone
        try:
            with self.sampling(alone):
                yield
        finally:
            self.sweeps = outer

    @property
    def runs(self) -> bool:
        """Whether launches are to be timed: a benchmark is under way, Proton records, or the time was asked for."""
        return self._timed is not None or self._spent is not None or self.profile is not None

    def note(self, name: str, milliseconds: float) -> None:
        """Count a kernel's launch that took so long."""
        if self.profile is not None:
            self.profile(name, milliseconds)
        if self._timed is not None:
            self._timed.append(milliseconds)
        if self._spent is not None:
            self._spent += milliseconds

    def now(self) -> float:
        """Modelled ms of all launches since this was first asked."""
        if self._spent is None:
            self._spent = 0.0
        return self._spent

    def do_bench(
        self, fn: Callable[[], Any], warmup: int = 25, rep: int = 100, grad_to_none: Iterable[Any] | None = None,
        quantiles: Sequence[float] | None = None, return_mode: str = "mean",
    ) -> Any:  # fmt: skip
        """In place of `triton.testing.do_bench`: one call, in modelled ms; every other on the same memory would take the same.

        NaN where nothing is launched, as by PyTorch's own operators: no model knows their time. What `fn` tunes on the way is
        no part of its time.
        """
        warnings.warn(
            "simgpu: do_bench gives modelled milliseconds (docs/timing.md), no GPU was timed", ModelledTime, stacklevel=3
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
