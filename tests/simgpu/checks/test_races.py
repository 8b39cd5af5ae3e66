"""Races and barriers in checked mode: each broken kernel gives its finding, its repaired twin none."""

from __future__ import annotations

import re

import pytest

import simgpu
from simgpu.engine.finding import Finding
from tests.support.kernels import KernelText, assemble

HEAD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshrrev_b32 v9, 6, v0
v_readfirstlane_b32 s9, v9
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v10, 0
v_mov_b32 v11, 1
s_waitcnt lgkmcnt(0)
"""


def check(
    lines: str, *, target: str = "gfx90a", grid: int = 1, block: int = 256, lds: int = 4096, threads: int = 1,
    how: bool | str = True, kinds: tuple[str, ...] = ("race", "barrier"),
) -> list[Finding]:  # fmt: skip
    """Findings of some kinds, races and barriers of a kernel: v0 is the work-item, v1 four times it, s9 the
    wave, v10 0, v11 1, s2 the workgroup, s[4:5] a buffer of 64 KiB, s[6:7] another; s8, v2.. are free."""
    gpu = simgpu.Device(target, check=how, threads=threads)
    text = KernelText("k", HEAD + lines, ("buffer", "buffer"), {"group_segment_fixed_size": lds})
    buffers = [gpu.alloc(1 << 16), gpu.alloc(1 << 16)]
    run = gpu.load(assemble(target, text))["k"].launch(grid=grid, block=block, args=buffers)
    return [finding for finding in run.findings if finding.kind in kinds]


def one(found: list[Finding], kind: str, text: str, other: str) -> Finding:
    """The only finding, which is of a kind and between two instructions."""
    assert [(f.kind, {f.text, f.other_text}) for f in found] == [(kind, {text, other})], [str(f) for f in found]
    return found[0]


NEIGHBOUR = """
v_xor_b32 v2, 0x100, v1
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
{barrier}
ds_read_b32 v3, v2
s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_lds_read_of_another_waves_write_without_a_barrier(target: str) -> None:
    found = one(check(NEIGHBOUR.format(barrier=""), target=target), "race", "ds_read_b32 v3, v2", "ds_write_b32 v1, v0")
    assert "s_barrier" in found.message and found.severity == "error"
    assert check(NEIGHBOUR.format(barrier="s_barrier"), target=target) == []


def test_lds_write_before_others_have_read() -> None:
    lines = """
v_xor_b32 v2, 0x100, v1
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v2
s_waitcnt lgkmcnt(0)
{barrier}
ds_write_b32 v1, v3
s_waitcnt lgkmcnt(0)
"""
    one(check(lines.format(barrier="")), "race", "ds_write_b32 v1, v3", "ds_read_b32 v3, v2")
    assert check(lines.format(barrier="s_barrier")) == []


ORDER = """
s_cmp_eq_u32 s9, {writer}
s_cbranch_scc1 writes
ds_read_b32 v3, v10 offset:64
s_branch on
writes:
ds_write_b32 v10, v0 offset:64
on:
s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize("writer", [0, 1, 2, 3])
def test_what_is_found_does_not_depend_on_which_wave_runs_first(writer: int) -> None:
    found = one(check(ORDER.format(writer=writer)), "race", "ds_read_b32 v3, v10 offset:64", "ds_write_b32 v10, v0 offset:64")
    assert found.place == "LDS 0x40"
    # The later instruction is the write: it, and no other wave, is named first.
    first, second = (wave for wave in found.message.partition(" by ")[2].partition(":")[0].split(" and "))
    assert found.text.startswith("ds_write") and "a write and a read" in found.message
    assert (found.wave, first) == (writer, f"wave {writer}") and second != first


@pytest.mark.parametrize("writer", [0, 1, 2, 3])
@pytest.mark.parametrize("across", [False, True])
def test_a_race_of_memory_names_each_wave_at_its_own_instruction(writer: int, across: bool) -> None:
    lines = f"""
