"""Missing waits without a launch: checked mode's findings on the path taken, and findings on the other paths."""

from __future__ import annotations

import pytest

from tests.simgpu.checks import test_waits as checked
from tests.simgpu.checks.test_waits import ACROSS, BROKEN, DMA, DONE, GLOBAL, GOOD, HALVES, SCALAR
from tests.support.checked import line_of
from tests.support.linted import linted


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("row", BROKEN)
def test_each_kind(row: str, target: str) -> None:
    broken, wait, other = BROKEN[row]
    broken = checked.lines_for(target, broken)
    (finding,) = linted(target, broken)
    assert (finding.kind, finding.severity, finding.count) == ("missing-wait", "error", 0)
    assert finding.source == line_of(target, broken, len(broken) - 1)
    assert finding.other_source == line_of(target, broken, other)
    assert f"s_waitcnt {wait} is needed" in finding.message
    assert linted(target, [*broken[:-1], f"s_waitcnt {wait}", broken[-1]]) == []


@pytest.mark.parametrize("row", GOOD)
def test_silence(row: str) -> None:
    assert linted("gfx90a", GOOD[row]) == []


# Control flow around a load into v1 that nothing waits for, and an instruction that reads it; the repair is a line or none.
USE = "v_mov_b32 v2, v1"
WAIT = "s_waitcnt vmcnt(0)"
FLOWS: dict[str, tuple[list[str], int]] = {  # lines, and the index of the missing wait
    "behind a branch that no launch takes": (
        [GLOBAL, "s_cmp_eq_u32 s4, s4", "s_cbranch_scc1 past", USE, "past:", "s_nop 0"], 3,
    ),
    "one way of two": (
        ["s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 other", GLOBAL, "s_branch join", "other:", "v_mov_b32 v1, 0", "join:", USE], 7,
    ),
    "round a loop": (
        ["v_mov_b32 v1, 0", "s_mov_b32 s30, 3", "loop:", USE, GLOBAL, "s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0",
         "s_cbranch_scc1 loop"], 3,
    ),
    "in a function": (
        [GLOBAL, "s_getpc_b64 s[20:21]", "s_add_u32 s20, s20, callee-.", "s_addc_u32 s21, s21, 0",
         "s_swappc_b64 s[30:31], s[20:21]", "s_branch past", "callee:", USE, "s_setpc_b64 s[30:31]", "past:"], 7,
    ),
    "behind a call": (
        ["s_call_b64 s[30:31], callee", USE, "s_branch past", "callee:", GLOBAL, "s_setpc_b64 s[30:31]", "past:"], 1,
    ),
    "behind a long jump": (
        [GLOBAL, "s_getpc_b64 s[20:21]", "s_add_u32 s20, s20, far-.", "s_addc_u32 s21, s21, 0", "s_setpc_b64 s[20:21]", "s_endpgm",
         "far:", USE], 7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["gfx908", "gfx950"])
@pytest.mark.parametrize("row", FLOWS)
def test_along_every_path(row: str, target: str) -> None:
    lines, place = FLOWS[row]
    (finding,) = (f for f in linted(target, lines) if f.kind != "unreachable")
    assert (finding.kind, finding.place) == ("missing-wait", "v1")
    assert finding.source == line_of(target, lines, lines.index(USE))
    assert finding.other_source == line_of(target, lines, lines.index(GLOBAL))
    repaired = [*lines[:place], WAIT, *lines[place:]]
    assert [f for f in linted(target, repaired) if f.kind != "unreachable"] == []


def test_the_fewest_of_all_paths_decides() -> None:
    """vmcnt(1) is enough if a second load follows, but not on the way without it."""
    second = ["s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 past", "global_load_dword v3, v60, s[4:5]", "past:"]
    lines = [GLOBAL, *second, "s_waitcnt vmcnt(1)", USE]
    (finding,) = linted("gfx90a", lines)
    assert "vmcnt(0)" in finding.message
    assert linted("gfx90a", [line for line in lines if "cbranch" not in line]) == []


def test_returns_lead_behind_their_own_call() -> None:
    """A load before one call of a function is not in flight after another, which returns elsewhere."""
    lines = [
        "s_call_b64 s[30:31], callee", "v_mov_b32 v1, 0", GLOBAL, "s_call_b64 s[30:31], callee", WAIT, USE, "s_branch past",
        "callee:", "v_mov_b32 v3, v60", "s_setpc_b64 s[30:31]", "past:",
    ]  # fmt: skip
    assert linted("gfx942", lines) == []
    (finding,) = linted("gfx942", [line for line in lines if line != WAIT])
    assert finding.source == line_of("gfx942", lines, 4)


def test_recursion_ends() -> None:
    lines = [
        GLOBAL, "s_call_b64 s[30:31], callee", "s_branch past", "callee:", "s_cmp_eq_u32 s4, 0", "s_cbranch_scc1 back",
        "s_call_b64 s[30:31], callee", "back:", USE, "s_setpc_b64 s[30:31]", "past:",
    ]  # fmt: skip
    (finding,) = linted("gfx90a", lines)
    assert finding.text == "v_mov_b32_e32 v2, v1"


@pytest.mark.parametrize("target", ["gfx908", "gfx950"])
@pytest.mark.parametrize("row", ACROSS)
def test_lds_at_a_barrier(row: str, target: str) -> None:
    """Writes must be complete. Whether a read clashes with later writes depends on addresses: a note."""
    before, behind, wait = ACROSS[row]
    start = [*HALVES, *before.splitlines()]
    (finding,) = linted(target, [*start, "s_barrier", behind, DONE])
    assert (finding.kind, finding.text) == ("missing-wait", "s_barrier")
    assert finding.severity == ("note" if before.startswith("ds_read") else "error")
    assert f"s_waitcnt {wait} is needed" in finding.message
    assert linted(target, [*start, f"s_waitcnt {wait}", "s_barrier", behind, DONE]) == []


def test_lds_that_nobody_touches_behind_the_barrier() -> None:
    for lines in (
        ["ds_read_b32 v1, v62", "s_barrier", "ds_read_b32 v2, v63"],
        ["ds_add_u32 v62, v60", "s_barrier", "ds_add_u32 v63, v60"],
        ["ds_write_b32 v62, v60", "s_barrier", DONE, "s_barrier", "ds_read_b32 v2, v63"],
        ["ds_bpermute_b32 v1, v60, v60", "s_barrier", "ds_write_b32 v63, v60"],
    ):
        assert linted("gfx90a", [*HALVES, *lines, DONE]) == []


def test_lds_of_waves_that_meet_at_different_barriers() -> None:
    """Consumers read after their barrier, so the producers must have written before theirs."""
    lines = [
        "s_cmp_ge_u32 s4, 2", "s_cbranch_scc1 consumer", "ds_write_b32 v60, v60", DONE, "s_barrier", "s_endpgm",
        "consumer:", "s_barrier", "ds_read_b32 v6, v60", DONE,
    ]  # fmt: skip
    assert linted("gfx90a", lines) == []
    (finding,) = linted("gfx90a", [line for at, line in enumerate(lines) if at != 3])
    assert (finding.severity, finding.text) == ("error", "s_barrier")


def test_the_end_with_a_load_to_lds_in_flight() -> None:
    (finding,) = linted("gfx90a", [*DMA, "s_waitcnt vmcnt(1)", "s_endpgm"])[:1]
    assert (finding.kind, finding.text) == ("missing-wait", "s_endpgm")
    found = linted("gfx90a", [*DMA, "s_waitcnt vmcnt(0)", "s_endpgm"])
    assert [f.kind for f in found] == []


def test_one_wait_is_one_finding() -> None:
    many = [SCALAR, "s_load_dwordx4 s[24:27], s[4:5], 0x0", "s_add_u32 s21, s20, s24", "s_add_u32 s22, s25, s26"]
    assert len(linted("gfx90a", many)) == 1


BACK = {"gfx90a": ("buffer_wbl2", ""), "gfx942": ("buffer_wbl2 sc1", " sc1"), "gfx950": ("buffer_wbl2 sc0 sc1", " sc0 sc1")}
DATA = "global_store_dword v60, v60, s[4:5]"
WAIT = "s_waitcnt vmcnt(0)"


@pytest.mark.parametrize("target", BACK)
@pytest.mark.parametrize("flag", ["global_store_dword v60, v60, s[6:7]", "global_atomic_add v60, v60, s[6:7]"])
def test_a_flag_that_may_pass_the_write_back_of_its_data(flag: str, target: str) -> None:
    """LLVM #178316: without a wait, the flag may reach memory first."""
    back, bits = BACK[target]
    flag += bits if "store" in flag else ""
    (finding,) = linted(target, [DATA, WAIT, back, flag])
    assert (finding.kind, finding.severity, finding.certainty, finding.rule) == ("missing-wait", "error", "every path", "released")
    assert finding.text.startswith(flag.split()[0]) and finding.other_text == back and f"{WAIT} is needed" in finding.message
    (finding,) = linted(target, [back, "s_cbranch_scc1 go", WAIT, "go:", flag])
    assert finding.certainty == "some path"
    for waiting in ([back, WAIT, flag], [back, "global_load_dword v1, v60, s[4:5]", "s_waitcnt vmcnt(1)", flag, WAIT]):
        assert linted(target, [DATA, WAIT, *waiting]) == []


def test_accesses_that_release_nothing() -> None:
    for line in (DATA, "global_load_dword v1, v60, s[4:5] sc1", "ds_write_b32 v60, v60", "scratch_store_dword v60, v60, off"):
        assert linted("gfx942", ["buffer_wbl2 sc1", line, "s_waitcnt vmcnt(0) lgkmcnt(0)"]) == [], line
    assert linted("gfx942", ["buffer_inv sc1", "global_store_dword v60, v60, s[4:5] sc1"]) == []
