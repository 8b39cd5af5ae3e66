"""Tiles of f32 and f64 matrix instructions: the same bits as one at a time; no tile if bits would differ."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partialmethod
from types import SimpleNamespace

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.asm.builder.toolchain import assemble
from simgpu.engine.launch import Launch
from simgpu.engine.program import Program
from simgpu.hardware.isa import decode
from simgpu.hardware.mfma import instructions
from simgpu.machine import layout
from simgpu.matrix import fma_tile
from simgpu.matrix.fma_tile import MOST_SPREAD
from simgpu.matrix.tiles import PlacedInstruction, factor_lists, tiles
from tests.support.engine_kernel import Kernel
from tests.support.exhaustive import examples

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


def both(
    lines: str, monkeypatch: pytest.MonkeyPatch, target: str = "gfx908", clear: str = CLEAR, dump: Sequence[str] = ACCUMULATORS,
    data: np.ndarray | None = None, ring: bool = False, check: bool = False,
) -> int:  # fmt: skip
    """Returns the number of instructions in tiles; asserts that their results and findings are those of single ones."""
    text = SETUP + clear + "\n" + lines + "\ns_nop 15"
    joined: list[Program] = []
    init = Program.__init__

    def remembered(self: Program, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        joined.append(self)

    monkeypatch.setattr(Program, "__init__", remembered)
    tiled = Kernel(target, text, dump, check, ring).run(data)
    count = len(joined[-1].fused)
    monkeypatch.setattr(Launch, "__init__", partialmethod(Launch.__init__, fuse=False))
    single = Kernel(target, text, dump, check, ring).run(data)
    monkeypatch.undo()
    assert not joined[-1].fused
    for name in dump:
        assert (tiled[name] == single[name]).all(), name
    assert tiled.run.instructions == single.run.instructions
    assert tiled.run.profile == single.run.profile
    assert [str(finding) for finding in tiled.run.findings] == [str(finding) for finding in single.run.findings]
    return count


def test_interleaved_accumulators_are_chained(monkeypatch):
    lines = [mfma(d, 1 + step, 2 + step) for step in range(4) for d in range(3)]
    assert both("\n".join(lines), monkeypatch) == 12


def decoded(lines: Sequence[str], target: str = "gfx908") -> list[PlacedInstruction]:
    """Returns straight code, with positions for records."""
    text = "\n".join([f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"', ".text", *lines])
    code = ELFFile(io.BytesIO(assemble(text, target))).get_section_by_name(".text").data()
    run: list[PlacedInstruction] = []
    offset = 0
    while len(run) < len(lines):
        inst = decode(code, offset, target)
        run.append((len(run), inst))
        offset += inst.size
    return run


def found(lines: Sequence[str], target: str = "gfx908") -> list[list[tuple[int, ...]]]:
    """Returns the positions of each tile's instructions in straight code, step by step."""
    return [[tuple(index for index, _ in step) for step in tile.steps] for tile in tiles(decoded(lines, target), ())]


def test_instructions_with_the_same_a_share_a_tile():
    """2 x 2 blocks, two steps, D by D or step by step; an instruction without a partner is a tile with its followers."""
    grid = [(i, j) for i in range(2) for j in range(2)]
    lines = [mfma(2 * i + j, 1 + 2 * i + step, 5 + 2 * j + step) for step in range(2) for i, j in grid]
    assert found(lines) == [[(0, 1), (4, 5)], [(2, 3), (6, 7)]]
    lines = [mfma(2 * i + j, 1 + 2 * i + step, 5 + 2 * j + step) for i, j in grid for step in range(2)]
    assert found(lines) == [[(0, 2), (1, 3)], [(4, 6), (5, 7)]]
    lines = [mfma(0, 1, 5), mfma(1, 2, 5), mfma(0, 3, 6), mfma(1, 3, 6)]  # another A first
    assert found(lines) == [[(0,), (2,)], [(1,), (3,)]]
    lines = [mfma(0, 1, 5), mfma(1, 1, 6), mfma(2, 1, 7)]
    assert found(lines) == [[(0, 1)]]
    assert found([mfma(0, 1, 5)]) == []


