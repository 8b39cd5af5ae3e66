"""Checked mode, uninitialised registers and memory: each broken kernel and its repaired twin.

Lines of a case that begin with + are only in the repaired kernel; the broken one lacks them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder import toolchain
from simgpu.engine.finding import Finding
from simgpu.hardware.errors import LaunchError, SimError, ToolchainError
from tests.support.engine_kernel import source

ALL = tuple(range(64))
SCRATCH = {"private_segment_fixed_size": 64, "enable_private_segment": 1}
LDS = {"group_segment_fixed_size": 1024}


@dataclass(frozen=True)
class Case:
    """A broken kernel and the finding on it."""

    name: str
    lines: str
    where: str  # the text of the named instruction begins so
    place: str = ""
    lanes: tuple[int, ...] = ()
    says: str = ""
    target: str = "gfx90a"
    options: dict[str, Any] = field(default_factory=dict)  # directives of the kernel
    faults: bool = False  # the broken kernel cannot go on
    origin: str = ""  # the text of the load of undefined bits begins so


def findings(lines: str, target: str = "gfx90a", options: dict[str, Any] | None = None, faults: bool = False) -> list[Finding]:
    """Returns the findings on undefined bits of a launch of one wave.

    It has `engine_kernel`'s registers, a filled input buffer at s[4:5] and an output buffer at s[6:7] that nothing wrote.
    """
    try:
        code = toolchain.assemble(source(target, lines, (), options or {}), target)
    except ToolchainError as error:
        if "found:" in str(error):
            pytest.skip(str(error))
        raise
    gpu = simgpu.Device(target, check=True, threads=1)
    data = gpu.upload(np.arange(1024, dtype=np.uint32))
    kernel = gpu.load(code)["k"]
    try:
        found = kernel.launch(grid=1, block=64, args=[data, gpu.alloc(4096)]).findings
        assert not faults
    except SimError as error:
        assert faults, error
        found = list(error.findings)
    return [finding for finding in found if finding.kind == "uninitialized"]


STORE = "\nglobal_store_dword v60, v3, s[6:7]\n"
CASES = [
    # -- addresses
    Case("vgpr address", "+v_mov_b32 v2, 0\nglobal_load_dword v3, v2, s[4:5]", "global_load_dword", "v2", ALL, "address"),
    Case("upper half of an address", "v_mov_b32 v2, s4\n+v_mov_b32 v3, s5\nglobal_load_dword v5, v[2:3], off",
         "global_load_dword", "v3", ALL, "address", faults=True),
    Case("lanes of an address", "v_mov_b32 v2, 0\ns_mov_b64 exec, 0xff\nv_mov_b32 v3, 4\n+s_mov_b64 exec, -1\n"
         "+v_mov_b32 v3, 4\ns_mov_b64 exec, 0xffff\nglobal_load_dword v4, v3, s[4:5]",
         "global_load_dword", "v3", tuple(range(8, 16)), "address"),
    Case("scalar base", "+s_mov_b64 s[20:21], s[4:5]\nglobal_load_dword v3, v60, s[20:21]", "global_load_dword",
         "s20", (), "address", faults=True),
    Case("scalar offset", "+s_mov_b32 s20, 0\ns_load_dword s21, s[4:5], s20", "s_load_dword", "s20", (), "address"),
    Case("scalar memory base", "+s_mov_b64 s[20:21], s[4:5]\ns_load_dword s22, s[20:21], 0x0", "s_load_dword", "s20",
         (), "address", faults=True),
    Case("flat address", "v_mov_b32 v3, s5\n+v_mov_b32 v2, s4\nflat_load_dword v4, v[2:3]", "flat_load_dword", "v2", ALL,
         "address"),
    Case("buffer resource", "s_mov_b64 s[20:21], s[4:5]\n+s_mov_b32 s22, 0x1000\ns_mov_b32 s23, 0x20000\n"
         "buffer_load_dword v3, v60, s[20:23], 0 offen", "buffer_load_dword", "s22", (), "address"),
    Case("buffer offset", "s_mov_b64 s[20:21], s[4:5]\ns_mov_b32 s22, 0x1000\ns_mov_b32 s23, 0x20000\n+s_mov_b32 s24, 0\n"
         "buffer_load_dword v3, v60, s[20:23], s24 offen", "buffer_load_dword", "s24", (), "address"),
    Case("scc as a buffer offset", "s_mov_b64 s[20:21], s[4:5]\ns_mov_b32 s22, 0x1000\ns_mov_b32 s23, 0x20000\n"
         "+s_cmp_lg_u32 s22, s22\nbuffer_load_dword v3, v60, s[20:23], src_scc offen", "buffer_load_dword", "scc", (), "address"),
    Case("lds address", "+v_mov_b32 v2, 0\nds_write_b32 v2, v60", "ds_write_b32", "v2", ALL, "address",
         options={"group_segment_fixed_size": 256}),
    Case("m0 of a load to lds", "s_mov_b64 s[20:21], s[4:5]\ns_mov_b32 s22, 0x1000\ns_mov_b32 s23, 0x20000\n+s_mov_b32 m0, 0\n"
         "buffer_load_dword v60, s[20:23], 0 offen lds", "buffer_load_dword", "m0", (), "address",
         options={"group_segment_fixed_size": 256}),
    Case("m0 of a counter", "v_mov_b32 v2, 0\nds_write_b32 v2, v2\n+s_mov_b32 m0, 0\nds_append v3", "ds_append", "m0", (),
         "address", options={"group_segment_fixed_size": 256}),
    Case("m0 of an index", "s_mov_b32 s20, 0\n+s_mov_b32 m0, 0\ns_movrels_b32 s21, s20", "s_movrels_b32", "m0", (), "address"),
    Case("private address", "v_mov_b32 v3, 1\n+v_mov_b32 v2, 0\nscratch_store_dword v2, v3, off", "scratch_store_dword", "v2", ALL,
         "address", "gfx942", SCRATCH),
    Case("flat_scratch", "v_mov_b32 v2, 0\n+s_mov_b64 flat_scratch, s[40:41]\nscratch_store_dword v2, v60, off",
         "scratch_store_dword", "flat_scratch_lo", (), "address",
         options={"private_segment_fixed_size": 64, "system_sgpr_private_segment_wavefront_offset": 1,
         "user_sgpr_flat_scratch_init": 1, "before": "s_mov_b64 s[40:41], s[2:3]"}, faults=True),
    Case("an indexed register", "v_mov_b32 v2, 1\n+v_mov_b32 v4, 3\ns_mov_b32 s20, 2\ns_set_gpr_idx_on s20, gpr_idx(SRC0)\n"
         "v_mov_b32 v3, v2\ns_set_gpr_idx_off" + "\nglobal_store_dword v60, v3, s[6:7]", "global_store_dword", "v3", ALL),
    Case("m0 of vgpr indexing", "v_mov_b32 v2, 1\n+s_mov_b32 s20, 0\ns_set_gpr_idx_on s20, gpr_idx(SRC0)\nv_mov_b32 v3, v2\n"
         "s_set_gpr_idx_off", "v_mov_b32", "m0", (), "address"),
    # -- branches
    Case("scc", "+s_cmp_eq_u32 s4, s4\ns_cbranch_scc1 on\ns_nop 0\non:", "s_cbranch_scc1", "scc", (), "branch"),
    Case("vcc", "+v_cmp_gt_u32 vcc, 0, v60\ns_cbranch_vccnz on\ns_nop 0\non:", "s_cbranch_vccnz", "vcc_lo", (), "branch"),
    Case("a register's bit", "s_mov_b32 s20, s4\n+s_mov_b32 s21, 0\ns_or_b32 s20, s20, s21\ns_cmp_eq_u32 s20, s4\n"
         "s_cbranch_scc1 on\non:", "s_cbranch_scc1", "scc", (), "branch"),
    Case("jump", "+s_getpc_b64 s[20:21]\n+s_add_u32 s20, s20, 12\n+s_addc_u32 s21, s21, 0\ns_setpc_b64 s[20:21]\ns_nop 0",
         "s_setpc_b64", "s20", (), "branch", faults=True),
    Case("lane of v_readlane", "v_writelane_b32 v2, s4, 3\n+v_writelane_b32 v2, s4, 4\nv_readlane_b32 s20, v2, 4\n"
         "s_cmp_eq_u32 s20, 0\ns_cbranch_scc1 on\non:", "s_cbranch_scc1", "scc", (), "branch"),
    # -- EXEC
    Case("exec by and", "+s_mov_b64 s[20:21], -1\n"
         "s_and_saveexec_b64 s[22:23], s[20:21]", "s_and_saveexec_b64", "exec", ALL, "EXEC"),
    Case("exec by move", "+s_mov_b32 s20, -1\ns_mov_b32 exec_lo, s20", "s_mov_b32 exec_lo", "exec", tuple(range(32)), "EXEC"),
    Case("exec by comparison", "s_mov_b64 exec, 0xf\nv_mov_b32 v2, 1\n+s_mov_b64 exec, -1\n+v_mov_b32 v2, 1\n"
         "s_mov_b64 exec, 0xff\nv_cmpx_lt_u32 vcc, 0, v2", "v_cmpx_lt_u32", "exec", (4, 5, 6, 7), "EXEC"),
    # -- stores
    Case("vgpr stored", "+v_mov_b32 v3, 1" + STORE, "global_store_dword", "v3", ALL, "device memory"),
    Case("sgpr stored", "+s_mov_b32 s20, 1\nv_mov_b32 v3, s20" + STORE, "global_store_dword", "v3", ALL),
    Case("vcc stored", "+s_mov_b64 vcc, 0\nv_mov_b32 v3, vcc_lo" + STORE, "global_store_dword", "v3", ALL),
    Case("scc stored", "+s_cmp_eq_u32 s4, s4\ns_cselect_b32 s20, 1, 2\nv_mov_b32 v3, s20" + STORE, "global_store_dword", "v3", ALL,
         "0x00000003"),
    Case("m0 stored", "+s_mov_b32 m0, 0\nv_mov_b32 v3, m0" + STORE, "global_store_dword", "v3", ALL),
    # Inactive lanes have an undefined address and send nothing; lane 0 keeps what it got.
    Case("sent by some lanes", "s_mov_b64 exec, 0xff\nv_mov_b32 v2, v60\n+v_mov_b32 v4, 1\nds_permute_b32 v3, v2, v4\n"
         "s_waitcnt lgkmcnt(0)" + STORE, "global_store_dword", "v3", tuple(range(8)), "device memory"),
    Case("accumulator from a scalar", "+s_mov_b32 s20, 1\nv_accvgpr_write_b32 a7, s20\nv_accvgpr_read_b32 v3, a7" + STORE,
         "global_store_dword", "v3", ALL),
    Case("accumulator stored", "+v_accvgpr_write_b32 a7, v60\nv_accvgpr_read_b32 v3, a7" + STORE, "global_store_dword", "v3", ALL),
    Case("carry stored", "v_mov_b32 v2, 0\n+s_mov_b64 vcc, 0\nv_addc_co_u32 v3, vcc, v2, v2, vcc" + STORE, "global_store_dword",
         "v3", ALL),
    Case("selected lanes stored", "s_mov_b64 s[20:21], 0xf0\nv_mov_b32 v2, 1\n+v_mov_b32 v4, 2\n"
         "v_cndmask_b32 v3, v2, v4, s[20:21]" + STORE, "global_store_dword", "v3", (4, 5, 6, 7)),
    Case("byte of a short", "v_mov_b32_sdwa v3, v60 dst_sel:BYTE_0 dst_unused:UNUSED_PRESERVE src0_sel:DWORD\n"
         "+v_mov_b32_sdwa v3, v60 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD\n"
         "global_store_byte v60, v3, s[6:7]\nglobal_store_short v60, v3, s[6:7]",
         "global_store_short", "v3", ALL, "0x0000ff00"),
    Case("upper half after d16", "+global_load_short_d16_hi v3, v60, s[4:5]\n"
         "s_waitcnt vmcnt(0)\nglobal_store_short_d16_hi v60, v3, s[6:7]",
         "global_store_short_d16_hi", "v3", ALL, "0xffff0000"),
    Case("half by op_sel", "v_mov_b32 v2, 0\nv_mad_u16 v3, v2, v2, v2\n+v_mad_u16 v3, v2, v2, v2 op_sel:[0,0,0,1]" + STORE,
         "global_store_dword", "v3", ALL, "0xffff0000"),
    Case("permuted lane", "s_mov_b64 exec, 0xfffffffffffffffe\nv_mov_b32 v2, 5\ns_mov_b64 exec, -1\n+v_mov_b32 v2, 5\n"
         "v_xor_b32 v4, 0xfc, v60\nds_bpermute_b32 v3, v4, v2\ns_waitcnt lgkmcnt(0)" + STORE, "global_store_dword", "v3", (63,)),
    Case("lane moved by dpp", "s_mov_b64 exec, 0xfffffffffffffffe\nv_mov_b32 v2, 5\ns_mov_b64 exec, -1\n+v_mov_b32 v2, 5\n"
         "v_mov_b32 v3, 0\n"
         "s_nop 1\nv_mov_b32_dpp v3, v2 row_shr:2 row_mask:0xf bank_mask:0xf" + STORE, "global_store_dword", "v3", (2,)),
    # -- memory
    Case("lds", "+ds_write_b32 v60, v60\n+s_waitcnt lgkmcnt(0)\nds_read_b32 v3, v60\ns_waitcnt lgkmcnt(0)" + STORE,
         "global_store_dword", "v3", ALL, options={"group_segment_fixed_size": 256}, origin="ds_read_b32"),
    Case("a byte of lds", "ds_write_b32 v60, v60\nv_mov_b32 v2, 0\n+ds_write_b8 v60, v2 offset:257\n"
         "ds_write_b16 v60, v2 offset:258\n"
         "ds_write_b8 v60, v2 offset:256\ns_waitcnt lgkmcnt(0)\nds_read2_b32 v[2:3], v60 offset0:0 offset1:64\ns_waitcnt lgkmcnt(0)"
         + STORE, "global_store_dword", "v3", ALL, "0x0000ff00", options={"group_segment_fixed_size": 512}, origin="ds_read2"),
    Case("lds atomic", "v_mov_b32 v2, 1\n+ds_write_b32 v60, v2\nds_add_rtn_u32 v3, v60, v2\ns_waitcnt lgkmcnt(0)" + STORE,
         "global_store_dword", "v3", ALL, options={"group_segment_fixed_size": 256}, origin="ds_add_rtn"),
    Case("private memory", "v_mov_b32 v2, 4\n+scratch_store_dword v2, v60, off\ns_waitcnt vmcnt(0)\n"
         "scratch_load_dword v3, v2, off\n"
         "s_waitcnt vmcnt(0)" + STORE, "global_store_dword", "v3", ALL, "", "gfx942", SCRATCH, origin="scratch_load"),
    Case("spilled lanes", "s_mov_b64 exec, 0xff\nv_mov_b32 v2, 1\ns_mov_b64 exec, -1\n+v_mov_b32 v2, 1\n"
         "scratch_store_dword off, v2, off offset:8\n"
         "s_waitcnt vmcnt(0)\nscratch_load_dword v4, off, off offset:8\ns_waitcnt vmcnt(0)\nds_write_b32 v60, v4\n"
         "v_xor_b32 v5, 0xfc, v60\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v5\ns_waitcnt lgkmcnt(0)" + STORE,
         "global_store_dword", "v3", tuple(range(56)), "", "gfx942", {**SCRATCH, "group_segment_fixed_size": 256},
         origin="ds_read_b32"),
    Case("device memory", "+global_store_dword v60, v60, s[6:7] offset:256\n+s_waitcnt vmcnt(0)\n"
         "global_load_dword v3, v60, s[6:7] offset:256\n"
         "s_waitcnt vmcnt(0)" + STORE, "global_store_dword v60, v3", "v3", ALL, origin="global_load"),
    Case("scalar load of device memory", "v_mov_b32 v2, 1\n+global_store_dword v60, v2, s[6:7]\n+s_waitcnt vmcnt(0)\n"
         "s_load_dword s20, s[6:7], 0x0\n"
         "s_waitcnt lgkmcnt(0)\ns_cmp_eq_u32 s20, 0\ns_cbranch_scc1 on\n"
         "on:", "s_cbranch_scc1", "scc", (), "branch", origin="s_load_dword s20"),
    Case("atomic on device memory", "v_mov_b32 v2, 1\n+global_store_dword v60, v2, s[6:7]\n+s_waitcnt vmcnt(0)\n"
         "global_atomic_add v60, v2, s[6:7]", "global_atomic_add", "", ALL, "bytes that nothing wrote"),
    Case("atomic's data", "v_mov_b32 v3, 1\nglobal_store_dword v60, v3, s[6:7]\n+v_mov_b32 v2, 1\ns_waitcnt vmcnt(0)\n"
         "global_atomic_add v60, v2, s[6:7]", "global_atomic_add", "v2", ALL, "device memory"),
    # -- matrix products
    Case("matrix a", "v_mov_b32 v3, 1.0\n+v_mov_b32 v2, 1.0\ns_nop 1\n"
         "v_mfma_f32_32x32x1f32 a[0:31], v2, v3, 0", "v_mfma_f32_32x32x1",
         "v2", ALL, "takes A"),
    Case("matrix b", "v_mov_b32 v2, 1.0\n+v_mov_b32 v3, 1.0\ns_nop 1\n"
         "v_mfma_f32_16x16x4f32 a[0:3], v2, v3, 0", "v_mfma_f32_16x16x4",
         "v3", ALL, "takes B"),
    Case("matrix c", "v_mov_b32 v2, 1.0\nv_accvgpr_write_b32 a0, v2\nv_accvgpr_write_b32 a1, v2\n+v_accvgpr_write_b32 a2, v2\n"
         "v_accvgpr_write_b32 a3, v2\ns_nop 1\n"
         "v_mfma_f32_16x16x4f32 a[0:3], v2, v2, a[0:3]", "v_mfma_f32_16x16x4", "a2", ALL, "takes C"),
    Case("matrix lanes outside exec", "v_mov_b32 v3, 1.0\ns_mov_b64 exec, 1\n+s_mov_b64 exec, -1\nv_mov_b32 v2, 1.0\ns_nop 1\n"
         "v_mfma_f32_16x16x4f32 a[0:3], v2, v3, 0", "v_mfma_f32_16x16x4", "v2", tuple(range(1, 64)), "takes A"),
    Case("half of a packed pair", "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nv_mov_b32 v5, 0\n"
         "v_mov_b32_sdwa v4, v60 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD\n"
         "+v_mov_b32_sdwa v4, v60 dst_sel:WORD_0 dst_unused:UNUSED_PRESERVE src0_sel:DWORD\ns_nop 1\n"
         "v_mfma_f32_16x16x16f16 a[0:3], v[2:3], v[4:5], 0", "v_mfma_f32_16x16x16", "v4", ALL, "0x0000ffff"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_broken_and_repaired(case: Case) -> None:
    broken = "\n".join(line for line in case.lines.split("\n") if not line.startswith("+"))
    found = findings(broken, case.target, case.options, case.faults)
    assert len(found) == 1, [str(finding) for finding in found]
    finding = found[0]
    assert finding.text.startswith(case.where)
    assert (finding.place, finding.lanes, finding.severity) == (case.place, case.lanes, "error")
    assert case.says in finding.message
    assert finding.other_text.startswith(case.origin) and (finding.other_pc is not None) == bool(case.origin)
    assert finding.source.startswith("kernel.s:")
    repaired = "\n".join(line.removeprefix("+") for line in case.lines.split("\n"))
    assert findings(repaired, case.target, case.options) == []


SILENT = {
    "copies": "v_mov_b32 v2, v3\ns_mov_b32 s20, s21\nv_add_f32 v4, v2, v3\nds_write_b32 v60, v2\nv_accvgpr_write_b32 a0, v2",
    "masked lanes": "s_mov_b64 exec, 0xff\nv_mov_b32 v3, 1\nv_mul_lo_u32 v3, v3, v60" + STORE,
    "what and decides": "v_and_b32 v3, 0, v2" + STORE,
    "what a shift drops": "v_mov_b32_sdwa v2, v60 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD\n"
    "v_lshrrev_b32 v3, 16, v2" + STORE,
    "a lane of v_writelane": "v_writelane_b32 v2, s4, 3\nv_readlane_b32 s20, v2, 3\ns_cmp_eq_u32 s20, 0\ns_cbranch_scc1 on\non:",
    "lanes that a broadcast leaves out": "v_mov_b32 v3, 1.0\ns_mov_b64 exec, 0xf\nv_mov_b32 v2, 1.0\ns_mov_b64 exec, -1\ns_nop 1\n"
    "v_mfma_f32_4x4x1f32 a[0:3], v2, v3, 0 cbsz:4 abid:0",
    "what a branch does not look at": "s_mov_b64 s[20:21], exec\nv_cmp_eq_u32 vcc, v60, v60\ns_mov_b32 vcc_hi, s30\n"
         "s_cbranch_vccnz on\non:",
    "lanes out of a buffer's range": "s_mov_b64 s[20:21], s[6:7]\ns_mov_b32 s22, 64\ns_mov_b32 s23, 0x20000\n"
    "s_mov_b64 exec, 0xffff\nv_mov_b32 v3, 1\ns_mov_b64 exec, -1\nbuffer_store_dword v3, v60, s[20:23], 0 offen",
    "loaded to lds": "s_mov_b64 s[20:21], s[4:5]\ns_mov_b32 s22, 0x1000\ns_mov_b32 s23, 0x20000\ns_mov_b32 m0, 0\n"
    "buffer_load_dword v60, s[20:23], 0 offen lds\ns_waitcnt vmcnt(0)\nds_read_b32 v3, v60\ns_waitcnt lgkmcnt(0)" + STORE,
    "what indexing leaves of m0": "v_mov_b32 v2, 1\nv_mov_b32 v4, 3\ns_mov_b32 s20, 2\ns_set_gpr_idx_on s20, gpr_idx(SRC0)\n"
    "v_mov_b32 v3, v2\ns_set_gpr_idx_off" + STORE,
    "where the workgroup is": "v_mov_b32 v3, s2" + STORE,
}


@pytest.mark.parametrize("name", SILENT)
def test_silent(name: str) -> None:
    options = {"system_sgpr_workgroup_id_x": 1, "group_segment_fixed_size": 256}
    assert findings(SILENT[name], options=options) == []


def test_one_mistake_is_one_finding() -> None:
    """An undefined address is reported once, though three instructions of a loop use it three times."""
    lines = """
