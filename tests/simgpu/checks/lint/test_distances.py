"""Wait states without a launch: every row of the hazard tables, and distances along every path."""

from __future__ import annotations

import pytest

from tests.simgpu.checks.test_hazards import DPP, TARGETS, all_pairs, listing, require_every_row
from tests.support.checked import line_of
from tests.support.linted import linted


@pytest.mark.parametrize("target", TARGETS)
def test_every_row(target: str) -> None:
    pairs = all_pairs(target)
    require_every_row(linted, target, pairs)
    assert linted(target, listing(pairs, less=0)[0]) == []


MFMA, READ = "v_mfma_f32_16x16x4f32 a[0:3], v72, v80, a[0:3]", "v_accvgpr_read_b32 v20, a0"


def test_the_shortest_way_decides() -> None:
    """Joins two ways, with ten wait states and with three; a launch need not take the shorter one."""
    lines = [MFMA, "s_cmp_lg_u32 s4, s4", "s_cbranch_scc1 read", "s_nop 7", "read:", READ]
    (finding,) = linted("gfx908", lines)
    assert (finding.needed, finding.found, finding.place) == (10, 2, "a0")
    assert finding.source == line_of("gfx908", lines, 5)
    assert linted("gfx908", [*lines[:5], "s_nop 7", READ]) == []


def test_round_a_loop_and_through_a_call() -> None:
    count = ["s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0", "s_cbranch_scc1 loop"]
    loop = ["s_mov_b32 s30, 3", "loop:", READ, MFMA, *count, "s_nop 15"]
    (finding,) = linted("gfx908", loop)
    assert (finding.text, finding.needed, finding.found) == ("v_accvgpr_read_b32 v20, a0", 10, 3)
    call = ["v_cmpx_eq_u32 s[22:23], v1, v1", "s_nop 1", "s_call_b64 s[36:37], callee", "s_branch past", "callee:", DPP,
            "s_setpc_b64 s[36:37]", "past:"]  # fmt: skip
    (finding,) = linted("gfx90a", call)
    assert (finding.needed, finding.found) == (5, 3)


def test_a_wait_that_lacks_on_one_way_is_no_wait_state_on_the_other() -> None:
    """If the wait is missing on every way, the required s_waitcnt is one of the two wait states."""
    load, product = "global_load_dword v1, v60, s[4:5]", "v_mfma_f32_4x4x1f32 a[0:3], v60, v61, a[0:3]"
    close = ["v_accvgpr_write_b32 a2, v60", "v_mov_b32 v1, 0", product]
    found = linted("gfx950", ["s_cbranch_scc1 close", load, "close:", *close])
    assert [finding.kind for finding in found] == ["missing-wait", "hazard"]
    assert (found[1].needed, found[1].found, found[1].place) == (2, 1, "a2")
    assert [finding.kind for finding in linted("gfx950", [load, *close])] == ["missing-wait"]


def test_what_lies_between_on_one_way_only() -> None:
    """A rule about a VALU result, an accvgpr move and a store binds on the way that has the move."""
    store = "global_store_dword v60, v51, s[6:7]"
    lines = ["v_mov_b32 v51, v1", "s_cbranch_scc1 store", "v_accvgpr_write_b32 a9, v50", "store:", store]
    assert linted("gfx908", lines) == []  # the branch is the second wait state
    close = ["s_cbranch_scc1 far", "v_mov_b32 v51, v1", "v_accvgpr_write_b32 a9, v50", "far:", store]
    (finding,) = linted("gfx908", close)
    assert (finding.needed, finding.found) == (2, 1)


def test_a_sum_that_another_matrix_instruction_wrote_since() -> None:
    """On the way with the second instruction, the sum is no longer a result of the first."""
    name = "v_mfma_f32_16x16x4_f32"
    first, last = f"{name} v[34:37], v72, v80, v[34:37]", f"{name} v[32:35], v72, v80, v[32:35]"
    moved = f"{name} v[32:35], v72, v80, v[34:37]"
    assert linted("gfx942", [first, moved, last, "s_nop 15"]) == []
    (found,) = linted("gfx942", [first, "s_cbranch_scc1 last", moved, "last:", last, "s_nop 15"])
    assert (found.kind, found.needed, found.found) == ("hazard", 8, 1)


def test_xnack_clauses() -> None:
    lines = ["s_mov_b64 s[20:21], s[4:5]", "s_load_dword s22, s[20:21], 0x0", "s_load_dword s20, s[4:5], 0x4"]
    assert linted("gfx90a:xnack-", lines) == []
    for target in ("gfx90a", "gfx90a:xnack+"):
        (finding,) = linted(target, lines)
        assert (finding.kind, finding.place, finding.needed, finding.found) == ("hazard", "s20", 1, 0)
        assert linted(target, [*lines[:2], "s_nop 0", lines[2]]) == []
    vector = ["global_load_dword v50, v60, s[4:5]", "global_load_dword v60, v61, s[4:5]"]
    far = [vector[0], *(f"global_load_dword v{i}, v61, s[4:5]" for i in range(50, 55)), vector[1]]
    assert [f.kind for f in linted("gfx90a:xnack+", far)] == ["hazard"]
    assert linted("gfx90a", far) == []  # LLVM looks back at five