s_cmp_eq_u32 {"s2" if across else "s9"}, {writer}
s_cbranch_scc1 writes
global_load_dword v3, v10, s[4:5] offset:64
s_branch on
writes:
global_store_dword v10, v0, s[4:5] offset:64
on:
s_waitcnt vmcnt(0)
"""
    found = check(lines, grid=4 if across else 1, block=64 if across else 256)
    found = one(found, "race", "global_load_dword v3, v10, s[4:5] offset:64", "global_store_dword v10, v0, s[4:5] offset:64")
    assert re.search(r"a write and a read of memory 0x\w+ \(a\d(, byte 0x|\[)", found.message), found.message
    if across:
        assert found.workgroup == (writer, 0, 0)
        assert " of workgroup (" in found.message and f"of workgroup {found.workgroup}" not in found.message
    else:
        assert found.wave == writer and f"by wave {writer} and wave" in found.message


def test_the_reader_that_also_writes_clashes_with_the_other_reader() -> None:
    """The last reader is the writer itself: the one before must not be forgotten, nor the one after."""
    for writer in (0, 1):
        lines = f"""
ds_read_b32 v3, v10
s_waitcnt lgkmcnt(0)
s_cmp_eq_u32 s9, {writer}
s_cbranch_scc0 done
ds_write_b32 v10, v0
done:
s_waitcnt lgkmcnt(0)
"""
        one(check(lines, block=128), "race", "ds_write_b32 v10, v0", "ds_read_b32 v3, v10")


@pytest.mark.parametrize("reads", [1, 100, 300])
def test_an_lds_read_that_many_others_follow(reads: int) -> None:
    """Reads are only logged until somebody writes, and a log holds 256."""
    lines = f"""
v_xor_b32 v2, 4, v1
v_and_b32 v3, 63, v0
v_lshlrev_b32 v3, 4, v3
s_cmp_lg_u32 s9, 0
s_cbranch_scc1 writes
ds_read_b32 v4, v2
s_movk_i32 s8, {reads}
again:
ds_read_b128 v[4:7], v3 offset:1024
s_sub_u32 s8, s8, 1
s_cmp_lg_u32 s8, 0
s_cbranch_scc1 again
s_branch done
writes:
{{barrier}}
ds_write_b32 v1, v0 offset:2048
v_subrev_u32 v1, 0x100, v1
ds_write_b32 v1, v0
done:
s_waitcnt lgkmcnt(0)
{{after}}
"""
    (found,) = check(lines.format(barrier="", after=""), block=128)
    assert found.kind == "race" and found.place == "LDS 0x0" and (found.other_text == "ds_read_b32 v4, v2") == (reads < 256)
    assert check(lines.format(barrier="s_barrier", after="").replace("s_branch done", "s_barrier\ns_branch done"), block=128) == []


def test_lds_is_watched_by_the_byte() -> None:
    """Two waves write the halves of each dword: no race; reading both halves without a barrier is one."""
    lines = """
