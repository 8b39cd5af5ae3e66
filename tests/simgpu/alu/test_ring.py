"""Vector instructions in a ring of elements: the handlers' bits are those of the same bodies on numpy's integers."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.hardware.isa import REGISTRY
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value
from simgpu.hardware.isa.ring.arrays import OPS, WORDS
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type
from simgpu.machine.mode import Mode
from tests.support.one_instruction import Wave

RING = Mode(ring=True)
TARGET = "gfx950"
USUAL = (
    "v_add_f32 v_fma_f64 v_exp_f32 v_rcp_f16 v_max3_f32 v_div_fixup_f32 v_cvt_f16_f32 v_cvt_f64_f32 v_ldexp_f32 v_fract_f32 "
    "v_cvt_i32_f32 v_cvt_f32_i32 v_sin_f32 v_cvt_scalef32_sr_fp8_f32"
).split()


def plain(type_: Type) -> bool:
    """True for an operand in one or two registers that is no mask, state or pair."""
    return type_.kind not in ("mask", "pair") and not type_.state and type_.bits <= 64


def is_covered(spec: Spec) -> bool:
    """True for a vector instruction on floats whose form VOP3 has only such operands."""
    types = [*(p.type for p in spec.params if p.type.state != "modifier"), *spec.results]
    lacks = {Flag.NO_E64, Flag.PACKED, Flag.MIX, Flag.INTERP} & spec.flags
    return (
        spec.encoding in ("vop1", "vop2", "vop3") and spec.kind == "lane" and TARGET in spec.opcodes and not lacks
        and len(spec.results) == 1 and all(map(plain, types)) and any(type_.is_float for type_ in types)
    )  # fmt: skip


SPECS = [spec for spec in REGISTRY.specs if is_covered(spec)]


def check(spec: Spec) -> None:
    rng = np.random.default_rng(len(spec.mnemonic))
    wave, args, values, position = Wave(), {"vdst": Reg("v", 0, spec.results[0].dwords)}, [], 0
    for number, param in enumerate(p for p in spec.params if p.type.state != "modifier"):
        type_, first = param.type, 0 if param.name == "vdst" else 4 + 4 * number
        drawn = rng.integers(0, 1 << type_.bits, 64, dtype=WORDS[type_.bits])
        drawn[:4] = np.array([0, 1 << type_.bits - 1, 1, (1 << type_.bits) - 1], drawn.dtype)
        words = np.ascontiguousarray(drawn).view(np.uint32).reshape(64, -1).T if type_.bits == 64 else drawn.astype(np.uint32)[None]
        wave.v[first : first + len(words)] = words
        values.append(Value(OPS, type_, drawn))
        if param.name != "vdst":
            args[f"src{position}"] = Reg("v", first, type_.dwords)
            position += 1
    wave.run(Instruction(spec, TARGET, "e64", args, size=8), RING)
    assert spec.body is not None
    want = np.broadcast_to(np.asarray(spec.body(*values).raw), 64)
    bits = spec.results[0].bits
    got = np.ascontiguousarray(wave.v[:2].T).view(np.uint64)[:, 0] if bits == 64 else wave.v[0].astype(WORDS[bits])
    np.testing.assert_array_equal(got, want.astype(got.dtype), spec.mnemonic)


@pytest.mark.parametrize("name", USUAL)
def test_usual_instructions(name: str) -> None:
    check(next(spec for spec in SPECS if spec.mnemonic == name))


@pytest.mark.exhaustive
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.mnemonic)
def test_every_instruction(spec: Spec) -> None:
    check(spec)


def test_handlers_of_numbers_and_elements_are_apart() -> None:
    """Also of the integer additions that round an f32 in ring mode, which are ordinary additions otherwise."""
    spec = next(spec for spec in REGISTRY.specs if spec.mnemonic == "v_add3_u32")
    args = {"vdst": Reg("v", 0), "src0": Reg("v", 1), "src1": Reg("v", 2), "src2": Reg("v", 3)}
    wave = Wave()
    wave.v[1] = np.arange(64, dtype=np.uint32) * 0x01234567
    wave.v[2], wave.v[3] = wave.v[1] >> 16 & 1, 0x7FFF
    for mode, want in ((RING, wave.v[1].copy()), (Mode(), wave.v[1] + wave.v[2] + 0x7FFF), (RING, wave.v[1].copy())):
        wave.run(Instruction(spec, TARGET, "e64", args, size=8), mode)
        np.testing.assert_array_equal(wave.v[0], want)
