"""GEMMs with leaves: kernels against float64 in checked mode, the tree's levels, what a class may lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu import asm, operators
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators import FusedGemm, FusedTree, RmsNormGemm, reference
from simgpu.operators.expressions import Value, exp, maximum, minimum, rsqrt, sqrt
from simgpu.operators.traffic import block_counters
from simgpu.tools.cases.operators import workload
from tests.support.operator_case import assert_right_for_all_inputs


@dataclass(frozen=True)
class LayerNormGemm(FusedGemm):
    """C = layernorm(A, gamma) @ B, with the sums of gamma @ B as an operand: two sums of a row, and a column."""

    name = "layernorm_gemm"
    vectors = ("gamma",)
    columns = ("shift",)

    eps: float = 1e-5

    def row_sums(self, a: Value, gamma: Value) -> Mapping[str, Value]:  # type: ignore[override]
        return {"total": a, "squares": a * a}

    def left_operand(self, a: Value, gamma: Value) -> Value:  # type: ignore[override]
        return a * gamma

    def result(self, product: Value, total: Value, squares: Value, shift: Value) -> Value:  # type: ignore[override]
        mean = total / self.k
        return (product - mean * shift) * rsqrt(squares / self.k - mean * mean + self.eps)

    def reference(self, a: Any, b: Any, gamma: Any, shift: Any) -> Any:  # type: ignore[override]
        mean, variance = a.mean(1, keepdims=True), a.var(1, keepdims=True)
        return ((a * gamma) @ b - mean * shift) / np.sqrt(variance + self.eps)


@dataclass(frozen=True)
class SquaredRelu(FusedGemm):
    """No sums: a map, and a factor of each column."""

    name = "squared_relu"
    columns = ("gain",)

    def left_operand(self, a: Value) -> Value:  # type: ignore[override]
        return maximum(a, 0) * maximum(a, 0)

    def result(self, product: Value, gain: Value) -> Value:  # type: ignore[override]
        return product * gain

    def reference(self, a: Any, b: Any, gain: Any) -> Any:  # type: ignore[override]
        return np.maximum(a, 0) ** 2 @ b * gain


@dataclass(frozen=True)
class Everything(FusedGemm):
    """Every operation, two vectors, no map of the plain kind."""

    name = "everything"
    vectors = ("u", "v")

    def row_sums(self, a: Value, u: Value, v: Value) -> Mapping[str, Value]:  # type: ignore[override]
        return {"s": abs(a) * exp(-a * a / 4), "t": minimum(a, v) * minimum(a, v)}

    def left_operand(self, a: Value, u: Value, v: Value) -> Value:  # type: ignore[override]
        return a / (1 + exp(-a * u)) - v

    def result(self, product: Value, s: Value, t: Value) -> Value:  # type: ignore[override]
        return maximum(product, -5) / (1 + s) + sqrt(t) - product * exp(-s)

    def reference(self, a: Any, b: Any, u: Any, v: Any) -> Any:  # type: ignore[override]
        s = (np.abs(a) * np.exp(-a * a / 4)).sum(1, keepdims=True)
        t = (np.minimum(a, v) ** 2).sum(1, keepdims=True)
        x = (a / (1 + np.exp(-a * u)) - v) @ b
        return np.maximum(x, -5) / (1 + s) + np.sqrt(t) - x * np.exp(-s)


@dataclass(frozen=True)
class RowsOnly(FusedGemm):
    """No map: A's rows scaled to length 1."""

    name = "cosine"

    def row_sums(self, a: Value) -> Mapping[str, Value]:  # type: ignore[override]
        return {"squares": a * a}

    def result(self, product: Value, squares: Value) -> Value:  # type: ignore[override]
        return product / sqrt(squares)

    def reference(self, a: Any, b: Any) -> Any:  # type: ignore[override]
        return a / np.sqrt((a * a).sum(1, keepdims=True)) @ b


