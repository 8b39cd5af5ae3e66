"""Text of a random function in LLVM IR, and the sources of its operands.

Floats become bits (in memory, in bitcasts) only after each NaN was replaced by one fixed NaN, since LLVM does not specify
payloads. Lines end in `; T=TYPE` if a reduction may replace the result by a constant, and in `; keep` if it may not touch them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from simgpu.tools.robustness.ir_values import FLOATS, NAN, DrawnType, DrawnValue, is_odd, literal, random_type, splat

I1, I32, I64 = DrawnType("i1"), DrawnType("i32"), DrawnType("i64")


@dataclass(frozen=True)
class Region:
    """Memory that a lane may use."""

    pointer: str  # IR name of its pointer
    space: str  # letter of its address space
    size: int  # bytes
    align: int  # the pointer's alignment
    writable: bool


class FunctionText:
    """Text of one function, `lines`, and values for its operands."""

    def __init__(self, rng: random.Random, phase: int, accesses: bool, odd_widths: bool) -> None:
        self.rng, self.phase, self.accesses, self.odd_widths = rng, phase, accesses, odd_widths
        self.lines: list[str] = []
        self.names = 0
        self.pool: list[DrawnValue] = []
        self.regions: list[Region] = []
        self.block = "entry"

    # -- text ------------------------------------------------------------------------------------

    def fresh(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def emit(self, text: str, type: DrawnType, keep: bool = False) -> DrawnValue:
        """Emits one instruction with a result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text} ; {'keep' if keep else f'T={type}'}")
        return DrawnValue(name, type)

    def effect(self, text: str, keep: bool = False) -> None:
        self.lines.append(f"  {text}{' ; keep' if keep else ''}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def call(self, name: str, result: DrawnType, *operands: str, keep: bool = False) -> DrawnValue:
        return self.emit(f"call {result} @llvm.{name}({', '.join(operands)})", result, keep)

    # -- operands --------------------------------------------------------------------------------

    def value(self, type: DrawnType) -> DrawnValue:
        """Draws a value of the type: from the pool, converted from the pool, or a constant."""
        same = [v for v in self.pool if v.type == type]
        if same and self.rng.random() < 0.7:
            return self.rng.choice(same[-6:] if self.rng.random() < 0.6 else same)
        if self.rng.random() < 0.2 or not self.pool:
            return DrawnValue(literal(self.rng, type), type)
        return self.convert(self.rng.choice(self.pool[-24:]), type)

    def integer(self) -> DrawnType:
        """Draws an integer type, often one from the pool."""
        mine = [v.type for v in self.pool if not v.type.floating]
        if mine and self.rng.random() < 0.6:
            return self.rng.choice(mine)
        return self.random_type().integer

    def random_type(self) -> DrawnType:
        return random_type(self.rng, self.odd_widths)

    def floating(self) -> DrawnType:
        mine = [v.type for v in self.pool if v.type.floating]
        if mine and self.rng.random() < 0.5:
            return self.rng.choice(mine)
        return DrawnType(self.rng.choice(tuple(FLOATS)), self.rng.choice((0, 0, 0, 2, 3, 4)))

    def convert(self, given: DrawnValue, type: DrawnType) -> DrawnValue:
        """Converts `given` to `type`: as an integer of its bits, or element by element if the shapes agree."""
        if given.type == type:
            return given
        if given.type.count == type.count and self.rng.random() < 0.6:
            return self.element_conversion(given, type)
        bits = self.resize(self.bits(given), type.bits)
        return self.from_bits(bits, type)

    def resize(self, given: DrawnValue, width: int) -> DrawnValue:
        have = given.type.width
        if have == width:
            return given
        to = DrawnType(f"i{width}", given.type.count)
        signs = self.odd_widths or not (is_odd(have) or is_odd(width))
        wider = self.rng.choice(("zext", "sext")) if signs else "zext"
        return self.emit(f"{'trunc' if have > width else wider} {given.type} {given.text} to {to}", to)

    def bits(self, given: DrawnValue) -> DrawnValue:
        """Returns the scalar integer of the value's bits."""
        to = DrawnType(f"i{given.type.bits}")
        if given.type == to:
            return given
        clean = self.canonical(given)
        return self.emit(f"bitcast {clean.type} {clean.text} to {to}", to)

    def from_bits(self, given: DrawnValue, type: DrawnType) -> DrawnValue:
        if given.type == type:
            return given
        if type.floating:  # no float operation reads what a shift extended: `sdwa-loses-the-sign` in ir_faults.py
            given = self.emit(f"mul {given.type} {given.text}, 5", given.type)
        made = self.emit(f"bitcast {given.type} {given.text} to {type}", type)
        return self.canonical(made)

    def canonical(self, given: DrawnValue) -> DrawnValue:
        """Replaces every NaN of the value by one NaN."""
        type = given.type
        if not type.floating:
            return given
        odd = self.emit(f"fcmp uno {type} {given.text}, {given.text}", type.of("i1"), keep=True)
        nan = splat(type, NAN[type.element])
        return self.emit(f"select {odd.type} {odd.text}, {type} {nan}, {type} {given.text}", type, keep=True)

    def element_conversion(self, given: DrawnValue, type: DrawnType) -> DrawnValue:
        a, b = given.type, type
        if not a.floating and not b.floating:
            return self.resize(given, b.width)
        if a.floating and b.floating:
            return self.float_conversion(given, b)
        if a.floating:
            to = b if b.width <= 64 else b.of("i64")
            made = self.emit(f"call {to} @llvm.fpto{self.rng.choice('su')}i.sat.{to.suffix}.{a.suffix}({a} {given.text})", to)
            return self.resize(made, b.width)
        # Wide integers to narrow floats round twice on some machines, so they go through a width that the next format holds.
        most = {"half": 16, "bfloat": 16, "float": 64, "double": 64}[b.element]
        narrow = self.resize(given, most) if a.width > most else given
        return self.emit(f"{self.rng.choice('su')}itofp {narrow.type} {narrow.text} to {b}", b)

    def float_conversion(self, given: DrawnValue, type: DrawnType) -> DrawnValue:
        a = given.type
        if a.width == type.width:  # half and bfloat
            middle = type.of("float")
            return self.float_conversion(self.emit(f"fpext {a} {given.text} to {middle}", middle), type)
        return self.emit(f"{'fptrunc' if a.width > type.width else 'fpext'} {a} {given.text} to {type}", type)

    def divergent(self, given: DrawnValue) -> DrawnValue:
        """Returns a value that differs between lanes: `phi-in-scalar-registers` in ir_faults.py."""
        bits = self.bits(given)
        lane = self.resize(DrawnValue("%lane", I32), bits.type.width)
        return self.from_bits(self.emit(f"xor {bits.type} {bits.text}, {lane.text}", bits.type, keep=True), given.type)

    def index(self, mask: int) -> DrawnValue:
        """Draws an i32 of 0..mask (a power of two less one), by lane or data."""
        source = self.value(I32)
        if self.rng.random() < 0.3:
            source = DrawnValue("%lane", I32)
        return self.emit(f"and i32 {source.text}, {mask}", I32, keep=True)

    def select(self, test: DrawnValue, yes: DrawnValue, no: DrawnValue) -> DrawnValue:
        return self.emit(f"select {test.type} {test.text}, {yes.type} {yes.text}, {no.type} {no.text}", yes.type)
