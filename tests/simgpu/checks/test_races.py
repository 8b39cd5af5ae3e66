"""Races in LDS, and their names in findings, in checked mode: each broken kernel gives its finding, its repaired twin none."""

from __future__ import annotations

import re

import numpy as np
import pytest

import simgpu
from tests.support.kernels import loaded_kernel
from tests.support.race_findings import check, one

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
    found = one(check(lines.format(barrier="s_mov_b64 exec, 0x60")), "race", "ds_write_b32 v1, v3", "ds_read_b32 v3, v2")
    assert found.lanes == (5,), "the first lane of the write that meets another wave's read"


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
    # The later instruction is the write: its wave is named first.
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
    """Writer and last reader are the same: neither the reader before nor the one after may be forgotten."""
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
    """Reads are only logged until a wave writes, and a log holds 256."""
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


# Each of two waves has a row of 64 x 128 bits: v3 points to its own, v11 to the other's.
ROWS = """
v_and_b32 v2, 63, v0
v_lshlrev_b32 v2, 4, v2
s_lshl_b32 s8, s9, 10
v_add_u32 v3, s8, v2
v_xor_b32 v11, 0x400, v3
v_mov_b32 v4, 4
v_mov_b32 v5, v0
v_mov_b32 v6, 6
v_mov_b32 v7, v1
"""
OWN, OTHERS = "ds_write_b128 v3, v[4:7]", "ds_write_b128 v11, v[4:7]"
READ_OWN, READ_OTHERS = "ds_read_b128 v[4:7], v3", "ds_read_b128 v[4:7], v11"


@pytest.mark.parametrize(
    ("lines", "later", "earlier"),
    [
        ([OWN, READ_OWN, OWN, READ_OWN], "", ""),
        ([OWN, "s_barrier", READ_OTHERS, READ_OTHERS, "s_barrier", OTHERS], "", ""),
        ([OWN, READ_OTHERS], READ_OTHERS, OWN),
        ([OWN, OTHERS], OTHERS, OWN),
        ([READ_OTHERS, OWN], OWN, READ_OTHERS),
        ([OWN, READ_OTHERS + " offset:16"], READ_OTHERS + " offset:16", OWN),
        ([OWN + " offset:16", READ_OTHERS + " offset:32"], READ_OTHERS + " offset:32", OWN + " offset:16"),
    ],
)  # fmt: skip
def test_rows_of_lds_are_each_waves_own(lines: list[str], later: str, earlier: str) -> None:
    """Unstaged and undescribed accesses (`Hooks.row`) are entered all the same, and clashes go the long way."""
    found = check(ROWS + "".join(f"{line}\ns_waitcnt lgkmcnt(0)\n" for line in lines), block=128, kinds=("race",))
    if later:
        assert (later, earlier) in {(finding.text, finding.other_text) for finding in found}
    else:
        assert found == []


def test_rows_of_lds_hold_what_was_stored() -> None:
    """Two waves' consecutive rows, 64 bytes into LDS."""
    lines = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 4, v0
