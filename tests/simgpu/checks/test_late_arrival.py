"""Late mode, and the latest completion of all: kernels that wait enough do not notice, others compute wrong numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.checks.waits.late_arrival import POISON, LateArrival
from simgpu.hardware.errors import LaunchError
from tests.support.engine_kernel import source
from tests.support.exhaustive import examples
from tests.support.gemm_case import bytes_by_mode
from tests.support.kernels import KernelText, assemble

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


# -- by seed -------------------------------------------------------------------------------------------------

SEEDS = range(1, 31)


def by_seed(target: str, lines: list[str], seeds: Iterable[int] = SEEDS) -> list[np.ndarray]:
    """Returns v1 of each seed."""
    code, found = toolchain.assemble(source(target, "\n".join(lines), ("v1",), OPTIONS), target), []
    for seed in seeds:
        gpu = simgpu.Device(target, late=seed)
        out = gpu.alloc(2048)
        gpu.load(code)["k"].launch(grid=1, block=64, args=[gpu.upload(VALUES), out])
        found.append(out.download(np.uint32)[:64])
    return found


SHARED = ["s_mov_b32 m0, -1", "s_mov_b64 s[20:21], src_shared_base", "v_mov_b32 v4, v60", "v_mov_b32 v5, s21",
          "v_add_u32 v6, 1, v0"]  # fmt: skip


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_flat_accesses_follow_the_wave_s_writes_to_lds(target: str) -> None:
    """LLVM has no wait between ds_write and a flat access of the same wave."""
    loaded = [*SHARED, "ds_write_b32 v60, v6", "flat_load_dword v1, v[4:5]", "s_waitcnt vmcnt(0) lgkmcnt(0)"]
    stored = [*SHARED, "v_mov_b32 v7, 0", "ds_write_b32 v60, v7", "flat_store_dword v[4:5], v6", "ds_read_b32 v1, v60",
              "s_waitcnt vmcnt(0) lgkmcnt(0)"]  # fmt: skip
    for lines in (loaded, stored):
        assert all((row == VALUES).all() for row in by_seed(target, lines))
        assert (results(target, lines) == VALUES).all()


def kinds(found: list[np.ndarray], **wanted: object) -> set[str]:
    """Returns the names of the values that were found, all lanes alike."""
    names = [next((name for name, want in wanted.items() if (row == want).all()), "other") for row in found]
    return set(names)


BUFFER = ["s_mov_b32 s24, s4", "s_mov_b32 s25, s5", "s_movk_i32 s26, 0x100", "s_mov_b32 s27, 0x27000", "s_mov_b32 m0, 0", "s_nop 0"]
FLAT = ["v_mov_b32 v4, s4", "v_mov_b32 v5, s5", "v_add_co_u32 v4, vcc, v4, v60", "s_nop 1", "v_addc_co_u32 v5, vcc, 0, v5, vcc"]
# Lines before the wait, the wait, and lines after it that read the operation's result.
WAITED = {
    "global": (["v_mov_b32 v2, 7", LOAD], "s_waitcnt vmcnt(0)", ["v_mov_b32 v1, v2"]),
    "buffer": ([*BUFFER, "v_mov_b32 v2, 7", "buffer_load_dword v2, v60, s[24:27], 0 offen"], "s_waitcnt vmcnt(0)",
               ["v_mov_b32 v1, v2"]),
    "flat": ([*FLAT, "v_mov_b32 v2, 7", "flat_load_dword v2, v[4:5]"], "s_waitcnt vmcnt(0) lgkmcnt(0)", ["v_mov_b32 v1, v2"]),
    "two in flight": (["v_mov_b32 v2, 7", LOAD, OTHER], "s_waitcnt vmcnt(1)", ["v_mov_b32 v1, v2"]),
    "LDS": (["v_lshrrev_b32 v3, 2, v60", "v_add_u32 v3, 1, v3", "ds_write_b32 v60, v3", "v_mov_b32 v2, 7", "ds_read_b32 v2, v60"],
            "s_waitcnt lgkmcnt(0)", ["v_mov_b32 v1, v2"]),
    "two writes": (["v_mov_b32 v3, 7", "v_lshlrev_b32 v4, 1, v60", "ds_write2_b32 v4, v3, v3 offset1:1", "s_waitcnt lgkmcnt(0)",
                    "v_lshrrev_b32 v5, 2, v60", "v_add_u32 v5, 1, v5", "ds_write2_b32 v4, v3, v5 offset1:1", "v_mov_b32 v2, 7",
                    "ds_read_b32 v2, v4 offset:4"], "s_waitcnt lgkmcnt(0)", ["v_mov_b32 v1, v2"]),
    "to LDS": ([*BUFFER, "v_mov_b32 v2, 7", "ds_write_b32 v60, v2", "s_waitcnt lgkmcnt(0)",
                "buffer_load_dword v60, s[24:27], 0 offen lds"], "s_waitcnt vmcnt(0)",
               ["ds_read_b32 v1, v60", "s_waitcnt lgkmcnt(0)"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITED)
def test_a_missing_wait_gives_old_values_under_some_seeds(name: str) -> None:
    before, wait, after = WAITED[name]
    broken = by_seed("gfx90a", [*before, *after])
    assert kinds(broken, old=7, new=VALUES) == {"old", "new"}
    assert kinds(by_seed("gfx90a", [*before, wait, *after]), new=VALUES) == {"new"}
    assert [row.tobytes() for row in broken] == [row.tobytes() for row in by_seed("gfx90a", [*before, *after])]


def test_scalar_loads() -> None:
    lines = ["s_mov_b32 s20, 7", "s_load_dword s20, s[4:5], 0x8"]
    assert kinds(by_seed("gfx942", [*lines, "v_mov_b32 v1, s20", "s_waitcnt lgkmcnt(0)"]), old=7, new=3) == {"old", "new"}
    assert kinds(by_seed("gfx942", [*lines, "s_waitcnt lgkmcnt(0)", "v_mov_b32 v1, s20"]), new=3) == {"new"}


def test_a_value_written_before_the_load_arrives_is_lost() -> None:
    lines = [LOAD, "v_mov_b32 v2, 9", "s_waitcnt vmcnt(0)", "v_mov_b32 v1, v2"]
    assert kinds(by_seed("gfx942", lines), written=9, loaded=VALUES) == {"written", "loaded"}


PASSED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v2, 2, v0
v_xor_b32 v3, 0x100, v2
v_add_u32 v4, 1, v0
ds_write_b32 v2, v4
{wait}
s_barrier
ds_read_b32 v5, v3
s_waitcnt lgkmcnt(0)
global_store_dword v2, v5, s[4:5]
"""


