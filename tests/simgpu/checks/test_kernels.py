"""Whole kernels of kinds that the corpus lacks: they are silent, and each weakening of them is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

import simgpu
from simgpu.engine.finding import Finding
from simgpu.hardware.errors import SimError
from tests.support.kernels import KernelText, assemble

# v0 work-item, v1 four times it, v2 lane, v3 four times it; s8 workgroup, s9 wave; s[4:5] input, s[6:7] output of 64 KiB.
HEAD = """
s_mov_b32 s8, s2
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_and_b32 v2, 63, v0
v_lshlrev_b32 v3, 2, v2
v_lshrrev_b32 v4, 6, v0
s_nop 0
v_readfirstlane_b32 s9, v4
s_waitcnt lgkmcnt(0)
"""
RESOURCE = """
s_mov_b32 s12, s{base}
s_and_b32 s13, s{next}, 0xffff
s_mov_b32 s14, 0x10000
s_mov_b32 s15, 0x27000
"""
INPUT = RESOURCE.format(base=4, next=5)


@dataclass(frozen=True)
class Subject:
    """A kernel, and its mutants: text that occurs once, its replacement, the finding's kind.

    "error": the launch fails, with any message.
    """

    target: str
    lines: str
    mutants: tuple[tuple[str, str, str], ...]
    block: int = 64
    grid: int = 1
    options: Mapping[str, int] = field(default_factory=dict)


SUBJECTS: dict[str, Subject] = {
    "LDS DMA, double buffered": Subject("gfx942", INPUT + """
v_mov_b32 v10, 0
s_lshl_b32 s16, s9, 8
s_mov_b32 m0, s16
v_xor_b32 v5, 0x100, v1
buffer_load_dword v1, s[12:15], 0 offen lds
s_mov_b32 s17, 0
loop:
s_add_u32 s17, s17, 0x400
s_and_b32 s18, s17, 0x400
s_add_u32 s18, s18, s16
s_mov_b32 m0, s18
s_nop 0
buffer_load_dword v1, s[12:15], s17 offen lds
s_waitcnt vmcnt(1)  // the buffer of this turn
s_barrier  // loaded
ds_read_b32 v6, v5
s_waitcnt lgkmcnt(0)
s_barrier  // read
v_add_u32 v10, v10, v6
v_xor_b32 v5, 0x400, v5
s_cmp_lt_u32 s17, 0x1000
s_cbranch_scc1 loop
s_waitcnt vmcnt(0)  // the last one
global_store_dword v1, v10, s[6:7]
""", (
        ("s_waitcnt vmcnt(1)  // the buffer", "s_waitcnt vmcnt(2) //", "missing-wait"),
        ("s_barrier  // loaded", "", "race"),
        ("s_waitcnt lgkmcnt(0)\ns_barrier  // read", "s_barrier", "missing-wait"),
        ("s_barrier  // read", "", "race"),
        ("s_waitcnt vmcnt(0)  // the last one", "", "missing-wait"),
        ("s_mov_b32 m0, s18\ns_nop 0", "s_mov_b32 m0, s18", "hazard"),
    ), block=256, options={"group_segment_fixed_size": 2048}),
    "reduction by DPP and permutes": Subject("gfx90a", """
global_load_dword v5, v1, s[4:5]
s_waitcnt vmcnt(0)
s_nop 1  // VALU may have written it
v_add_f32_dpp v5, v5, v5 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
s_nop 1  // first
v_add_f32_dpp v5, v5, v5 row_ror:4 row_mask:0xf bank_mask:0xf
v_xor_b32 v6, 0x40, v3
ds_bpermute_b32 v7, v6, v5
s_waitcnt lgkmcnt(0)  // bpermute
v_add_f32 v5, v5, v7
ds_swizzle_b32 v7, v5 offset:swizzle(SWAP,8)
s_waitcnt lgkmcnt(0)  // swizzle
v_add_f32 v5, v5, v7
v_readlane_b32 s20, v5, 63
s_nop 3
v_writelane_b32 v5, s20, 7
v_mov_b32 v8, 0
global_store_dword v1, v5, s[6:7]
""", (
        ("s_nop 1  // first", "", "hazard"),
        ("s_nop 1  // first", "s_nop 0", "hazard"),
        ("s_waitcnt lgkmcnt(0)  // bpermute", "", "missing-wait"),
        ("s_waitcnt lgkmcnt(0)  // swizzle", "s_waitcnt lgkmcnt(1)", "missing-wait"),
        ("s_waitcnt vmcnt(0)\n", "", "missing-wait"),
        ("global_store_dword v1, v5", "global_store_dword v1, v9", "uninitialized"),
    ), options={"group_segment_fixed_size": 0}),
    "lane selects": Subject("gfx942", """
