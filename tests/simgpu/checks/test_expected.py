"""Loads that compare-and-swap loops expect: LLVM's own loops are silent, and any other use of the value is a race."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.checks.races.ordering import shared_order
from tests.support.clang import file_of
from tests.support.race_findings import check

GLC = {"gfx908": "glc", "gfx90a": "glc", "gfx942": "sc0", "gfx950": "sc0"}
# Loads, and the swap of their values: v20 is the lane's place, v[22:23] its address, s[24:27] a resource of the buffer.
PLACES = {
    "global": ("global_load_dword{x2} {old}, v20, s[4:5]", "global_atomic_cmpswap{swap} {was}, v20, {both}, s[4:5] {glc}"),
    "flat": ("flat_load_dword{x2} {old}, v[22:23]", "flat_atomic_cmpswap{swap} {was}, v[22:23], {both} {glc}"),
    "other registers": (
        "global_load_dword{x2} {old}, v20, s[4:5]", "global_atomic_cmpswap{swap} {was}, v[22:23], {both}, off {glc}"
    ),
    "buffer": (
        "buffer_load_dword{x2} {old}, v20, s[24:27], 0 offen", "buffer_atomic_cmpswap{swap} {both}, v20, s[24:27], 0 offen {glc}"
    ),
    "LDS": ("ds_read_b{bits} {old}, v20", "ds_cmpst_rtn_b{bits} {was}, v20, {old}, {new}"),
    "scalar": ("s_load_dword{x2} {scalar}, s[4:5], 0x0", "global_atomic_cmpswap{swap} {was}, v20, {both}, s[4:5] {glc}"),
}  # fmt: skip
LOOP = """
v_and_b32 v20, {mask}, v0
v_lshlrev_b32 v20, 3, v20
v_mov_b32 v23, s5
v_add_co_u32 v22, vcc, s4, v20
v_addc_co_u32 v23, vcc, 0, v23, vcc
s_mov_b32 s24, s4
s_mov_b32 s25, s5
s_mov_b32 s26, 0x10000
s_mov_b32 s27, 0x00020000
v_mov_b32 v12, 0
s_mov_b64 s[20:21], 0
{load}
s_waitcnt vmcnt(0) lgkmcnt(0)
{begin}
loop:
{change}
{swap}
s_waitcnt vmcnt(0) lgkmcnt(0)
v_cmp_eq_u{bits} vcc, {was}, {old}
{moves}
s_or_b64 s[20:21], vcc, s[20:21]
s_andn2_b64 exec, exec, s[20:21]
s_cbranch_execnz loop
s_or_b64 exec, exec, s[20:21]
{after}
"""


def loop(
    where: str, bits: int = 32, target: str = "gfx90a", begin: str = "", change: str = "", after: str = "", load: str = ""
) -> str:
    """Returns a kernel that adds 1 to a loaded value, by compare-and-swap; v13 or v[14:15] is loaded, v12 or v[12:13] new."""
    wide = bits == 64
    old, new, was = ("v[14:15]", "v[12:13]", "v[16:17]") if wide else ("v13", "v12", "v16")
    both = "v[12:15]" if wide else "v[12:13]"
    names = {
        "old": old, "new": new, "was": was, "both": both, "bits": bits, "x2": "x2" if wide else "", "swap": "_x2" if wide else "",
        "glc": GLC[target], "scalar": "s[28:29]" if wide else "s28",
    }  # fmt: skip
    plain_load, swap = (text.format(**names) for text in PLACES[where])
    first, returned = (14, 16) if wide else (13, 16)
    words = range(1 + wide)
    if where == "scalar":
        begin += "".join(f"\nv_mov_b32 v{first + word}, s{28 + word}" for word in words)
    if where == "buffer":  # returns in the new value's register
        swap += "\ns_waitcnt vmcnt(0)\n" + "\n".join(f"v_mov_b32 v{returned + word}, v{12 + word}" for word in words)
    plain = "v_add_co_u32 v12, vcc, v14, v11\nv_addc_co_u32 v13, vcc, 0, v15, vcc" if wide else "v_add_u32 v12, v13, v11"
    moves = "\n".join(f"v_mov_b32 v{first + word}, v{returned + word}" for word in words)
    filled = {
        "load": load or plain_load, "begin": begin, "change": change or plain, "swap": swap, "after": after, "moves": moves,
        "mask": 0 if where == "scalar" else 63,
    }  # fmt: skip
    return LOOP.format(**(names | filled))


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("where", PLACES)
def test_a_loop_that_only_expects_what_it_loaded(where: str, bits: int, target: str) -> None:
    grid = 1 if where == "LDS" else 2
    assert check(loop(where, bits, target), target=target, grid=grid, block=128) == []


@pytest.mark.parametrize("where", PLACES)
def test_a_barrier_after_the_loop(where: str) -> None:
    """Leaves a number that was computed with the loaded value in a register, as LLVM's sum in bf16 does, and passes a barrier."""
    grid = 1 if where == "LDS" else 2
    text = loop(where, change="v_bfe_u32 v18, v13, 16, 1\nv_add_u32 v12, v13, v11", after="s_barrier\nv_mov_b32 v19, 0")
    assert check(text, grid=grid, block=128) == []