v_and_b32 v2, 63, v0
v_lshlrev_b32 v2, 2, v2
v_lshl_or_b32 v4, s9, 1, v2
ds_write_b16 v4, v0
s_waitcnt lgkmcnt(0)
{barrier}
{read}
s_waitcnt lgkmcnt(0)
"""
    assert check(lines.format(barrier="", read=""), block=128) == []
    assert check(lines.format(barrier="", read="ds_read_u16 v3, v4"), block=128) == []
    one(check(lines.format(barrier="", read="ds_read_b32 v3, v2"), block=128), "race", "ds_read_b32 v3, v2", "ds_write_b16 v4, v0")
    assert check(lines.format(barrier="s_barrier", read="ds_read_b32 v3, v2"), block=128) == []
    # Both at the same half: two writes.
    found = check("ds_write_b16 v10, v0 offset:2\ns_waitcnt lgkmcnt(0)", block=128)
    assert "two writes" in one(found, "race", *["ds_write_b16 v10, v0 offset:2"] * 2).message


def test_waves_that_write_the_same_bytes_by_one_instruction() -> None:
    """Compilers copy a value to LDS from each wave that has it: harmless, and a note where asked for."""
    lines = "v_and_b32 v2, 63, v0\n{write}\ns_waitcnt lgkmcnt(0)"
    same = lines.format(write="v_lshlrev_b32 v3, 2, v2\nds_write_b32 v3, v2")
    assert check(same) == []
    other = lines.format(write="v_lshlrev_b32 v3, 2, v2\nds_write_b32 v3, v0")
    assert "two writes" in one(check(other), "race", *["ds_write_b32 v3, v0"] * 2).message
    (note,) = (f for f in check(same, how="performance", kinds=("race", "performance")) if not f.text.startswith("s_waitcnt"))
    assert (note.kind, note.severity, note.text) == ("performance", "note", "ds_write_b32 v3, v2")


# Four waves write the same bytes, 4 or 8 a lane at v3, by several instructions each.
REPEATED = """
v_and_b32 v2, 63, v0
v_lshlrev_b32 v3, 3, v2
v_lshlrev_b32 v12, 4, v2
v_mov_b32 v4, v2
v_mov_b32 v5, v2
{before}
ds_write_b64 v3, v[4:5]
ds_write_b32 v12, v2 offset:1024
ds_write_b32 v12, v2 offset:1028
{after}
s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize(
    "after", ["", "ds_write_b32 v12, v2 offset:1032", "ds_read_b32 v6, v12 offset:1032", "ds_write_b32 v1, v0 offset:2048"]
)
def test_repeated_writes_of_several_instructions(after: str) -> None:
    assert check(REPEATED.format(before="", after=after)) == []


BROKEN = {
    "another value": ("v_mov_b32 v4, v0", ""),
    "another value of a dword": ("v_mov_b32 v5, v0", ""),
    "of some lanes": ("v_cmp_eq_u32 vcc, 5, v2\nv_cndmask_b32 v4, v4, v9, vcc", ""),
    "the same value by another instruction": ("", "ds_write_b32 v12, v2 offset:1024"),
    "what another wave read": ("ds_read_b32 v6, v3", ""),
    "a part of it that another wave read": ("ds_read_u8 v6, v3 offset:5", ""),
    "what another wave added to": ("", "v_mov_b32 v6, 0x1f8\nds_add_u32 v6, v11"),
    "other places by the same instruction": ("v_lshlrev_b32 v6, 3, v9\nv_add_u32 v3, v3, v6", ""),
}


@pytest.mark.parametrize("which", BROKEN)
def test_writes_that_only_look_repeated(which: str) -> None:
    before, after = BROKEN[which]
    found = check(REPEATED.format(before=before, after=after))
    assert found and {finding.kind for finding in found} == {"race"}


def test_lds_atomics_do_not_race_but_a_plain_read_with_them_does() -> None:
    lines = """
ds_add_u32 v10, v11
s_waitcnt lgkmcnt(0)
{barrier}
ds_read_b32 v3, v10
s_waitcnt lgkmcnt(0)
"""
    assert check("ds_add_u32 v10, v11\ns_waitcnt lgkmcnt(0)") == []
    assert check(lines.format(barrier="s_barrier")) == []
    one(check(lines.format(barrier="")), "race", "ds_read_b32 v3, v10", "ds_add_u32 v10, v11")


def test_two_workgroups_of_one_slot_do_not_meet_in_lds() -> None:
    assert check(NEIGHBOUR.format(barrier="s_barrier"), grid=50) == []
    assert check(NEIGHBOUR.format(barrier=""), grid=50)[0].count >= 50


def test_one_wave_needs_no_barrier() -> None:
    assert check(NEIGHBOUR.format(barrier="").replace("0x100", "0x4"), block=64) == []


GLOBAL = """
v_xor_b32 v2, 0x100, v1
global_store_dword v1, v0, s[4:5]
s_waitcnt vmcnt(0)
{barrier}
global_load_dword v3, v2, s[4:5]
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_memory_of_one_workgroup(target: str) -> None:
    texts = "global_load_dword v3, v2, s[4:5]", "global_store_dword v1, v0, s[4:5]"
    found = one(check(GLOBAL.format(barrier=""), target=target), "race", *texts)
    assert "s_barrier" in found.message
    assert check(GLOBAL.format(barrier="s_barrier"), target=target) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_of_two_workgroups(threads: int) -> None:
    """A barrier orders the waves of one workgroup only."""
    lines = GLOBAL.format(barrier="s_barrier")
    found = check(lines, grid=6, threads=threads)
    assert {f.text for f in found} <= {"global_load_dword v3, v2, s[4:5]", "global_store_dword v1, v0, s[4:5]"}
    assert found and all("workgroup" in f.message for f in found)
    own = """