def test_what_lies_between_keeps_instructions_apart():
    assert found([mfma(0, 1, 5), "v_mov_b32 v6, 0", mfma(1, 1, 6)]) == []  # B is written
    assert found([mfma(0, 1, 5), "v_mov_b32 v7, 0", mfma(1, 1, 6)]) == [[(0, 2)]]
    assert found([mfma(0, 1, 5), "v_accvgpr_read_b32 v7, a4", mfma(1, 1, 6)]) == []  # D is read
    assert found([mfma(0, 1, 5), mfma(0, 2, 6), "v_accvgpr_read_b32 v7, a0", mfma(0, 3, 6)]) == [[(0,), (1,)]]
    other = MFMA.replace("16x16x4f32", "4x4x1f32")
    lines = [mfma(0, 1, 5), other.format(d=4, e=7, a=1, b=5), mfma(1, 1, 6)]  # another instruction has that D
    assert found(lines) == []
    one = "v_mfma_f32_16x16x4f32 v[{d}:{e}], v{a}, v{b}, v[{d}:{e}]"
    first = one.format(d=8, e=11, a=1, b=5)
    assert found([first, one.format(d=12, e=15, a=1, b=2)], "gfx90a") == [[(0, 1)]]
    for second in (one.format(d=12, e=15, a=1, b=9), one.format(d=4, e=7, a=1, b=2), one.format(d=10, e=13, a=1, b=2)):
        assert found([first, second], "gfx90a") == []  # reads the first's D; writes its B; D's overlap


def test_barriers_and_sleep_do_not_keep_them_apart(monkeypatch):
    lines = [mfma(0, 1, 2), "s_barrier", mfma(0, 3, 4), "s_sleep 1", mfma(1, 1, 5), mfma(1, 3, 2)]
    assert both("\n".join(lines), monkeypatch) == 4


def test_a_chain_ends_where_its_accumulators_are_read(monkeypatch):
    lines = [mfma(0, 1, 2), "s_nop 15", "v_accvgpr_read_b32 v7, a0", mfma(0, 3, 4), mfma(0, 5, 7)]
    assert both("\n".join(lines), monkeypatch) == 2


def test_an_operand_written_in_between_ends_it(monkeypatch):
    lines = [mfma(0, 1, 2), "v_add_f32 v3, v3, v4", "s_nop 3", mfma(0, 3, 4), mfma(0, 5, 3)]
    assert both("\n".join(lines), monkeypatch) == 2


def test_a_branch_into_the_middle_ends_it(monkeypatch):
    """A loop's head comes between instructions that would otherwise be chained."""
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
    """Draws matrix instructions on few registers, with moves, waits and branches among them."""
    lines = []
    for number in range(draw(st.integers(2, 24))):
        kind = draw(st.sampled_from("mmmmmmvnaslr"))
        if kind == "m":
            lines.append(mfma(draw(st.integers(0, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 6))))
        elif kind == "v":
            lines.append(f"v_add_f32 v{draw(st.integers(1, 6))}, v{draw(st.integers(1, 6))}, v6")
        elif kind == "n":
            lines.append("s_waitcnt lgkmcnt(0)")
        elif kind == "a":
            lines.append(f"v_accvgpr_write_b32 a{draw(st.integers(0, 11))}, v{draw(st.integers(1, 6))}")
        elif kind == "r":
            lines.append(f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), {draw(st.integers(0, 1))}")
        elif kind == "s":
            lines += ["s_cmp_lg_u32 s12, s13", f"s_cbranch_scc{draw(st.integers(0, 1))} skip{number}"]
            lines += [mfma(draw(st.integers(0, 2)), 2, 3), f"skip{number}:"]
        elif kind == "l" and not any(line == "again:" for line in lines):
            lines.append("again:")
    if "again:" in lines:
        lines += ["s_sub_u32 s12, s12, 1", "s_cmp_lg_u32 s12, 0", "s_cbranch_scc1 again"]
    return "\n".join(lines)


