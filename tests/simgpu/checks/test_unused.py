"""Races of redundant loads: a note if a wave has no use for its load, an error if anything may depend on it."""

from __future__ import annotations

import pytest

from simgpu.engine.finding import Finding
from tests.support.race_findings import check

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
# All waves load the same 64 dwords, 4 bytes a lane at v2; one wave stores a result of them.
LOAD = """
v_and_b32 v2, 0xfc, v1
v_mov_b32 v20, 0
s_mov_b32 s24, s4
s_and_b32 s25, s5, 0xffff
s_mov_b32 s26, 0x10000
s_mov_b32 s27, 0x27000
{load}
s_waitcnt vmcnt(0) lgkmcnt(0)
"""
BY_LANES = """
{compute}
s_mov_b64 s[20:21], exec
s_cmp_eq_u32 s9, {wave}
s_cselect_b64 exec, exec, 0
{store}
s_mov_b64 exec, s[20:21]
{after}
s_endpgm
"""
STORE = "global_store_dword v2, v3, s[4:5]"
LOADED = "global_load_dword v3, v2, s[4:5]"


def in_place(
    load: str = LOADED, compute: str = "v_add_u32 v3, 1, v3", store: str = STORE, after: str = "", wave: int = 0
) -> str:
    """Returns a kernel in which all waves load data and one updates it in place."""
    return LOAD.format(load=load) + BY_LANES.format(compute=compute, store=store, after=after, wave=wave)


def severities(lines: str, target: str = "gfx90a", **launch: int) -> set[str]:
    """Returns the severities of a kernel's races."""
    found: list[Finding] = [finding for finding in check(lines, target=target, **launch) if finding.kind == "race"]
    return {finding.severity for finding in found}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("wave", [0, 3])
def test_what_one_wave_stores_the_others_loaded_to_no_effect(target: str, wave: int) -> None:
    found = check(in_place(wave=wave), target=target)
    assert {finding.severity for finding in found} == {"note"}
    assert all("of no effect" in finding.message for finding in found)


# In registers the value may go anywhere, other lanes' and scalar ones too.
WAYS = {
    "vector": "v_mul_f32 v4, v3, v3\nv_mov_b32 v3, v4",
    "mask that is data": "v_cmp_gt_u32 vcc, v3, v1\nv_cndmask_b32 v3, v1, v3, vcc",
    "scalar mask": "v_cmp_gt_u32 s[30:31], v3, v1\nv_cndmask_b32 v3, v1, v3, s[30:31]",
    "another lane": "v_mov_b32_dpp v3, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    "any lane": "ds_bpermute_b32 v3, v2, v3\ns_waitcnt lgkmcnt(0)",
    "scalar": "v_readfirstlane_b32 s30, v3\ns_add_u32 s30, s30, 5\nv_mov_b32 v3, s30",
    "carry": "v_add_co_u32 v3, vcc, v3, v3\nv_addc_co_u32 v3, vcc, 0, v3, vcc",
    "scalar condition": "v_readfirstlane_b32 s30, v3\ns_cmp_eq_u32 s30, 5\ns_cselect_b32 s30, 1, 2\nv_mov_b32 v3, s30",
    "matrix": "v_mfma_f32_4x4x1f32 a[0:3], v3, v3, 0\ns_nop 7\ns_nop 7\nv_accvgpr_read_b32 v3, a0\ns_nop 1",
    "forgotten before a branch": "v_add_u32 v4, v3, v3\nv_mov_b32 v4, 0\nv_readfirstlane_b32 s30, v4\ns_cmp_eq_u32 s30, 0\n"
        "s_cbranch_scc1 here\ns_nop 0\nhere:",
}  # fmt: skip

# A branch and lanes may depend on the value if all ways meet again and only registers are written before.
SCALAR_IF = "v_readfirstlane_b32 s30, v3\ns_cmp_gt_u32 s30, 5\ns_cbranch_scc1 {label}\n"
LANES_IF = "v_cmp_gt_u32 vcc, v3, v1\ns_and_saveexec_b64 s[30:31], vcc\n"
INNER = "v_cmp_gt_u32 vcc, 9, v3\ns_and_saveexec_b64 s[34:35], vcc\ns_cbranch_execz inside\nv_add_u32 v3, 3, v3\ninside:\n" \
    "s_or_b64 exec, exec, s[34:35]\n"  # fmt: skip