v_add_u32 v2, 1, v0
v_mov_b32 v3, 3
v_mov_b32 v4, v1
v_mov_b32 v5, 5
ds_write_b128 v1, v[2:5] offset:64
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b128 v[6:9], v1 offset:64
s_waitcnt lgkmcnt(0)
global_store_dwordx4 v1, v[6:9], s[4:5]
"""
    gpu = simgpu.Device("gfx90a", check=True)
    out = gpu.alloc(2048)
    run = loaded_kernel(gpu, lines, "buffer", group_segment_fixed_size=4096).launch(grid=1, block=128, args=[out])
    lane = np.arange(128)
    wanted = np.stack([lane + 1, 0 * lane + 3, 16 * lane, 0 * lane + 5], 1)
    np.testing.assert_array_equal(out.download(np.uint32).reshape(128, 4), wanted)
    assert run.findings == []


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
    """Compilers copy a value to LDS from each wave that has it: harmless, and a note on request."""
    lines = "v_and_b32 v2, 63, v0\n{write}\ns_waitcnt lgkmcnt(0)"
    same = lines.format(write="v_lshlrev_b32 v3, 2, v2\nds_write_b32 v3, v2")
    assert check(same) == []
    other = lines.format(write="v_lshlrev_b32 v3, 2, v2\nds_write_b32 v3, v0")
    assert "two writes" in one(check(other), "race", *["ds_write_b32 v3, v0"] * 2).message
    (note,) = (f for f in check(same, how="performance", kinds=("race", "performance")) if not f.text.startswith("s_waitcnt"))
    assert (note.kind, note.severity, note.text) == ("performance", "note", "ds_write_b32 v3, v2")


def test_lanes_of_each_wave_that_leave_the_same_bytes_by_one_instruction() -> None:
    """Lanes whose sums are rounded in other orders write to one address: the highest lane's bytes remain, in each wave the same."""
    lines = "v_and_b32 v2, 63, v0\nv_and_b32 v3, 15, v0\nv_lshlrev_b32 v3, 2, v3\n{write}\ns_waitcnt lgkmcnt(0)"
    assert check(lines.format(write="ds_write_b32 v3, v2")) == []
    assert "two writes" in one(check(lines.format(write="ds_write_b32 v3, v0")), "race", *["ds_write_b32 v3, v0"] * 2).message


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


BY_FLAG = """
v_lshrrev_b32 v20, 6, v0
v_readfirstlane_b32 s9, v20
v_mov_b32 v10, 0x1f0
v_mov_b32 v11, 1
v_mov_b32 v12, 0x40
v_mov_b32 v13, 0x1e0
s_cmp_eq_u32 s9, 0
s_cbranch_scc0 other
{first}
s_waitcnt lgkmcnt(0)
s_endpgm
other:
s_sleep 100
ds_add_rtn_u32 v3, v10, v11
s_waitcnt lgkmcnt(0)
{second}
s_waitcnt lgkmcnt(0)
"""
FLAG, WRITE, READ = "ds_add_u32 v10, v11\n", "ds_write_b32 v12, v11\n", "ds_read_b32 v4, v12\n"
OTHER_READS = "ds_read_b32 v5, v13\ns_waitcnt lgkmcnt(0)\n"


@pytest.mark.parametrize(("data", "second"), [(WRITE, READ), (READ, WRITE), (WRITE, WRITE.replace("v11", "v20"))])
def test_a_flag_in_lds_orders_what_comes_before_its_atomic(data: str, second: str) -> None:
    """A wave accesses data and adds to a flag. The other wave adds to the flag with return, and then accesses the data."""
    def found(first: str) -> list[str]:
        return [finding.kind for finding in check(BY_FLAG.format(first=first, second=second), block=128)]

    assert found(data + FLAG) == [] and found(FLAG + data + FLAG) == [] and found(data + OTHER_READS * 9 + FLAG) == []
    assert found(FLAG + data) == ["race"] and found(FLAG + data + OTHER_READS * 9) == ["race"]
    assert found(data) == ["race"] and found(data + FLAG + data) == ["race"]
    assert found(data + FLAG + OTHER_READS * 300) == []  # more accesses than the log keeps


# Each wave stores a dword and counts itself in LDS; then, without a barrier, it loads what the other wave stored.
COUNTED = """
v_lshlrev_b32 v2, 2, v0
v_xor_b32 v3, 0x100, v2
v_mov_b32 v10, 0x800
s_mov_b64 s[20:21], 0xff
s_mov_b64 exec, s[20:21]
ds_write_b32 v2, v0
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, 1
ds_add_rtn_u32 v4, v10, v11
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, s[20:21]
{barrier}
s_cmp_eq_u32 s9, 0
s_cbranch_scc1 done
ds_read_b32 v5, v3
s_waitcnt lgkmcnt(0)
done:
"""


