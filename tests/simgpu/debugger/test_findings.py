"""Places of findings: `goto` leads to the instruction of the finding, in the right round of the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.debugger.findings import kinds_of
from simgpu.debugger.place import WavePlace
from simgpu.hardware.errors import LaunchError
from tests.support.kernels import loaded_kernel

HEAD = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_mov_b32 s6, 5
v_mov_b32 v2, 1.0
v_mov_b32 v3, 0
s_waitcnt lgkmcnt(0)
loop:
"""
TAIL = """
s_sub_u32 s6, s6, 1
s_cmp_lg_u32 s6, 0
s_cbranch_scc1 loop
global_store_dword v1, v2, s[4:5]
s_endpgm
"""
ROUND, HEADS = 3, 6  # instructions of TAIL in each round, and of HEAD
# By name: the loop's body, the mode, the finding's kind, its wave, and the number of instructions that this wave had retired.
BROKEN: dict[str, tuple[str, Any, str, int, int]] = {
    "wait": ("global_load_dword v4, v1, s[4:5]\nv_add_u32 v4, 1, v4\ns_waitcnt vmcnt(0)", True, "missing-wait", 0, HEADS + 1),
    "uninitialized": ("v_add_u32 v3, v3, v9\nv_mov_b32 v2, v3\nds_write_b32 v3, v2", True, "uninitialized", 0, HEADS + 2),
    "bounds": ("v_lshlrev_b32 v1, 3, v1\nglobal_store_dword v1, v2, s[4:5]\ns_nop 0", True, "out-of-bounds", 0, HEADS + 6 + 1),
    "race": ("ds_write_b32 v3, v1\ns_nop 0\ns_nop 0", True, "race", 1, HEADS),
    "infinity": ("v_mul_f32 v2, 0x60000000, v2\ns_nop 0\ns_nop 0", "numerics", "infinity", 0, HEADS + 6),
}  # fmt: skip


def launched(name: str, mode: Any) -> tuple[simgpu.Device, Any, Any]:
    gpu = simgpu.Device("gfx90a", check=mode, threads=1)
    out = gpu.upload(np.zeros(1024, np.float32))
    return gpu, loaded_kernel(gpu, HEAD + BROKEN[name][0] + TAIL, "buffer", group_segment_fixed_size=256), out


@pytest.mark.parametrize("name", BROKEN)
def test_a_finding_has_the_place_at_which_it_was_seen(name: str) -> None:
    _, mode, kind, wave, retired = BROKEN[name]
    _, kernel, out = launched(name, mode)
    try:
        found = kernel.launch(grid=1, block=128, args=[out]).findings
    except simgpu.SimError as error:
        found = error.findings
    (finding,) = [each for each in found if each.kind == kind][:1]
    place = WavePlace.parse(finding.when)
    assert place == WavePlace(place.group, wave, retired) and f"\n  first at {place}" in str(finding)
    assert finding.document()["when"] == str(place)
    _, plain, out = launched(name, False)
    with simgpu.debug(plain, grid=1, block=128, args=[out]) as debugger:
        debugger.goto(place)
        assert debugger.code.text(debugger.record()) in (finding.text, finding.other_text)
        debugger.focus((0, 0, 0))
        made = debugger.breakpoint(f"finding {kind}")
        stop = debugger.go_on()
        assert stop.kind == "breakpoint" and stop.breakpoints == (made,) and f"finding {kind}: {kind}: " in stop.message
        assert (stop.place.wave, stop.place.retired) == (wave, retired)
        debugger.step()
        assert debugger.reverse_go_on().place == stop.place
        assert str(stop.place) in [each.when for each in debugger.findings(kind)]


def test_kernels_with_nothing_wrong_stop_nowhere() -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    out = gpu.upload(np.zeros(1024, np.float32))
    kernel = loaded_kernel(gpu, HEAD + "v_add_f32 v2, 1.0, v2" + TAIL, "buffer")
    with simgpu.debug(kernel, grid=1, block=128, args=[out]) as debugger:
        assert not debugger.findings() and not debugger.breakpoint("finding").points
        assert debugger.go_on().kind == "ended"
        for where, condition, words in (("finding foo", "", "no kind of finding"), ("finding", "s4 == 1", "supported only for")):
            with pytest.raises(LaunchError, match=words):
                debugger.breakpoint(where, condition)


def test_kinds() -> None:
    assert kinds_of("wait, bounds race") == ("missing-wait", "out-of-bounds", "race") and kinds_of("") == ()
