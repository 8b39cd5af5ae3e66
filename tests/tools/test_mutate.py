"""Mutation test's own parts: the mutants, the harmless ones, the findings."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from simgpu.hardware.isa import decode_all, text
from simgpu.tools.robustness.corpus import CaseArgument, CorpusCase
from simgpu.tools.robustness.mutants import Mutant, encode_wait
from simgpu.tools.robustness.mutate import ALONE, DISTANCE, FOLLOWS, FOUND, HARMLESS, MISSED, MutantOutcome, MutatedCase, share
from tests.simgpu.checks.test_waits import DMA
from tests.support.checked import assembled

LINES = [
    "global_load_dword v1, v60, s[4:5]",
    "global_load_dword v2, v60, s[4:5] offset:4",
    "s_waitcnt vmcnt(1)",
    "v_mov_b32 v3, v1",
    "s_waitcnt vmcnt(0)",
    "v_cmpx_eq_u32 s[22:23], v2, v2",
    "s_nop 4",
    "s_nop 0",  # one more than needed
    "v_mov_b32_dpp v4, v60 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf",
    "ds_write_b32 v60, v2",
    "s_waitcnt vmcnt(0) lgkmcnt(0)",
    "s_barrier",
    "global_store_dword v60, v3, s[6:7]",
    "s_nop 0",
]


def subject(lines: list[str], block: int = 64) -> MutatedCase:
    buffers = (CaseArgument(np.arange(1024, dtype=np.uint32), False), CaseArgument(np.zeros(1024, np.uint32), True))
    case = CorpusCase("k", "gfx90a", "k", assembled("gfx90a", lines), buffers, (block,), (block,), 0)
    return MutatedCase(case, 1)


def outcomes(lines: list[str], block: int = 64) -> list[MutantOutcome]:
    made = subject(lines, block)
    return [made.judge(mutant) for mutant in made.mutants()]


def test_every_mutant_is_judged() -> None:
    said = {(o.mutant.before, o.mutant.what): o for o in outcomes(LINES)}

    def verdict(before: str, what: str) -> tuple[str, str]:
        outcome = said.pop((before, what))
        return outcome.verdict, outcome.reason

    assert verdict("s_waitcnt vmcnt(1)", "removed") == (FOUND, "missing-wait")
    assert verdict("s_waitcnt vmcnt(1)", "vmcnt(2)") == (FOUND, "missing-wait")
    assert verdict("s_waitcnt vmcnt(0)", "vmcnt(1)") == (FOUND, "missing-wait")
    assert verdict("s_nop 4", "s_nop 3") == (HARMLESS, DISTANCE)
    assert verdict("s_nop 4", "removed") == (FOUND, "hazard")
    assert verdict("s_nop 0", "removed") == (HARMLESS, DISTANCE)
    assert verdict("s_barrier", "dropped") == (HARMLESS, ALONE)
    # In the kernel's own ends: the wait after its scalar loads is needed, the one of its tail is not.
    assert verdict("s_waitcnt lgkmcnt(0)", "removed") == (FOUND, "missing-wait")
    assert verdict("s_waitcnt vmcnt(0) lgkmcnt(0)", "lgkmcnt(1)") == (HARMLESS, FOLLOWS)
    assert {o.verdict for o in said.values()} <= {FOUND, HARMLESS}
    assert all(o.reason for o in said.values())


def test_a_nop_that_is_needed() -> None:
    lines = [line for line in LINES if not line.startswith("s_nop 0")]
    said = Counter((o.mutant.before, o.verdict) for o in outcomes(lines) if o.mutant.kind == "nop")
    assert said == {("s_nop 4", FOUND): 2}


def test_the_code_is_put_back() -> None:
    made = subject(LINES)
    before = [text(inst) for _, inst in sorted(made.instructions.items())]
    for mutant in made.mutants():
        made.judge(mutant)
    assert made.run(Mutant("wait", "nothing", 0, b"", ""))[:2] == ([], "")
    assert [text(inst) for _, inst in sorted(made._reached_instructions().items())] == before


def test_a_wait_that_only_another_path_needs() -> None:
    """Code that did not run has no finding; it does not count as harmless either."""
    lines = [
        "global_load_dword v1, v60, s[4:5]", "s_waitcnt vmcnt(0)", "s_cmp_eq_u32 s4, s4", "s_cbranch_scc1 past",
        "v_mov_b32 v2, v1", "past:", "s_nop 0",
    ]  # fmt: skip
    (outcome,) = [o for o in outcomes(lines) if o.mutant.what == "removed" and o.mutant.before == "s_waitcnt vmcnt(0)"]
    assert outcome.verdict == MISSED
    assert outcome.reason.endswith("on code that did not run")


def test_a_load_to_lds_that_only_another_path_needs() -> None:
    """Lint does not know which bytes of LDS a load writes, so its silence does not make a mutant harmless."""
    skip = ["s_cmp_eq_u32 s4, s4", "s_cbranch_scc1 past", "ds_read_b32 v2, v60", "past:"]
    lines = [*DMA, "s_waitcnt vmcnt(0)", *skip, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_nop 0"]
    said = [o for o in outcomes(lines) if o.mutant.before == "s_waitcnt vmcnt(0)" and o.mutant.what == "removed"]
    assert [(o.verdict, o.linted) for o in said] == [(MISSED, None)]
    assert "load to LDS" in said[0].reason


def test_paths_that_lint_does_not_follow() -> None:
    """A needless s_nop is harmless in a kernel that lint follows."""
    jump = ["s_getpc_b64 s[30:31]", "s_add_u32 s30, s30, {to}-.", "s_addc_u32 s31, s31, 0", "v_mov_b32 v9, s30", "s_nop 4",
            "v_readfirstlane_b32 s30, v9", "s_nop 4", "s_setpc_b64 s[30:31]", "past:", "s_nop 0"]  # fmt: skip
    for lines, verdict in ((jump, MISSED), ([line for line in jump if "first" not in line], HARMLESS)):
        text = "\n".join(lines).format(to="past").split("\n")
        said = [o for o in outcomes(text) if o.mutant.before == "s_nop 4" and o.mutant.what == "s_nop 3"]
        assert said and {o.verdict for o in said} == {verdict}


@pytest.mark.parametrize("counter, count, shown", [("vmcnt", 17, "vmcnt(17) lgkmcnt(3)"), ("lgkmcnt", 4, "vmcnt(0) lgkmcnt(4)")])
def test_other_counts(counter: str, count: int, shown: str) -> None:
    word = 0xBF8C0000 | encode_wait(0x0370, counter, count)
    (inst,) = decode_all(word.to_bytes(4, "little"), "gfx90a")
    assert text(inst) == f"s_waitcnt {shown}"


def test_the_share() -> None:
    made = outcomes(LINES)
    harmful = [o for o in made if o.verdict != HARMLESS]
    assert share(made) == sum(o.verdict == FOUND for o in harmful) / len(harmful)
    assert share([]) == 1.0
