"""`why` names the inputs that an element depends on: exactly those whose bits change it when flipped."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.debugger.flow.nodes import leaves
from simgpu.debugger.flow.why import Why
from simgpu.tools.robustness.flips import compare
from tests.support.kernels import loaded_kernel


@pytest.mark.parametrize("line", [
    "gemm -m 6 -n 5 -k 9", "gemm -m 5 -n 6 -k 5 --dtype f16 --target mi300x", "softmax --rows 2 -n 19",
    "conv2d --ic 2 --ih 3 --iw 4 --oc 2 --kh 2 --kw 2", "attention -L 2 -d 16 --target mi300x",
])  # fmt: skip
def test_why_is_what_bit_flips_say(line: str) -> None:
    """A few elements; `simgpu.tools.robustness.flips` does 500."""
    count, missing, lost = compare(line, 3, len(line))
    assert count == 3 and not missing and not lost


BYTES = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
v_and_b32 v3, 0xff00, v2
v_lshrrev_b32 v4, 24, v2
v_or_b32 v3, v3, v4
ds_write_b32 v1, v3
s_waitcnt lgkmcnt(0)
v_xor_b32 v5, 4, v1
ds_read_b32 v6, v5
s_mov_b64 s[8:9], exec
s_mov_b64 exec, 0xf
v_mov_b32 v6, v7
s_mov_b64 exec, s[8:9]
s_waitcnt lgkmcnt(0)
global_store_dword v1, v6, s[6:7]
s_endpgm
"""


HEAD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
"""
STORED_BETWEEN = """
global_store_short v1, v0, s[4:5] offset:1
s_waitcnt vmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
"""
STORED_IN_LDS = """
ds_write_b8 v1, v0 offset:1
ds_write_b8 v1, v0 offset:2
ds_read_b32 v2, v1
s_waitcnt lgkmcnt(0)
"""
MASKED = """
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
v_and_b32 v2, 0xff0000ff, v2
"""
ENDS = [("memory", "a0[9]", 1, 0x78), ("memory", "a0[9] byte 3", 1, 0x12)]


@pytest.mark.parametrize(("lines", "ends"), [
    (STORED_BETWEEN, ENDS), (MASKED, ENDS),
    (STORED_IN_LDS, [("constant", f"LDS {at:#x}, which nobody wrote", 1, None) for at in (0x24, 0x27)]),
])  # fmt: skip
def test_bytes_on_both_sides_of_others(lines: str, ends: list[tuple[str, str, int, int | None]]) -> None:
    """Bytes 1 and 2 of a dword are stored before, or do not matter; bytes 0 and 3 are named, each with its value."""
    gpu = simgpu.Device("gfx90a", threads=1)
    x, y = gpu.upload(np.full(64, 0x12345678, np.uint32)), gpu.upload(np.zeros(64, np.uint32))
    text = HEAD + lines + "global_store_dword v1, v2, s[6:7]\ns_endpgm"
    kernel = loaded_kernel(gpu, text, "buffer", "buffer", group_segment_fixed_size=256)
    with simgpu.debug(kernel, grid=1, args=[x, y]) as debugger:
        found = [leaf for leaf in leaves(Why(debugger).memory(y.address + 4 * 9, 4)) if leaf.kind != "initial"]
        assert sorted((leaf.kind, leaf.text, leaf.size, leaf.value) for leaf in found) == ends


def test_bytes_lanes_and_what_nobody_wrote() -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    x, y = gpu.upload(np.full(64, 0x12345678, np.uint32)), gpu.upload(np.zeros(64, np.uint32))
    kernel = loaded_kernel(gpu, BYTES, "buffer", "buffer", group_segment_fixed_size=256)
    with simgpu.debug(kernel, grid=1, args=[x, y]) as debugger:
        why = Why(debugger)
        ends = {(leaf.kind, leaf.text) for leaf in leaves(why.memory(y.address + 4 * 9, 4))}
        assert ("memory", "a0[8] byte 1") in ends and ("memory", "a0[8] byte 3") in ends and len(ends) == 2
        (end,) = leaves(why.memory(y.address + 4 * 2, 4))
        assert end.kind == "initial" and end.word == ("v", 7, 2)
        (last,) = [leaf for leaf in leaves(why.memory(y.address + 4 * 9 + 1, 1)) if leaf.kind == "memory"]
        assert last.text == "a0[8] byte 1"
        assert why.writer(("v", 6, 2), 0, 17).retired == 14 and why.writer(("v", 6, 9), 0, 17).retired == 11  # type: ignore[union-attr]
        assert why.writer(("v", 9, 0), 0, 17) is None
