"""The line traces of launches, and the model of L2 that they are replayed through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.hardware import target as find_target
from simgpu.operators import AttentionProblem, FusedAttention, UnfusedAttention

simgpu = pytest.importorskip("simgpu")

from simgpu.checks.line_trace import LineTraces, traced_device  # noqa: E402
from simgpu.tools.tables.l2_model import LINE_BYTES, L2Model  # noqa: E402


def replay(rows, board, together):
    """The traffic of a grid of one wave a workgroup: rows of (line, written)."""
    model = L2Model(board, {"k": together})
    assert model.begin("k", 1 + max(line for row in rows for line, _ in row)) == together
    for first in range(0, len(rows), together):
        model.read(traces_of(rows[first : first + together], first))
    model.end()
    return model.launches[0]


def traces_of(rows, first):
    lines = np.zeros((len(rows), max(map(len, rows))), np.uint32)
    for row, touched in enumerate(rows):
        lines[row, : len(touched)] = [line << 1 | written for line, written in touched]
    counts = np.array([len(row) for row in rows], np.int64)
    return LineTraces(lines, counts, first, 1)


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
    found = replay(rows, board, cus)
    assert (found.read // LINE_BYTES, found.written // LINE_BYTES) == naive(rows, cus, xcds, capacity)
    assert found.asked == LINE_BYTES * sum(map(len, rows))


def modelled(kernel, buffers_of, model, threads=None):
    """Runs a kernel on a traced device; its runs."""
    device = traced_device("mi100", model, threads)
    runs = asm.launch(kernel, device, *(device.upload(x) for x in buffers_of))
    assert not any(run.findings for run in runs)
    return runs


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_streams_keys_once_a_round(threads):
    """Five rounds of workgroups, each reading K and V once, beside Q and R: erratum E21, small, whatever the host's threads."""
    board = replace(find_target("mi100"), num_cus=3, l2_bytes=64 * LINE_BYTES)
    p = AttentionProblem(32 * 14, 512, 64)
    tree = FusedAttention(p, board)
    arrays = [np.zeros(shape, np.float32) for shape in (p.q_shape, p.k_shape, p.v_shape, p.q_shape)]
    kernel = asm.emit(tree)
    assert tree.plan.rounds == 5
    for l2_bytes, wanted in ((board.l2_bytes, 5 * p.kv_bytes + p.qr_bytes), (1 << 20, p.bytes_once)):
        model = L2Model(replace(board, l2_bytes=l2_bytes), {kernel.name: board.num_cus})
        modelled(kernel, arrays, model, threads)
        assert model.launches[0].hbm_bytes == wanted
    assert tree.plan.lockstep_bytes == 5 * p.kv_bytes + p.qr_bytes


@pytest.mark.parametrize("threads", [1, 2])
def test_unfused_attention_moves_s_four_times(threads):
    """S is larger than L2, and its tiles are whole lines: four passes over it; Q, K, V, R at least once each. Memory is one
    round's."""
    board = replace(find_target("mi100"), num_cus=2, l2_bytes=256 * LINE_BYTES)
    p = AttentionProblem(512, 512, 64)
    tree = UnfusedAttention(p, board)
    kernel = asm.emit(tree)
    model = L2Model.of(kernel, board)
    arrays = [np.zeros(shape, np.float32) for shape in (p.q_shape, p.k_shape, p.v_shape, p.q_shape)]
    runs = modelled(kernel, arrays, model, threads)
    moved = [launch.hbm_bytes for launch in model.launches]
    assert len(moved) == 3 and moved[1] == 2 * tree.score_bytes
    once = [run.counters["unique_read_bytes"] + run.counters["unique_write_bytes"] for run in runs]
    assert sum(moved) >= tree.bytes_once == sum(once) and all(map(int.__ge__, moved, once))
    wide = L2Model.of(kernel, replace(board, l2_bytes=1 << 24))
    modelled(kernel, arrays, wide, threads)
    assert sum(launch.hbm_bytes for launch in wide.launches) == tree.bytes_once


def test_a_launch_runs_a_few_workgroups_at_a_time():
    """Every workgroup once, in dispatch order; rows behind the last are empty."""
    seen = []

    class Reader:
        def begin(self, kernel, lines):
            self.lines = lines
            return 3

        def read(self, traces):
            assert len(traces.counts) == 3 * traces.waves and traces.lines[traces.counts > 0, 0].max() >> 1 < self.lines
            seen.append((traces.first, [bool(count) for count in traces.counts[:: traces.waves]]))

        def end(self):
            seen.append("end")

    board = replace(find_target("mi100"), num_cus=1)
    p = AttentionProblem(64 * 5 - 7, 64, 16)
    kernel = asm.emit(FusedAttention(p, board))
    device = traced_device("mi100", Reader(), 2)
    asm.launch(kernel, device, *(device.upload(np.zeros(s, np.float32)) for s in (p.q_shape, p.k_shape, p.v_shape, p.q_shape)))
    blocks, *others = kernel.grid
    assert others == [1, 1] and blocks % 3, "the last rows are empty"
    assert seen == [*((first, [first + place < blocks for place in range(3)]) for first in range(0, blocks, 3)), "end"]
