"""Every vector instruction's handler gives the bits of the same body on the numpy engine.

test_isa_vop* compare bodies with independent references; this file tests the lowering.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import numpy as np
import pytest

from simgpu.alu import valu
from simgpu.engine.lowering.handlers import emitter_of, falling_through
from simgpu.hardware.isa import decode
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.lane_numpy import evaluate
from simgpu.hardware.isa.spec import REGISTRY, Param, Spec
from simgpu.machine.frame import Frame
from simgpu.machine.jit import compiler
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan
from tests.support.one_instruction import Wave
from tests.support.sweeps import swept

VECTOR = ("vop1", "vop2", "vopc", "vop3", "vop3p")
SPECIAL = np.array(
    [
        0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
        0xFFC12345, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7C007C00, 0x3C003C00,
        0xFC00FE01, 0x00010001, 0xFFFFFFFF, 0x7FFFFFFF, 0x80008000, 31, 32, 33, 64,
    ],
    np.uint32,
)  # fmt: skip


def plain(spec: Spec) -> bool:
    """True for bodies whose operands and results are vector registers and lane masks."""
    states = {p.type.state for p in spec.params} | {r.state for r in spec.results}
    return spec.kind == "lane" and states <= {"", "modifier"} and "swap" not in spec.flags


SPECS = [spec for spec in REGISTRY.specs if spec.encoding in VECTOR and plain(spec)]


def dwords(spec: Spec, type_: t.Type) -> int:
    packed = "packed" in spec.flags and type_.bits == 32
    return 2 if packed else max(1, type_.bits // 32)


class Case:
    """An instruction with random registers, and the arguments of its body."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.rng = np.random.default_rng(zlib.crc32(spec.mnemonic.encode()))
        self.wave = Wave()
        self.args: dict[str, Reg] = {}
        self.rows: list[np.ndarray] = []
        next_row = 40
        position = 0
        for param in self.operands:
            if param.type is t.mask:
                lanes = self.rng.integers(0, 2, 64).astype(bool)
                self.wave.s[10:12] = np.packbits(lanes, bitorder="little").view(np.uint32)
                self.args[f"src{position}"] = Reg("s", 10, 2)
                self.rows.append(lanes)
                position += 1
                continue
            count = dwords(spec, param.type)
            name = "vdst" if param.name == "vdst" else f"src{position}"
            at = 0 if name == "vdst" else next_row
            if name != "vdst":
                next_row += count
                position += 1
            values = self.random_rows(count)
            self.wave.v[at : at + count] = values
            self.args[name] = Reg("v", at, count)
            self.rows.append(values)
        for result in spec.results:
            if result is t.mask:
                self.args["sdst"] = Reg("s", 12, 2)
            else:
                self.args["vdst"] = Reg("v", 0, dwords(spec, result))

    @property
    def operands(self) -> list[Param]:
        return [p for p in self.spec.params if p.type.state != "modifier"]

    def random_rows(self, count: int) -> np.ndarray:
        rows = self.rng.integers(0, 2**32, (count, 64), dtype=np.uint64).astype(np.uint32)
        special = self.rng.random(rows.shape) < 0.4
        rows[special] = self.rng.choice(SPECIAL, special.sum())
        return rows

    def raw(self, param: Param, rows: np.ndarray, part: int = 0) -> Any:
        """Returns the argument of the body on the numpy engine."""
        bits = param.type.bits
        if param.type is t.mask:
            return rows
        if "packed" in self.spec.flags:
            return rows[part] if bits == 32 else (rows[0] >> np.uint32(16 * part)).astype(np.uint16)
        if bits > 64:
            return rows
        if bits == 64:
            return joined(rows)
        if param.type.kind != "pair" and bits < 32:
            return rows[0].astype({8: np.uint8, 16: np.uint16}[bits])
        return rows[0]

    def expected(self) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            parts = (0, 1) if "packed" in self.spec.flags else (0,)
            outs = []
            for part in parts:
                pairs = zip(self.operands, self.rows, strict=True)
                outs.append(evaluate(self.spec, *(self.raw(p, rows, part) for p, rows in pairs)))
        if len(parts) == 1:
            return list(outs[0]) if isinstance(outs[0], tuple) else [outs[0]]
        if self.spec.results[0].bits == 32:
            return [np.stack(outs)]
        return [outs[0].astype(np.uint32) | outs[1].astype(np.uint32) << np.uint32(16)]

    def got(self, result: t.Type) -> np.ndarray:
        if result is t.mask:
            return np.unpackbits(self.wave.s[12:14].view(np.uint8), bitorder="little").astype(bool)
        count = dwords(self.spec, result)
        rows = self.wave.v[:count]
        if "packed" in self.spec.flags:
            return rows if count == 2 else rows[0]
        if result.bits > 64:
            return rows
        if result.bits == 64:
            return joined(rows)
        if "write_high" in self.spec.flags:
            return rows[0] >> np.uint32(16)
        if "preserve_high" in self.spec.flags and result.bits == 16:
            return rows[0] & np.uint32(0xFFFF)
        return rows[0]


