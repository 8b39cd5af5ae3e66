"""Paths that no condition allows: they give no finding, and with another condition they do."""

from __future__ import annotations

import pytest

from simgpu.checks.lint.compares import ANY, BranchTest, ValueRange, decide, limit
from simgpu.hardware.isa.instruction import Reg
from tests.support.linted import kernel_linted, linted

LOAD, USE, WAIT = "global_load_dword v1, v60, s[4:5]", "v_mov_b32 v2, v1", "s_waitcnt vmcnt(0)"


def two(first: list[str], between: list[str], second: list[str]) -> list[str]:
    """Returns a load under a condition, and a use under another."""
    return [
        "v_mov_b32 v1, 0", *first, "s_cbranch_scc1 past", LOAD, "past:", *between, *second, "s_cbranch_scc1 end", USE, "end:", WAIT,
    ]  # fmt: skip


# Comparisons before the load and before the use, and whether a path takes both.
PAIRS: dict[str, tuple[str, list[str], str, bool]] = {
    "the same": ("s_cmp_eq_u32 s4, s5", [], "s_cmp_lg_u32 s4, s5", False),
    "the same with places changed": ("s_cmp_lt_i32 s4, s5", [], "s_cmp_ge_i32 s4, s5", False),
    "the same, written otherwise": ("s_cmp_lt_i32 s4, s5", [], "s_cmp_le_i32 s5, s4", False),
    "the same, not negated": ("s_cmp_lt_i32 s4, s5", [], "s_cmp_gt_i32 s5, s4", True),
    "of unsigned numbers": ("s_cmp_lt_i32 s4, s5", [], "s_cmp_ge_u32 s4, s5", True),
    "of a register that changed": ("s_cmp_eq_u32 s4, s5", ["s_add_u32 s4, s4, 1"], "s_cmp_lg_u32 s4, s5", True),
    "a number, and a larger one": ("s_cmp_lt_i32 s4, 5", [], "s_cmp_ge_i32 s4, 9", True),
    "a number, and a smaller one": ("s_cmp_ge_i32 s4, 5", [], "s_cmp_lt_i32 s4, 9", False),
    "with an immediate": ("s_cmpk_ge_i32 s4, 5", [], "s_cmp_lt_i32 s4, 9", False),
    "equal, and then larger": ("s_cmp_lg_u32 s4, 3", [], "s_cmp_lt_i32 s4, 7", False),
    "equal to one, and to another": ("s_cmp_lg_u32 s4, 3", [], "s_cmp_lg_u32 s4, 5", False),
    "a bit": ("s_bitcmp1_b32 s4, 3", [], "s_bitcmp0_b32 s4, 3", False),
    "another bit": ("s_bitcmp1_b32 s4, 3", [], "s_bitcmp0_b32 s4, 2", True),
    "64 bits": ("s_cmp_eq_u64 s[4:5], s[6:7]", [], "s_cmp_lg_u64 s[4:5], s[6:7]", False),
    "64 bits, of which one word changed": (
        "s_cmp_eq_u64 s[4:5], s[6:7]", ["s_mov_b32 s7, 0"], "s_cmp_lg_u64 s[4:5], s[6:7]", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", PAIRS)
def test_two_branches(row: str) -> None:
    first, between, second, possible = PAIRS[row]
    assert bool(linted("gfx942", two([first], between, [second]))) == possible


def test_branches_on_vcc() -> None:
    def lines(between: list[str], second: str) -> list[str]:
        return [
            "v_mov_b32 v1, 0", "v_cmp_lt_u32 vcc, v60, v61", "s_cbranch_vccnz past", LOAD, "past:", *between, second,
            "s_cbranch_vccz end", USE, "end:", WAIT,
        ]  # fmt: skip

    again = "v_cmp_lt_u32 vcc, v60, v61"
    assert linted("gfx942", lines(["v_mov_b32 v3, 0"], again)) == []
    assert linted("gfx942", lines(["v_mov_b32 v60, 0"], again))
    assert linted("gfx942", lines([], "v_cmp_lt_u32 vcc, v61, v60"))


def counted(rounds: str, use: str) -> list[str]:
    """Returns a loop over s30 that leaves a load in flight in its third round and uses it in another."""
    return [
        "v_mov_b32 v1, 0", f"s_mov_b32 s30, {rounds}", "loop:", f"s_cmp_lg_u32 s30, {use}", "s_cbranch_scc1 other", USE, "other:",
        "s_cmp_lg_u32 s30, 3", "s_cbranch_scc1 past", LOAD, "past:", "s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0",
        "s_cbranch_scc1 loop", WAIT,
    ]  # fmt: skip


def test_counters_of_loops() -> None:
    assert linted("gfx942", counted("5", "4")) == []  # used a round before
    assert linted("gfx942", counted("5", "2"))  # used a round after
    assert linted("gfx942", counted("s4", "4")) == []  # the counter goes down from three
    assert linted("gfx942", counted("s4", "1"))


def test_the_number_of_the_wave() -> None:
    """256 work-items are four waves, so one of the four branches loads v1."""
    number = ["v_lshrrev_b32 v3, 6, v0", "v_readfirstlane_b32 s20, v3", "s_nop 4"]
    define = []
    for wave in range(4):
        define += [f"s_cmp_lg_u32 s20, {wave}", f"s_cbranch_scc1 not{wave}", "v_mov_b32 v9, 0", f"not{wave}:"]
    store = "global_store_dword v60, v9, s[6:7]"
    sizes = {"next_free_vgpr": 64, "next_free_sgpr": 32, "accum_offset": 64}

    def undefined(max_block: int) -> list[str]:
        start = "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32 v60, 2, v0\ns_waitcnt lgkmcnt(0)\n"
        found = kernel_linted("gfx90a", start + "\n".join([*number, *define, store]), max_block=max_block, **sizes)
        return [finding.kind for finding in found]

    assert undefined(256) == []
    assert undefined(512) == ["uninitialized"]


S4 = Reg("s", 4)


@pytest.mark.parametrize("relation", ["eq", "lt", "ltu"])
@pytest.mark.parametrize("turned", [False, True])
def test_values_after_a_test_against_all_small_numbers(relation: str, turned: bool) -> None:
    """By Python's own comparison, every value that the test allows stays, and every bound is one."""
    word = 1 << 32

    def holds(one: int, other: int) -> bool:
        return one == other if relation == "eq" else one < other if relation == "lt" else one % word < other % word

    for number in range(-4, 5):
        test = BranchTest(relation, number, S4) if turned else BranchTest(relation, S4, number)
        for values in (ValueRange(-3, 3), ValueRange(0, 4), ValueRange(-4, -1), ValueRange(-2, 2, frozenset({0})), ANY):
            held = [value for value in range(-5, 6) if values.low <= value <= values.high and value not in values.without]
            for outcome in (False, True):
                allowed = [value for value in held if holds(*((number, value) if turned else (value, number))) == outcome]
                after = limit(test, outcome, values)
                kept = [] if after is None else [v for v in held if after.low <= v <= after.high and v not in after.without]
                assert set(allowed) <= set(kept)
                if relation != "ltu":
                    assert allowed == kept
            if values != ANY:
                outcomes = {holds(*((number, value) if turned else (value, number))) for value in held}
                one, other = (ValueRange(number, number), values) if turned else (values, ValueRange(number, number))
                said = decide(test, one, other)
                assert said is None or outcomes == {said}
