"""Performance notes: each wasteful kernel gives its note, its better twin none."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.engine.finding import Finding
from simgpu.hardware.timing_rules import lds_banks
from tests.support.kernels import KernelText, assemble

HEAD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
"""


def run(lines: str, target: str = "gfx90a", how: bool | str = "performance") -> simgpu.Run:
    """Returns the kernel's run; v0 lane, v1 four times it; s[4:5] a buffer of 64 KiB; 32 KiB of LDS."""
    gpu = simgpu.Device(target, check=how, threads=1)
    text = KernelText("k", HEAD + lines, ("buffer", "buffer"), {"group_segment_fixed_size": 32768})
    return gpu.load(assemble(target, text))["k"].launch(grid=2, block=64, args=[gpu.alloc(1 << 16), gpu.alloc(64)])


def notes(run: simgpu.Run) -> list[Finding]:
    return [finding for finding in run.findings if finding.kind == "performance"]


@pytest.mark.parametrize("target", ["gfx908", "gfx942", "gfx950"])
@pytest.mark.parametrize("instruction, kind, size", [
    ("ds_read_b32 v4, v3", "read", 4), ("ds_read_b64 v[4:5], v3", "read", 8), ("ds_read_b128 v[4:7], v3", "read", 16),
    ("ds_write_b32 v3, v0", "write", 4), ("ds_write_b128 v3, v[4:7]", "write", 16),
])  # fmt: skip
@pytest.mark.parametrize("stride", [4, 16, 132, 512])
def test_bank_conflicts_are_those_of_the_rules(instruction: str, kind: str, size: int, stride: int, target: str) -> None:
    stride = -(-stride // size) * size
    lines = f"v_mul_u32_u24 v3, {stride}, v0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\nv_mov_b32 v6, 0\nv_mov_b32 v7, 0\n{instruction}"
    done = run(lines, target)
    each = lds_banks.conflicts(target, kind, size, np.arange(64) * stride)
    assert done.counters["lds_bank_conflicts"] == 2 * each
    found = [note for note in notes(done) if "bank conflicts" in note.message]
    assert [(note.text, note.count) for note in found] == ([(instruction, 2)] if each else [])
    if each:
        assert f"{each:.3g} clocks lost each time, {2 * each} in all" in found[0].message


def test_lines_of_a_strided_load() -> None:
    lines = "v_lshlrev_b32 v3, {shift}, v0\nglobal_load_dword v4, v3, s[4:5]"
    (note,) = notes(run(lines.format(shift=8)))
    assert "touches 64 cache lines of 64 bytes each time, 4 would hold" in note.message and note.severity == "note"
    (note,) = notes(run(lines.format(shift=8), "gfx942"))
    assert "touches 64 cache lines of 128 bytes each time, 2 would hold" in note.message
    assert notes(run(lines.format(shift=2))) == []


def test_idle_lanes() -> None:
    lines = "s_mov_b64 exec, {mask}\nglobal_load_dword v4, v1, s[4:5]\ns_mov_b64 exec, -1"
    (note,) = notes(run(lines.format(mask="0xff")))
    assert note.message == "8 of 64 lanes active on average"
    assert notes(run(lines.format(mask="-1"))) == []


def test_idle_lanes_of_vector_instructions() -> None:
    """A stretch of them gives one note; lane accesses and matrix instructions use EXEC in other ways, or not at all."""
    lines = """v_mov_b32 v3, v1
s_mov_b64 exec, 0x7
v_mov_b32 v4, v1
s_mov_b32 s8, 0
v_add_u32 v4, v4, v1
v_readfirstlane_b32 s8, v4
global_store_dword v1, v4, s[4:5]
s_mov_b64 exec, {mask}
v_mov_b32 v5, v1"""
    (note,) = notes(run(lines.format(mask="-1")))
    assert note.text == "v_mov_b32_e32 v4, v1" and note.count == 2
    assert note.message.startswith("3 of 64 lanes active on average, here and in the next 2 vector instructions, up to k+0x")
    assert note.message.endswith("`global_store_dword v1, v4, s[4:5]`")
    _, second = notes(run(lines.format(mask="0x1f")))
    assert (second.text, second.message) == ("v_mov_b32_e32 v5, v1", "5 of 64 lanes active on average")
    assert notes(run(lines.replace("0x7", "-1").format(mask="0xffffffff"))) == []


def test_only_where_asked_for() -> None:
    """Without "performance" there are no notes, and no counter either."""
    lines = "v_lshlrev_b32 v3, 8, v0\nglobal_load_dword v4, v3, s[4:5]\nds_read_b32 v5, v3"
    for how in (False, True):
        done = run(lines, how=how)
        assert done.findings == [f for f in done.findings if f.kind not in ("performance", "resource")]
        assert "lds_bank_conflicts" not in done.counters
    assert len(notes(run(lines))) == 2


def test_an_unknown_wish() -> None:
    with pytest.raises(simgpu.SimError, match="performance"):
        simgpu.Device("gfx90a", check="speed")
