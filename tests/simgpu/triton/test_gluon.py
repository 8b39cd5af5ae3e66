"""Gluon's kernels in checked mode: layouts, LDS and waits are the program's own there, and no compiler adds a wait."""

from __future__ import annotations

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="Triton is an optional extra")
gluon = pytest.importorskip("triton.experimental.gluon")
gl = pytest.importorskip("triton.experimental.gluon.language")
copies = pytest.importorskip("triton.experimental.gluon.language.amd.cdna4.async_copy")

import simgpu.triton  # noqa: E402

ROWS, COLUMNS = 16, 64


@gluon.jit
def add_blocks(
    blocks, out, count, rows: gl.constexpr, columns: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr, waits: gl.constexpr
):
    """Adds blocks of rows x columns f32, which go to LDS directly, each while the one before it is added."""
    lds = gl.allocate_shared_memory(gl.float32, [2, rows, columns], shared)
    row, column = gl.arange(0, rows, layout=gl.SliceLayout(1, layout)), gl.arange(0, columns, layout=gl.SliceLayout(0, layout))
    at = row[:, None] * columns + column[None, :]
    total = gl.zeros([rows, columns], gl.float32, layout=layout)
    copies.buffer_load_to_shared(lds.index(0), blocks, at)
    copies.commit_group()
    for block in range(count):
        if block + 1 < count:
            copies.buffer_load_to_shared(lds.index((block + 1) % 2), blocks, at + (block + 1) * rows * columns)
        copies.commit_group()
        if waits:
            copies.wait_group(1)
        total += lds.index(block % 2).load(layout)
        gl.barrier()
    gl.store(out + at, total)


@pytest.mark.parametrize(("count", "warps"), [(1, 1), (3, 2), (6, 4)])
@pytest.mark.parametrize("waits", [True, False])
def test_copies_to_lds_need_their_wait(count: int, warps: int, waits: bool) -> None:
    blocks = np.random.default_rng(count).standard_normal((count, ROWS, COLUMNS), np.float32)
    out = np.zeros((ROWS, COLUMNS), np.float32)
    layout, shared = gl.BlockedLayout([1, 4], [4, 16], [warps, 1], [1, 0]), gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    with simgpu.triton.device("mi355x", check="collect") as session:
        add_blocks[(1,)](blocks, out, count, ROWS, COLUMNS, layout, shared, waits, num_warps=warps)
    np.testing.assert_allclose(out, blocks.sum(0), rtol=1e-4, atol=1e-5)
    assert bool(session.findings) != waits
    assert all("missing-wait" in str(finding) for finding in session.findings)