def joined(rows: np.ndarray) -> np.ndarray:
    return rows[0].astype(np.uint64) | rows[1].astype(np.uint64) << np.uint64(32)


@swept("spec", SPECS, ids=lambda spec: spec.mnemonic, parts=3)
def test_handler_equals_body(spec: Spec) -> None:
    case = Case(spec)
    wanted = case.expected()
    target = sorted(spec.opcodes)[-1]
    case.wave.run(Instruction(spec, target, "e64", case.args, size=8))
    for result, want in zip(spec.results, wanted, strict=True):
        got = case.got(result)
        np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape).astype(got.dtype))


def test_many_instructions_are_covered() -> None:
    """Results have up to 32 registers."""
    assert len(SPECS) > 500 and {spec.results[0].bits for spec in SPECS if spec.results} >= {16, 32, 64, 128, 192, 512, 1024}


@pytest.mark.parametrize("mnemonic", ["v_add_u32", "v_fma_f64", "v_ldexp_f64", "v_lshlrev_b64", "v_cmp_lt_f64", "v_cmp_lt_u64"])
def test_inactive_lanes_keep_their_values(mnemonic: str) -> None:
    """A comparison clears their bits."""
    spec = next(s for s in SPECS if s.mnemonic == mnemonic)
    case = Case(spec)
    case.wave.s[126:128] = 0x0F0F0F0F, 0x80000001
    result = spec.results[0]
    before = np.zeros(64, bool) if result is t.mask else case.got(result).copy()
    want = case.expected()[0]
    case.wave.run(Instruction(spec, sorted(spec.opcodes)[-1], "e64", case.args, size=8))
    active = np.unpackbits(case.wave.s[126:128].view(np.uint8), bitorder="little").astype(bool)
    np.testing.assert_array_equal(case.got(result), np.where(active, want, before))


