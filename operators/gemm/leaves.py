"""Leaves of a GEMM's tree: what a row adds up, what is multiplied, and what becomes of the product.

    s[i]   = sum over k of summand(a[i,k], w[i,k], ..., v[k], ...)         for each of `sums`, in f32
    a'[i,k] = left_operand(a[i,k], w[i,k], ..., v[k], ...)                 in f32, rounded to A's type
    c[i,j] = result(sum over k of a'[i,k] b[k,j], s[i], ..., u[j], ...)     in f32, before the epilogue

w are `matrices` like A, v are `vectors` along k, u are `columns` along n. A block computes s and a' from the tiles of A that it
stages. So A is read as often as without leaves, and no other kernel is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.operators.expressions import Value, hoist, operations

PRODUCT = "product"  # name of the sum over k, for `result`
ELEMENT = "a"  # name of A's element, for the summands and `left_operand`
ROW_VALUE = "row value"
TYPES = ("f32", "f16", "bf16")  # of A: leaves are computed in f32
LOOP_TEMPORARIES = 8  # of a GEMM's temporaries, those that a wave can use while it writes a tile to LDS


@dataclass(frozen=True)
class Leaves:
    """Leaves of one operator."""

    name: str  # of the operator
    matrices: tuple[str, ...]  # names of operands of A's shape, strides and type
    vectors: tuple[str, ...]  # names of operands of k elements, of A's type
    columns: tuple[str, ...]  # names of operands of n elements, in f32
    sums: tuple[tuple[str, Value], ...]  # name and summand of each sum over a row
    left_operand: Value  # what is multiplied instead of A's element
    result: Value

    @property
    def row_values(self) -> tuple[Value, ...]:
        """Largest parts of the result that depend only on a row's sums: computed once a row."""
        return self._hoisted[0]

    @property
    def result_of_row(self) -> Value:
        """Result, with each of `row_values` as an argument, `row_value` of its number."""
        return self._hoisted[1]

    @cached_property
    def _hoisted(self) -> tuple[tuple[Value, ...], Value]:
        return hoist(self.result, {name for name, _ in self.sums}, ROW_VALUE)

    @property
    def per_element(self) -> tuple[Value, ...]:
        """Expression of each element of A."""
        return (*(summand for _, summand in self.sums), self.left_operand)

    @property
    def of_element(self) -> tuple[str, ...]:
        """Names of what the leaves on A take of each element."""
        return (ELEMENT, *self.matrices, *self.vectors)

    @property
    def maps(self) -> bool:
        """True if what is multiplied is not A's element itself."""
        return self.left_operand != Value("argument", name=ELEMENT)

    @property
    def changes(self) -> tuple[Value, ...]:
        """Summands, and what is multiplied if it is not A's element."""
        return (*(summand for _, summand in self.sums), *[self.left_operand] * self.maps)

    @staticmethod
    def packs(value: Value, dtype: str) -> bool:
        """True if instructions compute a value of packed elements, without conversions: a product of two elements of f16."""
        return dtype == "f16" and value.op == "multiply" and all(one.op == "argument" for one in value.operands)

    def instructions(self, dtype: str) -> float:
        """Returns the vector instructions for each element of A of a type, conversions included."""
        packed = [value for value in self.changes if self.packs(value, dtype)]
        rest = [value for value in self.changes if not self.packs(value, dtype)]
        each = len(packed) - 0.5 * (self.maps and self.left_operand in packed)  # a product of two is one instruction
        if not rest:
            return each
        converted = 0 if dtype == "f32" else 1.5 * len(self.of_element) + (self.maps and self.left_operand in rest) * 1.5
        return each + converted + len(list(operations(*rest))) + len(self.sums)

    @property
    def temporaries(self) -> int:
        """VGPRs while a tile is written to LDS, in addition to a GEMM's."""
        return max(0, 2 * len(self.of_element) + len(list(operations(*self.per_element))) + 3 - LOOP_TEMPORARIES)

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns sections of text for a tree: the leaves, a title and lines each."""
        found = [(f"RowSum  [leaf -- on each tile of A]  {name}[i] += {value}",) for name, value in self.sums]
        if self.maps:
            found.append((f"Map  [leaf -- on each tile of A]  A[i,k] -> {self.left_operand}",))
        return (*found, (f"Result  [leaf -- on the tile of C]  C[i,j] = {self.result}",))


def row_value(number: int) -> str:
    """Returns the argument's name of a row value in `Leaves.result_of_row`."""
    return f"{ROW_VALUE} {number}"


def sum_range(name: str) -> str:
    """Returns the name of the registers of a lane's part of a sum."""
    return f"{name} of rows"


def staging_range(name: str) -> str:
    """Returns the name of the registers to which a matrix's or a vector's part for the next tile is loaded."""
    return f"{name} staging"