@dataclass(frozen=True)
class AddNormGemm(FusedGemm):
    """Residual stream: A + r, normalised, and written as a matrix like A."""

    name = "add_rmsnorm_gemm"
    matrices = ("r",)
    vectors = ("gamma",)

    def row_sums(self, a: Value, r: Value, gamma: Value) -> Mapping[str, Value]:  # type: ignore[override]
        return {"squares": (a + r) * (a + r)}

    def left_operand(self, a: Value, r: Value, gamma: Value) -> Value:  # type: ignore[override]
        return (a + r) * gamma

    def result(self, product: Value, squares: Value) -> Value:  # type: ignore[override]
        return product * rsqrt(squares / self.k + 1e-6)

    def reference(self, a: Any, b: Any, r: Any, gamma: Any) -> Any:  # type: ignore[override]
        x = a + r
        return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * gamma @ b


@dataclass(frozen=True)
class SwigluGemm(FusedGemm):
    """Second half of a gated MLP: silu(A) * up @ B."""

    name = "swiglu_gemm"
    matrices = ("up",)

    def left_operand(self, a: Value, up: Value) -> Value:  # type: ignore[override]
        return a / (1 + exp(-a)) * up

    def reference(self, a: Any, b: Any, up: Any) -> Any:  # type: ignore[override]
        return a / (1 + np.exp(-a)) * up @ b


KINDS = (RmsNormGemm, LayerNormGemm, SquaredRelu, Everything, RowsOnly, AddNormGemm, SwigluGemm)


def operands(p: FusedGemm, arch: str) -> dict[str, np.ndarray]:
    """Returns A, B, matrices, vectors and columns."""
    rng, shapes = np.random.default_rng(0), p.gemm.stored_shapes
    kinds = {"A": (p.dtype, shapes[0]), "B": (p.dtype, shapes[1]), **{n: (p.type_of(n), shape) for n, shape in p.shapes.items()}}
    return {name: rng.uniform(-1, 1, shape).astype(numpy_dtype(kind, arch)) for name, (kind, shape) in kinds.items()}