global_load_dword v5, v1, s[4:5]
s_waitcnt vmcnt(0)
v_mov_b32 v6, 0
s_mov_b32 m0, 3
v_readfirstlane_b32 s20, v5
s_nop 3  // lane select
v_readlane_b32 s21, v5, s20
s_nop 1  // SGPR by VALU
v_mov_b32 v7, s21
v_writelane_b32 v7, s20, m0
v_cmp_eq_u32 vcc, v5, v7
s_nop 3  // division
v_div_fmas_f32 v6, v5, v5, v6
global_store_dword v1, v6, s[6:7]
""", (
        ("s_nop 3  // lane select", "s_nop 2", "hazard"),
        ("s_nop 1  // SGPR by VALU", "", "hazard"),
        ("s_nop 3  // division", "s_nop 2", "hazard"),
        ("s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(1)", "missing-wait"),
    )),
    "scalar loads in a chain": Subject("gfx908", """
s_load_dwordx2 s[20:21], s[4:5], 0x0
s_load_dword s22, s[4:5], 0x10
s_waitcnt lgkmcnt(0)  // both
s_and_b32 s20, s20, 0xfc
s_load_dword s23, s[4:5], s20
s_mov_b32 s24, s4
s_and_b32 s25, s5, 0xffff
s_mov_b32 s26, 0x100
s_mov_b32 s27, 0
s_buffer_load_dwordx2 s[28:29], s[24:27], 0x8
s_waitcnt lgkmcnt(0)  // last
s_add_u32 s23, s23, s28
v_mov_b32 v5, s23
v_add_u32 v5, s29, v5
global_store_dword v1, v5, s[6:7]
""", (
        ("s_waitcnt lgkmcnt(0)  // both", "s_waitcnt lgkmcnt(1)", "missing-wait"),
        ("s_waitcnt lgkmcnt(0)  // last", "s_waitcnt lgkmcnt(1)", "missing-wait"),
        ("s_waitcnt lgkmcnt(0)  // last", "", "missing-wait"),
        ("s_load_dword s22, s[4:5], 0x10", "s_load_dword s22, s[4:5], 0xffff0", "error"),
    )),
    "producers and consumers by wave": Subject("gfx90a", """
s_mov_b32 s20, 4
v_and_b32 v5, 0x7f, v0
v_lshlrev_b32 v5, 2, v5
v_mov_b32 v9, 0
s_cmp_ge_u32 s9, 2
s_cbranch_scc1 consumer
producer:
global_load_dword v6, v5, s[4:5]
s_waitcnt vmcnt(0)
ds_write_b32 v5, v6
s_waitcnt lgkmcnt(0)  // written
s_barrier  // full
s_barrier  // empty
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 producer
s_endpgm
consumer:
s_barrier  // consumer full
ds_read_b32 v6, v5
s_waitcnt lgkmcnt(0)  // read
s_barrier  // consumer empty
v_add_u32 v9, v9, v6
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 consumer
global_store_dword v5, v9, s[6:7]
""", (
        ("s_waitcnt lgkmcnt(0)  // written", "", "missing-wait"),
        ("s_waitcnt lgkmcnt(0)  // read", "", "missing-wait"),
        ("s_barrier  // full", "", "race"),
        ("s_barrier  // consumer full", "", "race"),
        ("s_barrier  // empty", "", "race"),
        ("s_waitcnt vmcnt(0)", "", "missing-wait"),
    ), block=256, options={"group_segment_fixed_size": 512}),
    "wide stores overwritten": Subject("gfx942", RESOURCE.format(base=6, next=7) + """
v_lshlrev_b32 v5, 4, v0
v_mov_b32 v8, v0
v_mov_b32 v9, v0
v_mov_b32 v10, v0
v_mov_b32 v11, v0
buffer_store_dwordx4 v[8:11], v5, s[12:15], 0 offen
s_nop 1  // data
v_mov_b32 v8, 0
s_waitcnt expcnt(0)
s_waitcnt vmcnt(0)  // store
global_load_dword v12, v5, s[6:7]
s_waitcnt vmcnt(0)  // load
global_store_dword v5, v12, s[6:7]
""", (
        ("s_nop 1  // data", "", "hazard"),
        ("s_waitcnt vmcnt(0)  // load", "s_waitcnt vmcnt(1)", "missing-wait"),
        ("0 offen", "0 offen offset:4080\nv_mov_b32 v31, v30\nglobal_store_dword v1, v31, s[6:7]", "uninitialized"),
    )),
    "scaled matrix chain": Subject("gfx950", """
v_mov_b32 v20, 0x7f
v_mov_b32 v21, 0x7f
""" + "\n".join(f"v_mov_b32 v{n}, 0x38383838" for n in range(4, 20)) + """
v_mov_b32 v24, 0
v_mov_b32 v25, 0
v_mov_b32 v26, 0
v_mov_b32 v27, 0
s_nop 1  // operands
v_mfma_scale_f32_16x16x128_f8f6f4 v[24:27], v[4:11], v[12:19], v[24:27], v20, v21 op_sel_hi:[0,0,0]
v_mfma_scale_f32_16x16x128_f8f6f4 v[24:27], v[4:11], v[12:19], v[24:27], v20, v21 op_sel_hi:[0,0,0]
s_nop 15  // result
v_add_f32 v28, v24, v25
global_store_dword v1, v28, s[6:7]
""", (
        ("s_nop 1  // operands", "s_nop 0", "hazard"),
        ("s_nop 15  // result", "s_nop 3", "hazard"),
        ("v_mov_b32 v21, 0x7f\n", "", "uninitialized"),
    ), options={"next_free_vgpr": 32}),
    "spills to private memory": Subject("gfx942", """