@pytest.mark.parametrize("lane", [0, 1, 7, 8, 31, 32, 62, 63])
@pytest.mark.parametrize(
    "mnemonic, one, signaling, quiet",
    [
        ("v_add_f16", 0x3C00, 0xFC01, 0xFE01),
        ("v_add_f32", 0x3F800000, 0xFF800001, 0xFFC00001),
        ("v_add_f64", 0x3FF00000, 0xFFF00001, 0xFFF80001),
    ],
)
def test_a_nan_of_one_lane_is_made_quiet(mnemonic: str, one: int, signaling: int, quiet: int, lane: int) -> None:
    """Numbers of 64 bits are given by their high words."""
    spec = next(s for s in SPECS if s.mnemonic == mnemonic)
    case, high = Case(spec), max(0, spec.results[0].bits // 32 - 1)
    case.wave.v[:] = 0
    for name in ("src0", "src1"):
        case.wave.v[case.args[name].index + high] = one
    case.wave.v[case.args["src0"].index + high, lane] = signaling
    case.wave.run(Instruction(spec, sorted(spec.opcodes)[-1], "e64", case.args, size=8))
    two = 0x4000 if mnemonic == "v_add_f16" else 0x40000000
    np.testing.assert_array_equal(case.wave.v[high], [quiet if number == lane else two for number in range(64)])


@pytest.mark.parametrize("mods", [{}, {"op_sel": 7, "op_sel_hi": 0}], ids=["", "halves swapped"])
@pytest.mark.parametrize("mnemonic", ["v_add_f32", "v_fma_f32", "v_fma_f64", "v_pk_fma_f16", "v_pk_fma_f32", "v_pk_mul_f32"])
def test_a_result_with_nans_may_overwrite_a_source(mnemonic: str, mods: dict[str, int]) -> None:
    spec = next(s for s in SPECS if s.mnemonic == mnemonic)
    mods = mods if "packed" in spec.flags else {}
    results = []
    for place in ("vdst", "src0", "src1"):
        case = Case(spec)
        d = case.args[place]
        case.wave.v[case.args["src1"].index, ::3] = 0x7F800001
        case.wave.run(Instruction(spec, sorted(spec.opcodes)[-1], "e64", {**case.args, "vdst": d}, mods, size=8))
        results.append(case.wave.v[d.index : d.index + d.count].copy())
    assert np.isnan(results[0].view(np.float32)).any()
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("uniform", [False, True])
def test_bytes_are_permuted(uniform: bool) -> None:
    """Selectors without signs and ones: those of compilers."""
    spec = next(s for s in SPECS if s.mnemonic == "v_perm_b32")
    case = Case(spec)
    selectors = np.random.default_rng(1).choice(np.array([*range(8), 12], np.uint8), (64, 4))
    if uniform:
        selectors[:] = selectors[0]
    case.wave.v[case.args["src2"].index] = selectors.view(np.uint32)[:, 0]
    case.wave.s[20] = selectors.view(np.uint32)[0, 0]
    arguments = {**case.args, **({"src2": Reg("s", 20, 1)} if uniform else {})}
    high, low = (case.wave.v[case.args[name].index] for name in ("src0", "src1"))
    table = np.concatenate([low[:, None].view(np.uint8), high[:, None].view(np.uint8), np.zeros((64, 8), np.uint8)], axis=1)
    wanted = np.take_along_axis(table, selectors, axis=1).view(np.uint32)[:, 0]
    case.wave.run(Instruction(spec, "gfx942", "e64", arguments, size=8))
    np.testing.assert_array_equal(case.wave.v[0], wanted)


SELECTS = [(0, 7), (7, 0), (5, 7), (0, 6)]  # op_sel, op_sel_hi: halves of each source for the low and the high result
SIGNS = [(0, 0), (7, 7), (5, 5), (1, 2)]  # neg_lo, neg_hi


@pytest.mark.parametrize("selects", SELECTS)
@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("mnemonic", ["v_pk_fma_f16", "v_pk_mul_f16", "v_pk_min_f16", "v_pk_mad_u16"])
def test_packed_operands_are_selected_and_negated(mnemonic: str, signs: tuple[int, int], selects: tuple[int, int]) -> None:
    spec = next(s for s in SPECS if s.mnemonic == mnemonic)
    if "f16" not in mnemonic:
        signs = (0, 0)
    case = Case(spec)
    case.wave.s[126:128] = 0x0F0F8F0F, 0x80000001
    before = case.wave.v[0].copy()
    wanted = np.zeros(64, np.uint32)
    for part in (0, 1):
        halves = [
            (rows[0] >> np.uint32(16 * (selects[part] >> number & 1))).astype(np.uint16)
            ^ np.uint16(0x8000 * (signs[part] >> number & 1))
            for number, rows in enumerate(case.rows)
        ]
        with np.errstate(all="ignore"):
            wanted |= np.asarray(evaluate(spec, *halves)).view(np.uint16).astype(np.uint32) << np.uint32(16 * part)
    mods = {"op_sel": selects[0], "op_sel_hi": selects[1], "neg_lo": signs[0], "neg_hi": signs[1]}
    case.wave.run(Instruction(spec, sorted(spec.opcodes)[-1], "e64", case.args, mods, size=8))
    active = np.unpackbits(case.wave.s[126:128].view(np.uint8), bitorder="little").astype(bool)
    np.testing.assert_array_equal(case.wave.v[0], np.where(active, wanted, before))


# A mask read and one written, 64 bits, halves of a register, both results of an exchange, the lane's own number.
LOOPED = ("v_addc_co_u32", "v_mad_u64_u32", "v_fma_f64", "v_pk_fma_f16", "v_cmp_lt_f32", "v_cvt_pk_fp8_f32", "v_mbcnt_lo_u32_b32")


@pytest.mark.parametrize("mnemonic", LOOPED)
def test_a_loop_over_groups_of_lanes_gives_the_same_bits(mnemonic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = next(spec for spec in REGISTRY.specs if spec.mnemonic == mnemonic)
    waves = []
    for most, key in ((1 << 30, "straight"), (-1, "looped")):
        case = Case(spec)
        case.wave.s[126:128] = 0x0F0F8F0F, 0x80000001
        inst = Instruction(spec, sorted(spec.opcodes)[-1], "e64", case.args, size=8)
        handler, slots = falling_through(inst, Mode(), ())
        handler.key = f"{key}|{handler.key}"
        monkeypatch.setattr(valu, "most_rows", functools.partial(int, most))
        case.wave.call(handler.address(compiler()), slots, 2)
        waves.append(case.wave)
    np.testing.assert_array_equal(waves[0].v, waves[1].v)
    np.testing.assert_array_equal(waves[0].s, waves[1].s)


@pytest.mark.parametrize("mnemonic, looped", [("v_mov_b32", False), ("v_not_b32", False), ("v_div_scale_f64", True)])
def test_what_computes_much_is_a_loop_over_groups_of_lanes(mnemonic: str, looped: bool) -> None:
    spec = next(spec for spec in REGISTRY.specs if spec.mnemonic == mnemonic)
    inst = Instruction(spec, "gfx942", "e64", Case(spec).args, size=8)
    plan = Plan(inst)
    frame = Frame(compiler().module("test"), "test")
    emitter_of(inst, plan, Mode())(frame)
    assert ("<64 x " in "".join(map(str, frame.function.blocks))) != looped


@pytest.mark.parametrize("op_sel_hi, wanted", [([1, 1, 0], 2.5), ([1, 0, 0], 2.5), ([0, 1, 0], 0.5 + 2.0**-24)])
def test_inline_constants_of_mix_instructions_are_of_the_source_s_type(op_sel_hi: list[int], wanted: float) -> None:
    """LLVM adds an f16 to an f32 by `v_fma_mix_f32 v3, v6, 1.0, v3 op_sel_hi:[1,1,0]`: 1.0 is f16's."""
    code = bytearray.fromhex("0300a0d306e50d1c")
    code[1] = code[1] & ~0x40 | op_sel_hi[2] << 6
    code[7] = code[7] & ~0x18 | op_sel_hi[0] << 3 | op_sel_hi[1] << 4
    inst = decode(bytes(code), 0, "gfx942")
    wave = Wave()
    wave.v[6] = np.float32(2.0**-24).view(np.uint32) if not op_sel_hi[0] else np.float16(2.0).view(np.uint16)
    wave.v[3] = np.float32(0.5).view(np.uint32)
    wave.run(inst)
    assert (wave.v[3].view(np.float32) == np.float32(wanted)).all()
