"""Certainty of findings: on every path, in every further round of a loop, on some path; and their order."""

from __future__ import annotations

import pytest

from simgpu.checks.lint import lint_causes
from simgpu.engine.finding import Finding
from simgpu.hardware.code_object import CodeObject
from tests.support.checked import assembled
from tests.support.linted import linted

LOAD, USE, WAIT = "global_load_dword v1, v60, s[4:5]", "v_mov_b32 v2, v1", "s_waitcnt vmcnt(0)"
SKIP = ["s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 past"]
COUNT = ["s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0", "s_cbranch_scc1 loop"]
WAYS: dict[str, tuple[list[str], str]] = {
    "in one block": ([LOAD, USE], "every path"),
    "behind a branch that both ways leave open": ([LOAD, *SKIP, "v_mov_b32 v3, 0", "past:", USE], "every path"),
    "used on one way of two, always after the load": ([LOAD, *SKIP, USE, "past:", WAIT], "every path"),
    "loaded on one way of two, always used": (["v_mov_b32 v1, 0", *SKIP, LOAD, "past:", USE], "every path"),
    "used on either way": ([LOAD, *SKIP, USE, "s_branch end", "past:", "v_mov_b32 v3, v1", "end:", WAIT], "every path"),
    "waited for on one way": ([LOAD, *SKIP, WAIT, "past:", USE], "some path"),
    "loaded on one way, used on one way": (
        ["v_mov_b32 v1, 0", *SKIP, LOAD, "past:", "s_cmp_eq_u32 s5, 0", "s_cbranch_scc1 end", USE, "end:", WAIT], "some path",
    ),
    "used in the next round": (
        ["v_mov_b32 v1, 0", "s_mov_b32 s30, s4", "loop:", USE, LOAD, *COUNT, WAIT], "every round",
    ),
    "used in the next round, by a loop around it": (
        ["v_mov_b32 v1, 0", "s_mov_b32 s30, s4", "loop:", USE, "s_mov_b32 s31, s5", "inner:", "s_sub_u32 s31, s31, 1",
         "s_cmp_lg_u32 s31, 0", "s_cbranch_scc1 inner", LOAD, *COUNT, WAIT], "every round",
    ),
    "loaded in a loop that may not wait, used after it": (
        ["s_mov_b32 s30, s4", "loop:", LOAD, "s_cmp_eq_u32 s30, s5", "s_cbranch_scc1 past", WAIT, *COUNT, "past:", USE],
        "some path",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", WAYS)
def test_of_a_wait(row: str) -> None:
    lines, certainty = WAYS[row]
    found = [finding for finding in linted("gfx942", lines) if finding.kind == "missing-wait"]
    assert found and {finding.certainty for finding in found} == {certainty}
    assert all(finding.certain == (certainty != "some path") for finding in found)


def test_of_wait_states() -> None:
    write, read = "v_readfirstlane_b32 s20, v60", "global_load_dword v1, v60, s[20:21]"  # five states between them
    for lines, certainty in (
        ([write, read], "every path"),
        ([write, *SKIP, "past:", read], "every path"),
        ([write, *SKIP, "s_nop 4", "past:", read], "some path"),
    ):
        (finding,) = (f for f in linted("gfx942", lines) if f.kind == "hazard")
        assert (finding.rule, finding.certainty) == ("SGPR by VALU, memory reads", certainty)


def test_of_lds_at_a_barrier() -> None:
    lines = ["ds_write_b32 v60, v60", "s_barrier", "ds_read_b32 v1, v61", "s_waitcnt lgkmcnt(0)"]
    (finding,) = linted("gfx942", lines)
    assert (finding.certainty, finding.certain) == ("addresses", False)


def test_of_registers_that_nothing_defined() -> None:
    from simgpu.checks.lint import lint

    for lines, certainty in (
        (["global_store_dword v60, v9, s[6:7]"], "every path"),
        ([*SKIP, "v_mov_b32 v9, 0", "past:", "global_store_dword v60, v9, s[6:7]"], "some path"),
    ):
        (finding,) = (f for f in lint(CodeObject.parse(assembled("gfx942", lines))) if f.kind == "uninitialized")
        assert finding.certainty == certainty


def causes(lines: list[str], target: str = "gfx942") -> list[Finding]:
    code = CodeObject.parse(assembled(target, lines))
    return [finding for kernel in code.kernels.values() for finding in lint_causes(code, kernel) if finding.kind != "uninitialized"]


def test_the_clocks_that_lack_decide_who_comes_first() -> None:
    far = [f"v_mov_b32 v{3 + number % 8}, 0" for number in range(200)]
    near = [LOAD.replace("v1", "v20"), "v_sub_u32 v21, v20, v20"]
    possible = [LOAD.replace("v1", "v22"), *SKIP, WAIT, "past:", "v_add_u32 v23, v22, v22"]
    first, second, third = causes([LOAD, *far, USE, WAIT, *near, WAIT, *possible, WAIT])
    assert (first.place, second.place, third.place) == ("v20", "v1", "v22")
    assert (first.clocks_between, second.clocks_between) == (4, 804)
    assert first.clocks_taken == second.clocks_taken > 200
    assert [finding.certainty for finding in (first, second, third)] == ["every path", "every path", "some path"]


def test_rules_that_shipped_kernels_break_come_last_and_once() -> None:
    m0 = ["s_mov_b32 m0, s5", "buffer_load_dword v60, s[8:11], 0 offen lds"]
    found = causes([*m0, "s_nop 0", *m0, WAIT, LOAD, USE, *m0, WAIT])
    assert [(finding.rule, finding.pairs) for finding in found] == [("read", 1), ("M0 by SALU, its implicit readers", 3)]


def test_a_loop_is_one_cause() -> None:
    body = [line for number in range(10, 14) for line in (LOAD.replace("v1", f"v{number}"), f"v_mov_b32 v2, v{number}")]
    loop = ["s_mov_b32 s30, s4", "loop:", *body, *COUNT]
    one, other = causes([*loop, LOAD, USE, WAIT])
    assert sorted((one.pairs, other.pairs)) == [1, 4]
    grouped = one if one.pairs == 4 else other
    assert len(grouped.places) == 2 and all(place.count == 0 for place in grouped.places)
    assert str(grouped).count("global_load_dword") == 4  # in the message, and at three places
