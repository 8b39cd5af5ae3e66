"""Computes the bytes that workgroups move through each level, from their requests and the fractions that each level passes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.timing.caches import ServedAccesses, Shares
from simgpu.timing.code import CodeColumns
from simgpu.timing.native.state import STORE
from simgpu.timing.trace import LINE_BYTES, Trace


def written_fraction(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, traffic: Shares, row: Pipelines
) -> float:
    """Returns the fraction of a launch's bytes between L2 and memory that are written. traces: workgroups that represent all."""
    moved = _requested_bytes(traces, served, code, row) * traffic.past.prod(0)
    return float(moved[code.flags & STORE != 0].sum() / max(1.0, moved.sum()))


def changed_fractions(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, traffic: Shares, row: Pipelines
) -> tuple[float, float]:
    """Returns the fractions of the bytes that come into L2 that stores change, and that go on to memory when they leave.

    traces: as in `written_fraction`
    """
    requested = _requested_bytes(traces, served, code, row)
    whole, far = requested * traffic.past[0], requested * traffic.past.prod(0)
    stores, every = code.flags & STORE != 0, max(1.0, float(whole.sum()))
    return float(whole[stores].sum()) / every, float(far[stores].sum()) / every


def moved_bytes(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, traffic: Shares, row: Pipelines
) -> float:
    """Returns the bytes that a workgroup loads from lines that other XCDs hold. traces: as in `written_fraction`."""
    return float((_requested_bytes(traces, served, code, row) * traffic.past[0] * traffic.moved).sum() / len(traces))


def work_of(
    traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, traffic: Shares, row: Pipelines
) -> np.ndarray:
    """Returns each workgroup's work, (n, measures of `simgpu.timing.dispatch.Sharing`)."""
    each = np.where(code.short, LINE_BYTES, row.cache_line)
    weights = np.stack([each, each * traffic.past[0], each * traffic.past.prod(0), np.where(code.flags & STORE, each, 0)])
    made = [
        [len(trace), *(weights @ one.count_misses(trace, code))] for trace, one in zip(traces, served, strict=True)
    ]
    return np.array(made) * np.array([[trace.stretch] for trace in traces])


def _requested_bytes(traces: Sequence[Trace], served: Sequence[ServedAccesses], code: CodeColumns, row: Pipelines) -> np.ndarray:
    """Returns by instruction the bytes that workgroups request past the vector and scalar caches."""
    each = np.where(code.short, LINE_BYTES, row.cache_line)
    return each * sum(trace.stretch * one.count_misses(trace, code) for trace, one in zip(traces, served, strict=True))
