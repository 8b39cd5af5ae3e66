"""An IR value with operators, so that emitted arithmetic reads like the formula that it computes.

    linear = index * stride + offset
    fits = (offset + size).unsigned <= records

Each operator emits one instruction, at its builder's position. A Python number becomes a constant of the value's own
type, and a scalar that meets a vector is spread over its lanes. Signedness is explicit: `a.unsigned < b`, `a.signed < b`;
`a >> n` shifts zeros in, `a.ashr(n)` copies of the sign. `Builder` returns Values, and accepts them or llvmlite's own.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
WIDTHS = {**{ir.IntType(bits): bits for bits in (1, 8, 16, 32, 64, 128)}, ir.HalfType(): 16, F32: 32, F64: 64}  # bits
_OPERANDS = (ir.Instruction, ir.Argument, ir.Constant)


class Splat(ir.Constant):
    """A vector constant with the same value in every lane, in LLVM's short form: llvmlite would make and print each lane's."""

    def __init__(self, type_: ir.VectorType, lane: ir.Constant) -> None:
        self.type = type_
        self._lane = lane

    def _get_reference(self) -> str:
        return "undef" if self._lane.constant is ir.Undefined else f"splat ({self._lane})"


class VolatileLoad(ir.LoadInstr):
    """A load that LLVM neither splits nor repeats."""

    def descr(self, buf: list[str]) -> None:
        super().descr(buf)
        buf[-1] = buf[-1].replace("load", "load volatile", 1)


def constant(type_: ir.Type, value: float) -> ir.Constant:
    """Returns the number as a constant of the type, in every lane of a vector."""
    return Splat(type_, ir.Constant(type_.element, value)) if isinstance(type_, ir.VectorType) else ir.Constant(type_, value)


def undefined_value(type_: ir.Type) -> ir.Constant:
    """Returns an undefined value of the type."""
    return constant(type_, ir.Undefined)


@functools.cache
def lane_numbers(lanes: Sequence[int]) -> ir.Constant:
    """Returns a vector of i32, as shuffles take it; lanes: a range or tuple."""
    return ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes) if any(lanes) else None)


def plain(value: Any) -> Any:
    """Returns llvmlite's own value of a Value, or of each of several; anything else unchanged."""
    if isinstance(value, IrValue):
        return value.ir
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _operator(integers: str, floats: str = "", reflected: bool = False) -> Callable[[IrValue, Any], IrValue]:
    """Returns an operator of two values, from the builder's method names."""

    def operate(self: IrValue, other: Any) -> IrValue:
        a, b = self.align_shapes(other)
        return getattr(self.build, floats if self.is_float else integers)(*((b, a) if reflected else (a, b)))

    return operate


def _operators(integers: str, floats: str = "") -> tuple[Callable[[IrValue, Any], IrValue], Callable[[IrValue, Any], IrValue]]:
    return _operator(integers, floats), _operator(integers, floats, reflected=True)


def _conversion(name: str) -> Callable[[IrValue, ir.Type], IrValue]:
    """Returns a conversion to another type, of a scalar or of a vector's lanes."""

    def convert(self: IrValue, type_: ir.Type) -> IrValue:
        whole = isinstance(type_, ir.VectorType) or not self.lanes
        return getattr(self.build, name)(self, type_ if whole else ir.VectorType(type_, self.lanes))

    return convert


