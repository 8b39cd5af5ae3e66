"""Barriers that order nothing are noted; those that do, or may, order something are not."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.engine.finding import Finding
from tests.support.kernels import KernelText, assemble

# v1 four times the work-item, v2 the same of the other wave's lane, of two; s[4:5], s[6:7] buffers.
HEAD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_xor_b32 v2, 0x100, v1
s_waitcnt lgkmcnt(0)
"""
DONE = "s_waitcnt vmcnt(0) lgkmcnt(0)\n"


def noted(lines: str, target: str = "gfx90a", block: int = 128) -> list[Finding]:
    """Returns the findings of three workgroups; of one if they would store to the same memory."""
    grid = 1 if "global_store" in lines else 3
    gpu = simgpu.Device(target, check="performance", threads=1)
    text = KernelText("k", HEAD + lines, ("buffer", "buffer"), {"group_segment_fixed_size": 4096})
    buffers = [gpu.upload(np.zeros(4096, np.uint32)) for _ in range(2)]
    found = gpu.load(assemble(target, text))["k"].launch(grid=grid, block=block, args=buffers).findings
    assert not [str(f) for f in found if f.severity == "error"]
    return [f for f in found if f.text == "s_barrier" and "orders nothing" in f.message]


WRITE, OWN, OTHER = "ds_write_b32 v1, v0\n" + DONE, "ds_read_b32 v3, v1\n" + DONE, "ds_read_b32 v3, v2\n" + DONE
BARRIER, LOAD = "s_barrier\n", "global_load_dword v3, v1, s[4:5]\n" + DONE
IDLE = {
    "each wave reads what it wrote": WRITE + BARRIER + OWN,
    "nothing on either side": BARRIER,
    "reads on both sides": "ds_read_b32 v3, v1\n" + DONE + BARRIER + OTHER,
    "atomics on both sides": "ds_add_u32 v1, v0\n" + DONE + BARRIER + "ds_add_u32 v2, v0\n" + DONE,
    "different bytes": WRITE + BARRIER + "ds_write_b32 v2, v0 offset:1024\n" + DONE,
    "reads of memory": LOAD + BARRIER + "global_load_dword v4, v2, s[4:5]\n" + DONE,
    "memory of different buffers": LOAD + BARRIER + "global_store_dword v1, v3, s[6:7]\n" + DONE,
}
NEEDED = {
    "the other wave reads it": WRITE + BARRIER + OTHER,
    "the other wave writes what is read": OTHER + BARRIER + WRITE,
    "the other wave overwrites it": WRITE + BARRIER + "ds_write_b32 v2, v0\n" + DONE,
    "an atomic behind a write": WRITE + BARRIER + "ds_add_u32 v2, v0\n" + DONE,
    "a byte of it": WRITE + BARRIER + "ds_read_u8 v3, v2 offset:3\n" + DONE,
    "memory": "global_store_dword v1, v0, s[6:7]\n" + DONE + BARRIER + "global_load_dword v3, v1, s[6:7]\n" + DONE,
    "a sign to others": BARRIER + "v_mov_b32 v4, 0\nv_mov_b32 v5, 1\nglobal_atomic_add v4, v5, s[6:7]\n" + DONE,
}  # fmt: skip


@pytest.mark.parametrize("row", IDLE)
def test_it_orders_nothing(row: str) -> None:
    (note,) = noted(IDLE[row])
    groups = 1 if "global_store" in IDLE[row] else 3
    assert (note.kind, note.severity, note.count) == ("performance", "note", groups)
    assert noted(IDLE[row], block=64) == []  # one wave


@pytest.mark.parametrize("target", ["gfx908", "gfx950"])
@pytest.mark.parametrize("row", NEEDED)
def test_it_is_needed(row: str, target: str) -> None:
    assert noted(NEEDED[row], target) == []


LOOP = "s_mov_b32 s20, 3\nloop:\n{body}s_sub_u32 s20, s20, 1\ns_cmp_lg_u32 s20, 0\ns_cbranch_scc1 loop\n"


def test_once_in_a_loop_is_enough() -> None:
    """A barrier that holds back the next round's writes is needed even though the last round has none."""
    both = LOOP.format(body=WRITE + BARRIER + OTHER + "s_barrier // next\n")
    assert noted(both) == []
    (extra,) = noted(LOOP.format(body=WRITE + BARRIER + BARRIER + OTHER + "s_barrier // next\n"))[:1]
    assert extra.count == 9


def test_two_in_a_row_may_go_one_at_a_time() -> None:
    """Either barrier is idle while the other remains; the note says so."""
    found = noted(WRITE + BARRIER + "v_mov_b32 v9, 0\n" + BARRIER + OTHER)
    assert len(found) == 2 and all("one such barrier at a time" in note.message for note in found)


def test_waves_that_meet_at_different_barriers_are_left_out() -> None:
    lines = "v_cmp_gt_u32 vcc, 64, v0\ns_cbranch_vccz other\ns_barrier\ns_endpgm\nother:\ns_barrier\n"
    assert noted(lines) == []
