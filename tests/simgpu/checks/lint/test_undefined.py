"""Registers that nothing defined before a use that matters, on any path; each with a repaired twin that is silent."""

from __future__ import annotations

import pytest

from simgpu.engine.finding import Finding
from tests.support.kernels import KernelText, assemble, source
from tests.support.linted import kernel_linted

HEAD = "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_and_b32 v0, 0x3ff, v0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\n"
STORE = "global_store_dword v1, v2, s[6:7]"
ZERO = "".join(f"v_accvgpr_write_b32 a{n}, 0\n" for n in range(4)) + "s_nop 2\n"


def found(target: str, lines: str, **options: int) -> list[Finding]:
    return [finding for finding in kernel_linted(target, HEAD + lines, **options) if finding.kind == "uninitialized"]


# A use's undefined operand, and the line that repairs it if it comes first.
BROKEN = {
    "an address": ("global_load_dword v3, v5, s[4:5]", "v_mov_b32 v5, 0", "v5"),
    "a scalar address": ("s_load_dword s20, s[4:5], s9", "s_mov_b32 s9, 0", "s9"),
    "a resource": ("buffer_load_dword v3, v1, s[12:15], 0 offen", "s_mov_b64 s[12:13], s[4:5]\ns_mov_b64 s[14:15], 0", "s12"),
    "an LDS address": ("ds_read_b32 v3, v5", "v_mov_b32 v5, 0", "v5"),
    "stored data": (STORE, "v_mov_b32 v2, 0", "v2"),
    "an atomic's data": ("global_atomic_add v1, v2, s[6:7]", "v_mov_b32 v2, 0", "v2"),
    "SCC": ("s_cbranch_scc1 past\npast:", "s_cmp_eq_u32 s4, 0", "scc"),
    "VCC": ("s_cbranch_vccnz past\npast:", "s_mov_b64 vcc, 0", "vcc"),
    "EXEC": ("s_mov_b64 exec, s[20:21]", "s_mov_b64 s[20:21], -1", "s20"),
    "a product": (ZERO + "v_mfma_f32_4x4x1f32 a[0:3], v1, v9, a[0:3]", "v_mov_b32 v9, 0", "v9"),
    "an accumulator": ("v_mfma_f32_4x4x1f32 a[0:3], v1, v1, a[0:3]", ZERO, "a0"),
    "both sides of a selection": ("v_cmp_eq_u32 vcc, 0, v1\nv_cndmask_b32 v2, v9, v10, vcc\n" + STORE, "v_mov_b32 v9, 0", "v2"),
    "a mask of a constant": ("v_and_b32 v2, 0xff, v9\n" + STORE, "v_mov_b32 v9, 0", "v2"),
    "carried by arithmetic": ("v_add_f32 v2, v9, v1\n" + STORE, "v_mov_b32 v9, 0", "v2"),
    "carried through scalars": ("s_add_u32 s20, s21, 1\nv_mov_b32 v2, s20\n" + STORE, "s_mov_b32 s21, 0", "v2"),
    "carried by a permutation": (
        "ds_bpermute_b32 v2, v1, v9\ns_waitcnt lgkmcnt(0)\n" + STORE, "v_mov_b32 v9, 0", "v2",
    ),
    "carried by a comparison": ("s_cmp_eq_u32 s20, 0\ns_cbranch_scc1 past\npast:", "s_mov_b32 s20, 0", "scc"),
    "one word of two": ("s_mov_b32 s20, 0\ns_mov_b64 s[22:23], s[20:21]\nv_mov_b32 v2, s23\n" + STORE, "s_mov_b32 s21, 0", "v2"),
    "a field of two words": (
        "s_mov_b32 s20, 0\ns_bfe_u64 s[22:23], s[20:21], 0x8001c\nv_mov_b32 v2, s22\n" + STORE, "s_mov_b32 s21, 0", "v2",
    ),
    "one way of two": ("s_cmp_eq_u32 s4, 0\ns_cbranch_scc1 past\nv_mov_b32 v2, 0\npast:\n" + STORE, "v_mov_b32 v2, 1", "v2"),
    "a loop's first round": (
        "s_mov_b32 s20, 3\nloop:\n" + STORE + "\nv_mov_b32 v2, 0\ns_sub_u32 s20, s20, 1\ns_cmp_lg_u32 s20, 0\ns_cbranch_scc1 loop",
        "v_mov_b32 v2, 1", "v2",
    ),
}  # fmt: skip
OPTIONS = {"next_free_vgpr": 40}


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
@pytest.mark.parametrize("row", BROKEN)
def test_each_kind(row: str, target: str) -> None:
    lines, repair, place = BROKEN[row]
    (finding,) = found(target, lines, **OPTIONS)
    assert (finding.severity, finding.place) == ("error", place)
    assert f"depends on {place}, which" in finding.message
    assert found(target, f"{repair}\n{lines}", **OPTIONS) == []


