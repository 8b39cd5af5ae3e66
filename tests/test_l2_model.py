"""The line traces of launches, and the model of L2 that they are replayed through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asm
from hardware import target as find_target
from operators import AttentionProblem, FusedAttention

simgpu = pytest.importorskip("simgpu")

from simgpu.checks.lines import FILTER, LaunchTrace, traced_device  # noqa: E402
from tools.l2_model import LINE_BYTES, replay  # noqa: E402


def trace_of(rows, waves=1):
    """Rows of (line, written) for the waves of a grid."""
    lines = np.zeros((len(rows), max(map(len, rows))), np.uint32)
    for row, touched in enumerate(rows):
        lines[row, : len(touched)] = [line << 1 | written for line, written in touched]
    counts = np.array([len(row) for row in rows], np.int64)
    return LaunchTrace(lines, counts, waves, np.zeros((len(rows), FILTER), np.int64), np.zeros(1, np.int64))


def naive(rows, cus, xcds, capacity):
    """The same by lists: (read misses, lines written)."""
    misses = written = 0
    for xcd in range(xcds):
        order, dirty = [], set()
        for first in range(0, len(rows), cus):
            mine = [rows[g] for g in range(first, min(first + cus, len(rows))) if g % xcds == xcd]
            for at in range(max(map(len, mine), default=0)):
                for row in mine:
                    if at >= len(row):
                        continue
                    line, write = row[at]
                    misses += line not in order and not write
                    order = [line, *(x for x in order if x != line)]
                    dirty |= {line} if write else set()
                    if len(order) > capacity:
                        written += order[-1] in dirty
                        dirty.discard(order.pop())
        written += len(dirty)
    return misses, written


touched = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=12)


@given(st.lists(touched, min_size=1, max_size=9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_replay_is_an_lru_of_every_xcd(rows, cus, xcds, capacity):
    board = replace(find_target("mi100"), num_cus=cus, xcds=xcds, l2_bytes=capacity * LINE_BYTES)
    found = replay(trace_of(rows), board, 1)
    assert (found.read // LINE_BYTES, found.written // LINE_BYTES) == naive(rows, cus, xcds, capacity)
    assert found.asked == LINE_BYTES * sum(map(len, rows))


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_streams_keys_once_a_round(threads):
    """Five rounds of workgroups, each reading K and V once, beside Q and R: erratum E21, small, whatever the host's threads."""
    board = replace(find_target("mi100"), num_cus=3, l2_bytes=64 * LINE_BYTES)
    p = AttentionProblem(32 * 13, 512, 64)
    tree = FusedAttention(p, board)
    device, trace = traced_device("mi100", threads)
    source = np.random.default_rng(0)
    arrays = [source.standard_normal(shape).astype(np.float32) for shape in (p.q_shape, p.kv_shape, p.kv_shape)]
    kernel = asm.emit(tree)
    buffers = [device.upload(x) for x in (*arrays, np.zeros(p.q_shape, np.float32))]
    (run,) = asm.launch(kernel, device, *buffers)
    (lines,) = trace.launches
    assert run.findings == [] and tree.plan.rounds == 5
    assert replay(lines, board, 1).hbm_bytes == tree.plan.lockstep_bytes == 5 * p.kv_bytes + p.qr_bytes
    whole = replace(board, l2_bytes=1 << 20)
    assert replay(lines, whole, 1).hbm_bytes == p.bytes_once