IF = """
v_mov_b32 v18, 7
v_and_b32 v19, 1, v0
v_cmp_eq_u32 vcc, 0, v19
s_and_saveexec_b64 s[30:31], vcc
s_xor_b64 s[30:31], exec, s[30:31]
global_load_dword v13, v20, s[4:5]
"""
STORE = "global_store_dword v1, v18, s[6:7]"


@pytest.mark.parametrize("after, silent", [
    (f"s_andn2_saveexec_b64 s[30:31], s[30:31]\n{STORE}\ns_or_b64 exec, exec, s[30:31]", True),  # `else`
    (f"s_or_b64 exec, exec, s[30:31]\n{STORE}", False),  # all lanes
    (f"v_cmp_gt_u32 vcc, 9, v0\ns_and_saveexec_b64 s[34:35], vcc\ns_andn2_saveexec_b64 s[34:35], s[34:35]\n{STORE}", False),
    (f"s_mov_b64 s[34:35], exec\ns_andn2_b64 exec, exec, s[34:35]\ns_lshl_b64 s[34:35], s[34:35], 1\n"
     f"s_or_b64 exec, exec, s[34:35]\ns_andn2_saveexec_b64 s[34:35], s[34:35]\n{STORE}", False),  # a mask that changed
])  # fmt: skip
def test_lanes_of_a_branch(after: str, silent: bool) -> None:
    """Loops in lanes of a branch, with a number computed of the loaded value in v18. The `else` has v18 from before."""
    found = check(loop("global", load=IF, change="v_add_u32 v18, v13, 3\nv_add_u32 v12, v13, v11", after=after), block=128)
    assert {finding.kind for finding in found} == (set() if silent else {"race"})


@pytest.mark.parametrize("unused, silent", [("UNUSED_PAD", True), ("UNUSED_SEXT", True), ("UNUSED_PRESERVE", False)])
def test_a_new_value_by_sdwa(unused: str, silent: bool) -> None:
    """Computes the new value's low half anew in each round; with UNUSED_PRESERVE the other half is the old one's."""
    change = f"v_add_u32_sdwa v12, v13, v11 dst_sel:WORD_0 dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    found = check(loop("global", change=change), grid=2, block=128)
    assert {finding.kind for finding in found} == (set() if silent else {"race"})


# v13 has the loaded value; v18 and v19 are free.
OTHERWISE = {
    "stored": {"begin": "v_mov_b32 v18, v13", "after": "global_store_dword v1, v18, s[6:7]"},
    "computed with": {"begin": "v_add_u32 v18, v13, 5", "after": "global_store_dword v1, v18, s[6:7]"},
    "stored after a barrier": {
        "begin": "v_add_u32 v18, v13, 5", "after": "s_barrier\nglobal_store_dword v1, v18, s[6:7]"
    },
    "expected after a barrier": {"begin": "s_barrier"},
    "an address": {"begin": "v_and_b32 v18, 0xfc, v13\nglobal_load_dword v19, v18, s[6:7]\ns_waitcnt vmcnt(0)"},
    "a branch": {"begin": "v_cmp_lt_u32 vcc, v13, v11\ns_cbranch_vccz loop\nv_mov_b32 v18, 0"},
    "a mask": {"begin": "v_cmp_lt_u32 vcc, v13, v11\ns_and_saveexec_b64 s[22:23], vcc\nv_mov_b32 v18, 0\ns_mov_b64 exec, s[22:23]"},
    "another lane": {"begin": "v_readfirstlane_b32 s28, v13", "change": "v_add_u32 v12, s28, v11"},
    "not computed anew": {"begin": "v_add_u32 v12, v13, v11\nv_mov_b32 v18, v12", "change": "v_mov_b32 v12, v18"},
    "another is expected": {"begin": "v_mov_b32 v18, v13\nv_mov_b32 v13, 0", "change": "v_add_u32 v12, v18, v11"},
    "expected with a difference": {"begin": "v_add_u32 v13, v13, 1"},
    "by the lanes that skip the loop": {
        "begin": "s_mov_b64 s[30:31], exec\ns_and_b64 exec, exec, 0xffff",
        "after": "s_mov_b64 exec, s[30:31]\nglobal_store_dword v1, v13, s[6:7]",
    },
}