class IrValue:
    """An llvmlite value, `ir`, and the builder that its operators emit with."""

    def __init__(self, build: Builder, value: Any) -> None:
        self.build = build
        self.ir = plain(value)
        self.type = self.ir.type
        self.lanes = self.type.count if isinstance(self.type, ir.VectorType) else 0  # of a vector, else 0

    def get_reference(self) -> str:
        """Returns the text of this operand in instructions of llvmlite's own builder."""
        return str(self.ir.get_reference())

    @property
    def is_float(self) -> bool:
        scalar = self.type.element if self.lanes else self.type
        return isinstance(scalar, (ir.HalfType, ir.FloatType, ir.DoubleType))

    def align_shapes(self, other: Any) -> tuple[IrValue, IrValue]:
        """Returns this and the other value in one shape."""
        other = IrValue(self.build, constant(self.type, other) if isinstance(other, (int, float)) else other)
        if self.lanes and not other.lanes:
            return self, other.splat(self.lanes)
        return (self.splat(other.lanes) if other.lanes and not self.lanes else self), other

    __add__, __radd__ = _operators("add", "fadd")
    __sub__, __rsub__ = _operators("sub", "fsub")
    __mul__, __rmul__ = _operators("mul", "fmul")
    __truediv__, __rtruediv__ = _operators("", "fdiv")
    __and__, __rand__ = _operators("and_")
    __or__, __ror__ = _operators("or_")
    __xor__, __rxor__ = _operators("xor")
    __lshift__, __rlshift__ = _operators("shl")
    __rshift__, __rrshift__ = _operators("lshr")
    ashr = _operator("ashr")

    def __invert__(self) -> IrValue:
        return self.build.not_(self)

    def __neg__(self) -> IrValue:
        return self.build.fneg(self) if self.is_float else self.build.neg(self)

    def __eq__(self, other: object) -> IrValue:  # type: ignore[override]
        return (self.ordered if self.is_float else self.unsigned).test("==", other)

    def __ne__(self, other: object) -> IrValue:  # type: ignore[override]
        return (Order(self, self.build.fcmp_unordered) if self.is_float else self.unsigned).test("!=", other)

    @property
    def unsigned(self) -> Order:
        return Order(self, self.build.icmp_unsigned)

    @property
    def signed(self) -> Order:
        return Order(self, self.build.icmp_signed)

    @property
    def ordered(self) -> Order:
        """Comparisons of floats that are false if one is NaN."""
        return Order(self, self.build.fcmp_ordered)

    def is_nan(self) -> IrValue:
        return self.build.fcmp_unordered("uno", self, self)

    __hash__ = None  # type: ignore[assignment]
    __iter__ = None

    def __bool__(self) -> bool:
        raise TypeError("an emitter must not branch on a value: use where(), or the builder's if_then()")

    zext, sext, trunc = _conversion("zext"), _conversion("sext"), _conversion("trunc")
    fpext, fptrunc = _conversion("fpext"), _conversion("fptrunc")
    uitofp, sitofp, fptosi, fptoui = (_conversion(name) for name in ("uitofp", "sitofp", "fptosi", "fptoui"))

    def bitcast(self, type_: ir.Type) -> IrValue:
        """Reinterprets all the bits as another type."""
        return self.build.bitcast(self, type_)

    def splat(self, lanes: int) -> IrValue:
        """Spreads the scalar over every lane."""
        kind = ir.VectorType(self.type, lanes)
        if isinstance(self.ir, ir.Constant):
            return IrValue(self.build, Splat(kind, self.ir))
        return self.build.insert_element(undefined_value(kind), self, ir.Constant(I32, 0)).shuffle([0] * lanes)

    def shuffle(self, lanes: Sequence[int], other: Any = None) -> IrValue:
        """Returns a vector of lanes by their numbers; numbers of `other` follow this value's."""
        second = undefined_value(self.type) if other is None else other
        return self.build.shuffle_vector(self, second, lane_numbers(tuple(lanes)))

    def __getitem__(self, lane: Any) -> IrValue:
        return self.build.extract_element(self, ir.Constant(I32, lane) if isinstance(lane, int) else lane)

    def at(self, offset: Any) -> IrValue:
        """Returns the pointer `offset` bytes (int, i32 or i64) further."""
        if isinstance(offset, int) and offset == 0:
            return self
        step = IrValue(self.build, ir.Constant(I64, offset) if isinstance(offset, int) else offset)
        return self.build.gep(self, [step.zext(I64) if step.type == I32 else step], inbounds=True, source_etype=I8)

    def load(self, type_: ir.Type, align: int = 4) -> IrValue:
        """Loads the value at the pointer."""
        return self.build.load(self, align=align, typ=type_)

    def load_volatile(self, type_: ir.Type, align: int = 4) -> IrValue:
        """Loads the value by a load that LLVM leaves as it is; up to 16 bytes at once, in case another thread is storing them."""
        load = VolatileLoad(self.build.block, self.ir, typ=type_)
        load.align = align
        self.build._insert(load)
        return IrValue(self.build, load)

    def store(self, value: Any, align: int = 4) -> None:
        """Stores a value at the pointer."""
        self.build.store(value, self, align=align)

    def pointer(self) -> IrValue:
        """Converts the address to a pointer."""
        return self.build.inttoptr(self, ir.PointerType())

    def address(self) -> IrValue:
        """Converts the pointer to an address, i64."""
        return self.build.ptrtoint(self, I64)