@pytest.mark.parametrize("target", ["gfx908", "gfx950"])
def test_another_wave_reads_lds_that_was_not_waited_for(target: str) -> None:
    right = np.arange(128, dtype=np.uint32) ^ 64
    for wait, wanted in (("s_waitcnt lgkmcnt(0)", {True}), ("", {True, False})):
        text = KernelText("passed", PASSED.format(wait=wait), ("buffer",), {"group_segment_fixed_size": 512})
        code, found = assemble(target, text), set()
        for seed in SEEDS:
            gpu = simgpu.Device(target, late=seed)
            out = gpu.zeros(128, np.uint32)
            gpu.load(code)["passed"].launch(grid=1, block=128, args=[out])
            found.add(bool((out.download() == right + 1).all()))
        assert found == wanted


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["mi210", "mi355x"])
@pytest.mark.parametrize("m, k, dtype", [(100, 70, "f32"), (130, 257, "f16")])
def test_our_kernels_give_the_same_bytes_under_every_seed(m: int, k: int, dtype: str, target: str) -> None:
    found = bytes_by_mode(target, m, k, dtype, [{"late": seed} for seed in (None, *range(examples(8)))])
    assert len(set(found)) == 1


def test_late_mode_takes_a_seed_and_nothing_else() -> None:
    bad = [({"late": -1}, "seed of 0 or more"), ({"late": 1, "weak": 1}, "give one"), ({"late": 1, "check": True}, "no findings")]
    for wrong, said in bad:
        with pytest.raises(LaunchError, match=said):
            simgpu.Device("mi300x", **wrong)


def test_the_debugger_replays_a_seed() -> None:
    before, _, after = WAITED["global"]
    lines = [*before, *after]
    seed = next(seed for seed, row in zip(SEEDS, by_seed("gfx90a", lines), strict=True) if (row == 7).all())
    gpu = simgpu.Device("gfx90a", late=seed)
    kernel = gpu.load(toolchain.assemble(source("gfx90a", "\n".join(lines), ("v1",), OPTIONS), "gfx90a"))["k"]
    with simgpu.debug(kernel, grid=1, block=64, args=[gpu.upload(VALUES), gpu.alloc(2048)]) as debugger:
        debugger.go_on()
        assert (debugger.snapshot(0).vgprs[1] == 7).all()
