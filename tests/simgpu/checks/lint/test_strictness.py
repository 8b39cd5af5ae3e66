"""Random kernels: lint finds without a launch everything that checked mode finds on a wave's path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from simgpu.checks.lint import lint
from simgpu.engine.finding import Finding
from simgpu.hardware.code_object import CodeObject
from tests.support.checked import assembled, device, line_of
from tests.support.exhaustive import examples

KINDS = ("missing-wait", "hazard", "uninitialized")
# Registers: v1 to v6 and s20 to s25 hold anything, v60 and v61 offsets, s[4:7] two buffers, s30 counts rounds.
VECTORS, SCALARS = [f"v{n}" for n in range(1, 7)], [f"s{n}" for n in range(20, 26)]
POOL = [
    "global_load_dword {v}, v60, s[4:5]", "global_load_dwordx2 {vv}, v60, s[4:5]", "global_store_dword v60, {v}, s[6:7]",
    "ds_read_b32 {v}, v60", "ds_read_b64 {vv}, v61", "ds_bpermute_b32 {v}, v60, {w}",
    "s_load_dword {s}, s[4:5], 0x0", "s_load_dwordx2 {ss}, s[4:5], 0x8",
    "v_mov_b32 {v}, {w}", "v_add_f32 {v}, {w}, {v}", "v_mov_b32 {v}, {s}", "v_mul_f32 {v}, 2.0, {w}", "v_mov_b32 {v}, 0",
    "s_mov_b32 {s}, {t}", "s_add_u32 {s}, {t}, 1", "s_mov_b32 {s}, 5", "v_readfirstlane_b32 {s}, {v}", "v_rcp_f32 {v}, {w}",
    "v_mov_b32_dpp {v}, {w} quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", "v_cmpx_eq_u32 s[26:27], {v}, {v}",
    "v_mfma_f32_4x4x1f32 a[0:3], {v}, {w}, a[0:3]", "v_accvgpr_read_b32 {v}, a1", "v_accvgpr_write_b32 a2, {v}",
    "s_nop 0", "s_nop 4", "s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(1)", "s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(1)",
    "s_waitcnt vmcnt(0) lgkmcnt(0)",
]  # fmt: skip


@st.composite
def instructions(draw: st.DrawFn) -> str:
    v, w = draw(st.sampled_from(VECTORS)), draw(st.sampled_from(VECTORS))
    s, t = draw(st.sampled_from(SCALARS)), draw(st.sampled_from(SCALARS))
    pair, scalars = draw(st.sampled_from([2, 4])), draw(st.sampled_from([20, 22, 24]))
    line = draw(st.sampled_from(POOL))
    return line.format(v=v, w=w, s=s, t=t, vv=f"v[{pair}:{pair + 1}]", ss=f"s[{scalars}:{scalars + 1}]")


straight = st.lists(instructions(), min_size=2, max_size=30)
START = ["s_nop 4", *(f"v_accvgpr_write_b32 a{n}, v60" for n in range(4)), "s_mov_b64 s[26:27], exec", "s_nop 4"]


@st.composite
def structured(draw: st.DrawFn) -> list[str]:
    """Draws straight lines, loops of a few rounds, and branches around code by known scalars."""
    lines: list[str] = []
    for number in range(draw(st.integers(1, 3))):
        body = draw(straight)
        shape = draw(st.sampled_from(("straight", "loop", "skipped", "either")))
        if shape == "loop":
            begin = [f"s_mov_b32 s30, {draw(st.integers(1, 3))}", f"loop{number}:"]
            body = [*begin, *body, "s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0", f"s_cbranch_scc1 loop{number}"]
        elif shape != "straight":
            taken = draw(st.booleans())
            other = [f"past{number}:"]
            if shape == "either":
                other = [f"s_branch join{number}", *other, *draw(straight), f"join{number}:"]
            body = [f"s_cmp_eq_u32 s4, {'s4' if taken else 's5'}", f"s_cbranch_scc1 past{number}", *body, *other]
        lines += body
    return lines


def both(target: str, lines: list[str]) -> tuple[list[Finding], list[Finding]]:
    """Returns checked mode's findings and lint's, of their common kinds; only checked mode knows addresses and memory's
    contents."""
    code = assembled(target, [*START, *lines])
    gpu = device(target)
    buffers = [gpu.upload(np.zeros(4096, np.uint32)) for _ in range(2)]
    try:
        run = gpu.load(code)["k"].launch(grid=1, block=64, args=buffers)
    finally:
        for buffer in buffers:
            gpu.free(buffer)
    checked = [f for f in run.findings if f.kind in KINDS and not (f.kind == "uninitialized" and f.other_pc is not None)]
    return checked, [f for f in lint(CodeObject.parse(code)) if f.kind in KINDS]


def places(found: list[Finding], kind: str) -> set[int]:
    """Returns the places of findings. Of further places in a finding, checked mode reports at most the first three."""
    of_kind = [finding for finding in found if finding.kind == kind]
    return {finding.pc for finding in of_kind} | {place.pc for finding in of_kind for place in finding.places}


# Each example is assembled and compiled: few of them, and none made smaller.
GENERATED = (Phase.explicit, Phase.reuse, Phase.generate)
relaxed = settings(max_examples=examples(15), suppress_health_check=list(HealthCheck), phases=GENERATED)


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
@relaxed
@given(lines=straight)
def test_one_path(target: str, lines: list[str]) -> None:
    """On one path they agree on missing waits, and lint reports all hazards and undefined registers that checked mode reports."""
    checked, found = both(target, lines)
    assert places(checked, "missing-wait") <= places(found, "missing-wait")
    told = sum(finding.pairs for finding in checked if finding.kind == "missing-wait")
    assert told == sum(finding.kind == "missing-wait" for finding in found)
    assert places(checked, "hazard") <= places(found, "hazard")
    first, said = (places(findings, "uninitialized") for findings in (checked, found))
    assert not first or min(said) <= min(first)  # lint counts a register as mended after its first finding, checked mode does not


@pytest.mark.parametrize("target", ["gfx90a", "gfx950"])
@relaxed
@given(lines=structured())
def test_many_paths(target: str, lines: list[str]) -> None:
    """Each kind that checked mode finds, lint finds, too."""
    checked, found = both(target, lines)
    assert {finding.kind for finding in checked} <= {finding.kind for finding in found}


@pytest.mark.parametrize("target", ["gfx908", "gfx950"])
@settings(relaxed, max_examples=examples(3))
@given(lines=structured())
def test_repaired_by_lint_is_right(target: str, lines: list[str]) -> None:
    """With lint's waits and nops inserted, round by round, both become silent."""
    for _ in range(40):
        checked, found = both(target, lines)
        lacking = [finding for finding in found if finding.kind != "uninitialized"]
        if not lacking:
            break
        lines = repaired(lines, lacking)
    assert not lacking
    assert [str(finding) for finding in checked if finding.kind != "uninitialized"] == []


def repaired(lines: list[str], found: list[Finding]) -> list[str]:
    """Puts a wait or nop before each instruction that lacks one. A finding's source gives its line of `assembled`'s text."""
    first = {finding.source: finding for finding in reversed(found)}
    marks = {int(source.partition(":")[2]): finding for source, finding in first.items()}
    offset = int(line_of("gfx908", ["s_nop 0"], 0).partition(":")[2]) + len(START)
    result: list[str] = []
    for number, line in enumerate(lines):
        finding = marks.get(number + offset)
        if finding is not None:
            missing = finding.message.partition("s_waitcnt ")[2].partition(" is needed")[0]
            lacking = finding.needed - finding.found
            nops = [f"s_nop {min(7, lacking - at - 1)}" for at in range(0, lacking, 8)]
            result += [f"s_waitcnt {missing}"] if finding.kind == "missing-wait" else nops
        result.append(line)
    return result