@pytest.mark.parametrize("use", OTHERWISE)
def test_a_value_that_is_used_otherwise_is_a_race(use: str) -> None:
    found = check(loop("global", **OTHERWISE[use]), grid=2, block=128)
    assert {finding.kind for finding in found} == {"race"}
    texts = {finding.text for finding in found} | {finding.other_text for finding in found}
    assert any("global_load_dword v13" in text for text in texts) and any("cmpswap" in text for text in texts)


# Adds 1 to the low byte, as LLVM does it: v18 has the other bits of the loaded dword, v19 the byte that is expected.
KEEP = "v_and_b32 v18, 0xffffff00, v13"
BYTE = "v_bfe_u32 v19, v16, 0, 8\nv_add_u32 v12, v19, v11\nv_or_b32 v12, v18, v12\nv_or_b32 v13, v18, v19"


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("where", PLACES)
def test_a_loop_that_swaps_a_byte_keeps_the_other_bits(where: str, target: str) -> None:
    begin = "s_and_b32 s29, s28, 0xffffff00\nv_mov_b32 v18, s29" if where == "scalar" else KEEP
    text = "v_mov_b32 v16, 0" + loop(where, 32, target, begin=begin, change=BYTE)
    assert check(text, target=target, grid=1 if where == "LDS" else 2, block=128) == []


KEPT_OTHERWISE = {
    "of two masks": (KEEP + "\nv_and_b32 v17, 0xff, v13", BYTE.replace("v12, v18, v12", "v12, v18, v17")),
    "not masked": (KEEP + "\nv_mov_b32 v17, v13", BYTE.replace("v12, v18, v12", "v12, v18, v17")),
    "not expected": (KEEP, BYTE.replace("v13, v18, v19", "v13, 0, v19")),
    "compared": (KEEP + "\nv_cmp_eq_u32 vcc, 3, v18\ns_cbranch_vccz loop", BYTE),
    "inverted": (KEEP.replace("v_and_b32 v18, 0xffffff00, v13", "s_nop 0\nv_bfi_b32 v18, v13, v11, 0"), BYTE),
}


@pytest.mark.parametrize("use", KEPT_OTHERWISE)
def test_kept_bits_that_are_used_otherwise_are_a_race(use: str) -> None:
    begin, change = KEPT_OTHERWISE[use]
    found = check("v_mov_b32 v16, 0" + loop("global", begin=begin, change=change), grid=2, block=128)
    assert found and all("global_load_dword v13" in finding.text + finding.other_text for finding in found)


def test_lanes_that_swap_at_one_place_add_one_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk over releases looks at each link. With one a lane, two waves at one place took seconds."""
    made = []

    def kept(*arguments: object) -> object:
        made.append(shared_order(*arguments))  # type: ignore[arg-type]  # passed on as they are
        return made[-1]

    monkeypatch.setattr("simgpu.checks.races.check.shared_order", kept)
    check("v_mov_b32 v0, 0" + loop("global"), block=128)
    nodes, links = (int(count) for count in made[0].counts[:2])
    assert 128 <= links <= nodes


def test_a_swap_at_another_address_does_not_excuse_the_load() -> None:
    load = "v_xor_b32 v18, 8, v20\nglobal_load_dword v13, v18, s[4:5]"
    found = check(loop("global", load=load), grid=2, block=128)
    assert found and all("global_load_dword v13, v18" in finding.text + finding.other_text for finding in found)
    lds = check(loop("LDS", load="v_xor_b32 v18, 8, v20\nds_read_b32 v13, v18"), block=128)
    assert lds and all("ds_read_b32 v13, v18" in finding.text + finding.other_text for finding in lds)


def test_a_plain_store_still_races_with_the_swap() -> None:
    found = check(loop("global", after="s_nop 0\nglobal_store_dword v20, v11, s[4:5]"), grid=2, block=128)
    assert found and all("global_store_dword" in finding.text + finding.other_text for finding in found)


def test_another_load_of_the_same_place_is_seen() -> None:
    """An excused load does not cover another load of the same place."""
    begin = "global_load_dword v18, v20, s[4:5]\ns_waitcnt vmcnt(0)"
    after = "s_lshl_b32 s8, s2, 10\nv_add_u32 v1, s8, v1\nglobal_store_dword v1, v18, s[6:7]"
    found = check(loop("global", begin=begin, after=after), grid=2, block=128)
    assert found and all("global_load_dword v18" in finding.text + finding.other_text for finding in found)


# Triton's code for a ticket that only lane 0 takes: the other lanes, and other waves, go around the swap.
TICKET = """
s_load_dword s20, s[4:5], 0x0
s_waitcnt lgkmcnt(0)
{begin}
take:
s_mov_b64 s[30:31], exec
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
s_cbranch_execz around
s_add_i32 s21, s20, 1
v_mov_b32 v12, s21
v_mov_b32 v13, s20
global_atomic_cmpswap v12, v10, v[12:13], s[4:5] {glc}
s_waitcnt vmcnt(0)
around:
s_mov_b64 exec, s[30:31]
v_readlane_b32 s22, v12, 0
s_cmp_eq_u32 s22, s20
s_mov_b32 s20, s22
s_cbranch_scc0 take
s_lshl_b32 s21, s2, 10
v_mov_b32 v13, s21
global_store_dword v13, v12, s[6:7]
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_a_scalar_load_of_a_ticket_that_a_swap_takes(target: str) -> None:
    def found(begin: str) -> list[str]:
        lines = TICKET.format(begin=begin, glc=GLC[target])
        return [finding.text + finding.other_text for finding in check(lines, target=target, grid=4, block=64)]

    assert found("") == []
    used = found("v_mov_b32 v14, s20\ns_lshl_b32 s21, s2, 10\nv_mov_b32 v15, s21\nglobal_store_dword v15, v14, s[6:7] offset:64")
    assert used and all("s_load_dword s20" in texts for texts in used)