s_mov_b32 s20, 0
global_load_dword v5, v1, s[4:5]
s_waitcnt vmcnt(0)
scratch_store_dword off, v5, s20 offset:8
v_mov_b32 v5, 0
scratch_load_dword v6, off, s20 offset:8
s_waitcnt vmcnt(0)  // spilled
global_store_dword v1, v6, s[6:7]
""", (
        ("s_waitcnt vmcnt(0)  // spilled", "s_waitcnt vmcnt(1)", "missing-wait"),
        ("v6, off, s20 offset:8", "v6, off, s20 offset:12", "uninitialized"),
        ("v5, s20 offset:8", "v5, s20 offset:4092", "error"),
        ("s_waitcnt vmcnt(0)\nscratch", "scratch", "missing-wait"),
    ), options={"private_segment_fixed_size": 64, "enable_private_segment": 1}),
    "look-back through flags": Subject("gfx90a", """
v_mov_b32 v5, 0
s_lshl_b32 s20, s8, 8
v_add_u32 v6, s20, v3
v_mov_b32 v7, 1
global_store_dword v6, v0, s[6:7]
s_waitcnt vmcnt(0)
s_lshl_b32 s21, s8, 2
v_mov_b32 v8, s21
s_mov_b64 s[30:31], exec
s_mov_b64 exec, 1
global_store_dword v8, v7, s[4:5] offset:1024
s_cmp_eq_u32 s8, 0
s_cbranch_scc1 done
poll:
global_load_dword v9, v8, s[4:5] offset:1020 glc
s_waitcnt vmcnt(0)  // flag
v_readfirstlane_b32 s22, v9
s_cmp_eq_u32 s22, 1
s_cbranch_scc0 poll
buffer_wbinvl1_vol
s_mov_b64 exec, s[30:31]
v_subrev_u32 v6, 0x100, v6
global_load_dword v10, v6, s[6:7]
s_waitcnt vmcnt(0)  // neighbour
global_store_dword v6, v10, s[6:7] offset:2048
done:
""", (
        ("s_waitcnt vmcnt(0)  // flag", "", "missing-wait"),
        ("s_waitcnt vmcnt(0)  // neighbour", "", "missing-wait"),
        ("offset:1020 glc", "offset:1020", "race"),
        ("buffer_wbinvl1_vol", "", "stale-read"),
    ), grid=4),
    "swizzled buffer": Subject("gfx942", """
s_mov_b32 s12, s4
s_and_b32 s13, s5, 0xffff
s_or_b32 s13, s13, 0x80100000  // 16 bytes a record, swizzled
s_mov_b32 s14, 64
s_mov_b32 s15, 0x00027000
v_mov_b32 v5, v2
buffer_load_dwordx2 v[6:7], v5, s[12:15], 0 idxen
s_waitcnt vmcnt(0)
v_add_u32 v6, v6, v7
global_store_dword v1, v6, s[6:7]
""", (
        ("s_waitcnt vmcnt(0)", "", "missing-wait"),
        ("s_mov_b32 s14, 64\ns_mov_b32 s15, 0x00027000\nv_mov_b32 v5, v2",
         "s_mov_b32 s14, 0x7ffff\ns_mov_b32 s15, 0x00027000\nv_mul_u32_u24 v5, 0x1000, v2", "error"),
    )),
}  # fmt: skip


def run(subject: Subject, lines: str) -> list[Finding]:
    """Returns the errors of a launch, even if it fails."""
    gpu = simgpu.Device(subject.target, check=True, threads=1)
    options = {"next_free_vgpr": 32, **subject.options}
    text = KernelText("k", HEAD + lines, ("buffer", "buffer"), options)
    given = gpu.upload(np.zeros(1 << 14, np.uint32)), gpu.alloc(1 << 16)
    module = gpu.load(assemble(subject.target, text))
    try:
        found = module["k"].launch(grid=subject.grid, block=subject.block, args=given).findings
    except SimError as error:
        found = [*error.findings, Finding("error", str(error), 0, "")]
    return [finding for finding in found if finding.severity == "error"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_silence(name: str) -> None:
    assert [str(finding) for finding in run(SUBJECTS[name], SUBJECTS[name].lines)] == []


MUTANTS = [(name, number) for name, subject in SUBJECTS.items() for number in range(len(subject.mutants))]


@pytest.mark.parametrize("name, number", MUTANTS)
def test_each_mutant_is_found(name: str, number: int) -> None:
    subject = SUBJECTS[name]
    before, after, kind = subject.mutants[number]
    assert subject.lines.count(before) == 1, before
    found = run(subject, subject.lines.replace(before, after))
    assert kind in {finding.kind for finding in found}, [str(finding) for finding in found]
