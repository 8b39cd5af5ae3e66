"""Every VALU body traced on an engine that checks types: bodies use only what `lane.Ops` allows."""

from __future__ import annotations

from typing import Any, ClassVar

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Number, Value
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.hardware.isa.types import Type
from tests.support.sweeps import swept
from tests.support.valu_reference import MODULES

VALU = ("vop1", "vop2", "vopc", "vop3", "vop3p")
BODIES = [s for s in REGISTRY.specs if s.encoding in VALU and s.kind in ("lane", "wave")]
INTEGER = {"and", "or", "xor", "shl", "lshr", "ashr", "udiv", "mul_hi", "min", "max"}
FLOAT = {"div"}
BOTH = {"add", "sub", "mul"}
FLOAT_UNARY = {"floor", "ceil", "trunc", "rint", "sqrt", "quiet"}
INTEGER_UNARY = {"ctlz", "cttz", "ctpop", "bitreverse"}


def family(type_: Type) -> str:
    return "float" if type_.is_float else "int" if type_.is_int else "condition"


class Checker:
    """Engine whose raw values are (bits, family). It refuses an operand of another width or family."""

    functions: ClassVar[dict[str, Any]] = {}

    def need(self, type_: Type, *raw: Any) -> tuple[int, str]:
        own = (1 if type_.kind == "mask" else type_.bits, family(type_))
        for value in raw:
            assert value == own, f"{value} where {type_} is declared"
        return own

    def const(self, type_: Type, value: Number) -> Any:
        if type_.is_int:
            assert isinstance(value, int) and -(1 << type_.bits) < value < 1 << type_.bits
        if type_.is_float:
            assert isinstance(value, float), f"{value!r} for {type_}"
        return self.need(type_)

    def binary(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        if type_.kind == "mask":
            assert op in ("and", "or", "xor")
        else:
            assert op in BOTH | (FLOAT if type_.is_float else INTEGER), f"{op} of {type_}"
        return self.need(type_, a, b)

    def unary(self, op: str, type_: Type, a: Any) -> Any:
        allowed = {"neg", "abs"} | FLOAT_UNARY if type_.is_float else {"not", "neg"} | INTEGER_UNARY
        assert op in ({"not"} if type_.kind == "mask" else allowed), f"{op} of {type_}"
        return self.need(type_, a)

    def compare(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        assert type_.is_float or op != "uno"
        self.need(type_, a, b)
        return self.need(t.u1)

    def where(self, type_: Type, condition: Any, a: Any, b: Any) -> Any:
        assert condition == (1, "condition")
        return self.need(type_, a, b)

    def unlikely(self, type_: Type, condition: Any, usual: Any, special: Any) -> Any:
        return self.where(type_, condition, special(), usual)

    def fma(self, type_: Type, a: Any, b: Any, c: Any) -> Any:
        assert type_.is_float
        return self.need(type_, a, b, c)

    def convert(self, source: Type, target: Type, a: Any) -> Any:
        assert source.kind != "mask" and target.kind != "mask"
        self.need(source, a)
        return self.need(target)

    def bitcast(self, source: Type, target: Type, a: Any) -> Any:
        assert source.bits == target.bits
        self.need(source, a)
        return self.need(target)

    def lane_id(self) -> Any:
        return self.need(t.u32)

    def read_lane(self, type_: Type, row: Any, lane: Any) -> Any:
        return self.need(type_, row)

    def write_lane(self, type_: Type, row: Any, lane: Any, value: Any) -> Any:
        return self.need(type_, row, value)

    def gather(self, type_: Type, row: Any, lanes: Any) -> Any:
        return self.need(type_, row)

    def scatter(self, type_: Type, row: Any, lanes: Any, active: Any) -> Any:
        return self.need(type_, row)

    def ballot(self, condition: Any) -> Any:
        return self.need(t.u64)

    def splat(self, type_: Type, scalar: Any) -> Any:
        return self.need(type_)


ENGINE = Checker()


def operand(type_: Type) -> Any:
    if type_.kind == "pair":
        assert type_.element is not None
        return tuple(operand(type_.element) for _ in range(type_.bits // type_.element.bits))
    value = t.u1 if type_.kind == "mask" else type_
    return Value(ENGINE, value, ENGINE.need(value))


def check_result(type_: Type, result: Any) -> None:
    if type_.kind == "pair":
        assert type_.element is not None and isinstance(result, tuple)
        assert len(result) == type_.bits // type_.element.bits
        for value in result:
            check_result(type_.element, value)
    elif type_.kind == "mask":
        assert result.type is t.u1
    else:
        assert result.type.bits == type_.bits and family(result.type) == family(type_)


@swept("spec", BODIES, ids=repr)
def test_body_is_well_typed(spec: Spec) -> None:
    """Checks with each modifier at its default, and set."""
    assert spec.body is not None and MODULES
    operands = {p.name: operand(p.type) for p in spec.params if p.type.state != "modifier"}
    names = [p.name for p in spec.params if p.type.state == "modifier"]
    for modifiers in ({}, {name: 1 for name in names}):
        result = spec.body(**operands, **modifiers)
        results = result if len(spec.results) > 1 else (result,)
        for type_, value in zip(spec.results, results, strict=True):
            check_result(type_, value)