IR = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
@lds = internal addrspace(3) global [64 x double] undef
"""
FUNCTION = """
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %j = and i32 %i, 3
  %e = getelementptr {type}, ptr addrspace({space}) {base}, i32 {index}
  %s = getelementptr {type}, ptr addrspace(1) %q, i32 %i
  %x = load {type}, ptr addrspace(1) %s
  %o = atomicrmw {operation} ptr addrspace({space}) %e, {type} %x syncscope("{scope}") seq_cst
  ret void
}}
"""
EXPANDED = [
    ("float", "fadd", "%j", "global"), ("float", "fmax", "0", "global"), ("double", "fsub", "0", "global"),
    ("half", "fadd", "%j", "global"), ("<2 x half>", "fsub", "%j", "global"), ("i32", "nand", "0", "global"),
    ("float", "fsub", "%j", "LDS"), ("double", "fsub", "0", "LDS"),
]  # fmt: skip


COUNT = """
define amdgpu_kernel void @k(ptr addrspace(1) %p, ptr addrspace(1) %q) {{
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %j = urem i32 %i, 3
  %e = getelementptr {type}, ptr addrspace({space}) {base}, i32 %j
  br label %again
again:
  %old = phi {type} [ 0, %entry ], [ %was, %again ]
  %new = add {type} %old, 1
  %pair = cmpxchg {weak} ptr addrspace({space}) %e, {type} %old, {type} %new syncscope("{scope}") monotonic monotonic
  %was = extractvalue {{ {type}, i1 }} %pair, 0
  %done = extractvalue {{ {type}, i1 }} %pair, 1
  br i1 %done, label %end, label %again
end:
  ret void
}}
"""


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942"])
@pytest.mark.parametrize(("kind", "bits", "weak"), [("i8", 8, "weak"), ("i16", 16, "weak"), ("i16", 16, "")])
def test_what_llvm_makes_of_swaps_of_bytes(kind: str, bits: int, weak: str, target: str) -> None:
    text = IR + COUNT.format(type=kind, weak=weak, space=1, base="%p", scope="agent")
    run, counts = _run(text, target, 2)
    assert counts.view(f"u{bits // 8}")[:4].tolist() == [2 * 43, 2 * 43, 2 * 42, 0]
    assert [str(finding) for finding in run.findings if finding.kind in ("race", "stale-read")] == []


def _run(text: str, target: str, grid: int) -> tuple[simgpu.Result, np.ndarray]:
    """Returns the launch of kernel `k` in IR by workgroups of 128, and its first buffer."""
    clang = ["clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-O2", "-nogpulib", "-c", "k.ll", "-o", "k.o"]
    code = file_of([clang, ["ld.lld", "-shared", "k.o", "-o", "k.co"]], {"k.ll": text}, "k.co")
    gpu = simgpu.Device(target, check=True, threads=1)
    buffers = [gpu.upload(np.zeros(1 << 12, np.uint8)) for _ in range(2)]
    run = gpu.load(code)["k"].launch(grid=grid, block=128, args=buffers)
    return run, buffers[0].download(np.uint8, 1 << 12)


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942"])
def test_what_llvm_makes_of_atomics_that_the_hardware_lacks(target: str) -> None:
    for kind, operation, index, space in EXPANDED:
        names = (1, "%p", "agent") if space == "global" else (3, "@lds", "workgroup")
        place = dict(zip(("space", "base", "scope"), names, strict=True))
        text = IR + FUNCTION.format(type=kind, operation=operation, index=index, **place)
        run, _ = _run(text, target, 1 if space == "LDS" else 2)
        races = [finding for finding in run.findings if finding.kind == "race"]
        assert not races, (kind, operation, space, [str(finding) for finding in races])