s_mov_b32 s20, 3
again:
global_load_dword v3, v2, s[4:5]
global_load_dword v4, v2, s[4:5] offset:4
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 again
"""
    (finding,) = findings(lines)
    assert finding.text.startswith("global_load_dword v3")
    assert finding.count == 1


def test_each_wave_is_counted() -> None:
    code = toolchain.assemble(source("gfx90a", "global_load_dword v3, v2, s[4:5]", (), {}), "gfx90a")
    gpu = simgpu.Device("gfx90a", check=True)
    data = gpu.upload(np.zeros(64, np.uint32))
    run = gpu.load(code)["k"].launch(grid=3, block=128, args=[data, data])
    (finding,) = [f for f in run.findings if f.kind == "uninitialized"]
    assert finding.count == 6


def test_what_the_host_wrote_is_defined() -> None:
    lines = "global_load_dword v3, v60, s[6:7]\ns_waitcnt vmcnt(0)\nglobal_store_dword v60, v3, s[4:5]"
    code = toolchain.assemble(source("gfx90a", lines, (), {}), "gfx90a")
    gpu = simgpu.Device("gfx90a", check=True)
    kernel = gpu.load(code)["k"]
    out = gpu.alloc(256)
    out.write(np.zeros(16, np.uint32))
    (finding,) = kernel.launch(grid=1, block=64, args=[gpu.alloc(256), out]).findings
    assert finding.lanes == tuple(range(16, 64))
    out.write(np.zeros(64, np.uint32))
    assert kernel.launch(grid=1, block=64, args=[gpu.alloc(256), out]).findings == []


def test_a_kernel_defines_memory_for_the_next() -> None:
    write = toolchain.assemble(source("gfx90a", "global_store_dword v60, v60, s[6:7]", (), {}), "gfx90a")
    read = "global_load_dword v3, v60, s[4:5]\ns_waitcnt vmcnt(0)\nglobal_store_dword v60, v3, s[6:7]"
    gpu = simgpu.Device("gfx90a", check=True)
    between, out = gpu.alloc(256), gpu.alloc(256)
    assert gpu.load(write)["k"].launch(grid=1, block=64, args=[out, between]).findings == []
    kernel = gpu.load(toolchain.assemble(source("gfx90a", read, (), {}), "gfx90a"))["k"]
    assert kernel.launch(grid=1, block=64, args=[between, out]).findings == []


ZEROED = "".join(f"v_mov_b32 v{number}, 0\n" for number in (*range(2, 10), *range(24, 40)))


def byte(register: str, number: int) -> str:
    """Defines one byte of a register."""
    return f"v_mov_b32_sdwa {register}, v2 dst_sel:BYTE_{number} dst_unused:UNUSED_PRESERVE src0_sel:DWORD\n"


@pytest.mark.parametrize(
    "defined, abid, place",
    [(0, 0, ""), (1, 1, ""), (1, 0, "v20"), (0, 1, "v20")],
)
def test_sparse_indices_count_by_set(defined: int, abid: int, place: str) -> None:
    """v_smfmac_f32_16x16x32_f16 takes byte abid of its index register."""
    lines = ZEROED + byte("v20", defined) + f"s_nop 1\nv_smfmac_f32_16x16x32_f16 v[24:27], v[4:5], v[6:9], v20 abid:{abid}"
    found = findings(lines, "gfx942")
    assert [finding.place for finding in found] == ([place] if place else [])
    assert all("IDX" in finding.message for finding in found)


@pytest.mark.parametrize("defined, place", [(2, ""), (0, "v20")])
def test_scales_count_by_byte(defined: int, place: str) -> None:
    """op_sel and op_sel_hi name the byte of a scale."""
    lines = ZEROED + byte("v20", defined) + (
        "s_nop 1\nv_mfma_scale_f32_16x16x128_f8f6f4 v[24:27], v[24:31], v[32:39], 0, v20, v2 op_sel:[0,0,0] op_sel_hi:[1,0,0]"
    )
    found = findings(lines, "gfx950")
    assert [finding.place for finding in found] == ([place] if place else [])


def test_padding_of_a_copied_struct_is_a_note() -> None:
    """A compiler copies a struct from the stack as a whole; a lane's unwritten dword is an error."""
    lines = """
v_mov_b32 v2, 1
scratch_store_byte off, v2, off
scratch_store_dword off, v2, off offset:4
s_waitcnt vmcnt(0)
scratch_load_dwordx2 v[4:5], off, off
s_waitcnt vmcnt(0)
v_lshlrev_b32 v6, 3, v0
global_store_dwordx2 v6, v[4:5], s[6:7]
"""
    (finding,) = findings(lines, "gfx942", SCRATCH)
    assert (finding.severity, finding.place) == ("note", "v4")
    assert "0xffffff00" in finding.message


