"""Chains of f32 matrix instructions: same bits as one at a time, and none where that would not hold."""

from __future__ import annotations

import numpy as np
import pytest
from engine_kernel import Kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.launch import Launch
from simgpu.lower import Program

SETUP = """
v_cvt_f32_u32 v1, v0
v_mul_f32 v2, 0.15915494, v1
v_sin_f32 v3, v2
v_add_f32 v4, v3, v2
v_mul_f32 v5, v4, v3
v_mov_b32 v6, 1.0
s_mov_b32 s12, 3
s_mov_b32 s13, 3
"""
ACCUMULATORS = [f"a{i}" for i in range(12)]
CLEAR = "\n".join(f"v_accvgpr_write_b32 a{i}, v{i % 5 + 1}" for i in range(12)) + "\ns_nop 3"
MFMA = "v_mfma_f32_16x16x4f32 a[{d}:{e}], v{a}, v{b}, a[{d}:{e}]"


def mfma(d: int, a: int, b: int) -> str:
    return MFMA.format(d=4 * d, e=4 * d + 3, a=a, b=b)


def both(lines: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Instructions that chains hold; asserts that their results are those of single ones."""
    text = SETUP + CLEAR + "\n" + lines + "\ns_nop 15"
    joined: list[Program] = []
    init = Program.__init__

    def remembered(self: Program, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        joined.append(self)

    monkeypatch.setattr(Program, "__init__", remembered)
    chained = Kernel("gfx908", text, ACCUMULATORS).run()
    count = len(joined[-1].fused)
    monkeypatch.setattr(Launch, "fuse", False)
    single = Kernel("gfx908", text, ACCUMULATORS).run()
    monkeypatch.undo()
    assert not joined[-1].fused
    for name in ACCUMULATORS:
        assert (chained[name] == single[name]).all(), name
    assert chained.run.instructions == single.run.instructions
    return count


def test_interleaved_accumulators_are_chained(monkeypatch):
    lines = [mfma(d, 1 + step, 2 + step) for step in range(4) for d in range(3)]
    assert both("\n".join(lines), monkeypatch) == 12


def test_a_chain_ends_where_its_accumulators_are_read(monkeypatch):
    lines = [mfma(0, 1, 2), "s_nop 15", "v_accvgpr_read_b32 v7, a0", mfma(0, 3, 4), mfma(0, 5, 7)]
    assert both("\n".join(lines), monkeypatch) == 2


def test_an_operand_written_in_between_ends_it(monkeypatch):
    lines = [mfma(0, 1, 2), "v_add_f32 v3, v3, v4", "s_nop 3", mfma(0, 3, 4), mfma(0, 5, 3)]
    assert both("\n".join(lines), monkeypatch) == 2


def test_a_branch_into_the_middle_ends_it(monkeypatch):
    """The loop's head lies between instructions that would be chained otherwise."""
    lines = [mfma(0, 1, 2), "again:", mfma(0, 3, 4), "s_sub_u32 s12, s12, 1", "s_cmp_lg_u32 s12, 0"]
    lines += ["s_cbranch_scc1 again", mfma(0, 5, 1), mfma(0, 4, 4)]
    assert both("\n".join(lines), monkeypatch) == 2


def test_an_indirect_jump_anywhere_forbids_chains(monkeypatch):
    lines = [
        "s_getpc_b64 s[20:21]",
        "s_add_u32 s20, s20, 28",  # past the jump and one instruction
        "s_addc_u32 s21, s21, 0",
        "s_setpc_b64 s[20:21]",
        mfma(0, 1, 2),
        "target:",
        mfma(0, 3, 4),
    ]
    assert both("\n".join(lines), monkeypatch) == 0


@st.composite
def streams(draw: st.DrawFn) -> str:
    """Matrix instructions on few registers with moves, waits and branches among them."""
    lines = []
    for number in range(draw(st.integers(2, 24))):
        kind = draw(st.sampled_from("mmmmmmvnasl"))
        if kind == "m":
            lines.append(mfma(draw(st.integers(0, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 6))))
        elif kind == "v":
            lines.append(f"v_add_f32 v{draw(st.integers(1, 6))}, v{draw(st.integers(1, 6))}, v6")
        elif kind == "n":
            lines.append("s_waitcnt lgkmcnt(0)")
        elif kind == "a":
            lines.append(f"v_accvgpr_write_b32 a{draw(st.integers(0, 11))}, v{draw(st.integers(1, 6))}")
        elif kind == "s":
            lines += ["s_cmp_lg_u32 s12, s13", f"s_cbranch_scc{draw(st.integers(0, 1))} skip{number}"]
            lines += [mfma(draw(st.integers(0, 2)), 2, 3), f"skip{number}:"]
        elif kind == "l" and not any(line == "again:" for line in lines):
            lines.append("again:")
    if "again:" in lines:
        lines += ["s_sub_u32 s12, s12, 1", "s_cmp_lg_u32 s12, 0", "s_cbranch_scc1 again"]
    return "\n".join(lines)


@settings(max_examples=25, deadline=None)
@given(streams())
def test_any_stream_gives_the_same_bits(lines):
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(lines, monkeypatch)


def test_a_second_kernel_that_enters_a_chain_takes_it_apart():
    """`Program.lower` of an index within a chain: its records run one instruction each again."""
    text = SETUP + CLEAR + "\n" + "\n".join(mfma(0, 1 + i, 2) for i in range(3))
    kernel = Kernel("gfx908", text, ["a0"])
    first = kernel.run()["a0"]
    program = next(iter(kernel.kernel.module._programs.values()))
    members = next(iter(program.fused.values()))
    program.lower(members[1])
    assert not program.fused
    assert (kernel.run()["a0"] == first).all()
    assert np.isfinite(first.view(np.float32)).all()