def run(tree: FusedTree, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the kernel's result in checked mode, which finds nothing, float64's, and the bound."""
    work = workload(tree, tree.descriptor.arch, seed)
    gpu, kernel = simgpu.Device(tree.descriptor.arch, check=True), asm.emit(tree)
    buffers = [gpu.upload(array) for array in work.arrays]
    runs = asm.launch(kernel, gpu, *buffers)
    assert [finding for one in runs for finding in one.findings] == []
    c = work.operands[work.result]
    after = buffers[work.result].download(c.flat.dtype, c.flat.shape)
    assert c.count_touched(after) == 0
    return replace(c, flat=after).view.astype(np.float64), work.want(), work.bound()


ROWS = [
    (RmsNormGemm(1, 33, 700, "f16"), "mi300x"),
    (RmsNormGemm(34, 33, 1, "bf16", trans_b=True, bias=True, activation="silu", dtype_c="bf16", residual=True), "mi210"),
    pytest.param(RmsNormGemm(33, 66, 67, "f32", eps=0.5), "mi100", marks=pytest.mark.exhaustive),
    (RmsNormGemm(33, 34, 261, "bf16", activation="swiglu", dtype_c="fp8"), "mi355x"),
    (LayerNormGemm(34, 33, 205, "bf16", trans_b=True), "mi300x"),
    (SquaredRelu(31, 40, 66, "f32", bias=True, activation="swiglu"), "mi100"),
    (Everything(33, 34, 129, "f16"), "mi355x"),
    (AddNormGemm(34, 33, 203, "bf16", lda=207, trans_b=True), "mi355x"),
    pytest.param(SwigluGemm(33, 40, 5, "f16"), "mi300x", marks=pytest.mark.exhaustive),
    (RowsOnly(33, 33, 97, "f16", lda=101, ldb=40), "mi210"),
]


@pytest.mark.parametrize(("problem", "target"), ROWS, ids=lambda value: value if isinstance(value, str) else value.name)
def test_kernels_are_right_at_odd_sizes(problem: FusedGemm, target: str) -> None:
    got, want, bound = run(FusedTree(problem, target))
    assert np.all(np.abs(got - want) <= bound) and np.all(bound < 0.3 * np.abs(want).max() + 0.1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["mi100", "mi210", "mi300x", "mi355x"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_board_type_and_kind(kind: type[FusedGemm], dtype: str, target: str) -> None:
    rng = np.random.default_rng(len(dtype + target + kind.name))
    for m, n, k in rng.integers(1, (300, 300, 600), (3, 3)).tolist():
        got, want, bound = run(FusedTree(kind(m, n, k, dtype), target))
        assert np.all(np.abs(got - want) <= bound)


BOTH = [(kind, dtype, 8192, 224) for kind in (RmsNormGemm, LayerNormGemm, AddNormGemm) for dtype in ("f32", "f16")]
LARGE = [(RmsNormGemm, "f16", 2048, 128), *BOTH]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype", "size", "side"), [pytest.param(*row, marks=[pytest.mark.exhaustive] * (row[3] > 128)) for row in LARGE]
)
def test_large_tiles_have_the_registers(kind: type[FusedGemm], dtype: str, size: int, side: int) -> None:
    """Several loads and sums of a lane, and for LayerNorm two sums of each. The tiles are those of a problem of `size`; an edge
    cuts them."""
    tree = FusedTree(kind(size, size, 512, dtype), "mi300x")
    assert min(tree.plan.tile_m, tree.plan.tile_n) >= side
    got, want, bound = run(tree.like(kind(side + 7, 33, 67, dtype)))
    assert np.all(np.abs(got - want) <= bound)


@pytest.mark.parametrize(
    ("problem", "target"),
    [(RmsNormGemm(17, 20, 70, "bf16"), "mi300x"), pytest.param(LayerNormGemm(17, 20, 35), "mi210", marks=pytest.mark.exhaustive)],
)
def test_every_distribution_of_inputs_is_within_the_bound(problem: FusedGemm, target: str) -> None:
    """Large, tiny and subnormal elements, ties, one-hot rows: sums overflow or vanish in the same elements as float64's."""
    assert_right_for_all_inputs(FusedTree(problem, target))


def test_published_tiles_run_too() -> None:
    got, want, bound = run(FusedTree(RmsNormGemm(20, 65, 40, "f16"), "mi300x", "published"))
    assert np.all(np.abs(got - want) <= bound)


def test_every_level_computes_the_same_and_counts_as_in_closed_form() -> None:
    for problem in (RmsNormGemm(50, 37, 70, "f16"), LayerNormGemm(33, 40, 65), AddNormGemm(33, 40, 65)):
        tree, arrays = FusedTree(problem, "mi300x"), operands(problem, "gfx942")
        a, b = arrays.pop("A"), arrays.pop("B")
        want, bound = reference.fused(problem, a, b, **arrays), reference.fused_error_bound(problem, a, b, "gfx942", **arrays)
        for level in ("device", "block", "warp", "atom"):
            visitor = operators.ComputeVisitor(level)
            assert np.allclose(visitor.visit(tree, a, b, **arrays), want, rtol=1e-12, atol=1e-12)
            narrow = operators.ComputeVisitor(level, "problem").visit(tree, a, b, **arrays)
            assert np.all(np.abs(narrow - want) <= bound)
        assert visitor.counters == block_counters(tree)


def test_a_broken_leaf_is_wrong() -> None:
    """Forgets the mean's divisor. It is found, as the definition is separate from the expressions."""

    @dataclass(frozen=True)
    class Broken(RmsNormGemm):
        def result(self, product: Value, squares: Value) -> Value:  # type: ignore[override]
            return product * rsqrt(squares + self.eps)

    got, want, bound = run(FusedTree(Broken(33, 20, 40), "mi100"))
    assert not np.any(np.abs(got - want) <= bound)


def test_a_row_is_bound_to_its_kernel_not_to_others() -> None:
    """Rows' sums do not depend on the other rows of a tile: one huge row leaves the others as they were."""
    p = RmsNormGemm(40, 33, 70)
    tree, arrays = FusedTree(p, "mi100"), operands(p, "gfx908")
    gpu, kernel, found = simgpu.Device("mi100"), asm.emit(tree), []
    for factor in (1, 1000):
        arrays["A"][7] *= factor
        c = gpu.empty((40, 33))
        asm.launch(kernel, gpu, gpu.upload(arrays["A"]), gpu.upload(arrays["B"]), c, gpu.upload(arrays["gamma"]))
        found.append(c.download())
    assert np.array_equal(np.delete(found[0], 7, 0), np.delete(found[1], 7, 0))


def test_plans_name_the_leaves_registers_and_refuse_what_does_not_fit() -> None:
    tree = FusedTree(RmsNormGemm(256, 256, 256, "f16"), "mi300x")
    names = {row.name for row in tree.plan.resources.registers}
    assert {"squares of rows", "gamma staging", "gamma"} <= names and tree.plan.split_k == 1
    assert "rmsnorm_gemm 256x256x256 f16" in tree.derivation.title
    assert "a * gamma" in tree.tree() and "squares[i] += a * a" in tree.tree()


def made(**members: Any) -> FusedGemm:
    base = {"name": "mine", "reference": lambda self, a, b: a @ b}
    return type("Mine", (FusedGemm,), base | members)(8, 8, 8)  # type: ignore[no-any-return]


def test_the_earlier_name_of_the_left_operand_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="Mine.multiplied is now left_operand"):
        problem = made(multiplied=lambda self, a: a + a)
    want, got = made(left_operand=lambda self, a: a + a), type(problem)(8, 8, 8)
    assert got.leaves == want.leaves and str(got.leaves.left_operand) == "a + a"
    with pytest.warns(DeprecationWarning):
        further = type("Further", (type(want),), {"multiplied": lambda self, a: super(type(self), self).multiplied(a=a) * 3})
    assert str(further(8, 8, 8).leaves.left_operand) == str(made(left_operand=lambda self, a: (a + a) * 3).leaves.left_operand)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"name": "my op"}, "Mine.name is 'my op'"),
        ({"reference": FusedGemm.reference}, "Mine has no reference"),
        ({"vectors": ("A",)}, "'A' cannot name"),
        ({"vectors": ("u", "u")}, "'u' cannot name"),
        ({"vectors": "gamma"}, "give a tuple of names"),
        ({"row_sums": lambda self, a: a * a}, "return a dict"),
        ({"row_sums": lambda self, a: {"product": a}}, "'product' cannot name a sum"),
        ({"row_sums": lambda self, a: {"s": exp(a)}}, "is 1 for zeros"),
        ({"left_operand": lambda self, a: 1 / a}, "must be finite"),
        ({"left_operand": lambda self, a: a * rsqrt((a + 1e-30) * (a + 1e-30))}, "must be finite"),  # in f64 it is
        ({"left_operand": lambda self, a, gamma: a}, "gamma"),
        ({"left_operand": lambda self, a: 3}, "return an expression"),
        ({"result": lambda self, product: Value("constant")}, "does not use product"),
    ],
)
def test_what_a_class_lacks_is_said(members: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        made(**members)


def test_types_without_f32_leaves_and_wrong_arrays_are_refused() -> None:
    with pytest.raises(LaunchError, match="use f32, f16, bf16, not f64"):
        RmsNormGemm(8, 8, 8, "f64")
    with pytest.raises(LaunchError, match="reads gamma"):
        reference.fused(RmsNormGemm(2, 2, 2), np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(LaunchError, match="returns shape"):
        reference.fused(made(reference=lambda self, a, b: a.sum()), np.ones((8, 8)), np.ones((8, 8)))
