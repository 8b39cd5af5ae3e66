"""Integer arithmetic on registers, written as formulas.

    k.set(offset, (of(row) + 4) * stride + of(column) * 2, note="bytes")
    lane = k.vector("lane of a quad", of(k.work_item) // 4 % 16)

A closed form that takes integers or arrays (`operators.gemm.layout`) takes formulas too: what numpy computes is then emitted. `of`
says below which limit a register is. So a quotient or remainder that is known becomes a constant, and others fewer instructions.

Only SGPRs and numbers: scalar instructions, which change SCC. Parts of a vector formula that have no VGPR are scalar, too. Values
are unsigned and have 32 bits. A VGPR that is multiplied by a number is below 2^24, unless its limit says otherwise:
v_mul_u32_u24 is four times as fast as v_mul_lo_u32. Temporaries are registers of their own, and a target as soon as no later
instruction reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from simgpu.asm.builder.registers import INLINE_INTEGERS
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Reg

SCALAR = {"+": "s_add_u32", "-": "s_sub_u32", "*": "s_mul_i32", "&": "s_and_b32", "|": "s_or_b32", "^": "s_xor_b32",
          "high": "s_mul_hi_u32", "set": "s_mov_b32"}  # fmt: skip
VECTOR = {"+": "v_add_u32", "&": "v_and_b32", "|": "v_or_b32", "^": "v_xor_b32", "high": "v_mul_hi_u32"}
FACTORS = 1 << 24  # v_mul_u32_u24 takes smaller ones
DIVIDEND_LIMIT = 1 << 31  # numbers that `division_words` divides are below
Term = Any  # a formula, a register or a number


@dataclass(frozen=True)
class Formula:
    """An operation on registers, numbers and other formulas. `of` begins one.

    op: + - * // % & | ^, least and most with the type that they compare, such as min_u32, "is" of a register, "set" of a
    number, or "high", the upper word of a product. Divisors are numbers. limit: the value is below; None: not known.
    """

    op: str
    operands: tuple[Term, ...]
    limit: int | None = None

    @cached_property
    def vector(self) -> bool:
        """True if it has a VGPR."""
        return any(map(is_vector, self.operands))

    def __add__(self, other: Term) -> Formula:
        x, y = _in_order(self, other)
        if isinstance(x, int):
            return integer(x + y)
        if y == 0:
            return x  # type: ignore[no-any-return]
        if isinstance(y, int) and x.op == "+" and isinstance(x.operands[1], int):
            return _formula(x.operands[0]) + (x.operands[1] + y)
        for one, rest in ((x, y), (y, x)):
            quotient, factor = _product(one)
            if isinstance(rest, Formula) and rest.op == "%" and factor == rest.operands[1]:
                if quotient == rest.operands[0] // factor:
                    return _formula(rest.operands[0])
        return _operation("+", x, y, lambda x, y: x + y)

    def __sub__(self, other: Term) -> Formula:
        return self if operand_of(other) == 0 else Formula("-", (self, other))

    def __rsub__(self, other: Term) -> Formula:
        return Formula("-", (other, self))

    def __mul__(self, other: Term) -> Formula:
        x, y = _in_order(self, other)
        if isinstance(x, int) or y == 0:
            return integer(x * y if isinstance(x, int) else 0)
        if not isinstance(y, int):
            return Formula("*", (x, y))
        x, factor = _product(x)
        return _formula(x) if factor * y == 1 else _operation("*", x, factor * y, lambda x, y: x * y)

    def __floordiv__(self, divisor: int) -> Formula:
        return _formula(_split(self, divisor)[0])

    def __mod__(self, divisor: int) -> Formula:
        return _formula(_split(self, divisor)[1])

    def __and__(self, other: Term) -> Formula:
        x, y = _in_order(self, other)
        if isinstance(y, int) and y >= 0 and not y & (y + 1):
            return x % (y + 1)  # type: ignore[no-any-return]
        return Formula("&", (x, y), y + 1 if isinstance(y, int) and y >= 0 else None)

    def __or__(self, other: Term) -> Formula:
        x, y = _in_order(self, other)
        return x if y == 0 else _operation("|", x, y, _all_bits)

    def __xor__(self, other: Term) -> Formula:
        x, y = _in_order(self, other)
        return x if y == 0 else _operation("^", x, y, _all_bits)

    __radd__, __rmul__, __rand__, __ror__, __rxor__ = __add__, __mul__, __and__, __or__, __xor__

    def below(self, limit: int) -> Formula:
        """Returns the same value, known to be below a limit."""
        return replace(self, limit=limit)

    def least(self, other: Term, kind: str = "u32") -> Formula:
        """Returns the smaller value. kind: i32 if values have signs."""
        if isinstance(other, int) and self.limit is not None and self.limit <= other + 1:
            return self
        return _operation(f"min_{kind}", self, other, min)

    def most(self, other: Term, kind: str = "u32") -> Formula:
        """Returns the larger value. kind: as in `least`."""
        return _operation(f"max_{kind}", self, other, max)


def of(value: Reg, limit: int | None = None) -> Formula:
    """Returns the formula that is a register. limit: its value is below.

    >>> from simgpu.asm.builder.formula import of
    >>> from simgpu.asm.builder.kernel import KernelBuilder
    >>> k = KernelBuilder("places", "gfx942", workgroup_size=64)
    >>> place = k.vector("place", (of(k.work_item) % 16 + of(k.group_x) * 16) * 4)
    >>> for instruction in k.items:
    ...     print(instruction.text())
    v_and_b32 v1, 15, v0
    s_lshl_b32 s4, s2, 4
    v_add_lshl_u32 v1, v1, s4, 2
    """
    return Formula("is", (value,), limit)


def integer(value: int) -> Formula:
    """Returns the formula that is a number."""
    return Formula("is", (value,), value + 1 if value >= 0 else None)


def log2(value: int) -> int | None:
    """Returns the exponent of a power of two, else None."""
    return value.bit_length() - 1 if value > 0 and not value & (value - 1) else None


# -- closed forms ------------------------------------------------------------------------------


def _formula(x: Term) -> Formula:
    return x if isinstance(x, Formula) else integer(x) if isinstance(x, int) else of(x)


def _in_order(x: Term, y: Term) -> tuple[Any, Any]:
    """Returns two operands, a formula before a number; both may be numbers."""
    x, y = (operand_of(one) if isinstance(operand_of(one), int) else one for one in (x, y))
    if isinstance(x, int):
        x, y = y, x
    return x if isinstance(x, int) else _formula(x), y


def _limit(x: Term) -> int | None:
    return x.limit if isinstance(x, Formula) else x + 1 if isinstance(x, int) and x >= 0 else None


def _operation(op: str, x: Term, y: Term, most: Any) -> Formula:
    """Returns an operation. most: computes the largest value from those of x and y."""
    limits = _limit(x), _limit(y)
    limit = None if limits[0] is None or limits[1] is None else most(limits[0] - 1, limits[1] - 1) + 1
    return Formula(op, (x, y), limit if limit is not None and limit <= 1 << 32 else None)


def _all_bits(x: int, y: int) -> int:
    return (1 << max(x, y).bit_length()) - 1


def _product(x: Term) -> tuple[Term, int]:
    """Returns (y, factor): x = y · factor."""
    return x.operands if isinstance(x, Formula) and x.op == "*" and isinstance(x.operands[1], int) else (x, 1)


def _split(x: Term, divisor: int) -> tuple[Term, Term]:
    """Returns quotient and remainder."""
    if isinstance(operand_of(x), int):
        return divmod(operand_of(x), divisor)
    if divisor == 1 or (x.limit is not None and x.limit <= divisor):
        return (x, 0) if divisor == 1 else (0, x)
    for a, b in (x.operands, x.operands[::-1]) if x.op == "+" else ((x, 0),):
        y, factor = _product(a)
        if factor > 1 and factor % divisor == 0 and not isinstance(b, Reg):
            more, rest = _split(b, divisor)
            return _formula(y) * (factor // divisor) + more, rest
        if factor > 1 and divisor % factor == 0 and (limit := _limit(b)) is not None and limit <= factor:
            quotient, rest = _split(_formula(y), divisor // factor)
            return quotient, _formula(rest) * factor + b
    if x.op == "%" and x.operands[1] % divisor == 0:
        y, modulus = x.operands
        return y // divisor % (modulus // divisor), y % divisor
    whole, by = x.operands if x.op == "//" else (x, 1)
    quotients = None if x.limit is None else (x.limit - 1) // divisor + 1
    return Formula("//", (whole, by * divisor), quotients), Formula("%", (x, divisor), divisor)


# -- instructions ------------------------------------------------------------------------------


def operand_of(x: Term) -> Any:
    """Returns the register of a formula that is one, else what is given."""
    return x.operands[0] if isinstance(x, Formula) and x.op == "is" else x


def is_vector(x: Term) -> bool:
    """True for a VGPR, an AccVGPR or a formula that has one."""
    return x.vector if isinstance(x, Formula) else isinstance(x, Reg) and x.file != "s"


def is_scalar(x: Term) -> bool:
    """True for an SGPR or a formula that has only SGPRs; False for a number."""
    return not isinstance(operand_of(x), int) and not is_vector(x)


def _is_literal(x: Term) -> bool:
    return isinstance(x, int) and x not in INLINE_INTEGERS


def _as_shift(x: Term) -> tuple[Term, int] | None:
    """Returns (y, n) if x = y · 2^n of a vector y and n > 0."""
    y, factor = _product(x)
    shift = log2(factor)
    return (y, shift) if shift and is_vector(y) else None


def _fits(*operands: Term) -> bool:
    """True if one vector instruction with three operands can have these: at most one scalar, no literal."""
    return sum(map(is_scalar, operands)) <= 1 and not any(map(_is_literal, operands))


def _instruction(node: Formula) -> tuple[str, tuple[Term, ...]]:
    """Returns the mnemonic of the instruction that ends a formula, and its operands, which may be formulas."""
    op, (x, *others) = node.op, node.operands
    file, y = "v" if node.vector else "s", others[0] if others else 0
    if op in ("//", "%"):
        return _division(op, x, y, file)
    if not node.vector:
        shift = log2(y) if op == "*" and isinstance(y, int) else None
        return ("s_lshl_b32", (x, shift)) if shift else (SCALAR.get(op, f"s_{op}"), node.operands)
    if op == "*":
        if shift_of := _as_shift(node):
            x, shift = shift_of
            if isinstance(x, Formula) and x.op == "+" and _fits(*x.operands) and not any(map(_as_shift, x.operands)):
                return "v_add_lshl_u32", (*x.operands, shift)
            return "v_lshlrev_b32", (shift, x)
        if not isinstance(y, int):
            return "v_mul_lo_u32", (x, y)
        short = max(y, _limit(x) or 0) <= FACTORS - 1
        return ("v_mul_u32_u24", (y, x)) if short else ("v_mul_lo_u32", (x, Formula("set", (y,))))
    if op == "-":
        times, factor = _product(y)
        signed = (_limit(times) or FACTORS) <= FACTORS // 2  # as a signed number of 24 bits
        if factor > 1 and -factor in INLINE_INTEGERS and is_vector(times) and signed and not _is_literal(x):
            return "v_mad_i32_i24", (times, -factor, x)
        return ("v_sub_u32", (x, y)) if is_vector(y) else ("v_subrev_u32", (y, x))
    for a, b in ((x, y), (y, x)) if op in ("+", "|") else ():
        if not _is_literal(b) and (fused := _fuse(op, a, b)):
            return fused
    return VECTOR.get(op, f"v_{op}"), (x, y) if is_vector(y) else (y, x)


def _fuse(op: str, a: Term, b: Term) -> tuple[str, tuple[Term, ...]] | None:
    """Returns the instruction for a + b or a | b that computes a, too, if there is one."""
    if shift_of := _as_shift(a):
        return f"v_lshl_{'add_u32' if op == '+' else 'or_b32'}", (*shift_of, b)
    y, factor = _product(a)
    if op == "+" and factor > 1 and not _is_literal(factor) and is_vector(y):
        return "v_mad_u32_u24", (y, factor, b)
    if op == "+" and isinstance(a, Formula) and a.op == "+" and a.vector and _fits(*a.operands, b):
        return None if any(map(_as_shift, a.operands)) else ("v_add3_u32", (*a.operands, b))
    return None


def _division(op: str, x: Term, divisor: int, file: str) -> tuple[str, tuple[Term, ...]]:
    """Returns the last instruction of a quotient or remainder, which are shifts and masks, or products with a reciprocal."""
    shift, vector = log2(divisor), file == "v"
    if op == "%":
        if shift is None:
            return f"{file}_sub_u32", (x, _split(x, divisor)[0] * divisor)
        if isinstance(x, Formula) and x.op == "//" and (first := log2(x.operands[1])) is not None:
            return f"{file}_bfe_u32", (x.operands[0], first, shift) if vector else (x.operands[0], shift << 16 | first)
        return f"{file}_and_b32", (divisor - 1, x) if vector else (x, divisor - 1)
    if shift is None:
        limit = _limit(x)
        if limit is None:
            raise ValueError(f"a number without a limit is not divided by {divisor}")
        if not vector or not (short := division_magic(divisor, limit)):
            return _high_quotient(x, divisor, limit, vector)
        magic, shift = short
        x = Formula("*", (x, magic))
    return (f"{file}_lshrrev_b32", (shift, x)) if vector else (f"{file}_lshr_b32", (x, shift))


def _high_quotient(x: Term, divisor: int, limit: int, vector: bool) -> tuple[str, tuple[Term, ...]]:
    """Returns the last instruction of x // divisor, from the upper word of a product.

    mul_hi(x, m) with m = ceil(2^32 / d) is exact if limit · (m·d - 2^32) < 2^32 (Granlund and Montgomery 1994, theorem 4.2). Other
    divisions are by `division_words`. LaunchError if the limit is above DIVIDEND_LIMIT.
    """
    magic = -(-(1 << 32) // divisor)
    if limit * (magic * divisor - (1 << 32)) < 1 << 32:
        return ("v_mul_hi_u32", (x, Formula("set", (magic,)))) if vector else ("s_mul_hi_u32", (x, magic))
    if limit > DIVIDEND_LIMIT:
        raise LaunchError(f"{limit} workgroups do not divide by {divisor} in 32 bits: split the problem")
    _, magic, shift = division_words(divisor)
    high = Formula("high", (Formula("*", (x, 2)), Formula("set", (magic,)) if vector else magic))
    return ("v_lshrrev_b32", (shift, high)) if vector else ("s_lshr_b32", (high, shift))


def division_magic(divisor: int, limit: int) -> tuple[int, int] | None:
    """Returns (magic, bits): x // divisor = x · magic >> bits for 0 <= x < limit. magic has 24 bits, the product 32.

    None if there is no such number.

    Exact if limit · (magic · divisor - 2^bits) < 2^bits (Granlund and Montgomery 1994, theorem 4.2).
    """
    for bits in range(32):
        magic = -(-(1 << bits) // divisor)
        if magic >> 24 or limit * magic > 1 << 32:
            break
        if limit * (magic * divisor - (1 << bits)) < 1 << bits:
            return magic, bits
    return None


def division_words(divisor: int) -> tuple[int, int, int]:
    """Returns (d, magic, shift): x // d = (2x · magic >> 32) >> shift for 0 <= x < DIVIDEND_LIMIT.

    magic = ceil(2^(31+l)/d), l = ceil(log2 d) (Granlund and Montgomery 1994, theorem 4.2, N = 31).
    """
    shift = (divisor - 1).bit_length()
    return divisor, -(-(1 << 31 + shift) // divisor), shift


Step = tuple[Formula, str, tuple[Term, ...]]  # what an instruction computes, its mnemonic and its operands


def steps_of(roots: Sequence[Term]) -> Iterator[Step]:
    """Yields the instructions of formulas in order. A part that they have several times is computed once."""
    known: set[Formula] = set()

    def visit(node: Formula) -> Iterator[Step]:
        mnemonic, operands = _instruction(node)
        operands = tuple(map(operand_of, operands))
        for operand in operands:
            if isinstance(operand, Formula) and operand not in known:
                yield from visit(operand)
        known.add(node)
        yield node, mnemonic, operands

    for root in roots:
        if isinstance(root, Formula) and root not in known:
            yield from visit(root)
