"""Expressions on registers: compiled code and numpy agree with Python, and a syntax error is a single line."""

from __future__ import annotations

import ctypes
import struct

import ml_dtypes
import numpy as np
import pytest

from simgpu.debugger.armed import Point
from simgpu.debugger.native.clock import BLOCK, FOCUS_BLOCK
from simgpu.debugger.native.conditions import Expression
from simgpu.debugger.native.points import HIT
from simgpu.hardware.errors import LaunchError
from simgpu.machine import layout
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import compiler

SPECIAL = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000, 0x00010001, 0x7C007C01]


def wave(seed: int) -> np.ndarray:
    """Makes a wave's bytes with random registers, special values among them."""
    rng = np.random.default_rng(seed)
    made = aligned_bytes(layout.WAVE_BYTES)
    words = made.view(np.uint32)
    words[:128] = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
    words[layout.VGPR // 4 :] = rng.integers(0, 1 << 32, 512 * 64, dtype=np.uint32)
    words[layout.VGPR // 4 : layout.VGPR // 4 + 64 * 8] = rng.choice(np.array(SPECIAL, np.uint32), 64 * 8)
    words[4:8] = rng.choice(np.array(SPECIAL, np.uint32), 4)
    words[layout.SCC // 4] = seed & 1
    words[layout.WAVE_ID // 4] = 3
    made[layout.CONTEXT : layout.CONTEXT + 8].view(np.uint64)[0] = CONTEXT.ctypes.data
    return made


def f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


CONTEXT, FOCUS = np.zeros(layout.CTX_BYTES // 8, np.int64), np.zeros(1, FOCUS_BLOCK)  # of a device that runs one workgroup
CONTEXT[BLOCK // 8] = FOCUS.ctypes.data
CASES = [
    ("s4 == 7 or s5 != s5", lambda s, v, a: s(4) == 7),
    ("s4 + s5 * 2 - 3 > s6 // 1 if 0 else s4 < s5", None),
    ("s4 + s5 * 2 - 3 > s6", lambda s, v, a: s(4) + s(5) * 2 - 3 > s(6)),
    ("i32(s4) < 0 and not scc", lambda s, v, a: bool(s(4) >> 31) and not s.scc),
    ("f32(v3[7]) >= f32(s4)", lambda s, v, a: f32(v(3)[7]) >= f32(s(4))),
    ("isnan(f32(v2[5]))", lambda s, v, a: np.isnan(f32(v(2)[5]))),
    ("any(isnan(f32(v2)))", lambda s, v, a: bool((np.isnan(v(2).view(np.float32)) & s.active).any())),
    ("all(v1 >= 0)", lambda s, v, a: True),
    ("any(v200 & 0xff == 0)", lambda s, v, a: bool((((v(200) & 0xFF) == 0) & s.active).any())),
    ("all(f16(v9) != 1.5)", lambda s, v, a: bool(((v(9).astype(np.uint16).view(np.float16) != 1.5) | ~s.active).all())),
    ("any(f16(v0) > 60000)", lambda s, v, a: bool(((v(0).astype(np.uint16).view(np.float16) > 60000) & s.active).any())),
    ("any(bf16(v8) < -1e20)",
     lambda s, v, a: bool(((v(8).astype(np.uint16).view(ml_dtypes.bfloat16).astype("f4") < -1e20) & s.active).any())),
    ("s[6:7] >> 3 == 5 or s[6:7] < 0", lambda s, v, a: bool(s(7) >> 31) or (s(6) | s(7) << 32) >> 3 == 5),
    ("v17[3] % 10 == s9 % 10", lambda s, v, a: int(v(17)[3]) % 10 == s(9) % 10),
    ("abs(f32(v50[1])) * 0.5 <= 1e10 and wave == 3", lambda s, v, a: abs(f32(v(50)[1])) * 0.5 <= 1e10),
    ("$a10[63] ^ 0xffffffff > $v1[0]", lambda s, v, a: int(a(10)[63]) ^ 0xFFFFFFFF > int(v(1)[0])),
    ("(s4 << 3) / 8 == s4 and ~s4 < 0 and -s4 <= 0", lambda s, v, a: True),
    ("0 <= m0 < 4294967296 and s4 / 0 == 0", lambda s, v, a: True),
]  # fmt: skip


class Scalars:
    """A wave's scalar registers and lanes, for tests."""

    def __init__(self, made: np.ndarray) -> None:
        self.words = made.view(np.uint32)
        self.active = np.unpackbits(made[4 * 126 : 4 * 128], bitorder="little").astype(bool)
        self.scc = int(self.words[layout.SCC // 4])

    def __call__(self, number: int) -> int:
        return int(self.words[number])


COMPILED = [case for case in CASES if case[1] is not None]


@pytest.mark.parametrize(("text", "oracle"), COMPILED, ids=[text[:30] for text, _ in COMPILED])
def test_compiled_and_evaluated_conditions(text: str, oracle) -> None:
    expression = Expression(text)
    test = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(expression.test(compiler()))
    for seed in range(40):
        made = wave(seed)
        rows = made.view(np.uint32)[layout.VGPR // 4 :].reshape(512, 64)
        with np.errstate(all="ignore"):
            wanted = bool(oracle(Scalars(made), lambda n: rows[n], lambda n: rows[256 + n]))  # noqa: B023
        assert bool(expression.evaluate(made)) == wanted, seed
        point = Point(0)
        test(made.ctypes.data, point.address)
        assert bool(point.words[HIT]) == wanted, seed
        other = Point(0, wave=2)
        test(made.ctypes.data, other.address)
        assert not other.hit


@pytest.mark.parametrize("text", [
    "", "s4 +", "v300 == 0", "s102 == 1", "a256[0]", "v3[64] == 0", "v3[-1] == 0", "foo(1)", "any()", "any(v1, v2)", "q == 1",
    "s[4:6] == 1", "s[101:102]", "f32(f32(v1[0])) == 1", "f32(v1[0]) & 1", "f32(v1[0]) % 2", "v1 ** 2", "__import__('os')", "'a'",
    "[1]", "(lambda: 1)()", "s4 if s5 else s6", "s4 in s5", "1 << 70 == 0x1ffffffffffffffff", "(" * 300,
])  # fmt: skip
def test_what_does_not_parse_is_one_line(text: str) -> None:
    with pytest.raises(LaunchError) as error:
        Expression(text)
    assert "\n" not in str(error.value) and "condition" in str(error.value)


def test_a_value_a_lane_is_no_condition() -> None:
    with pytest.raises(LaunchError, match="any"):
        Expression("v17 > 3").test(compiler())
