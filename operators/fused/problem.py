"""FusedGemm, the base of operators that are a GEMM with leaves: a subclass has the sizes, the leaves and the definition."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_arrays
from simgpu.operators.expressions import F32, Value, arguments, evaluate, trace
from simgpu.operators.gemm.leaves import ELEMENT, PRODUCT, TYPES, Leaves
from simgpu.operators.gemm.problem import GemmProblem

TAKEN = ("A", "B", "C", "bias", "residual", "arch", "problem", "self")  # names of a GEMM's operands, and of Python arguments


@dataclass(frozen=True)
class LeafGemm(GemmProblem):
    """GEMM of an operator with leaves."""

    own: Leaves | None = None  # its leaves

    @property
    def leaves(self) -> Leaves | None:
        return self.own


@dataclass(frozen=True)
class FusedGemm:
    """Base of an operator C (m,n) = epilogue(result(left_operand(A (m,k)) @ B (k,n))), row-major.

    A subclass is a frozen dataclass; its own fields, with defaults, are options of the command line. It has `name`, and names its
    operands: `matrices`, `vectors`, `columns`. The first three methods get Values, on which + - * / and the functions of
    `operators.expressions` work:

        row_sums(a, *matrices, *vectors)        a dict: the summands of each row of A, by name
        left_operand(a, *matrices, *vectors)    the factor of B instead of A's element; without it, the element
        result(product, *sums, *columns)        what becomes of the sum over k; without it, the sum
        reference(a, b, *matrices, *vectors, *columns)    the definition in numpy: arrays in float64 to the result, (m,n)

    Values computed of A are f32, rounded to A's type before they are multiplied. The epilogue is a GEMM's.

    >>> from dataclasses import dataclass
    >>> from simgpu.operators.fused.problem import FusedGemm
    >>> @dataclass(frozen=True)
    ... class SquaredRelu(FusedGemm):
    ...     name = "squared_relu"
    ...     def left_operand(self, a):
    ...         from simgpu.operators.expressions import maximum
    ...         return maximum(a, 0) * maximum(a, 0)
    ...     def reference(self, a, b):
    ...         return np.maximum(a, 0) ** 2 @ b
    >>> print(SquaredRelu(64, 64, 64).leaves.left_operand)
    maximum(a, 0) * maximum(a, 0)
    """

    name: ClassVar[str] = ""  # of the operator, a Python name: for the command, titles and kernels
    matrices: ClassVar[tuple[str, ...]] = ()  # names of operands of A's shape, strides and type
    vectors: ClassVar[tuple[str, ...]] = ()  # names of operands of k elements, of A's type
    columns: ClassVar[tuple[str, ...]] = ()  # names of operands of n elements, in f32

    m: int  # rows of A and C
    n: int  # columns of B
    k: int  # columns of A
    dtype: str = "f32"  # type of A and B, one of TYPES
    trans_b: bool = False  # True: B is stored (n,k)
    lda: int | None = None  # stride of A's rows in elements; None: their length
    ldb: int | None = None  # stride of B's stored rows
    ldc: int | None = None  # stride of C's rows
    bias: bool = False  # True: adds a row of n elements to the result
    activation: str = "none"  # as GemmProblem's
    dtype_c: str = ""  # type of C: f32 (default), f16, bf16, fp8 or bf8
    residual: bool = False  # True: adds a matrix of C's type and strides after the activation

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = vars(cls)
        if "multiplied" in own and "left_operand" not in own:  # its name until 0.2.0
            warnings.warn(f"{cls.__name__}.multiplied is now left_operand", DeprecationWarning, stacklevel=2)
            setattr(cls, "left_operand", own["multiplied"])  # noqa: B010  mypy refuses to assign to a method
        elif "left_operand" in own:
            setattr(cls, "multiplied", own["left_operand"])  # noqa: B010

    def __post_init__(self) -> None:
        given = {entry.name: getattr(self, entry.name) for entry in fields(FusedGemm)}
        gemm = LeafGemm(**given, own=self.leaves)
        for entry in fields(FusedGemm):  # the GEMM has checked them
            object.__setattr__(self, entry.name, getattr(gemm, entry.name))
        if self.dtype not in TYPES:
            raise LaunchError(f"{self.name} computes its leaves in f32: use {', '.join(TYPES)}, not {self.dtype}")

    # -- to be overridden ------------------------------------------------------------------------

    def row_sums(self, **values: Value) -> Mapping[str, Value]:
        """Returns the summands of each row of A, by name."""
        return {}

    def left_operand(self, **values: Value) -> Value:
        """Returns the factor of B instead of A's element."""
        return values[ELEMENT]

    multiplied = left_operand  # by the earlier name, until the next release

    def result(self, **values: Value) -> Value:
        """Returns what becomes of the sum over k."""
        return values[PRODUCT]

    def reference(self, **arrays: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the definition in float64, (m,n)."""
        raise NotImplementedError

    # -- what follows ----------------------------------------------------------------------------

    @cached_property
    def leaves(self) -> Leaves:
        """Leaves, from the methods. LaunchError names the method and its missing parts."""
        kind = type(self).__name__
        if not self.name.isidentifier():
            raise LaunchError(f"{kind}.name is {self.name!r}: give the operator a name of letters, digits and _")
        for role in ("matrices", "vectors", "columns"):
            names = getattr(self, role)
            if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
                raise LaunchError(f"{kind}.{role} is {names!r}: give a tuple of names, such as (\"gamma\",)")
        own = (*self.matrices, *self.vectors, *self.columns)
        for name in own:
            taken = (*TAKEN, ELEMENT, "b", PRODUCT, *(entry.name for entry in fields(self)))
            if not name.isidentifier() or name in taken or own.count(name) > 1:
                raise LaunchError(f"{kind}: {name!r} cannot name an operand: use another name, once")
        if type(self).reference is FusedGemm.reference:
            raise LaunchError(f"{kind} has no reference: define the result in float64, reference(self, a, b, ...)")
        of_a = (ELEMENT, *self.matrices, *self.vectors)
        sums = trace(f"{kind}.row_sums", self.row_sums, of_a)
        if not isinstance(sums, Mapping):
            raise LaunchError(f"{kind}.row_sums returns {type(sums).__name__}: return a dict of sums by name")
        for name in sums:
            if not str(name).isidentifier() or name in (PRODUCT, *self.columns):
                raise LaunchError(f"{kind}.row_sums: {name!r} cannot name a sum: result takes it as an argument: use another name")
        left_operand = trace(f"{kind}.left_operand", self.left_operand, of_a)
        result = trace(f"{kind}.result", self.result, (PRODUCT, *sums, *self.columns))
        for where, value in (*((f"row_sums[{name!r}]", one) for name, one in sums.items()),
                             ("left_operand", left_operand), ("result", result)):  # fmt: skip
            if not isinstance(value, Value):
                raise LaunchError(f"{kind}.{where} is {value!r}: return an expression of the arguments")
        if PRODUCT not in arguments(result):
            raise LaunchError(f"{kind}.result is {result}: it does not use {PRODUCT}")
        self._check_padding(sums, left_operand)
        return Leaves(self.name, self.matrices, self.vectors, self.columns, tuple(sums.items()), left_operand, result)

    def _check_padding(self, sums: Mapping[str, Value], left_operand: Value) -> None:
        """Elements past the end of a row are 0, as are those of matrices and vectors; they must not count, in f32."""
        zeros = dict.fromkeys((ELEMENT, *self.matrices, *self.vectors), np.float32(0))
        for where, value, right in (*((f"row_sums[{name!r}]", one, 0.0) for name, one in sums.items()),
                                    ("left_operand", left_operand, None)):  # fmt: skip
            with np.errstate(all="ignore"):
                found = float(evaluate(value, zeros, F32))
            if not math.isfinite(found) or (right is not None and found != right):
                wanted = "be 0 there" if right is not None else "be finite there"
                raise LaunchError(
                    f"{type(self).__name__}.{where} is {value}, which is {found:g} for zeros: tiles past a row's end are filled "
                    f"with zeros, so it must {wanted}"
                )

    @cached_property
    def gemm(self) -> LeafGemm:
        """GEMM with the leaves, for plan and emitter."""
        return LeafGemm(**{entry.name: getattr(self, entry.name) for entry in fields(FusedGemm)}, own=self.leaves)

    @property
    def flops(self) -> int:
        """Useful FLOPs of the product; a multiply-add counts as two."""
        return self.gemm.flops

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of every operand crosses memory once."""
        return self.gemm.bytes_once

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the matrices, vectors and columns, by name."""
        of_a = dict.fromkeys(self.matrices, (self.m, self.k))
        return {**of_a, **dict.fromkeys(self.vectors, (self.k,)), **dict.fromkeys(self.columns, (self.n,))}

    def type_of(self, name: str) -> str:
        """Returns the type of a matrix, vector or column."""
        return "f32" if name in self.columns else self.dtype

    def own_arrays(self, **arrays: Any) -> dict[str, NDArray[Any]]:
        """Returns the matrices, vectors and columns among the arrays. LaunchError names one that is missing or of another shape."""
        return expect_arrays(self.name, self.shapes, arrays)