s_lshl_b32 s8, s2, 10
v_add_u32 v1, s8, v1
"""
    assert check(own + lines, grid=6, threads=threads) == []


def test_memory_is_watched_by_the_byte() -> None:
    """Bytes of a dword by different workgroups are no race."""
    lines = "v_mov_b32 v2, s2\nglobal_store_byte v2, v0, s[4:5]\ns_waitcnt vmcnt(0)"
    assert check(lines, grid=8, block=64) == []
    wide = lines.replace("store_byte", "store_short")
    assert "two writes" in check(wide, grid=8, block=64)[0].message


# By bytes a lane; wave 0 does one, wave 1 the other, one of them with two lanes only.
STORES = {4: "global_store_dword v1, v0, s[4:5]", 16: "global_store_dwordx4 v1, v[20:23], s[4:5]"}
LOADS = {4: "global_load_dword v3, v1, s[4:5]", 16: "global_load_dwordx4 v[4:7], v1, s[4:5]"}


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("whole_first", [True, False])
@pytest.mark.parametrize("writes", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("swizzle", [0, 0x30, 0x4000])
def test_whole_lines_and_parts_of_them(size: int, whole_first: bool, writes: tuple[bool, bool], swizzle: int) -> None:
    """Lines that are accessed whole have one cell: nothing that is found changes with the access' alignment.

    swizzle: what lanes' offsets are exclusive-ored with, which permutes them within their lines, or 0x4000: every other line apart.
    """
    texts = [(STORES if store else LOADS)[size] for store in writes]
    few = "s_mov_b64 exec, 0x60"
    lines = f"""
v_and_b32 v0, 63, v0
v_lshlrev_b32 v1, {2 if size == 4 else 4}, v0
v_lshlrev_b32 v2, 8, v1
v_and_b32 v2, 0x4000, v2
v_xor_b32 v1, {swizzle & 0xFF}, v1
{"v_add_u32 v1, v2, v1" if swizzle > 0xFF else ""}
v_add_u32 v1, {{start}}, v1
s_cmp_eq_u32 s9, 1
s_cbranch_scc1 second
{"" if whole_first else few}
{texts[0]}
s_mov_b64 exec, -1
s_waitcnt vmcnt(0)
{{before}}
s_branch done
second:
{{between}}
{few if whole_first else ""}
{texts[1]}
s_waitcnt vmcnt(0)
done:
"""
    seen = []
    for start in (0, 4, 64):
        racing = check(lines.format(start=start, before="", between=""), block=128)
        found = one(racing, "race", *texts)
        seen.append((found.pc, found.lanes, found.count, found.wave, int(found.place.split()[1], 16) % 256 - start))
        ordered = lines.format(start=start, before="s_barrier", between="s_barrier")
        assert [f for f in check(ordered, block=128) if f.kind == "race"] == []
    assert seen[0] == seen[1] == seen[2]


LAST_BLOCK = """
s_lshl_b32 s8, s2, 10
v_add_u32 v2, s8, v1
global_store_dword v2, v0, s[4:5]
s_waitcnt vmcnt(0)
s_barrier
s_mov_b64 s[20:21], exec
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
{count}
s_mov_b64 exec, s[20:21]
s_barrier
ds_read_b32 v5, v10
s_waitcnt lgkmcnt(0)
v_readfirstlane_b32 s8, v5
s_cmp_eq_u32 s8, 3
s_cbranch_scc0 done
global_load_dword v6, v1, s[4:5]
global_load_dword v6, v1, s[4:5] offset:1024
global_load_dword v6, v1, s[4:5] offset:2048
global_load_dword v6, v1, s[4:5] offset:3072
done:
s_waitcnt vmcnt(0)
"""
COUNT = """
global_atomic_add v4, v10, v11, s[6:7] {returns}
s_waitcnt vmcnt(0)
ds_write_b32 v10, v4
s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize("target, returns", [("gfx908", "glc"), ("gfx942", "sc0")])
def test_the_last_workgroup_may_read_what_the_others_wrote(target: str, returns: str) -> None:
    assert check(LAST_BLOCK.format(count=COUNT.format(returns=returns)), target=target, grid=4) == []
    # Without the counter, whoever thinks to be the last one reads too early.
    blind = "v_mov_b32 v4, s2\nds_write_b32 v10, v4\ns_waitcnt lgkmcnt(0)"
    found = check(LAST_BLOCK.format(count=blind), target=target, grid=4)
    assert found and {f.other_text for f in found} == {"global_store_dword v2, v0, s[4:5]"}