MEET = {
    "branch": SCALAR_IF.format(label="here") + "v_add_u32 v3, 1, v3\nhere:",
    "if and else": SCALAR_IF.format(label="less") + "v_add_u32 v3, 1, v3\ns_branch here\nless:\nv_mul_f32 v3, v3, v3\nhere:",
    "else before the if": "s_branch begin\nless:\nv_mul_f32 v3, v3, v3\ns_branch here\nbegin:\n"
        + SCALAR_IF.format(label="less") + "v_add_u32 v3, 1, v3\nhere:",
    "lanes": LANES_IF + "s_cbranch_execz here\nv_add_u32 v3, 1, v3\nhere:\ns_or_b64 exec, exec, s[30:31]",
    "lanes saved and put back": LANES_IF + "v_add_u32 v3, 1, v3\ns_mov_b64 exec, s[30:31]",
    "lanes and the others": LANES_IF + "s_xor_b64 s[30:31], exec, s[30:31]\ns_cbranch_execz less\nv_add_u32 v3, 1, v3\nless:\n"
        "s_andn2_saveexec_b64 s[30:31], s[30:31]\ns_cbranch_execz here\nv_mul_f32 v3, v3, v3\nhere:\n"
        "s_or_b64 exec, exec, s[30:31]",
    "lanes and the others, all for a moment": LANES_IF + "s_xor_b64 s[30:31], exec, s[30:31]\nv_add_u32 v3, 1, v3\n"
        "s_or_saveexec_b64 s[30:31], s[30:31]\ns_xor_b64 exec, exec, s[30:31]\nv_mul_f32 v3, v3, v3\n"
        "s_or_b64 exec, exec, s[30:31]",
    "lanes of these lanes": LANES_IF + INNER + "s_or_b64 exec, exec, s[30:31]",
    "in a loop that does not depend on it": "s_mov_b32 s36, 3\nagain:\n" + LANES_IF + "v_add_u32 v3, 1, v3\n"
        "s_or_b64 exec, exec, s[30:31]\ns_sub_u32 s36, s36, 1\ns_cmp_lg_u32 s36, 0\ns_cbranch_scc1 again",
}  # fmt: skip
WAYS |= MEET


@pytest.mark.parametrize("way", WAYS)
def test_ways_through_registers(way: str) -> None:
    assert severities(in_place(compute=WAYS[way])) == {"note"}


@pytest.mark.parametrize("load", ["s_load_dword s30, s[4:5], 0x0", "buffer_load_dword v3, v2, s[24:27], 0 offen"])
def test_other_loads(load: str) -> None:
    compute = "v_mov_b32 v3, s30" if load.startswith("s_") else ""
    assert severities(in_place(load=load, compute=compute)) == {"note"}


def test_a_store_of_which_all_lanes_lie_outside() -> None:
    """Triton's way: lanes that do not store have a place past the buffer's end."""
    lines = LOAD.format(load=LOADED) + """
s_cmp_eq_u32 s9, 0
s_cselect_b64 vcc, exec, 0
v_bfrev_b32 v5, 1
v_cndmask_b32 v5, v5, v2, vcc
buffer_store_dword v3, v5, s[24:27], 0 offen
"""
    assert severities(lines) == {"note"}


# Uses of the value by a wave that stored none of it in place.
ESCAPES = {
    "counter": "v_add_u32 v4, v1, v3\nglobal_store_dword v1, v4, s[6:7]",
    "atomic": "global_atomic_add v1, v3, s[6:7]",
    "LDS": "ds_write_b32 v1, v3",
    "address": "v_and_b32 v3, 4, v3\nglobal_load_dword v4, v3, s[6:7]\ns_waitcnt vmcnt(0)",
    "scalar address": "v_readfirstlane_b32 s30, v3\ns_and_b32 s30, s30, 4\ns_load_dword s31, s[6:7], s30\ns_waitcnt lgkmcnt(0)",
    "branch": "v_readfirstlane_b32 s30, v3\ns_cmp_eq_u32 s30, 5\ns_cbranch_scc1 there\nglobal_store_dword v1, v0, s[6:7]\nthere:",
    "branch by vcc": "v_cmp_gt_u32 vcc, v3, v1\ns_cbranch_vccnz there\nglobal_store_dword v1, v0, s[6:7]\nthere:",
    "lanes": "v_cmp_gt_u32 vcc, v3, v1\ns_and_saveexec_b64 s[30:31], vcc\nglobal_store_dword v1, v0, s[6:7]\n"
        "s_mov_b64 exec, s[30:31]",
    "special register": "v_readfirstlane_b32 s30, v3\ns_and_b32 s30, s30, 0\ns_mov_b32 m0, s30\nds_read_b32 v4, v20\n"
        "s_waitcnt lgkmcnt(0)",
    "what a branch left": SCALAR_IF.format(label="there") + "v_mov_b32 v0, 0\nthere:\nglobal_store_dword v1, v0, s[6:7]",
    "what lanes left": LANES_IF + "v_mov_b32 v0, 0\ns_or_b64 exec, exec, s[30:31]\nglobal_store_dword v1, v0, s[6:7]",
    "LDS in lanes": LANES_IF + "ds_write_b32 v1, v0\ns_or_b64 exec, exec, s[30:31]",
    "lanes that stay off": LANES_IF + "v_mov_b32 v4, 0\nglobal_store_dword v1, v0, s[6:7]\ns_mov_b64 exec, -1",
    "fewer lanes than before": LANES_IF + "s_and_b64 s[30:31], s[30:31], vcc\nv_mov_b32 v4, 0\ns_or_b64 exec, exec, s[30:31]\n"
        "global_store_dword v1, v0, s[6:7]\ns_mov_b64 exec, -1",
    "a mask that was overwritten": LANES_IF + "s_mov_b32 s31, -1\nv_mov_b32 v4, 0\ns_or_b64 exec, exec, s[30:31]\n"
        "global_store_dword v1, v0, s[6:7]",
    "how often a loop runs": "v_readfirstlane_b32 s30, v3\ns_and_b32 s30, s30, 3\nagain:\ns_add_u32 s30, s30, 1\n"
        "s_cmp_lt_u32 s30, 3\ns_cbranch_scc1 again",
    "the end of the wave": SCALAR_IF.format(label="there") + "s_endpgm\nthere:",
    "a special register in a branch": SCALAR_IF.format(label="there") + "s_mov_b32 m0, -1\nthere:",
    "a lane that was inactive since": "s_mov_b64 s[30:31], exec\ns_mov_b64 exec, 1\nv_mov_b32 v3, 0\ns_mov_b64 exec, s[30:31]\n"
        "global_store_dword v1, v3, s[6:7]",
}  # fmt: skip


