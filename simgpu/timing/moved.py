"""Computes the bytes that workgroups move through each level, from their requests and the fractions that each level passes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.timing.caches import ServedAccesses, Shares
from simgpu.timing.code import CodeColumns
from simgpu.timing.native.state import STORE
from simgpu.timing.trace import LINE_BYTES, Trace


@dataclass(frozen=True)
class MovedBytes:
    """Bytes that workgroups which represent all of a launch move, by instruction."""

    past_l2: np.ndarray  # float64 (n,)
    memory: np.ndarray  # float64 (n,)
    stores: np.ndarray  # (n,): True for stores
    groups: int  # number of the workgroups

    @classmethod
    def of(
        cls, traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, traffic: Shares, row: Pipelines
    ) -> MovedBytes:
        """Adds up what the workgroups request past the vector and scalar caches, as far as later levels pass it on."""
        misses = sum(trace.stretch * one.count_misses(trace, code) for trace, one in zip(traces, served, strict=True))
        near = misses * _request_bytes(code, row) * traffic.past[0]
        return cls(near, near * traffic.past[1], code.flags & STORE != 0, len(traces))

    @property
    def written(self) -> float:
        """Fraction of the bytes between L2 and memory that are written."""
        return float(self.memory[self.stores].sum() / max(1.0, self.memory.sum()))

    @property
    def changed(self) -> tuple[float, float]:
        """Fractions of the bytes that come into L2 that stores change, and that go on to memory when they leave."""
        near, far = (float(level[self.stores].sum()) for level in (self.past_l2, self.memory))
        every = max(1.0, float(self.past_l2.sum()))
        return near / every, far / every

    def of_other_xcds(self, moved: np.ndarray) -> float:
        """Returns the bytes that a workgroup moves from lines that other XCDs hold. moved: as in `Shares`"""
        return float((self.past_l2 * moved).sum() / self.groups)


def work_of(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, traffic: Shares, row: Pipelines
) -> np.ndarray:
    """Returns each workgroup's work, (n, measures of `simgpu.timing.dispatch.Sharing`)."""
    each = _request_bytes(code, row)
    weights = np.stack([each, each * traffic.past[0], each * traffic.past.prod(0), np.where(code.flags & STORE, each, 0)])
    made = [
        [len(trace), *(weights @ one.count_misses(trace, code))] for trace, one in zip(traces, served, strict=True)
    ]
    return np.array(made) * np.array([[trace.stretch] for trace in traces])


def _request_bytes(code: CodeColumns, row: Pipelines) -> np.ndarray:
    """Returns by instruction the bytes of a request past the vector or scalar cache."""
    return np.where(code.short, LINE_BYTES, row.cache_line)
