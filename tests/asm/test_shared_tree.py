"""Two visitors of a tree: a change of a node changes numpy's result and the kernel's alike, or both refuse the tree.

Steps (tiles of a loop), extents (the ends of the tree's axes) and orders (of a node's loops) are drawn for every node kind of
every operator. numpy executes the changed tree at a drawn level. The kernel runs in the simulator on outputs full of a marker,
and must leave the marker outside the tree's window.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, ResourceError
from simgpu.operators import (
    AddRmsNorm,
    AttentionBackwardProblem,
    AttentionProblem,
    ColumnProblem,
    Columns,
    ComputeVisitor,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    FusedGemm,
    FusedTree,
    LayerNorm,
    MxQuantise,
    Quantise,
    RmsNorm,
    RmsNormGemm,
    Rope,
    RowMax,
    RowOperator,
    RowSum,
    RowTree,
    SiluMul,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    Transpose,
    TransposeProblem,
    packed_filter,
    reference,
)
from simgpu.operators.attention.sequence import KernelSequence
from simgpu.operators.attention_backward.tree import GradientTree
from simgpu.operators.expressions import Value, rsqrt
from simgpu.operators.fused.tree import Leaf as TreeLeaf
from simgpu.operators.levels import Level, TileLoop
from simgpu.operators.rows.tree import RowRoot
from simgpu.operators.tree import Node, Root, TileNode, TileRoot
from tests.support.exhaustive import examples, one_in

TARGET = "mi300x"
MARKER = 77.0  # in outputs before a launch
# Half a unit in the last place by type, relative and absolute, and errors of f32. numpy's results are not rounded.
ROUNDED = {"int8": (0.0, 0.5 + 1e-4), "float8_e4m3fnuz": (2.0**-4 + 1e-6, 2.0**-10), "float8_e8m0fnu": (0.0, 0.0)}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A tree, its operands by the kernel's names, and how numpy's executor takes them."""

    name: str
    tree: Root
    operands: Callable[[Root], tuple[dict[str, Array], tuple[Array, ...]]]
    named: dict[str, Array] = field(default_factory=dict)  # operands that numpy's executor takes by name
    memory: tuple[int, ...] = ()  # dimensions of the output's view, as they are in memory; empty: in order
    tolerance: float = 1e-4
    kinds: dict[str, str] = field(default_factory=dict)  # types of outputs that are not f32
    of_groups: dict[str, int] = field(default_factory=dict)  # columns of outputs that have one for each group of a row

    @property
    def order(self) -> tuple[int, ...]:
        """Dimensions of the output's view, as they are in memory."""
        return self.memory or tuple(range(len(self.tree.views[-1].extents)))

    def numpy(self, tree: Root, level: str) -> tuple[Array, ...]:
        """Returns the outputs in the kernel's order."""
        found = ComputeVisitor(level).visit(tree, *self.operands(tree)[1], **self.named)
        if isinstance(found, dict):
            return tuple(found[name] for name in self.outputs)
        return found if isinstance(found, tuple) else (found,)

    @property
    def outputs(self) -> list[str]:
        """Names of the kernel's operands that are not given."""
        return [name for name in self.unchanged.operands if name not in self.operands(self.tree)[0]]

    @cached_property
    def unchanged(self) -> asm.EmittedKernel:
        """Kernel of the tree as it was."""
        return asm.emit(self.tree)

    def launch(self, tree: Root, emitted: asm.EmittedKernel) -> list[Array]:
        """Returns each output of the kernel in the tree's window. Asserts that it leaves the marker outside."""
        given, gpu = self.operands(tree)[0], simgpu.Device(tree.descriptor.name)
        whole, windows = ({view.operand: view for view in of.views} for of in (self.tree, tree))
        *_, last = tree.views
        places = {name: name if name in windows else last.operand for name in self.outputs}  # others have the last one's window
        shapes = {name: tuple(len(whole[at].extents[axis]) for axis in self.order) for name, at in places.items()}
        shapes |= {name: (len(whole[places[name]].rows), columns) for name, columns in self.of_groups.items()}
        kinds = {name: numpy_dtype(self.kinds.get(name, "f32"), tree.descriptor.arch) for name in places}
        marked = {name: np.full(shape, MARKER, np.float32).astype(kinds[name]) for name, shape in shapes.items()}
        buffers = {name: gpu.upload(array) for name, array in marked.items()}
        buffers |= {name: gpu.upload(array) for name, array in given.items()}
        asm.launch(emitted, gpu, *(buffers[name] for name in emitted.operands))
        results = []
        for name, at in places.items():
            found, inside = buffers[name].download(kinds[name], shapes[name]), np.zeros(shapes[name], bool)
            window = tuple(windows[at].index[axis] for axis in self.order)
            if name in self.of_groups:
                window = windows[at].index[0], slice(None)
            inside[window] = True
            assert (found[~inside] == marked[name][~inside]).all(), "the kernel wrote outside the tree's window"
            results.append(found[window])
        return results


