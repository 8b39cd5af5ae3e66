"""Barriers that not all waves reach, code that nothing reaches or that lint cannot follow, and declared registers."""

from __future__ import annotations

import pytest

from simgpu.checks.lint import flow
from simgpu.engine.finding import Finding
from tests.support.linted import kernel_linted

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


def found(lines: str, kind: str, target: str = "gfx90a", **options: int) -> list[Finding]:
    """Returns the findings of a kind; there must be no others."""
    all_ = kernel_linted(target, lines, **options)
    assert {finding.kind for finding in all_} <= {kind}, [str(finding) for finding in all_]
    return all_


RESTORED = (
    "v_cmp_gt_u32 vcc, 16, v0\ns_and_saveexec_b64 s[4:5], vcc\ns_cbranch_execz on\nv_mov_b32 v1, 0\non:\n{}"
    "s_or_b64 exec, exec, s[4:5]\ns_cbranch_execz past\ns_barrier\npast:"
)
SKIP = "v_cmp_gt_u32 vcc, 16, v0\ns_and_saveexec_b64 s[4:5], vcc\ns_cbranch_execz past\n"
UNEVEN = {
    "in a branch that waves go around": SKIP + "s_barrier\npast:\ns_mov_b64 exec, s[4:5]",
    "behind an early end": SKIP + "s_barrier\npast:",
    "in a loop that waves leave one by one": (
        "v_mov_b32 v1, v0\nloop:\ns_barrier\nv_subrev_u32 v1, 1, v1\nv_cmp_lt_i32 vcc, 0, v1\ns_and_b64 exec, exec, vcc\n"
        "s_cbranch_execnz loop"
    ),
    "where a part of the lanes is active again": RESTORED.format("s_mov_b64 s[4:5], vcc\n"),
    "inside another loop": (
        "s_mov_b32 s8, 3\nouter:\n" + SKIP + "s_barrier\npast:\ns_mov_b64 exec, s[4:5]\ns_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\n"
        "s_cbranch_scc1 outer"
    ),
}
EVEN = {
    "outside": SKIP + "v_mov_b32 v1, 0\npast:\ns_mov_b64 exec, s[4:5]\ns_barrier",
    "on both ways": (
        SKIP + "s_barrier\ns_branch join\npast:\ns_barrier\njoin:\ns_mov_b64 exec, s[4:5]"
    ),
    "under a scalar condition": "s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 past\ns_barrier\npast:",
    "where EXEC is as it began": "s_cbranch_execz past\ns_barrier\npast:",
    "where all lanes are active again": RESTORED.format(""),
}  # fmt: skip


def half(name: str, compare: str, body: str = "s_barrier", item: str = "v0") -> str:
    """A barrier of the waves for which a comparison with the work-item's number holds."""
    operation, number = compare.split()
    return (
        f"s_movk_i32 s6, {number}\n{operation} s[8:9], s6, {item}\ns_and_saveexec_b64 s[4:5], s[8:9]\ns_cbranch_execz {name}\n"
        f"{body}\n{name}:\ns_or_b64 exec, exec, s[4:5]\n"
    )


def row(name: str, number: int) -> str:
    """A barrier of the waves whose number, in v1, is this one."""
    return (
        f"v_cmp_eq_u32 vcc, {number}, v1\ns_and_saveexec_b64 s[4:5], vcc\ns_cbranch_execz {name}\ns_barrier\n{name}:\n"
        "s_or_b64 exec, exec, s[4:5]\n"
    )


LATE = "v_cmp_lt_u32 127"  # work-items 128 and up
WORK = "s_barrier\nv_mov_b32 v9, 0\ns_barrier\n"
KEPT = "s_movk_i32 s6, 128\nv_cmp_gt_u32 vcc, s6, v0\n" + half("a", LATE) + WORK
TURNS = {
    "as HipKittens' attention has them": KEPT + "s_and_saveexec_b64 s[4:5], vcc\ns_cbranch_execz b\ns_barrier\nb:",
    "the other half first": half("a", "v_cmp_gt_u32 128") + WORK + half("b", "v_cmp_le_u32 128"),
    "around a loop": half("a", LATE) + "s_mov_b32 s7, 3\nloop:\n" + WORK + "s_sub_u32 s7, s7, 1\ns_cmp_lg_u32 s7, 0\n"
    "s_cbranch_scc1 loop\n" + half("b", "v_cmp_ge_u32 127"),
    "by a wave's row": "v_lshrrev_b32 v1, 7, v0\n" + row("a", 1) + WORK + row("b", 0),
    "after lanes were off for a time": "s_mov_b64 s[10:11], exec\nv_cmp_eq_u32 vcc, 3, v0\ns_and_b64 exec, exec, vcc\n"
    "v_mov_b32 v9, 1\ns_mov_b64 exec, s[10:11]\n" + half("a", LATE) + WORK + half("b", "v_cmp_gt_u32 128"),
}  # fmt: skip
NO_TURNS = {
    "the same half twice": half("a", LATE) + WORK + half("b", LATE),
    "halves that overlap": half("a", LATE) + WORK + half("b", "v_cmp_gt_u32 192"),
    "a wave that is in both": half("a", "v_cmp_lt_u32 131") + WORK + half("b", "v_cmp_gt_u32 132"),
    "two barriers for one": half("a", LATE, "s_barrier\ns_barrier") + WORK + half("b", "v_cmp_gt_u32 128"),
    "the first half in each round": "s_mov_b32 s7, 3\nloop:\n" + half("a", LATE) + "s_sub_u32 s7, s7, 1\ns_cmp_lg_u32 s7, 0\n"
    "s_cbranch_scc1 loop\n" + WORK + half("b", "v_cmp_gt_u32 128"),
    "the last one only on some path": half("a", LATE) + WORK + "s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 end\n"
    + half("b", "v_cmp_gt_u32 128") + "end:",
    "another number than the work-item's": half("a", LATE) + "v_mov_b32 v0, v9\n" + WORK + half("b", "v_cmp_gt_u32 128"),
    "two rows of four": "v_lshrrev_b32 v1, 6, v0\n" + row("a", 1) + WORK + row("b", 0),
    "lanes that were off": "s_mov_b64 exec, 15\n" + half("a", LATE) + WORK + half("b", "v_cmp_gt_u32 128"),
}  # fmt: skip


