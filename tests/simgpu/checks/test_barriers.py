"""Waves and their barriers in checked mode: each broken kernel gives its finding, its repaired twin none."""

from __future__ import annotations

import pytest

from tests.support.race_findings import check

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
    """A branch lacks the barrier, so its wave is one ahead from then on."""
    found = check(BRANCHED.format(first="s_barrier", second="") + "s_nop 0\ns_barrier")
    assert [(f.kind, f.severity) for f in found] == [("barrier", "error"), ("barrier", "note")]
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
    """Hardware counts it as arrived, and HIP kernels of rocSOLVER rely on it: a note, whichever wave runs first."""
    lines = f"""
s_cmp_eq_u32 s9, {early}
s_cbranch_scc0 on
s_endpgm
on:
s_barrier
"""
    found = check(lines)
    assert [(f.kind, f.severity, f.text) for f in found] == [("barrier", "note", "s_barrier")]


def test_waves_that_ended_are_reported_at_one_barrier() -> None:
    """Two waves end before the first of three barriers, another one before the last: one note for each cause."""
    lines = """
s_cmp_lt_u32 s9, 2
s_cbranch_scc0 on
s_endpgm
on:
s_barrier
s_nop 0
s_barrier
s_cmp_eq_u32 s9, 2
s_cbranch_scc0 last
s_endpgm
last:
s_nop 1
s_barrier
"""
    assert [(found.severity, found.count) for found in check(lines, block=256)] == [("note", 1), ("note", 1)]