GOOD = {
    "never used": "v_mov_b32 v9, v8\ns_mov_b32 s20, s21",
    "the other word of a copy": "s_mov_b32 s20, 0\ns_mov_b64 s[22:23], s[20:21]\nv_mov_b32 v2, s22\n" + STORE,
    "one word for both results": (
        "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nv_mov_b32 v8, 0\nv_pk_mul_f32 v[2:3], v[2:3], v[8:9] op_sel_hi:[1,0]\n"
        "global_store_dwordx2 v1, v[2:3], s[4:5]"
    ),
    "the chosen word of two": (
        "v_mov_b32 v9, 0\nv_mov_b32 v2, 0\nv_mov_b32 v3, 0\nv_pk_fma_f32 v[2:3], v[2:3], v[8:9], v[2:3] op_sel:[0,1,0]\n"
        "v_pk_mov_b32 v[4:5], v[8:9], v[2:3] op_sel:[1,1]\nv_pk_add_f32 v[2:3], v[2:3], v[4:5]\n"
        "global_store_dwordx2 v1, v[2:3], s[4:5]"
    ),
    "a field of the other word": "s_mov_b32 s20, 0\ns_bfe_i64 s[22:23], s[20:21], 0x80000\nv_mov_b32 v2, s23\n" + STORE,
    "the other half of a pack": "v_cvt_pkrtz_f16_f32 v2, v1, v9\nglobal_store_short v1, v2, s[4:5]",
    "a sum's high word": "v_mov_b32 v8, 0\nv_mad_u64_u32 v[2:3], s[20:21], v1, v1, v[8:9]\n" + STORE,
    "selected or not": "v_cmp_eq_u32 vcc, 0, v1\nv_cndmask_b32 v2, v1, v9, vcc\n" + STORE,
    "spilled": "v_writelane_b32 v9, s4, 0\nv_readlane_b32 s20, v9, 0\nv_mov_b32 v2, s20\n" + STORE,
    "written where lanes are active": (
        "v_cmp_eq_u32 vcc, 0, v1\ns_and_saveexec_b64 s[20:21], vcc\ns_cbranch_execz past\nv_mov_b32 v2, 1\npast:\n" + STORE
    ),
    "branched by one condition twice": (
        "s_cmp_eq_u32 s4, 0\ns_cbranch_scc1 not\nv_mov_b32 v2, 0\ns_mov_b64 s[20:21], -1\ns_branch join\nnot:\n"
        "s_mov_b64 s[20:21], 0\njoin:\ns_and_b64 vcc, exec, s[20:21]\ns_cbranch_vccz past\n" + STORE + "\npast:"
    ),
    "by a condition that is kept": (
        "s_cmp_eq_u32 s4, 0\ns_cselect_b64 s[20:21], -1, 0\ns_cbranch_scc0 past\nv_mov_b32 v2, 0\npast:\n"
        "s_and_b64 s[22:23], s[20:21], exec\ns_cselect_b32 s24, 1, 0\ns_cmp_lg_u32 s24, 1\ns_cbranch_scc1 end\n" + STORE + "\nend:"
    ),
    "a loaded register": "global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\n" + STORE,
}  # fmt: skip


@pytest.mark.parametrize("low", [0, 1])
@pytest.mark.parametrize("high", [0, 1])
@pytest.mark.parametrize("undefined", [8, 9])
def test_words_of_packed_operations(low: int, high: int, undefined: int) -> None:
    """Only a word that op_sel or op_sel_hi chooses makes its word of the result undefined."""
    start = "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\n" + f"v_mov_b32 v{17 - undefined}, 0\n"
    packed = f"v_pk_mul_f32 v[4:5], v[2:3], v[8:9] op_sel:[0,{low}] op_sel_hi:[1,{high}]\n"
    for word, chosen in enumerate((low, high)):
        findings = found("gfx90a", f"{start}{packed}global_store_dword v1, v{4 + word}, s[4:5]", **OPTIONS)
        assert bool(findings) == (8 + chosen == undefined)


@pytest.mark.parametrize("row", GOOD)
def test_silence(row: str) -> None:
    assert found("gfx90a", GOOD[row], **OPTIONS) == []


