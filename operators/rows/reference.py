"""An operator on rows in float64, and a bound on a kernel's error that follows from its expressions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.dtypes import largest_value
from simgpu.hardware.errors import LaunchError
from simgpu.operators.error_model import Rounding, may_be_nan
from simgpu.operators.expressions import NUMPY, evaluate
from simgpu.operators.rows.plan import chunk_elements
from simgpu.operators.rows.problem import LIMIT, RowOperator
from simgpu.operators.rows.program import PIVOT
from simgpu.operators.running_error import ARITHMETIC, Bounded

Wide = NDArray[np.float64]
HALF = 0.5  # rounding to an integer


@may_be_nan
def rows(problem: RowOperator, x: ArrayLike, arch: str = "gfx908", **more: ArrayLike) -> dict[str, Wide]:
    """Returns the problem's own definition in float64, limited to the range of Y's type on `arch`: arrays by operand.

    more: matrices, vectors and tables by name. LaunchError if the definition returns another shape.

    >>> from simgpu.operators import RmsNorm, reference
    >>> reference.rows(RmsNorm(1, 2, eps=0.0), np.full((1, 2), 5.0), gamma=np.array([1.0, 3.0]))["Y"]
    array([[1., 3.]])
    """
    p = problem
    given = {name: array.astype(np.float64) for name, array in p.own_arrays(X=x, **more).items()}
    found: dict[str, list[Wide]] = {name: [] for name in p.written}
    for _, columns in _groups(p):
        for name, part in _definition(p, given, columns, arch).items():
            found[name].append(part)
    whole = {name: np.concatenate(parts, 1) for name, parts in found.items()}
    return {name: array if name in p.row_results else _limit(p.dtype_y, arch, array) for name, array in whole.items()}


def _definition(p: RowOperator, given: dict[str, Wide], columns: slice, arch: str) -> dict[str, Wide]:
    """Returns the definition's results for the columns of a group."""
    numbers = np.arange(p.rows) // p.repeat
    named: dict[str, Any] = {"x": np.concatenate([part[:, columns] for part in np.split(given["X"], p.parts, 1)], 1)}
    named |= {name: given[name][:, columns] for name in p.matrices}
    named |= {name: given[name][columns] for name in p.vectors}
    named |= {name: given[name][numbers, columns] for name in p.tables}
    if LIMIT in inspect.signature(p.reference).parameters:
        named[LIMIT] = np.float64(largest_value(p.dtype_y, arch))
    kind, width = type(p).__name__, columns.stop - columns.start
    try:
        found = p.reference(**named)
        made = found if isinstance(found, dict) else {next(iter(p.written)): found}
        made = {name: np.asarray(array).astype(np.float64, casting="same_kind") for name, array in made.items()}
    except Exception as error:  # whatever a user's function raises
        raise LaunchError(f"{kind}.reference({', '.join(named)}): {error}") from None
    want = {name: (p.rows, 1 if name in p.row_results else width * p.parts_y) for name in p.written}
    if {name: array.shape for name, array in made.items()} != want:
        said = ", ".join(f"{name} {array.shape}" for name, array in made.items())
        raise LaunchError(f"{kind}.reference returns {said}: return {', '.join(f'{n} {shape}' for n, shape in want.items())}")
    return made


@may_be_nan
def rows_error_bound(
    problem: RowOperator, x: ArrayLike, arch: str = "gfx908", streamed: bool = False, **more: ArrayLike
) -> dict[str, Wide]:
    """Returns an elementwise bound on |kernel - float64 reference|, by operand, for any order of reductions without overflow.

    streamed: of a kernel that streams its rows (`RowProgram.streamed`). Values are computed with running errors (`running_error`),
    sums with the errors of their summands, maxima with the largest of them. Results are rounded to Y's type.

    >>> from simgpu.operators import RmsNorm, reference
    >>> bool((reference.rows_error_bound(RmsNorm(2, 64), np.ones((2, 64)), gamma=np.ones(64))["Y"] < 1e-5).all())
    True
    """
    p, program = problem, problem.program(arch)
    program = program.streamed if streamed else program
    given = {name: array.astype(np.float64) for name, array in p.own_arrays(X=x, **more).items()}
    of_element = dict(zip(p.elements, np.split(given["X"], p.parts, 1), strict=False)) | given
    numbers = np.arange(p.rows) // p.repeat
    found: dict[str, list[Wide]] = {name: [] for name in (*p.results, *p.row_results)}
    for _, columns in _groups(p):
        known = {name: Bounded.exact(of_element[name][:, columns]) for name in program.matrices}
        known |= {name: Bounded.exact(of_element[name][columns]) for name in program.vectors}
        known |= {name: Bounded.exact(of_element[name][numbers, columns]) for name in program.tables}
        shape = p.rows, columns.stop - columns.start
        if program.pivoted is not None:
            first = WAVEFRONT * chunk_elements(p, WAVEFRONT)
            value = evaluate(program.pivoted, {name: known[name].value[:, :first] for name in program.matrices}, NUMPY)
            known[PIVOT] = Bounded.exact(value.mean(1, keepdims=True).astype(np.float32))
        for step in program.reductions:
            value = _all(evaluate(step.value, known, ARITHMETIC), shape)
            known[step.name] = value.sum() if step.combine == "sum" else value.maximum()
        for step in program.results:
            value = _all(evaluate(step.value, known, ARITHMETIC), shape)
            found[step.name].append(_rounded_bound(p.dtype_y, arch, value))
        for step in program.row_results:
            value = _all(evaluate(step.value, known, ARITHMETIC), (p.rows, 1))
            found[step.name].append(value.final_error)
    whole = {name: np.concatenate(parts, 1) for name, parts in found.items()}
    halves = [whole[name] for name in p.results] if p.parts_y > 1 else []
    named = {"Y": np.concatenate(halves, 1)} if halves else {"Y" if name == "y" else name: whole[name] for name in p.results}
    return named | {name: whole[name] for name in p.row_results}


def _groups(p: RowOperator) -> Iterator[tuple[int, slice]]:
    """Yields the number and the columns of each group."""
    for group in range(p.groups):
        yield group, slice(group * p.span, min(p.columns, (group + 1) * p.span))


def _limit(kind: str, arch: str, x: Wide) -> Wide:
    if kind == "i8":
        return np.clip(x, -largest_value(kind, arch) - 1, largest_value(kind, arch))
    return x if kind == "f32" else Rounding.of(kind, arch).limit(x)


def _rounded_bound(kind: str, arch: str, one: Bounded) -> Wide:
    """Returns the bound after rounding to a type."""
    error = one.final_error
    if kind == "f32":
        return np.asarray(error)
    return np.asarray(error + HALF) if kind == "i8" else Rounding.of(kind, arch).bound(one.value, error)


def _all(found: Bounded, shape: tuple[int, ...]) -> Bounded:
    """Returns a value in a shape."""
    return Bounded(*(np.broadcast_to(part, shape) for part in (found.value, found.error)))
