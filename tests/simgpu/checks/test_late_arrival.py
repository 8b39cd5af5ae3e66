"""The adversarial completion order: loads arrive at their waits, so kernels that wait enough do not notice."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.checks.waits.late_arrival import POISON, LateArrival
from tests.support.engine_kernel import source

OPTIONS = {"group_segment_fixed_size": 4096}
VALUES = np.arange(1, 65, dtype=np.uint32)


def results(target: str, lines: list[str], dump: str = "v1") -> np.ndarray:
    gpu = simgpu.Device(target, check=True, threads=1)
    gpu.checks = (LateArrival(),)
    code = toolchain.assemble(source(target, "\n".join(lines), (dump,), OPTIONS), target)
    out = gpu.alloc(2048)
    gpu.load(code)["k"].launch(grid=1, block=64, args=[gpu.upload(VALUES), out])
    return out.download(np.uint32)[:64]


LOAD, OTHER = "global_load_dword v2, v60, s[4:5]", "global_load_dword v3, v60, s[4:5]"


@pytest.mark.parametrize("lines", [
    [LOAD, "s_waitcnt vmcnt(0)", "v_mov_b32 v1, v2"],
    [LOAD, OTHER, "s_waitcnt vmcnt(1)", "v_mov_b32 v1, v2"],
    [LOAD, "global_store_dword v60, v60, s[6:7] offset:1024", "s_waitcnt vmcnt(1)", "v_mov_b32 v1, v2"],
    ["ds_write_b32 v60, v60", LOAD, "s_waitcnt vmcnt(0)", "ds_write_b32 v60, v2", "ds_read_b32 v1, v60",
     "s_waitcnt lgkmcnt(0)"],
    ["v_mov_b32 v1, 0", "global_load_short_d16 v1, v60, s[4:5]", "global_load_short_d16_hi v1, v60, s[4:5] offset:2",
     "s_waitcnt vmcnt(0)"],
    ["v_mov_b32 v4, s4", "v_mov_b32 v5, s5", "v_add_co_u32 v4, vcc, v4, v60", "s_nop 1", "v_addc_co_u32 v5, vcc, 0, v5, vcc",
     "flat_load_dword v1, v[4:5]", "s_waitcnt vmcnt(0) lgkmcnt(0)"],
    ["s_mov_b32 s24, s4", "s_mov_b32 s25, s5", "s_movk_i32 s26, 0x100", "s_mov_b32 s27, 0x27000", "s_mov_b32 m0, 0", "s_nop 0",
     "buffer_load_dword v60, s[24:27], 0 offen lds", "s_waitcnt vmcnt(0)", "ds_read_b32 v1, v60", "s_waitcnt lgkmcnt(0)"],
])  # fmt: skip
def test_waits_deliver(lines: list[str]) -> None:
    assert (results("gfx90a", lines) == VALUES).all()
    without = [line for line in lines if not line.startswith("s_waitcnt vmcnt")]
    if without[-1].startswith("v_mov_b32 v1"):
        assert (results("gfx90a", without) == POISON).all()


def test_each_operation_at_its_wait() -> None:
    assert (results("gfx90a", [LOAD, OTHER, "s_waitcnt vmcnt(1)", "v_mov_b32 v1, v3"]) == POISON).all()
    scalars = ["s_load_dword s20, s[4:5], 0x8", "s_load_dword s21, s[4:5], 0x0"]
    late = [*scalars, "s_waitcnt lgkmcnt(1)", "v_mov_b32 v1, s20"]
    assert (results("gfx90a", late) == POISON).all()
    assert (results("gfx90a", [*scalars, "s_waitcnt lgkmcnt(0)", "v_mov_b32 v1, s20"]) == 3).all()
    half = ["v_mov_b32 v4, s4", "v_mov_b32 v5, s5", "flat_load_dword v2, v[4:5]", "s_waitcnt vmcnt(0)", "v_mov_b32 v1, v2"]
    assert (results("gfx90a", half) == POISON).all()


def test_only_the_lanes_that_loaded() -> None:
    lines = ["v_mov_b32 v2, 5", "s_mov_b64 exec, 0xf", LOAD, "s_mov_b64 exec, -1", "v_mov_b32 v1, v2"]
    got = results("gfx90a", lines)
    assert (got[:4] == POISON).all() and (got[4:] == 5).all()