@pytest.mark.parametrize("row", TURNS)
def test_halves_of_a_workgroup_that_take_turns(row: str) -> None:
    """Gives one half an extra barrier at its beginning, the other half one at its end: all meet as many."""
    assert found("v_mov_b32 v9, 0\n" + TURNS[row], "barrier", max_block=256) == []


@pytest.mark.parametrize("row", NO_TURNS)
def test_halves_that_do_not_meet_as_many_barriers(row: str) -> None:
    findings = found("v_mov_b32 v9, 0\n" + NO_TURNS[row], "barrier", max_block=256)
    assert findings and {finding.severity for finding in findings} == {"error"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("row", UNEVEN)
def test_barriers_that_waves_go_around(row: str, target: str) -> None:
    (finding,) = found(UNEVEN[row], "barrier", target)
    assert (finding.severity, finding.text) == ("error", "s_barrier")
    assert finding.other_text.startswith("s_cbranch_exec")
    assert kernel_linted(target, UNEVEN[row], max_block=64) == []  # one wave


@pytest.mark.parametrize("row", EVEN)
def test_barriers_that_all_waves_come_to(row: str) -> None:
    assert found(EVEN[row], "barrier") == []


def test_code_that_nothing_reaches() -> None:
    (finding,) = found("s_branch past\nv_mov_b32 v1, 0\nv_mov_b32 v2, 0\npast:", "unreachable")
    assert (finding.severity, finding.text) == ("note", "v_mov_b32_e32 v1, 0")
    assert finding.message == "no path leads here: 2 instructions that never run"
    assert found("s_branch past\ns_nop 0\ns_nop 0\npast:", "unreachable") == []
    assert found("s_cbranch_scc0 past\ns_trap 2\ns_endpgm\npast:\ns_cmp_eq_u32 s0, s0", "uninitialized")[0].place == "scc"
    (behind,) = found("s_endpgm\nv_mov_b32 v1, 0", "unreachable")
    assert behind.text == "v_mov_b32_e32 v1, 0"


def test_a_table_of_jumps_is_not_followed() -> None:
    table = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n{jump}\nv_mov_b32 v1, 0"
    (finding,) = found(table.format(jump="s_setpc_b64 s[4:5]"), "not-followed")
    assert (finding.severity, finding.text) == ("note", "s_setpc_b64 s[4:5]")
    (finding,) = found(table.format(jump="s_swappc_b64 s[30:31], s[4:5]"), "not-followed")
    assert "function" in finding.message


def test_a_path_that_leaves_the_code() -> None:
    (finding,) = found("s_cmp_eq_u32 s0, 0\ns_cbranch_scc1 0x7000", "no-instruction")
    assert (finding.severity, finding.text) == ("error", "s_cbranch_scc1 28672")
    (finding,) = found("s_nop 0\n.long 0xffffffff", "no-instruction")
    assert finding.text == "s_nop 0"


@pytest.mark.parametrize("target", TARGETS)
def test_registers_past_the_declared(target: str) -> None:
    unified = {} if target == "gfx908" else {"accum_offset": 16}
    lines = "s_cmp_eq_u32 s0, s0\ns_cbranch_scc1 past\nv_mov_b32 v16, 0\npast:"
    (finding,) = found(lines, "resource", target, next_free_vgpr=16, **unified)
    assert (finding.severity, finding.text, finding.place) == ("error", "v_mov_b32_e32 v16, 0", "v16")
    unified = {} if target == "gfx908" else {"accum_offset": 20}
    assert found(lines, "resource", target, next_free_vgpr=20, **unified) == []
    (finding,) = found("s_mov_b32 s90, 0", "resource", target, next_free_sgpr=8)
    assert finding.place == "s90"
    assert found("s_mov_b32 s90, 0", "resource", target, next_free_sgpr=91) == []


def test_tangled_code_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An analysis has a budget; if it is exhausted, lint reports only that."""
    lines = "global_load_dword v1, v0, s[4:5]\nloop:\nv_mov_b32 v2, v1\ns_cmp_eq_u32 s2, 0\ns_cbranch_scc1 loop"
    assert "missing-wait" in {finding.kind for finding in kernel_linted("gfx90a", lines)}
    monkeypatch.setattr(flow.examine, "__defaults__", (3,))
    (finding,) = kernel_linted("gfx90a", lines)
    assert (finding.kind, finding.severity) == ("not-followed", "note")
    assert "too many" in finding.message


def test_a_loop_without_an_end() -> None:
    assert found("loop:\ns_sleep 1\ns_branch loop", "unreachable") != []  # the kernel's s_endpgm


@pytest.mark.parametrize("target", TARGETS)
def test_a_branch_into_the_middle_of_an_instruction(target: str) -> None:
    """A branch leads to the literal: no instruction, or s_endpgm."""
    lines = "s_cmp_eq_u32 s0, s0\ns_cbranch_scc1 1\ns_mov_b32 s4, {literal}"
    (finding,) = found(lines.format(literal="0xffff0000"), "no-instruction", target)
    assert (finding.severity, finding.text) == ("error", "s_cbranch_scc1 1")
    assert kernel_linted(target, lines.format(literal="0xbf810000")) == []