def test_padding_of_a_struct_in_lds_is_a_note_in_a_c_plus_plus_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction's `struct { bool some; long value; }`: 1 and 8 bytes are written, 16 are copied."""
    lines = """
v_mov_b32 v2, 1
v_mov_b32 v3, 0
v_lshlrev_b32 v6, 4, v0
ds_write_b8 v6, v2
ds_write_b64 v6, v[2:3] offset:8
s_waitcnt lgkmcnt(0)
ds_read_b128 v[8:11], v6
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v6, v[8:11], s[6:7]
"""
    nothing = lines.replace("ds_write", "; ds_write")
    assert [(one.severity, one.place) for one in findings(lines, "gfx942", LDS)] == [("error", "v8")]
    monkeypatch.setattr("simgpu.checks.uninitialized.findings.MANGLED", "k")  # the kernel's name
    assert [(one.severity, one.place) for one in findings(lines, "gfx942", LDS)] == [("note", "v8")]
    assert [one.severity for one in findings(nothing, "gfx942", LDS)] == ["error"]


LANES_OF_TWO_BUFFERS = """
v_mov_b32 v2, s4
v_mov_b32 v3, s5
s_mov_b32 s20, 2
again:
global_load_dword v5, v[2:3], off
s_waitcnt vmcnt(0)
s_mov_b64 exec, 0xff
v_mov_b32 v2, s6
v_mov_b32 v3, s7
s_mov_b64 exec, -1
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 again
v_add_u32 v5, v5, v5
global_store_dword v60, v5, s[4:5]
"""