def test_a_race_that_only_another_order_of_waves_shows() -> None:
    """In order, the first wave counts itself before the second does, which then seems to have waited for it."""
    broken, right = COUNTED.format(barrier=""), COUNTED.format(barrier="s_barrier")
    assert check(broken, block=128) == []
    found = [check(broken, block=128, schedule=seed) for seed in range(8)]
    assert any(found)
    one(next(filter(None, found)), "race", "ds_read_b32 v5, v3", "ds_write_b32 v2, v0")
    assert [check(right, block=128, schedule=seed) for seed in range(8)] == [[]] * 8


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_a_store_that_unlocks_is_atomic(target: str) -> None:
    """LLVM lowers an atomic store to LDS to `s_waitcnt lgkmcnt(0)` and a plain store."""
    lock, unlock = "ds_cmpst_rtn_b32 v5, v10, v11, v11\ns_waitcnt lgkmcnt(0)\n", "s_waitcnt lgkmcnt(0)\nds_write_b32 v10, v11\n"
    one_lane = "s_mov_b64 exec, 1\n"

    def found(first: str, second: str = READ) -> list[str]:
        return [f.place for f in check(BY_FLAG.format(first=first, second=second), block=128, target=target)]

    assert found(one_lane + lock + WRITE + unlock) == []
    assert found(one_lane + lock + unlock + WRITE) == ["LDS 0x40"]  # after the release
    assert found(one_lane + WRITE + unlock) == ["LDS 0x1f0", "LDS 0x40"]  # a store to a counter that its wave did not take
    assert found(one_lane + "ds_add_rtn_u32 v5, v10, v11\ns_waitcnt lgkmcnt(0)\n" + WRITE + unlock) == ["LDS 0x1f0"]
    assert found(lock + WRITE + unlock) == ["LDS 0x1f0"]  # 64 lanes, which no lock has


def test_two_workgroups_of_one_slot_do_not_meet_in_lds() -> None:
    assert check(NEIGHBOUR.format(barrier="s_barrier"), grid=50) == []
    assert check(NEIGHBOUR.format(barrier=""), grid=50)[0].count >= 50


def test_one_wave_needs_no_barrier() -> None:
    assert check(NEIGHBOUR.format(barrier="").replace("0x100", "0x4"), block=64) == []


RACE_OF_ALL = "v_mov_b32 v2, s2\nglobal_store_dword v1, v2, s[4:5]\n"
EVERY_WORKGROUP = {
    "race": RACE_OF_ALL,
    "barrier": "s_cmp_eq_u32 s9, 0\ns_cbranch_scc0 on\ns_endpgm\non:\ns_barrier\n",
    "missing-wait": "global_load_dword v2, v1, s[6:7]\nv_add_u32 v3, v2, v2\ns_waitcnt vmcnt(0)\n",
    "uninitialized": "v_lshlrev_b32 v5, 2, v63\nglobal_load_dword v3, v5, s[6:7]\ns_waitcnt vmcnt(0)\n",
}


@pytest.mark.parametrize("kind", EVERY_WORKGROUP)
def test_the_lowest_workgroup_is_named_whatever_the_threads(kind: str) -> None:
    """An error of every workgroup is reported of the first, with the count of all."""
    found = [
        check(EVERY_WORKGROUP[kind], grid=40, threads=threads, kinds=(kind,))
        for threads in (1, 2, 1, 2, 3, 2)
    ]  # fmt: skip
    for findings in found:
        assert {finding.workgroup for finding in findings} == {(0, 0, 0)}, findings
        if kind != "race":  # a race's partners depend on the schedule
            assert findings == found[0]


def test_more_epochs_than_a_cell_holds() -> None:
    """LDS cells hold 16 bits of the epoch, so they are cleared when it starts again."""
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
