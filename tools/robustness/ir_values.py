"""Types, literals and single operations of random LLVM IR, without undefined behaviour, for `ir_programs.py`."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
MANTISSA = {"half": 10, "bfloat": 7, "float": 23, "double": 52}
WIDTHS = (1, 8, 8, 16, 16, 32, 32, 32, 64, 64, 128, 3, 7, 13, 24, 33, 40, 48, 56, 65)
BYTE_WIDTHS = (8, 16, 24, 32, 40, 48, 56, 64, 96, 128)  # integers that memory holds without padding
ELEMENTS = ("i8", "i16", "i32", "i64", "half", "bfloat", "float", "double")
COUNTS = (2, 2, 3, 4, 4, 8)


@dataclass(frozen=True)
class DrawnType:
    """An integer or float, or a vector of `count` of them; element: LLVM's name of the scalar."""

    element: str
    count: int = 0

    @property
    def floating(self) -> bool:
        return self.element in FLOATS

    @property
    def width(self) -> int:
        """Bits of one element."""
        return FLOATS.get(self.element) or int(self.element[1:])

    @property
    def bits(self) -> int:
        return self.width * max(1, self.count)

    @property
    def integer(self) -> DrawnType:
        """Integer type of the same shape."""
        return DrawnType(f"i{self.width}", self.count)

    @property
    def suffix(self) -> str:
        """Spelling in names of intrinsics: v4f32, i32, bf16."""
        name = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}.get(self.element, self.element)
        return f"v{self.count}{name}" if self.count else name

    def of(self, element: str) -> DrawnType:
        return DrawnType(element, self.count)

    def __str__(self) -> str:
        return f"<{self.count} x {self.element}>" if self.count else self.element


@dataclass(frozen=True)
class DrawnValue:
    """An operand: its text (`%v3` or a literal) and type."""

    text: str
    type: DrawnType


def is_odd(width: int) -> bool:
    """Tells whether a width needs two registers and does not fill them."""
    return 32 < width < 64


def random_type(rng: random.Random, odd_widths: bool) -> DrawnType:
    kind = rng.randrange(10)
    if kind < 5:
        return DrawnType(f"i{rng.choice([width for width in WIDTHS if odd_widths or not is_odd(width)])}")
    if kind < 7:
        return DrawnType(rng.choice(tuple(FLOATS)))
    return DrawnType(rng.choice(ELEMENTS), rng.choice(COUNTS))


def memory_type(rng: random.Random, odd_widths: bool) -> DrawnType:
    """Draws a type that has no padding in memory."""
    if rng.randrange(3) == 0:
        if rng.randrange(4):
            return DrawnType(rng.choice(ELEMENTS), rng.choice(COUNTS))
        return DrawnType(rng.choice(("i8", "i16", "half")), 16)
    return DrawnType(rng.choice((*(f"i{w}" for w in BYTE_WIDTHS if odd_widths or not is_odd(w)), *FLOATS)))


def splat(type: DrawnType, scalar: str) -> str:
    return "<" + ", ".join(f"{type.element} {scalar}" for _ in range(type.count)) + ">" if type.count else scalar


def literal(rng: random.Random, type: DrawnType) -> str:
    """Draws a constant without NaN."""
    if type.count:
        return "<" + ", ".join(f"{type.element} {_scalar(rng, type)}" for _ in range(type.count)) + ">"
    return _scalar(rng, type)


def _scalar(rng: random.Random, type: DrawnType) -> str:
    if type.floating:
        values = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.75, 1e-3, 100.0, float("inf"), rng.gauss(0, 50))
        value = rng.choice(values)
        if type.width == 16:
            value += 0.0  # no -0.0: `minus-zero-becomes-zero` in ir_faults.py
        return float_text(type.element, value)
    if type.width == 1:
        return rng.choice(("true", "false"))
    edge = 1 << type.width - 1
    value = rng.choice((0, 1, -1, edge - 1, -edge, rng.randrange(-edge, edge), rng.randrange(-min(edge, 128), min(edge, 128))))
    return str(value)


def float_text(element: str, value: float) -> str:
    """Formats LLVM's hexadecimal form; the value is rounded toward zero to the format."""
    if element == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    single = struct.unpack("<I", struct.pack("<f", value))[0]
    if element == "bfloat":
        return f"0xR{single >> 16:04X}"
    rounded = struct.unpack("<f", struct.pack("<I", single))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


NAN = {"half": "0xH7E00", "bfloat": "0xR7FC0", "float": "0x7FF8000000000000", "double": "0x7FF8000000000000"}


def neutral(type_text: str) -> str:
    """Returns a constant of a printed type."""
    if type_text.startswith("<"):
        return "zeroinitializer"
    if type_text in FLOATS:
        return float_text(type_text, 1.0)
    return "false" if type_text == "i1" else "1"


BINARY = ("add", "sub", "mul", "and", "or", "xor")
SHIFTS = ("shl", "lshr", "ashr")
DIVISIONS = ("udiv", "sdiv", "urem", "srem")
INTEGER_PAIRS = ("smin", "smax", "umin", "umax", "sadd.sat", "uadd.sat", "ssub.sat", "usub.sat")
FLOAT_BINARY = ("fadd", "fsub", "fmul", "fdiv")
FLOAT_UNARY = ("fabs", "floor", "ceil", "trunc", "rint", "roundeven", "sqrt")
INTEGER_TESTS = ("eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle")
FLOAT_TESTS = ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno")
