"""Operators on rows that PyTorch's autograd needs: against their definitions in float64, within bounds, in checked mode."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu import Device, asm
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators import RowOperator, RowTree, reference
from simgpu.tools.torch.operators.element_forms import ELEMENT_FORMS
from simgpu.tools.torch.operators.row_forms import FORMS

SHAPES = [(7, 64, "f32"), (3, 5, "bf16"), (2, 777, "f16")]


@pytest.mark.parametrize(("rows", "n", "kind"), SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_forms_are_within_their_bounds(form: type[RowOperator], rows: int, n: int, kind: str) -> None:
    assert_within_bounds(form, rows, n, kind)


@pytest.mark.parametrize("number", range(len(ELEMENT_FORMS)))
def test_element_forms_are_within_their_bounds(number: int) -> None:
    assert_within_bounds(list(ELEMENT_FORMS.values())[number], *SHAPES[number % len(SHAPES)])


def assert_within_bounds(form: type[RowOperator], rows: int, n: int, kind: str) -> None:
    """Runs a form on random operands, checked, and compares with its definition."""
    gpu, rng, problem = Device("mi300x", check=True), np.random.default_rng(n), form(rows, n, kind)
    given = {name: rng.standard_normal(shape).astype(numpy_dtype(kind, gpu.arch)) for name, shape in problem.read.items()}
    if form.name == "log_softmax_gradient":
        given["X"] = -np.abs(given["X"])  # logarithms of probabilities
    if form.name in ("sqrt", "rsqrt", "log"):
        given["X"] = np.abs(given["X"])
    written = {name: gpu.empty(shape, numpy_dtype(problem.type_of(name), gpu.arch)) for name, shape in problem.written.items()}
    tree = RowTree(problem, "mi300x")
    kernel = asm.emit(tree)
    (run,) = asm.launch(kernel, gpu, *map(gpu.upload, given.values()), *written.values())
    assert not run.findings
    x = given.pop("X")
    wanted = reference.rows(problem, x, gpu.arch, **given)
    bounds = reference.rows_error_bound(problem, x, gpu.arch, not tree.plan.resident, **given)
    for name, buffer in written.items():
        got = buffer.download(numpy_dtype(problem.type_of(name), gpu.arch), problem.written[name]).astype(np.float64)
        assert np.all(np.abs(got - wanted[name]) <= bounds[name]), name
        assert np.all(np.abs(got - wanted[name]) < 0.1 * (1 + np.abs(wanted[name])))  # bounds of long sums are wide