def test_lanes_in_defined_and_undefined_memory() -> None:
    """A load hits a defined buffer first, then partly one that nothing wrote."""
    (finding,) = findings(LANES_OF_TWO_BUFFERS)
    assert finding.text.startswith("global_store_dword")
    assert finding.lanes == tuple(range(8))
    assert finding.other_text.startswith("global_load_dword v5")


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_stores_to_defined_memory_count(target: str) -> None:
    lines = """
s_mov_b32 s20, 2
v_mov_b32 v3, 1
again:
global_store_dword v60, v3, s[4:5]
v_mov_b32 v3, v4
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 again
"""
    (finding,) = findings(lines, target)
    assert (finding.place, finding.lanes, finding.count) == ("v3", ALL, 1)


def test_buffers_over_defined_and_undefined_memory() -> None:
    """A buffer load goes first over the defined buffer, then over the other."""
    lines = """
s_mov_b64 s[20:21], s[4:5]
s_mov_b32 s22, 256
s_mov_b32 s23, 0x20000
s_mov_b32 s24, 2
again:
buffer_load_dword v3, v60, s[20:23], 0 offen
s_waitcnt vmcnt(0)
global_store_dword v60, v3, s[4:5] offset:512
s_mov_b64 s[20:21], s[6:7]
s_sub_u32 s24, s24, 1
s_cmp_lg_u32 s24, 0
s_cbranch_scc1 again
"""
    (finding,) = findings(lines)
    assert (finding.place, finding.lanes, finding.count) == ("v3", ALL, 1)
    assert finding.other_text.startswith("buffer_load_dword")


def test_a_device_made_without_checks_refuses_those_that_ask_what_is_defined() -> None:
    """Its memory has no bits for that."""
    gpu, checked = simgpu.Device("mi300x"), simgpu.Device("mi300x", check=True)
    with pytest.raises(LaunchError, match=r"made without checks.*which Uninitialized asks: make another, Device\(…, check=True\)"):
        gpu.checks = checked.checks
    assert gpu.checks == ()
    gpu.checks = [check for check in checked.checks if not check.undefined]
    checked.checks = checked.checks
    assert len(gpu.checks) == len(checked.checks) - 1