SPIN = """
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
{take}
global_load_dword v5, v10, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v5, 1, v5
global_store_dword v10, v5, s[4:5]
s_waitcnt vmcnt(0)
{give}
s_waitcnt vmcnt(0)
"""
TAKE = """
v_mov_b32 v2, 1
v_mov_b32 v3, 0
again:
s_sleep 1
global_atomic_cmpswap v4, v10, v[2:3], s[6:7] {returns}
s_waitcnt vmcnt(0)
v_cmp_ne_u32 vcc, 0, v4
s_cbranch_vccnz again
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("give", ["global_store_dword v10, v10, s[6:7]", "global_atomic_swap v10, v10, s[6:7]"])
def test_a_spin_lock_orders_what_it_guards(give: str, threads: int) -> None:
    take = TAKE.format(returns="glc")
    assert check(SPIN.format(take=take, give=give), grid=12, threads=threads, block=64) == []
    assert len(check(SPIN.format(take="", give=""), grid=12, threads=threads, block=64)) >= 1


LOOK_BACK = """
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
s_lshl_b32 s8, s2, 2
v_mov_b32 v2, s8
s_cmp_eq_u32 s2, 0
s_cbranch_scc1 first
spin:
s_sleep 1
global_load_dword v4, v2, s[6:7] offset:-4 {coherent}
s_waitcnt vmcnt(0)
v_cmp_eq_u32 vcc, 0, v4
s_cbranch_vccnz spin
global_load_dword v5, v2, s[4:5] offset:-4
first:
s_waitcnt vmcnt(0)
global_store_dword v2, v0, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v2, v11, s[6:7]
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_look_back_through_flags(threads: int) -> None:
    """Plain flag stores, as gfx90a's compilers write atomic ones, read by coherent loads."""
    assert check(LOOK_BACK.format(coherent="glc"), grid=12, threads=threads, block=64) == []
    assert check(LOOK_BACK.format(coherent=""), grid=12, threads=threads, block=64) != []


def test_histogram_by_atomics_is_silent_and_by_stores_is_not() -> None:
    lines = "v_and_b32 v2, 0x3c, v1\n{add}\ns_waitcnt vmcnt(0)"
    assert check(lines.format(add="global_atomic_add v2, v11, s[4:5]"), grid=4, threads=2) == []
    found = check(lines.format(add="global_store_dword v2, v11, s[4:5]"), grid=4, threads=2)
    assert "same value" in one(found, "race", *["global_store_dword v2, v11, s[4:5]"] * 2).message


def test_scalar_and_buffer_accesses_are_watched() -> None:
    lines = """
s_mov_b32 s12, s4
s_and_b32 s13, s5, 0xffff
s_mov_b32 s14, 0x10000
s_mov_b32 s15, 0x27000
buffer_store_dword v0, v1, s[12:15], 0 offen
s_waitcnt vmcnt(0)
{barrier}
s_load_dword s20, s[4:5], 0x100
s_waitcnt lgkmcnt(0)
"""
    one(check(lines.format(barrier="")), "race", "s_load_dword s20, s[4:5], 0x100", "buffer_store_dword v0, v1, s[12:15], 0 offen")
    assert check(lines.format(barrier="s_barrier")) == []


