"""LDS at a barrier with known addresses: accesses that cannot overlap give no finding, overlapping ones a certain finding."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.checks.lint import lint
from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.kernel import graph_of
from simgpu.checks.lint.lds_addresses import LdsAddresses
from simgpu.engine.finding import Finding
from simgpu.hardware.code_object import CodeObject
from tests.support.kernels import KernelText, source

OPTIONS = {"next_free_vgpr": 32, "next_free_sgpr": 32, "group_segment_fixed_size": 16384}


def made(lines: str, size: int = 256, sized: bool = True) -> CodeObject:
    """Makes a kernel whose metadata give the number of work-items in a workgroup, or only the maximum."""
    text = source("gfx90a", KernelText("k", lines, ("buffer", "buffer"), OPTIONS, size))
    if sized:
        text = text.replace(".max_flat_workgroup_size:", f".reqd_workgroup_size: [{size}, 1, 1]\n    .max_flat_workgroup_size:")
    from simgpu import asm

    return CodeObject.parse(asm.assemble(text, "gfx90a"))


def found(lines: str, size: int = 256, sized: bool = True) -> list[Finding]:
    return [finding for finding in lint(made(lines, size, sized)) if finding.kind == "missing-wait"]


OWN = "v_lshlrev_b32 v1, 2, v0\nv_mov_b32 v2, 0\n"  # a separate word for each work-item
WAVES = OWN + "v_lshrrev_b32 v3, 6, v0\n"
WAVES += "v_readfirstlane_b32 s8, v3\ns_lshl_b32 s9, s8, 10\ns_add_u32 s9, s9, 0x1000\nv_mov_b32 v4, s9\n"
NEXT = OWN + "v_xor_b32 v3, 0x100, v1\n"  # a word of another wave's work-item
DONE = "\ns_waitcnt lgkmcnt(0)"


@pytest.mark.parametrize("behind", ["ds_read_b32 v5, v1", "ds_read_b32 v5, v1 offset:2048", "ds_write_b32 v1, v2"])
def test_what_cannot_overlap(behind: str) -> None:
    """A wave's own words, and a buffer after them, need no barrier."""
    assert found(OWN + "ds_write_b32 v1, v2\ns_barrier\n" + behind + DONE) == []
    (finding,) = found(OWN + "ds_write_b32 v1, v2\ns_barrier\n" + behind + DONE, sized=False)
    assert finding.certainty == "addresses"


def test_what_overlaps() -> None:
    (finding,) = found(NEXT + "ds_write_b32 v1, v2\ns_barrier\nds_read_b32 v5, v3" + DONE)
    assert (finding.certainty, finding.severity) == ("every path", "error")
    (finding,) = found(NEXT + "ds_read_b32 v5, v1\ns_barrier\nds_write_b32 v3, v2" + DONE)
    assert (finding.certainty, finding.severity) == ("every path", "error")
    loaded = NEXT + "global_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
    (finding,) = found(loaded + "ds_write_b32 v1, v2\ns_barrier\nds_read_b32 v5, v3" + DONE)
    assert finding.certainty == "addresses"


def test_an_older_operation_that_overlaps() -> None:
    """An older operation can overlap, the youngest cannot: the wait is for the older one."""
    lines = NEXT + "ds_write_b32 v1, v2\nds_write_b32 v1, v2 offset:4096\ns_barrier\nds_read_b32 v5, v3" + DONE
    (finding,) = found(lines)
    assert "lgkmcnt(1)" in finding.message and finding.certainty == "every path"


def test_the_number_of_the_wave_gives_an_address() -> None:
    lines = WAVES + "ds_write_b32 v4, v2\ns_barrier\nds_read_b32 v5, v1" + DONE
    assert found(lines) == []  # 4096 and above, and below 1024
    assert found(lines.replace("0x1000", "0x0").replace("s8, 10", "s8, 7"))  # words of wave 0 and 1


def test_addresses_against_python() -> None:
    lines = (
        "v_and_b32 v1, 63, v0\nv_lshrrev_b32 v2, 6, v0\nv_mul_u32_u24 v3, v2, 48\nv_lshl_add_u32 v4, v1, 4, v3\n"
        "s_mov_b32 s8, 0xf0f0f0f0\ns_mov_b32 s9, 0x12345678\nv_mov_b32 v5, 64\nv_cndmask_b32 v6, 0, v5, s[8:9]\n"
        "v_add_u32 v7, v4, v6\nds_write_b64 v7, v[2:3] offset:24"
    )
    code = made(lines)
    kernel = code.kernels["k"]
    blocks = StraightBlocks(graph_of(code, kernel))
    (access,) = LdsAddresses(blocks, kernel)._accesses.values()
    item = np.arange(256)
    lane = item % 64
    mask = (0xF0F0F0F0 | 0x12345678 << 32) >> lane.astype(object) & 1
    address = lane * 16 + item // 64 * 48 + 64 * mask.astype(np.int64) + 24
    assert (access.words, access.whole) == (2, True) and (access.first == address // 4).all()