@pytest.mark.parametrize("ring", [False, True], ids=["numbers", "ring"])
@settings(max_examples=examples(40))
@given(streams())
def test_any_stream_gives_the_same_bits(ring: bool, lines: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(lines, monkeypatch, ring=ring)


# Registers that nothing wrote, in some lanes or in all: factors v7 and v3, and an accumulator.
UNDEFINED = ["s_mov_b64 exec, 0xffff\nv_mov_b32 v7, v1\ns_mov_b64 exec, -1\nv_mov_b32 v3, v7", "v_mov_b32 v3, v8"]


@pytest.mark.parametrize("ring", [False, True], ids=["numbers", "ring"])
@settings(max_examples=examples(25))
@given(streams(), st.sampled_from(["", *UNDEFINED]), st.sampled_from([None, 1, 6, 11]), st.booleans())
def test_any_stream_gives_the_same_findings(ring: bool, lines: str, factors: str, accumulator: int | None, barrier: bool) -> None:
    """Checked mode: undefined registers are found at the same instructions, also where matrix instructions run as one."""
    clear = "\n".join(line for line in CLEAR.splitlines() if f" a{accumulator}," not in line) + "\n" + factors
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(lines + "\ns_barrier" * barrier, monkeypatch, clear=clear, ring=ring, check=True)


@pytest.mark.parametrize("undefined", ["", "s_mov_b64 exec, 0xffff\nv_mov_b32 v7, v1\ns_mov_b64 exec, -1", "v_mov_b32 v7, v8"])
def test_tiles_of_checked_mode_run_one_by_one_if_a_register_is_undefined(undefined, monkeypatch):
    """Two tiles take turns, with other instructions between; one of them reads a register that may be undefined."""
    steps = [(d, a, b) for a, b in ((1, 2), (7, 2), (4, 7), (3, 5)) for d in range(3)]
    lines = [line for d, a, b in steps for line in (mfma(d, a, b), "v_add_u32 v9, 1, v1", "s_barrier")]
    clear = CLEAR + "\n" + (undefined or "v_mov_b32 v7, v2")
    assert both("\n".join(lines), monkeypatch, clear=clear, check=True) == 12
    text = "\n".join([SETUP, clear, *lines, "s_nop 15"])
    plain, checked = (Kernel("gfx908", text, ACCUMULATORS, check).run(block=256) for check in (False, True))
    assert all((checked[name] == plain[name]).all() for name in ACCUMULATORS)
    assert bool(checked.run.findings) == bool(undefined)


@st.composite
def streams_in_one_file(draw: st.DrawFn) -> str:
    """Draws D's in v8 to v31 that others read as A or B, or overlap."""
    lines = []
    for _ in range(draw(st.integers(2, 16))):
        if draw(st.integers(0, 7)) == 0:
            lines.append(f"v_mul_f32 v{draw(st.integers(1, 31))}, 0.5, v{draw(st.integers(1, 31))}")
            continue
        d = draw(st.sampled_from([8, 10, 12, 16, 20, 24, 28]))
        a, b = (draw(st.one_of(st.integers(1, 5), st.integers(1, 31))) for _ in "ab")
        lines.append(f"v_mfma_f32_16x16x4f32 v[{d}:{d + 3}], v{a}, v{b}, v[{d}:{d + 3}]")
    return "\n".join(lines)


@pytest.mark.parametrize("ring", [False, True], ids=["numbers", "ring"])
@settings(max_examples=examples(40))
@given(streams_in_one_file())
def test_any_stream_in_one_file_gives_the_same_bits(ring: bool, lines: str) -> None:
    clear = "\n".join(f"v_mov_b32 v{i}, v{i % 5 + 1}" for i in range(8, 32))
    with pytest.MonkeyPatch.context() as monkeypatch:
        both(lines, monkeypatch, "gfx90a", clear, [f"v{i}" for i in range(8, 32)], ring=ring)


# -- f64 ------------------------------------------------------------------------------------------

EXTREMES = np.array([0, 1 << 63, 1, (1 << 63) + (1 << 52) - 1, 0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 5, 0x7FE << 52], np.uint64)
LOAD = "v_mul_u32_u24 v1, 24, v0\nglobal_load_dwordx4 v[2:5], v1, s[4:5]\nglobal_load_dwordx2 v[6:7], v1, s[4:5] offset:16\n"


F64 = "v_mfma_f64_16x16x4f64 v[{d}:{e}], v[{a}:{a1}], v[{b}:{b1}], v[{d}:{e}]"


def f64(d: int, a: int, b: int, text: str = F64) -> str:
    return text.format(d=d, e=d + 7, a=a, a1=a + 1, b=b, b1=b + 1)


def both_f64(lines: str, monkeypatch: pytest.MonkeyPatch, target: str, ordinary: bool) -> int:
    """Runs `both` on v[8:31], with numbers in v[2:7], or an extreme in one lane of eight."""
    rng = np.random.default_rng(len(lines))
    data = rng.standard_normal((64, 3)).view(np.uint64)
    if not ordinary:
        data = np.where(rng.random(data.shape) < 1 / 8, rng.choice(EXTREMES, data.shape), data)
    copies = "".join(f"\nv_mov_b32 v{i}, v{2 + i % 6}" for i in range(8, 32))
    return both(lines, monkeypatch, target, LOAD + "s_waitcnt vmcnt(0)" + copies, [f"v{i}" for i in range(8, 32)], data)


@pytest.mark.parametrize("ordinary", [True, False])
def test_f64_tiles(ordinary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two D's and one D; EXEC means nothing to matrix instructions."""
    lines = ["s_mov_b64 exec, 0x5a5a5", *(f64(d, 2 + 2 * (step % 2), 6 - 2 * step) for step in range(3) for d in (8, 16))]
    assert both_f64("\n".join(lines), monkeypatch, "gfx90a", ordinary) == 6
    lines = [f64(24, 2 + 2 * (step % 3), 6 - 2 * (step % 2)) for step in range(19)]
    assert both_f64("\n".join(lines), monkeypatch, "gfx90a", ordinary) == 19


def test_f64_tiles_are_cut_where_the_copies_of_their_operands_would_not_fit() -> None:
    lines = [f64(d, 2 + 2 * (step % 2), 6) for step in range(MOST_SPREAD + 2) for d in (8, 16)]
    assert {len(tile) for tile in found(lines, "gfx90a")} == {MOST_SPREAD, 2}
    assert [len(tile) for tile in found([f64(8, 2, 4)] * (2 * MOST_SPREAD), "gfx90a")] == [MOST_SPREAD] * 2


@settings(max_examples=examples(40))
@given(st.data(), st.sampled_from([128, 256, 512]), st.booleans())
def test_straight_code_of_a_tile_is_short(data: st.DataObject, bits: int, ring: bool) -> None:
    """A step on two D's has at most 512 multiplications and additions."""
    target = data.draw(st.sampled_from(["gfx908", "gfx90a", "gfx942", "gfx950"]))
    rows = [row for row in instructions(target) if row.cd_type in ("f32", "f64") and row.a_type == row.cd_type]
    row = data.draw(st.sampled_from(rows))
    inst = SimpleNamespace(mnemonic=row.mnemonic, target=target)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(fma_tile, "host", lambda: SimpleNamespace(vector_bits=bits))
        width = fma_tile.widest(inst, ring)
        step = width * row.m * row.n * row.blocks * row.k * {"f32": 32, "f64": 64}[row.cd_type] // bits * (1 + ring)
        assert width == 1 or (width == 2 and step <= 512)


def test_f64_instructions_that_depend_on_each_other_are_apart() -> None:
    assert found([f64(8, 2, 4), f64(16, 8, 4)], "gfx90a") == []  # reads the first's D as A
    assert found([f64(8, 2, 4), f64(16, 2, 14)], "gfx90a") == []  # as B
    assert found([f64(8, 2, 4), f64(12, 2, 4)], "gfx90a") == []  # D's overlap
    assert found([f64(8, 2, 4), "v_mov_b32 v5, 0", f64(8, 2, 4)], "gfx90a") == []  # half of B is written
    assert found([f64(8, 2, 4), "v_mov_b32 v6, v15", f64(8, 2, 4)], "gfx90a") == []  # half of D's last element is read
    other = "v_mfma_f64_4x4x4f64 v[8:9], v[2:3], v[4:5], v[8:9]"
    assert found([f64(8, 2, 4), other, f64(8, 2, 4)], "gfx90a") == []
    assert found([f64(8, 2, 4), "v_mov_b32 v6, 0", f64(8, 2, 4)], "gfx90a") == [[(0,), (2,)]]


NEGATED = F64.replace("4f64", "4_f64") + " neg:[{neg}]"


@pytest.mark.parametrize("neg", ["1,0,0", "0,1,0", "0,0,1", "1,1,1"])
@pytest.mark.parametrize("ordinary", [True, False])
def test_f64_tiles_with_signs_changed(neg: str, ordinary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of C apply in every step; instructions with different signs share no tile."""
    text = NEGATED.replace("{neg}", neg)
    lines = [f64(d, 2 + 2 * step, 6 - 2 * step, text) for step in range(3) for d in (8, 16)]
    assert both_f64("\n".join(lines), monkeypatch, "gfx942", ordinary) == 6
    assert found([f64(8, 2, 4, text), f64(8, 2, 4, F64.replace("4f64", "4_f64"))], "gfx942") == []


@st.composite
def streams_of_doubles(draw: st.DrawFn) -> str:
    """Draws D's in v8 to v31 that others read as A or B, or overlap, with blocks of 4 among them."""
    lines = []
    for _ in range(draw(st.integers(2, 12))):
        kind = draw(st.integers(0, 7))
        d = draw(st.sampled_from([8, 10, 16, 24]))
        a, b = (draw(st.one_of(st.sampled_from([2, 4, 6]), st.integers(1, 15).map(lambda i: 2 * i))) for _ in "ab")
        if kind == 0:
            lines.append(f"v_xor_b32 v{draw(st.integers(2, 31))}, 0x80000001, v{draw(st.integers(2, 31))}")
        elif kind == 1:
            lines.append(f"v_mfma_f64_4x4x4f64 v[{d}:{d + 1}], v[{a}:{a + 1}], v[{b}:{b + 1}], v[{d}:{d + 1}]")
        else:
            lines.append(f64(d, a, b))
    return "\n".join(lines)


@settings(max_examples=examples(30))
@given(streams_of_doubles(), st.booleans())
def test_any_stream_of_doubles_gives_the_same_bits(lines: str, ordinary: bool) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        both_f64(lines, monkeypatch, "gfx90a", ordinary)


def test_factors_are_converted_once_until_they_change() -> None:
    """In ring mode a tile converts factors that no earlier tile of the run has converted since their last write, barrier or not."""
    lines = [mfma(0, 1, 3), mfma(0, 2, 3), "s_barrier", "v_mov_b32 v2, v5", mfma(1, 1, 2), mfma(1, 2, 2)]
    run = decoded(lines)
    (*a, _, _, _), (*b, _, _) = (first, second) = factor_lists(run, list(tiles(run, {})))
    assert (a, b) == ([3, 3, 1], [2, 1, 0])
    first, second = first[3:], second[3:]
    assert sorted(first) == [layout.vector_register("v", number) for number in (1, 2, 3)]
    assert second == [layout.vector_register("v", number) for number in (2, 1)]


def test_waves_that_take_turns_do_not_use_each_others_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four waves meet at a barrier between tiles that share a factor, and each has its own factors."""
    first, second, third = ([mfma(d, a, 2), mfma(d, b, 2)] for d, a, b in ((0, 1, 3), (1, 4, 5), (2, 3, 1)))
    text = SETUP + CLEAR + "\n" + "\n".join([*first, "s_barrier", *second, "v_mov_b32 v20, v21", *third]) + "\ns_nop 15"
    monkeypatch.setattr(Launch, "__init__", partialmethod(Launch.__init__, fuse=False))
    single = Kernel("gfx908", text, ACCUMULATORS, ring=True).run(block=256)
    monkeypatch.undo()
    kernel = Kernel("gfx908", text, ACCUMULATORS, ring=True)
    tiled = kernel.run(block=256)
    assert len(kernel.kernel.module.programs[0].fused) == 6
    assert all((tiled[name] == single[name]).all() for name in ACCUMULATORS)


@pytest.mark.parametrize("ring", [False, True], ids=["numbers", "ring"])
def test_a_second_kernel_that_enters_a_chain_takes_it_apart(ring: bool) -> None:
    """`Program.lower` of an index within a chain makes its records run one instruction each again."""
    text = SETUP + CLEAR + "\n" + "\n".join(mfma(0, 1 + i, 2) for i in range(3))
    kernel = Kernel("gfx908", text, ["a0"], ring=ring)
    first = kernel.run()["a0"]
    program = kernel.kernel.module.programs[0]
    members = next(iter(program.fused.values()))
    program.lower(members[1])
    assert not program.fused
    assert (kernel.run()["a0"] == first).all()
    assert ring or np.isfinite(first.view(np.float32)).all()


def test_a_second_kernel_that_enters_before_a_tile_takes_it_apart_if_it_shares_factors() -> None:
    """In ring mode, a tile uses elements that an earlier tile of the run has converted."""
    text = SETUP + CLEAR + "\n" + "\n".join([mfma(0, 1, 2), mfma(0, 2, 2), "v_mov_b32 v7, v1", mfma(1, 1, 2), mfma(1, 2, 2)])
    kernel = Kernel("gfx908", text, ["a0", "a4"], ring=True)
    before = kernel.run()
    program = kernel.kernel.module.programs[0]
    first, second = sorted(set(program.fused.values()))
    program.lower(second[0] - 1)  # at v_mov_b32
    assert sorted(program.fused) == [*first]
    after = kernel.run()
    assert all((after[name] == before[name]).all() for name in ("a0", "a4"))
