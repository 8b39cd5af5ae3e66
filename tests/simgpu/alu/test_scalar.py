"""Every scalar instruction's handler gives the same results as its body on the numpy engine.

test_isa_scalar compares bodies with independent references; this file tests the lowering, with SCC, EXEC, constants and
overlapping operands.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from simgpu.hardware.isa.instruction import Const, Imm, Instruction, Literal, Reg
from simgpu.hardware.isa.lane_numpy import evaluate
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.hardware.isa.types import Type
from tests.support.one_instruction import Wave
from tests.support.sweeps import swept

SPECS = [
    spec for spec in REGISTRY.specs
    if spec.encoding in ("sop1", "sop2", "sopc", "sopk") and spec.kind == "lane"
]  # fmt: skip
SPECIAL = [0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x8000, 0x00010000]
STATES = ("scc", "exec", "vcc", "m0")
REGISTER = {"exec": 126, "vcc": 106, "m0": 124}


def random_word(rng: np.random.Generator) -> int:
    if rng.random() < 0.5:
        return int(rng.choice(SPECIAL))
    return int(rng.integers(0, 2**32))


def pair(wave: Wave, at: int, bits: int) -> int:
    words = [int(wave.s[at + i]) for i in range(max(1, bits // 32))]
    return words[0] | (words[1] << 32 if len(words) > 1 else 0)


def array(type_: Type, value: int) -> Any:
    """Returns a raw argument of the body."""
    if type_.kind == "mask":
        return np.asarray(bool(value))
    kind = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[type_.bits]
    return np.asarray(value & (1 << type_.bits) - 1, kind)


class Case:
    """An instruction with random operands, some of them constants and shared registers."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self.spec = spec
        self.rng = np.random.default_rng([zlib.crc32(spec.mnemonic.encode()), seed])
        self.wave = Wave()
        self.wave.s[:] = [random_word(self.rng) for _ in range(128)]
        self.wave.scc = int(self.rng.integers(0, 2))
        self.args: dict[str, Any] = {}
        self.raw: list[Any] = []
        self.has_literal = False
        written = [type_ for type_ in spec.results if type_.state == ""]
        target = Reg("s", 20, max(1, written[0].bits // 32)) if written else Reg("s", 20)
        position = 0
        for param in spec.params:
            if param.type.state in STATES:
                self.raw.append(array(param.type, self.state(param.type)))
            elif param.name == "sdst":
                target = Reg("s", 20, max(1, param.type.bits // 32))
                self.args["sdst"] = target
                self.raw.append(array(param.type, pair(self.wave, 20, param.type.bits)))
            elif param.name == "simm16":
                value = int(self.rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF, int(self.rng.integers(0, 2**16))]))
                self.args["simm16"] = Imm(value)
                signed = param.type.kind == "signed"
                extended = value - 0x10000 if signed and value & 0x8000 else value
                self.raw.append(array(param.type, extended))
            else:
                self.raw.append(self.source(f"src{position}", param.type))
                position += 1
        if written:
            self.args["sdst"] = target

    def state(self, type_: Type) -> int:
        if type_.state == "scc":
            return self.wave.scc
        return pair(self.wave, REGISTER[type_.state], type_.bits)

    def source(self, name: str, type_: Type) -> Any:
        wide = type_.bits == 64
        choice = self.rng.integers(0, 5)
        if choice == 0:
            code = int(self.rng.integers(128, 209))
            self.args[name] = Const(code)
            return array(type_, code - 128 if code <= 192 else 192 - code)
        if choice == 1 and not self.has_literal:
            self.has_literal = True
            value = random_word(self.rng)
            self.args[name] = Literal(value)
            if wide and type_.kind == "signed" and value >> 31:
                value -= 1 << 32
            return array(type_, value)
        at = int(self.rng.choice([20, 22, 24, 106, 126]))
        self.args[name] = Reg("s", at, 2 if wide else 1)
        return array(type_, pair(self.wave, at, type_.bits))

    def check(self) -> None:
        with np.errstate(all="ignore"):
            outputs = evaluate(self.spec, *self.raw)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        before = self.wave.s.copy()
        scc = self.wave.scc
        want = before.copy()
        for type_, out in zip(self.spec.results, outputs, strict=True):
            if type_.state == "scc":
                scc = int(bool(out))
                continue
            at = REGISTER.get(type_.state, 20)
            value = int(out)
            want[at] = value & 0xFFFFFFFF
            if type_.bits == 64:
                want[at + 1] = value >> 32
        self.wave.run(Instruction(self.spec, sorted(self.spec.opcodes)[-1], "e32", self.args))
        np.testing.assert_array_equal(self.wave.s, want)
        assert self.wave.scc == scc


@swept("spec", SPECS, ids=lambda spec: spec.mnemonic, parts=3)
def test_handler_equals_body(spec: Spec) -> None:
    for seed in range(12):
        Case(spec, seed).check()


def test_every_scalar_instruction_is_here() -> None:
    assert len(SPECS) > 120
    kinds = {spec.kind for spec in REGISTRY.specs if spec.encoding in ("sop1", "sop2", "sopc", "sopk", "sopp")}
    assert kinds == {"lane", "control"}