@pytest.mark.parametrize("way", ESCAPES)
def test_what_the_other_waves_make_use_of(way: str) -> None:
    assert severities(in_place(after=ESCAPES[way])) == {"error"}
    assert severities(in_place(after=ESCAPES[way].replace("v3", "v0"))) == {"note"}  # the same of another value


def test_a_value_that_is_of_use_to_no_wave_at_all_is_told_as_ever() -> None:
    assert severities(in_place(compute="v_mov_b32 v3, v1")) == {"error"}


def test_waves_of_another_workgroup() -> None:
    assert severities(in_place(), grid=2) == {"error"}
    assert severities(in_place(), grid=2, threads=2) == {"error"}


def test_the_same_wave_loads_twice_and_uses_the_second() -> None:
    """Cells hold only its first load."""
    twice = f"{LOADED}\nglobal_load_dword v6, v2, s[4:5]"
    both = "v_add_u32 v3, v3, v6"
    assert severities(in_place(load=twice, compute=both, wave=3)) == {"note"}
    assert severities(in_place(load=twice, compute=both, wave=3, after="global_store_dword v1, v6, s[6:7]")) == {"error"}


@pytest.mark.parametrize("straight", [True, False])
def test_a_reader_between_two_others(straight: bool) -> None:
    """Waves 0, 1 and 2 load, then wave 3 stores: the cells hold 0 and 2, and 1 uses its load."""
    load = LOADED if straight else f"v_xor_b32 v2, 4, v2\n{LOADED}"
    after = "s_cmp_eq_u32 s9, {user}\ns_cselect_b64 exec, exec, 0\nglobal_store_dword v1, v3, s[6:7]"
    for user in range(3):
        assert severities(in_place(load=load, wave=3, after=after.format(user=user))) == {"error"}
    assert severities(in_place(load=load, wave=3, after=after.format(user=3))) == {"note"}


def test_another_memory_s_unseen_readers_are_of_no_concern() -> None:
    """All waves use their loads of the second buffer, which nobody writes."""
    load = f"{LOADED}\ns_load_dword s30, s[6:7], 0x0\ns_waitcnt lgkmcnt(0)\ns_and_b32 m0, s30, 0"
    assert severities(in_place(load=load, wave=3)) == {"note"}


@pytest.mark.parametrize("threads", [1, 2])
def test_unseen_readers_of_another_epoch_are_of_no_concern(threads: int) -> None:
    """All waves use their loads before a barrier; after it only wave 3 does, and stores."""
    first = "global_load_dword v6, v2, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v1, v6, s[6:7]\ns_barrier\n"
    assert severities(in_place(load=first + LOADED, wave=3), threads=threads) == {"note"}
    assert severities(in_place(load=first.replace("s_barrier\n", "") + LOADED, wave=3), threads=threads) == {"error"}


def test_two_waves_that_store_and_their_unseen_readers() -> None:
    """Waves 2 and 3 each store half of the data that all load, and read and use the other's half."""
    split = "s_cmp_lt_u32 s9, 2\ns_cselect_b64 exec, 0, exec\n" + STORE
    assert severities(in_place(wave=3, after=split)) == {"error"}


def test_the_last_of_16_waves() -> None:
    assert severities(in_place(wave=15), block=1024) == {"note"}