def test_the_same_condition_the_other_way_round() -> None:
    """Lint compares the conditions; it does not only look for one."""
    lines = GOOD["branched by one condition twice"].replace("s_cbranch_vccz", "s_cbranch_vccnz")
    (finding,) = found("gfx90a", lines, **OPTIONS)
    assert finding.place == "v2"


def branches(registers: range, at: str) -> str:
    """Returns branches on whether SGPRs are 0."""
    return "".join(f"s_cmp_eq_u32 s{number}, 0\ns_cbranch_scc1 {at}{number}\ns_nop 0\n{at}{number}:\n" for number in registers)


@pytest.mark.parametrize("more", [1, 6])
def test_conditions_after_more_of_them_than_are_tracked(more: int) -> None:
    """Facts become coarser where 2^6 sets are too many; those about later branches are tracked again."""
    many = range(20, 20 + more)
    head = "s_load_dwordx8 s[20:27], s[4:5], 0x0\ns_waitcnt lgkmcnt(0)\n" + branches(many, "first") + branches(many, "again")
    twice = "s_cmp_eq_u32 s27, 0\ns_cbranch_scc1 past\nv_mov_b32 v2, 0\npast:\ns_cmp_{}_u32 s27, 0\ns_cbranch_scc1 end\n"
    assert found("gfx90a", head + twice.format("eq") + STORE + "\nend:", **OPTIONS) == []
    (finding,) = found("gfx90a", head + twice.format("lg") + STORE + "\nend:", **OPTIONS)
    assert finding.place == "v2"


def test_many_conditions_in_one_block() -> None:
    """Code of clang -O0 keeps each comparison in registers: thirty split no block into 2^30 paths."""
    kept = "".join(f"s_bitcmp1_b32 s4, {at}\ns_cselect_b64 s[{20 + 2 * at}:{21 + 2 * at}], -1, 0\n" for at in range(30))
    used = "".join(
        f"s_and_b64 vcc, exec, s[{20 + 2 * at}:{21 + 2 * at}]\ns_cbranch_vccz past{at}\nv_mov_b32 v2, {at}\npast{at}:\n"
        for at in range(30)
    )
    assert found("gfx90a", f"v_mov_b32 v2, 0\n{kept}{used}{STORE}", **OPTIONS, next_free_sgpr=96) == []
    (finding,) = found("gfx90a", kept + used + STORE, **OPTIONS, next_free_sgpr=96)
    assert finding.place == "v2"


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_what_a_launch_gives(target: str) -> None:
    """Registers that the descriptor requests are defined, and no others."""
    store = "global_store_dword v1, v2, s[6:7]"
    options = {"system_sgpr_workgroup_id_y": 1, "system_vgpr_workitem_id": 1}
    given = "v_mov_b32 v2, s3\n" + store  # s2 and s3: workgroups' x and y
    assert found(target, given, **options) == []
    assert [f.place for f in found(target, given)] == ["v2"]
    before = "v_mov_b32 v2, v1\n" if target == "gfx908" else ""
    code = KernelText("k", before + HEAD + store, ("buffer", "buffer"), options)
    from simgpu.checks.lint import lint
    from simgpu.hardware.code_object import CodeObject

    places = [f.place for f in lint(CodeObject.parse(assemble(target, code))) if f.kind == "uninitialized"]
    assert places == ([] if target == "gfx908" else ["v2"]), source(target, code)


def test_stores_to_the_stack_are_copies() -> None:
    """A function that saves a register of its caller does not use it."""
    spill = "s_mov_b32 s20, 0\nscratch_store_dword off, v9, s20"
    assert found("gfx942", spill, enable_private_segment=1, private_segment_fixed_size=64) == []
    buffer = "buffer_store_dword v9, off, s[0:3], 0 offset:4"
    options = {"user_sgpr_private_segment_buffer": 1, "private_segment_fixed_size": 64}
    options["system_sgpr_private_segment_wavefront_offset"] = 1
    head = "s_add_u32 s0, s0, s7\ns_addc_u32 s1, s1, 0\ns_load_dwordx2 s[6:7], s[4:5], 0x0\ns_waitcnt lgkmcnt(0)\n"
    assert [f for f in kernel_linted("gfx908", head + buffer, **options) if f.kind == "uninitialized"] == []
    moved = head + "s_mov_b64 s[2:3], s[6:7]\n" + buffer
    assert [f.place for f in kernel_linted("gfx908", moved, **options) if f.place == "v9"] == ["v9"]