BRANCHED = """
s_cmp_eq_u32 s9, 0
s_cbranch_scc1 other
{first}
s_branch join
other:
{second}
join:
"""


def test_waves_at_different_barriers() -> None:
    """One branch lacks the barrier: its wave is one ahead from there on."""
    found = check(BRANCHED.format(first="s_barrier", second="") + "s_nop 0\ns_barrier")
    assert [(f.kind, f.severity) for f in found] == [("barrier", "error"), ("barrier", "error")]
    assert found[0].pc != found[0].other_pc and "another barrier" in found[0].message
    assert check(BRANCHED.format(first="s_barrier", second="s_barrier") + "s_nop 0\ns_barrier") == []
    assert check(BRANCHED.format(first="", second="") + "s_barrier") == []


def test_wave_groups_a_barrier_apart() -> None:
    """Ping-pong: one group begins a barrier later and makes up for it at the end."""
    lines = BRANCHED.format(first="", second="s_barrier") + """
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v3, v1
s_waitcnt lgkmcnt(0)
s_barrier
s_cmp_eq_u32 s9, 0
s_cbranch_scc1 done
{last}
done:
"""
    assert check(lines.format(last="s_barrier")) == []
    assert [f.severity for f in check(lines.format(last=""))][:1] == ["error"]


@pytest.mark.parametrize("early", [0, 3])
def test_a_wave_that_ends_without_the_barrier(early: int) -> None:
    """The hardware counts it as arrived; an error all the same, whichever wave runs first."""
    lines = f"""
s_cmp_eq_u32 s9, {early}
s_cbranch_scc0 on
s_endpgm
on:
s_barrier
"""
    found = check(lines)
    assert [(f.kind, f.severity, f.text) for f in found] == [("barrier", "error", "s_barrier")]


RACE_OF_ALL = "v_mov_b32 v2, s2\nglobal_store_dword v1, v2, s[4:5]\n"
EVERY_WORKGROUP = {
    "race": RACE_OF_ALL,
    "barrier": "s_cmp_eq_u32 s9, 0\ns_cbranch_scc0 on\ns_endpgm\non:\ns_barrier\n",
    "missing-wait": "global_load_dword v2, v1, s[6:7]\nv_add_u32 v3, v2, v2\ns_waitcnt vmcnt(0)\n",
    "uninitialized": "v_lshlrev_b32 v5, 2, v63\nglobal_load_dword v3, v5, s[6:7]\ns_waitcnt vmcnt(0)\n",
}


@pytest.mark.parametrize("kind", EVERY_WORKGROUP)
def test_the_lowest_workgroup_is_named_whatever_the_threads(kind: str) -> None:
    """What every workgroup does wrong is told of the first, as often as there are."""
    found = [
        check(EVERY_WORKGROUP[kind], grid=40, threads=threads, kinds=(kind,))
        for threads in (1, 2, 1, 2, 3, 2)
    ]  # fmt: skip
    for findings in found:
        assert {finding.workgroup for finding in findings} == {(0, 0, 0)}, findings
        if kind != "race":  # who clashes with whom is the schedule's
            assert findings == found[0]


def test_more_epochs_than_a_cell_holds() -> None:
    """LDS cells hold 16 bits of the epoch: they are cleared where it begins anew."""
    lines = """
s_mov_b32 s20, 0x10010
loop:
ds_write_b32 v1, v0
s_waitcnt lgkmcnt(0)
s_barrier
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 loop
v_xor_b32 v2, 0x100, v1
ds_read_b32 v3, v2
s_waitcnt lgkmcnt(0)
"""
    assert check(lines, block=128) == []


def test_counts_and_lanes() -> None:
    found = one(check(NEIGHBOUR.format(barrier=""), block=128, grid=3), "race", "ds_read_b32 v3, v2", "ds_write_b32 v1, v0")
    # In each of three workgroups the second wave clashes with the first by its write and by its read.
    assert (found.count, found.wave, found.workgroup) == (6, 0, (0, 0, 0))
    assert found.place == "LDS 0x100" and "by wave 0 and wave 1" in found.message