def drawn(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Gated(FusedGemm):
    """Every kind of operand, and leaves that do not depend on an extent: any axis may be clipped."""

    name = "gated"
    matrices, vectors, columns = ("up",), ("shift",), ("gain",)

    def row_sums(self, a: Value, up: Value, shift: Value) -> dict[str, Value]:  # type: ignore[override]
        return {"size": (a + shift) * (a + shift)}

    def left_operand(self, a: Value, up: Value, shift: Value) -> Value:  # type: ignore[override]
        return a * up + shift

    def result(self, product: Value, size: Value, gain: Value) -> Value:  # type: ignore[override]
        return product * gain * rsqrt(size + 1)

    def reference(self, a: Any, b: Any, up: Any, shift: Any, gain: Any) -> Any:  # type: ignore[override]
        return (a * up + shift) @ b * gain / np.sqrt(((a + shift) ** 2).sum(1, keepdims=True) + 1)


def softmax(rows: int, n: int, target: str = TARGET) -> Case:
    x = drawn(rows, n)
    return Case(f"softmax {rows}x{n}", Softmax(SoftmaxProblem(rows, n), target), lambda tree: ({"X": x}, (x,)))


def rows(problem: RowOperator, target: str = TARGET) -> Case:
    p, kind = problem, problem.dtype.replace("f", "float")
    named = {name: drawn(*shape).astype(kind) for name, shape in p.read.items()}
    x = named.pop("X")
    said = f"{p.name} {p.rows}x{p.n} {p.dtype}{f' by {p.group}' if p.group else ''}"
    halves, groups = (1, 0, 2) if p.parts_y > 1 else (), p.row_results if len(p.written) > 1 else ()
    return Case(
        said, RowTree(p, target), lambda tree: ({"X": x, **named}, (x,)), named, halves, 1e-3,
        {name: p.type_of(name) for name in p.written}, dict.fromkeys(groups, p.groups),
    )  # fmt: skip


def transpose(m: int, n: int, target: str = TARGET) -> Case:
    x = drawn(m, n)
    return Case(f"transpose {m}x{n}", Transpose(TransposeProblem(m, n), target), lambda tree: ({"X": x}, (x,)))


def columns(m: int, n: int, reduce: str = "sum", target: str = TARGET) -> Case:
    x = drawn(m, n)
    return Case(f"column {reduce} {m}x{n}", Columns(ColumnProblem(m, n, reduce=reduce), target), lambda tree: ({"X": x}, (x,)))


def gemm(m: int, n: int, k: int, target: str = TARGET, **more: Any) -> Case:
    tree = TiledComputation(m, n, k, target, **more)
    outer = () if tree.problem.batch == 1 else (tree.problem.batch,)
    a, b = (drawn(*outer, *shape).astype(tree.problem.dtype.replace("f", "float")) for shape in tree.problem.stored_shapes[:2])
    named = {"bias": drawn(n)} if tree.problem.bias else {}
    said = ", ".join(f"{name}={value}" for name, value in more.items())
    operands = {"A": a, "B": b, **named}, (a, b, None, *named.values())
    return Case(f"gemm {m}x{n}x{k} {said}", tree, lambda tree: operands, tolerance=1e-3)


def fused(problem: FusedGemm, target: str = TARGET) -> Case:
    p, kind = problem, problem.dtype.replace("f", "float")
    a, b, c = (drawn(*shape) for shape in p.gemm.stored_shapes)
    named = {"bias": drawn(p.n)} if p.bias else {}
    named |= {"residual": c} if p.residual else {}
    named |= {name: drawn(*shape).astype(p.type_of(name).replace("f", "float")) for name, shape in p.shapes.items()}
    a, b = a.astype(kind), b.astype(kind)
    said = " ".join((p.name, f"{p.m}x{p.n}x{p.k}", p.dtype))
    return Case(said, FusedTree(p, target), lambda tree: ({"A": a, "B": b, **named}, (a, b)), named, tolerance=1e-2)


def conv2d(ic: int, size: int, oc: int, taps: int, target: str = TARGET, **more: Any) -> Case:
    tree = Conv2d(Conv2dProblem(2, ic, size, size + 5, oc, taps, taps, **more), target)
    p, said = tree.problem, ", ".join(f"{name}={value}" for name, value in more.items())
    x, w, added = drawn(*p.shapes[0]), drawn(*p.shapes[1]), {"bias": drawn(oc)} if p.bias else {}

    def operands(tree: Root) -> tuple[dict[str, Array], tuple[Array, ...]]:
        return {"X": x, "W": packed_filter(tree.plan, w), **added}, (x, w, *added.values())

    return Case(f"conv2d {ic}x{size} by {oc}x{taps} {said}", tree, operands, memory=(0, 2, 3, 1) if p.layout == "nhwc" else ())


def attention(lq: int, lk: int, d: int, policy: str = "corrected", values: str = "mfma", target: str = TARGET, **more: Any) -> Case:
    tree = FusedAttention(AttentionProblem(lq, lk, d, **more), target, policy, values)
    p, said = tree.problem, ", ".join(f"{name}={value}" for name, value in more.items())
    arrays = tuple(drawn(*shape).astype(p.dtype.replace("f", "float")) for shape in (p.q_shape, p.k_shape, p.v_shape))
    named = dict(zip("QKV", arrays, strict=True))
    tolerance = 1e-4 if p.dtype == "f32" else 1e-2
    return Case(f"attention {lq} by {lk}, d={d} {policy} {values} {said}", tree, lambda tree: (named, arrays), tolerance=tolerance)


def backward(side: str, lq: int, lk: int, d: int, target: str = TARGET, **more: Any) -> Case:
    """Returns the kernel of dK and dV ("keys"), or of dQ ("queries")."""
    tree = GradientTree(AttentionBackwardProblem(lq, lk, d, dtype="f16", **more), side, target)
    p, said = tree.problem, ", ".join(f"{name}={value}" for name, value in more.items())
    named = {name: drawn(*p.shapes[name]).astype(np.float16) for name in ("Q", "K", "V", "dO")}
    lse = reference.attention_lse(p, named["Q"], named["K"]).astype(np.float32)
    named |= {"L": lse, "D": drawn(*p.lse_shape)}
    return Case(f"{side} of backward {lq} by {lk}, d={d} {said}", tree, lambda tree: (named, tuple(named.values())), tolerance=2e-2)


CASES = [
    softmax(9, 700), softmax(2500, 64), softmax(12000, 12), softmax(3, 5000), softmax(2, 150000),
    transpose(70, 133), transpose(300, 41), columns(900, 70), columns(3000, 33, "maximum"),
    rows(RmsNorm(9, 701)), rows(LayerNorm(70, 63, "f16", "f32")), rows(LayerNorm(3, 5003)), rows(RmsNorm(2, 150001)),
    rows(LayerNorm(2, 90001)),
    rows(Quantise(9, 701)), rows(Quantise(5, 1027, group=32)), rows(Quantise(2, 150001)), rows(MxQuantise(7, 330)),
    rows(RowSum(5, 1027, group=32)), rows(SiluMul(3, 8202)), rows(Rope(60, 64, heads=12)), rows(RowMax(9, 3000)),
    gemm(70, 60, 50), gemm(50, 33, 90, trans_a=True, batch=2), gemm(20, 30, 1500, trans_b=True, bias=True),
    gemm(90, 40, 150, dtype="f16", trans_a=True), gemm(90, 70, 65, policy="published"),
    fused(RmsNormGemm(50, 60, 70, "f16")), fused(Gated(70, 33, 90, "f16", trans_b=True, bias=True, residual=True)),
    conv2d(16, 20, 40, 3, padding=(1, 1), bias=True), conv2d(3, 30, 20, 7, stride=(2, 2)), conv2d(64, 9, 36, 1, groups=2),
    conv2d(32, 12, 70, 3, layout="nhwc"), conv2d(600, 3, 20, 3, padding=(1, 1)),
    attention(90, 100, 32), attention(70, 300, 64, heads=4, kv_heads=2, causal=True, dtype="f16"),
    attention(3, 3000, 64, heads=8, kv_heads=1), attention(40, 70, 64, "published"), attention(40, 70, 64, "published", "fma"),
    rows(AddRmsNorm(9, 333)), backward("keys", 70, 90, 64, batch=2, heads=4, kv_heads=2), backward("queries", 90, 70, 32, batch=2),
    backward("keys", 40, 300, 64, batch=2, causal=True), backward("queries", 300, 300, 128, causal=True),
]  # fmt: skip
IDS = [case.name for case in CASES]


def agree(case: Case, tree: Root, level: str) -> None:
    """Asserts that numpy and the kernel compute the same from a changed tree, and that the kernel has changed.

    Only the emitter refuses tiles that a block's work-items cannot share, or that leave the epilogue too few registers.
    """
    expected, base = case.numpy(tree, level), case.unchanged
    try:
        emitted = asm.emit(tree)
    except ResourceError as error:
        assert re.search("does not divide among|an instruction reaches|registers left for", str(error))
        return
    for want, found in zip(expected, case.launch(tree, emitted), strict=True):
        relative, absolute = ROUNDED.get(found.dtype.name, (case.tolerance, case.tolerance))
        np.testing.assert_allclose(found.astype(float), want.reshape(found.shape), rtol=relative, atol=absolute)
    assert (emitted.text, emitted.grid, emitted.scalars) != (base.text, base.grid, base.scalars), "the kernel ignores the change"


def sizes(loop: TileLoop) -> st.SearchStrategy[int]:
    """Draws other tiles for a loop: simple ratios of its own, and any."""
    near = [max(1, loop.tile * up // down) for up, down in ((1, 2), (2, 1), (1, 4), (3, 1), (3, 2), (4, 1), (1, 1))]
    return st.sampled_from([*near, loop.tile + 1, loop.tile - 1]).filter(lambda tile: 0 < tile != loop.tile)


def change_a_step(case: Case, data: st.DataObject) -> None:
    """Changes a loop's tile: both visitors run the new loop, or the tree is refused with the loop's name."""
    node = data.draw(st.sampled_from([node for node in case.tree.representatives() if node.loops]))
    changed = data.draw(st.sampled_from(node.loops))
    tile, loops = data.draw(sizes(changed)), list(node.loops)
    for number, loop in enumerate(loops):  # if a step has one wave, two loops are equal
        loops[number] = replace(loop, tile=tile) if loop == replace(changed, parallel=loop.parallel) else loop
    try:
        tree = case.tree.with_loops(node.level, tuple(loops))
        plan = tree.plan
    except (LaunchError, ResourceError) as error:
        assert case.tree.derivation.title in str(error)
        return
    assert plan.nest[node.level] == tuple(loops)
    agree(case, tree, data.draw(st.sampled_from(list(Level))))


def kinds_below(base: type) -> set[type]:
    """Returns the node classes of a level below a class, without those that only others derive from."""
    found = {kind for below in base.__subclasses__() for kind in kinds_below(below) | {below}}
    return {kind for kind in found if not kind.__name__.startswith("_") and kind.__module__.startswith("simgpu.operators")}


def test_every_kind_of_node_is_changed() -> None:
    """A new operator's nodes need a case here. Roots of several kernels have no loops of their own."""
    bases = {TileNode, Root, TileRoot, RowRoot, TreeLeaf}
    asked = kinds_below(Node) - bases - {KernelSequence, *kinds_below(KernelSequence)}
    held = {type(node) for case in CASES for node in case.tree.representatives()}
    held |= {type(child) for case in CASES for node in case.tree.representatives() for child in node.children()}
    assert {kind.__name__ for kind in asked - held} == set()


@given(st.data())
@pytest.mark.parametrize("case", one_in(2, CASES), ids=IDS)
@settings(max_examples=examples(8))
def test_steps(case: Case, data: st.DataObject) -> None:
    change_a_step(case, data)


@pytest.mark.parametrize("n", [65, 131])
def test_a_wave_stores_the_overlaps_of_all_its_rows(n: int) -> None:
    """A wave has two rows, and their last chunks are stored in two parts."""
    case = softmax(9, n)
    by_rows, by_columns = case.tree.loops
    agree(case, case.tree.with_loops(Level.DEVICE, (replace(by_rows, tile=2 * by_rows.tile), by_columns)), "device")


BOARDS, FLAGS, PAIRS = st.sampled_from(("mi100", "mi210", "mi300x", "mi355x")), st.booleans(), st.sampled_from(((1, 1), (2, 1)))
PROBLEMS = {
    "softmax": st.builds(softmax, st.integers(1, 20), st.integers(1, 9000), BOARDS),
    "rows": st.builds(
        lambda kind, count, n, board: rows(kind(count, 2 * n), board),
        st.sampled_from((RmsNorm, LayerNorm, SiluMul, RowSum, Quantise)), st.integers(1, 20), st.integers(1, 4500), BOARDS,
    ),
    "transpose": st.builds(transpose, st.integers(1, 300), st.integers(1, 300), BOARDS),
    "columns": st.builds(columns, st.integers(1, 3000), st.integers(1, 300), st.sampled_from(("sum", "maximum")), BOARDS),
    "gemm": st.builds(
        gemm, st.integers(1, 130), st.integers(1, 130), st.integers(1, 900), BOARDS, trans_a=FLAGS, trans_b=FLAGS,
        dtype=st.sampled_from(("f32", "f16")),
    ),
    "fused": st.builds(
        lambda m, n, k, kind, trans_b, board: fused(RmsNormGemm(m, n, k, kind, trans_b=trans_b), board), st.integers(1, 130),
        st.integers(1, 130), st.integers(1, 900), st.sampled_from(("f32", "f16")), FLAGS, BOARDS,
    ),
    "backward": st.builds(
        backward, st.sampled_from(("keys", "queries")), st.integers(1, 300), st.integers(1, 300),
        st.sampled_from((16, 40, 64, 128)), BOARDS, causal=FLAGS, batch=st.integers(1, 2),
        heads=st.sampled_from((2, 4)), kv_heads=st.sampled_from((1, 2)),
    ),
    "conv2d": st.builds(
        conv2d, st.sampled_from((1, 3, 16, 20, 64)), st.integers(9, 20), st.sampled_from((4, 17, 50)), st.sampled_from((1, 3, 5)),
        BOARDS, stride=PAIRS, padding=PAIRS, layout=st.sampled_from(("nchw", "nhwc")),
    ),
    "attention": st.builds(
        attention, st.integers(1, 200), st.integers(1, 500), st.sampled_from((16, 32, 64, 128)), target=BOARDS, causal=FLAGS,
        heads=st.sampled_from((2, 4)), kv_heads=st.sampled_from((1, 2)), dtype=st.sampled_from(("f32", "f16")),
    ),
}  # fmt: skip


@given(st.data())
@pytest.mark.exhaustive
@pytest.mark.parametrize("operator", PROBLEMS)
@settings(max_examples=examples(30))
def test_steps_of_any_problem(operator: str, data: st.DataObject) -> None:
    change_a_step(data.draw(PROBLEMS[operator]), data)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_kernel_that_ignores_the_tree_is_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes sizes from somewhere else than the tree: the comparison fails."""
    clips = [axis for axis, extent in case.tree.axes.items() if len(extent) > 1 and not case.tree.whole_only(axis)]
    same = case.unchanged
    monkeypatch.setattr(asm, "emit", lambda tree: same)
    for axis in clips[-1:]:
        with pytest.raises(AssertionError):
            agree(case, case.tree.clip(**{axis: 1}), "device")


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_more_groups_as_one_than_there_are_are_refused(layout: str) -> None:
    tree = conv2d(1, 9, 4, 1, "mi100", padding=(1, 1), layout=layout).tree
    loops = tuple(replace(loop, tile=2) if loop.axis == "group" else loop for loop in tree.loops)
    with pytest.raises(LaunchError, match="use 'for group by 1"):
        tree.with_loops(Level.DEVICE, loops)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_orders(case: Case) -> None:
    """Loops in another order, one more or one less are refused with the loop's name."""
    for node in case.tree.representatives():
        for loops in (node.loops[::-1], node.loops[1:], (*node.loops, *node.loops[:1])) if node.loops else ():
            with pytest.raises(LaunchError, match=f"the {node.level}'s loop"):
                case.tree.with_loops(node.level, loops)


@given(st.data())
@pytest.mark.parametrize("case", one_in(3, CASES), ids=IDS)
@settings(max_examples=examples(8))
def test_extents(case: Case, data: st.DataObject) -> None:
    """An axis is clipped: both visitors compute the smaller window, or the tree is refused with the axis' name."""
    axis, extent = data.draw(st.sampled_from(sorted(case.tree.axes.items())))
    assume(len(extent) > 1)
    try:
        tree = case.tree.clip(**{axis: data.draw(st.integers(1, len(extent) - 1))})
    except LaunchError as error:
        assert f"axis {axis}" in str(error)
        return
    agree(case, tree, data.draw(st.sampled_from(list(Level))))