class Order:
    """Comparison operators of a value: `signed` and so on."""

    def __init__(self, value: IrValue, compare: Callable[..., IrValue]) -> None:
        self.value = value
        self.compare = compare

    def test(self, how: str, other: Any) -> IrValue:
        return self.compare(how, *self.value.align_shapes(other))

    __lt__ = functools.partialmethod(test, "<")
    __le__ = functools.partialmethod(test, "<=")
    __gt__ = functools.partialmethod(test, ">")
    __ge__ = functools.partialmethod(test, ">=")


class Phi(IrValue):
    """A value that depends on the block that control comes from."""

    def add_incoming(self, value: Any, block: ir.Block) -> None:
        self.ir.add_incoming(plain(value), block)


def where(condition: IrValue, a: Any, b: Any) -> IrValue:
    """Selects `a` if the condition holds, else `b`, by lane for vectors; one of the two may be a number."""
    build = condition.build
    like = IrValue(build, b if isinstance(a, (int, float)) else a)
    a, b = like.align_shapes(a)[1], like.align_shapes(b)[1]
    return build.select(condition.splat(like.lanes) if like.lanes and not condition.lanes else condition, a, b)


def default_nan(value: IrValue) -> IrValue:
    """Replaces any NaN by the default one: hosts differ in the NaN that a sum of several NaNs returns."""
    return where(value.is_nan(), math.nan, value)


class TooMuch(Exception):
    """Raised when more code is emitted than the caller allows."""


class Builder(ir.IRBuilder):
    """llvmlite's builder, which accepts and returns Values."""

    room: int | None = None  # bits of vectors that may still be computed before TooMuch is raised; None: no limit

    def _insert(self, inst: Any) -> None:
        super()._insert(inst)
        if self.room is not None and isinstance(inst.type, ir.VectorType):
            self.room -= inst.type.count * WIDTHS.get(inst.type.element, 0)
            if self.room < 0:
                raise TooMuch


def _with_values(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def operation(self: Builder, *args: Any, **options: Any) -> Any:
        made = method(self, *map(plain, args), **options)
        wrapped = _wrapped_in(type(made))  # type: ignore  # mypy takes an instance's __hash__ for the class's
        return wrapped(self, made) if wrapped else made

    return operation


@functools.cache
def _wrapped_in(kind: type) -> type[IrValue] | None:
    """Returns the Value class for an llvmlite class, or None if its objects are used unchanged."""
    if issubclass(kind, ir.PhiInstr):
        return Phi
    return IrValue if issubclass(kind, _OPERANDS) and not issubclass(kind, (ir.AllocaInstr, ir.Terminator)) else None


for _name, _method in inspect.getmembers(ir.IRBuilder, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(Builder, _name, _with_values(_method))


def join_vectors(pieces: Sequence[IrValue], lanes: int) -> list[IrValue]:
    """Joins consecutive vectors of equal size into vectors of `lanes` lanes."""
    pieces = list(pieces)
    while (size := 2 * pieces[0].lanes) <= lanes:
        pieces = [a.shuffle(range(size), b) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces
