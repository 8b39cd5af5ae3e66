"""RowOperator, the base of operators on rows: a subclass has the sizes, an expression for each value, and the definition."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simgpu.hardware.dtypes import DType, dtype, largest_value
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_arrays, positive_dimension, row_stride
from simgpu.operators.rows.program import PIVOT, RowProgram, Tracer

TYPES = ("f32", "f16", "bf16")  # of operands: values are computed in f32
RESULTS = (*TYPES, "fp8", "bf8", "i8")
LARGEST_GROUP = 1 << 10
COUNT, LIMIT = "count", "limit"  # names of constants: elements that are reduced together, largest value of Y's type


class RowOperands:
    """Operands of a kernel of rows, from the names and sizes of its problem.

    >>> from simgpu.operators import SoftmaxProblem
    >>> SoftmaxProblem(rows=4, n=100, mask=True).read
    {'X': (4, 100), 'mask': (4, 100)}
    """

    name: ClassVar[str] = ""  # of the operator, a Python name: for the command, titles and kernels
    halves: ClassVar[bool] = False
    matrices: ClassVar[tuple[str, ...]] = ()
    vectors: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ()
    sums: ClassVar[tuple[str, ...]] = ()
    maxima: ClassVar[tuple[str, ...]] = ()
    results: ClassVar[tuple[str, ...]] = ("y",)
    row_results: ClassVar[tuple[str, ...]] = ()
    row_type: ClassVar[str] = "f32"  # type of the row results: f32, or e8m0 for powers of two

    rows: int
    n: int
    dtype: str
    dtype_y: Any
    ldx: int | None
    ldy: int | None
    group: int = 0

    def program(self, arch: str) -> RowProgram:
        """Returns the expressions for an architecture. LaunchError names the method and its missing parts."""
        raise NotImplementedError

    @property
    def repeat(self) -> int:
        """Consecutive rows that share a row of the tables."""
        return 1

    @property
    def parts(self) -> int:
        """Parts of a row of X that are operands of their own."""
        return 2 if self.halves else 1

    @property
    def parts_y(self) -> int:
        """Parts of a row of Y."""
        return 2 if self.results == ("y0", "y1") else 1

    @property
    def columns(self) -> int:
        """Columns that the computation runs over: those of a part of a row."""
        return self.n // self.parts

    @property
    def span(self) -> int:
        """Columns that are reduced together, at most."""
        return min(self.group or self.columns, self.columns)

    @property
    def groups(self) -> int:
        """Groups of a row."""
        return -(-self.columns // self.span)

    @property
    def element(self) -> DType:
        """Type of X."""
        return dtype(self.dtype)

    @property
    def element_y(self) -> DType:
        """Type of the results."""
        return dtype(self.dtype_y)

    @property
    def elements(self) -> tuple[str, ...]:
        """Names of the operands with an element for each element of a part: X or its halves, and the matrices."""
        return (*(("x0", "x1") if self.halves else ("x",)), *self.matrices)

    @property
    def read(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the operands that are read, by name."""
        return {
            "X": (self.rows, self.n), **dict.fromkeys(self.matrices, (self.rows, self.n)),
            **dict.fromkeys(self.vectors, (self.columns,)), **dict.fromkeys(self.tables, (self.rows // self.repeat, self.columns)),
        }  # fmt: skip

    @property
    def written(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the operands that are written, by name."""
        whole = self.rows, self.columns * self.parts_y
        names = ("Y",) if self.parts_y > 1 else ("Y" if name == "y" else name for name in self.results)
        return {**dict.fromkeys(names, whole), **dict.fromkeys(self.row_results, (self.rows, self.groups))}

    @property
    def pointers(self) -> tuple[str, ...]:
        """Names of the operands in the order of a kernel's pointers."""
        return (*self.read, *self.written)

    def type_of(self, name: str) -> str:
        """Returns the type of an operand."""
        if name in self.row_results:
            return self.row_type
        return self.dtype_y if name in self.written else self.dtype

    @property
    def flops(self) -> int:
        """FLOPs: one an operation, reductions included."""
        return self.rows * self.columns * self.program("gfx942").operations

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of every operand crosses memory once."""
        shapes = (*self.read.items(), *self.written.items())
        return int(sum(np.prod(shape, dtype=np.int64) * dtype(self.type_of(name)).bytes for name, shape in shapes))


@dataclass(frozen=True)
class RowOperator(RowOperands):
    """Base of an operator on the rows of X (rows,n): reductions along a row, then a value for each element and each row.

    A subclass is a frozen dataclass; its own fields, with defaults, are options of the command line. It has `name`, and a method
    for each value, which is called once, with Values (`operators.expressions`). A method's arguments name what the value uses:

        x                       X's element; x0 and x1, its halves, if `halves`: elements j and n/2 + j of a row
        matrices                names of operands of X's shape, strides and type
        vectors                 names of operands with an element a column, of X's type
        tables                  names of operands with a row for each `repeat` rows, of X's type
        sums, maxima            names of reductions, in order; a reduction may use earlier ones
        count, limit            number of elements that are reduced together; largest value of Y's type

    `results` names values for each element: y, or y0 and y1 for the halves of Y's rows. If there are more matrices than X, further
    results are operands of their own, of Y's type and strides. `row_results` names values for each row, of `row_type`. With
    `group`, a row's elements are reduced by groups, and a row result has a value for each.

    `reference(x, ...)` is the definition, in float64, for one group: arrays of the names above, with x whole; it returns Y, or a
    dict of what is written by name.

    >>> from dataclasses import dataclass
    >>> from simgpu.operators import RowOperator
    >>> from simgpu.operators.expressions import sqrt
    >>> @dataclass(frozen=True)
    ... class Unit(RowOperator):
    ...     name, sums = "unit", ("squares",)
    ...     def squares(self, x):
    ...         return x * x
    ...     def y(self, x, squares):
    ...         return x / sqrt(squares)
    ...     def reference(self, x):
    ...         return x / np.sqrt((x * x).sum(1, keepdims=True))
    >>> print(*Unit(2, 64).program("gfx942").describe(), sep="; ")
    squares[i] += x * x; y[i,j] = x / sqrt(squares)
    """

    rows: int  # number of rows
    n: int  # elements of a row of X
    dtype: str = "f32"  # type of X and of all that is read, one of TYPES
    dtype_y: str = ""  # type of the results, one of RESULTS (default: X's)
    ldx: int | None = None  # stride of X's rows in elements; None: their length
    ldy: int | None = None  # stride of Y's rows
    group: int = 0  # elements of a row that are reduced together, a power of two; 0: all

    def __post_init__(self) -> None:
        for name in ("rows", "n"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        for name, known, given in (("dtype", TYPES, self.dtype), ("dtype_y", RESULTS, self.dtype_y or self.dtype)):
            if given not in known:
                raise LaunchError(f"{self.name}: {name} = {given}: values are computed in f32, so use {', '.join(known)}")
            object.__setattr__(self, name, dtype(given).name)
        if self.n % self.parts:
            raise LaunchError(f"{self.name}: n = {self.n} is odd: a row has two halves, so give an even n")
        for name, least in (("ldx", self.n), ("ldy", self.columns * self.parts_y)):
            object.__setattr__(self, name, row_stride(name, getattr(self, name), least))
        if self.group and (self.group & (self.group - 1) or not 8 <= self.group <= LARGEST_GROUP):
            raise LaunchError(f"group = {self.group}: give a power of two from 8 to {LARGEST_GROUP}, or 0 for whole rows")
        if self.group and (self.parts_y > 1 or not (self.sums or self.maxima)):
            raise LaunchError(f"{self.name} reduces nothing by groups: leave the group out")
        if self.rows % self.repeat:
            raise LaunchError(f"{self.name}: {self.rows} rows are no multiple of {self.repeat}, the rows of a row of a table")
        self.program("gfx942")

    # -- to be overridden ------------------------------------------------------------------------

    def reference(self, **arrays: Any) -> Any:
        """Returns the definition in float64."""
        raise NotImplementedError

    # -- what follows ----------------------------------------------------------------------------

    def program(self, arch: str) -> RowProgram:
        """Returns the expressions for an architecture. LaunchError names the method and its missing parts."""
        return _program(self, arch)

    def constants(self, arch: str) -> dict[str, float]:
        """Returns `count` and `limit`; without `count` if the last group of a row is shorter."""
        of_row = {} if self.columns % self.span else {COUNT: float(self.span)}
        return {**of_row, LIMIT: largest_value(self.dtype_y, arch)}

    def own_arrays(self, **arrays: Any) -> dict[str, NDArray[Any]]:
        """Returns the arrays by name. LaunchError names one that is missing or of another shape."""
        return expect_arrays(self.name, self.read, arrays)


@cache
def _program(p: RowOperator, arch: str) -> RowProgram:
    kind = type(p).__name__
    if not p.name.isidentifier():
        raise LaunchError(f"{kind}.name is {p.name!r}: give the operator a name of letters, digits and _")
    for role in ("matrices", "vectors", "tables", "sums", "maxima", "results", "row_results"):
        names = getattr(p, role)
        if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
            raise LaunchError(f"{kind}.{role} is {names!r}: give a tuple of names, such as (\"gamma\",)")
    if type(p).reference is RowOperator.reference:
        raise LaunchError(f"{kind} has no reference: define the result in float64, reference(self, x, ...)")
    if not (p.results or p.row_results) or len(p.results) > len(p.elements):
        raise LaunchError(f"{kind}.results: a kernel writes 1 to {len(p.elements)} results of each element, or row_results")
    if p.matrices and p.halves:
        raise LaunchError(f"{kind} has halves and matrices: read one or the other")
    if p.tables and (p.sums or p.maxima):
        raise LaunchError(f"{kind} has tables and reductions: use vectors, or no reductions")
    reductions = [*((name, "maximum") for name in p.maxima), *((name, "sum") for name in p.sums)]
    order = [name for name, _ in reductions]
    own = (*p.elements, *p.vectors, *p.tables, *order)
    taken = {"X", "Y", "rows", "ldx", "ldy", COUNT, LIMIT, PIVOT}
    for name in own:
        if not name.isidentifier() or name in taken or own.count(name) > 1:
            raise LaunchError(f"{kind}: {name!r} cannot name an operand or a reduction: use another name, once")
    elements = dict.fromkeys((*p.elements, *p.vectors, *p.tables))
    ragged = {COUNT: f"the last group of a row is shorter: give an n that is a multiple of {p.group}"}
    tracer = Tracer(p, {**elements, **p.constants(arch)}, ragged)
    waiting = {name: set(inspect.signature(getattr(p, name)).parameters) & set(order) if callable(getattr(p, name, None)) else set()
               for name in order}  # fmt: skip
    steps = []
    while waiting:
        ready = [name for name in waiting if waiting[name] <= set(tracer.reductions)]
        if not ready:
            raise LaunchError(f"{kind}: {', '.join(waiting)} use each other: a reduction may use earlier ones")
        for name in ready:
            del waiting[name]
            steps.append(tracer.step(name, dict(reductions)[name]))
    results, row_results = ([tracer.step(name, of_row=of_row) for name in names]
                            for names, of_row in ((p.results, False), (p.row_results, True)))  # fmt: skip
    return RowProgram(p.name, p.elements, p.vectors, p.tables, tuple(steps), tuple(results), tuple(row_results))
