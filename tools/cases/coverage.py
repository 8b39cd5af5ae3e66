"""An operator's plan as a claim about its kernel: which elements a workgroup accesses; and the verdict for people and programs."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.operators.gemm.problem import GATES
from simgpu.operators.gemm.tree import BlockGemmNode
from simgpu.tools.cases.operator_options import add_operator_options, operator_tree
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import Parser

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.asm.gemm.operands import TileLayouts
    from simgpu.asm.parts.lds_tile import TileLayout
    from simgpu.hardware.code_object import CodeObject
    from simgpu.operators import TiledComputation
    from simgpu.proof.coverage.judge import CoverageVerdict, ProductPlan

CHUNK = 16  # bytes that a load of operands has at most
STORED = (1, 2, 4)  # columns that a store has
CLAIMS = {
    "C": "each element is written {times}",
    "partials": "each element of each part is written {times}",
    "A": "each element is read {times} by each column of tiles",
    "B": "each element is read {times} by each row of tiles",
}
# Fields of a problem with other ways to A, B and C, and their values without that.
PLAIN = {"scales": "none", "groups": 0, "preshuffle_b": False, "leaves": None}
# Fields that change the result, and their values without that.
PRODUCT = {"alpha": 1.0, "beta": 0.0, "bias": False, "activation": "none", "residual": False}
MOST_COUNTED = 4096  # workgroups whose tiles are counted: seconds
STEPS = 5  # of K in these launches
AROUND = (2, 0), (2, -1), (2, -2), (2, -3), (1, 1)  # launches that are tried: tiles, and elements more
MARGIN, UNWRITTEN = 8, 99  # rows and columns around C, and their value


def planned_kernel(op: str, words: list[str]) -> tuple[TiledComputation, EmittedKernel]:
    """Returns the tree that OP and its options describe, and its kernel. UsageError if no claim is made about such a kernel."""
    parser = Parser(prog="simgpu prove", add_help=False)
    add_operator_options(parser)
    options: Namespace = parser.parse_args([op, *words])
    if options.operator.name != "gemm":
        raise UsageError(f"{op}: only gemm has a plan whose accesses are proved")
    tree: Any = operator_tree(options)
    for name, usual in PLAIN.items():
        if getattr(tree.problem, name) != usual:
            text = f"--{name.replace('_', '-')} {getattr(tree.problem, name)}"
            raise UsageError(f"{text}: no claim is made about such kernels, only about plain products")
    if tree.problem.activation in GATES:
        raise UsageError(f"--activation {tree.problem.activation}: no claim is made about gates, which leave n/2 columns")
    return tree, options.operator.choose_kernels(options).emit(tree)


def product_plan(tree: TiledComputation) -> ProductPlan:
    """Returns what a kernel's accesses must be, and its launch."""
    from simgpu.asm.gemm.operands import second_pass
    from simgpu.asm.gemm.tile_order import NAMES, order_words
    from simgpu.hardware.dtypes import dtype
    from simgpu.proof.coverage.judge import MatrixPlan, ProductPlan

    problem, plan = tree.problem, tree.plan
    axes = {
        "C": ("m", "n"),
        "A": ("k", "m") if problem.trans_a else ("m", "k"),
        "B": ("n", "k") if problem.trans_b else ("k", "n"),
    }
    split = second_pass(plan)
    sizes = dtype(problem.accumulator if split else problem.dtype_c).bytes, problem.element.bits // 8, problem.element_b.bits // 8
    layouts, found = _layouts(tree), []
    times = {"C": None, "A": _stored_as(axes["A"], layouts.a), "B": _stored_as(axes["B"], layouts.b)}
    for (name, along), size in zip(axes.items(), sizes, strict=True):
        kind: Any = "store" if name == "C" else "load"
        multiples = STORED if name == "C" else (CHUNK // size,)
        argument = "partials" if name == "C" and split else name
        found.append(MatrixPlan(argument, kind, along, f"ld{name.lower()}", f"batch_{name.lower()}", size, multiples, times[name]))
    tile = {"m": plan.tile_m, "n": plan.tile_n, "k": plan.tile_k}
    words = {"m": problem.m, "n": problem.n, "k": problem.k, "k_part": min(problem.k, tree.loop("k").tile)}
    words |= zip(NAMES, order_words(tree), strict=True)
    columns, rows = plan.grid
    tiles = rows, columns, tree.trips("k") if split else 1, problem.batch
    counted = plan.workgroups <= MOST_COUNTED
    plan_ = ProductPlan(tuple(found), tile, NAMES, factor_type=problem.epilogue_type)
    return replace(plan_, launch=words, tiles=tiles) if counted else plan_


def _layouts(tree: TiledComputation) -> TileLayouts:
    from simgpu.asm.gemm.operands import TileLayouts

    block = tree.first()
    assert isinstance(block, BlockGemmNode)
    return TileLayouts.of(block)


def _stored_as(axes: tuple[str, str], layout: TileLayout) -> np.ndarray:
    """Returns how often a step loads each element, by row and column as the matrix is stored."""
    times = layout.times_loaded()
    return times.T if axes[0] == "k" else times


def evidence(tree: TiledComputation, code: CodeObject, name: str) -> str:
    """Returns how a launch shows that a kernel is not as its plan: a fault, a wrong result, or other bytes; "" if none does."""
    plan = tree.plan
    if plan.split_k > 1 or any(getattr(tree.problem, name) != usual for name, usual in PRODUCT.items()):
        return ""
    for whole, more in AROUND:
        m, n, k = (count * getattr(plan, f"tile_{axis}") + more for axis, count in zip("mnk", (whole, whole, STEPS), strict=True))
        problem = replace(tree.problem, m=m, n=n, k=k, lda=None, ldb=None, ldc=n + MARGIN, batch=1)
        found = _wrong(tree.like(problem), code, name, counted=not more)
        if found:
            return f"simulated with m = {m}, n = {n}, k = {k}: {found}"
    return ""


def _wrong(tree: TiledComputation, code: CodeObject, name: str, counted: bool) -> str:
    """Launches a kernel on whole numbers; returns what is wrong.

    counted: compare requested bytes, which include those of lanes outside the matrix.
    """
    from simgpu import Device
    from simgpu.asm import emit
    from simgpu.hardware.errors import SimError
    from simgpu.operators import gemm_counters
    from simgpu.tools.shared.arrays import array_type

    problem, kernel = tree.problem, emit(tree)
    kinds = [array_type(each, kernel.target) for each in (problem.dtype, problem.dtype_b, problem.dtype_c)]
    rng = np.random.default_rng(1)
    operands = [rng.integers(-2, 3, shape).astype(kind) for shape, kind in zip(problem.stored_shapes[:2], kinds, strict=False)]
    a, b = (
        each.astype(np.float64).T if turned else each.astype(np.float64)
        for each, turned in zip(operands, (problem.trans_a, problem.trans_b), strict=True)
    )  # fmt: skip
    result = np.full((problem.m + MARGIN, problem.n + MARGIN), UNWRITTEN, kinds[2])
    device = Device(kernel.target)
    buffers = [device.upload(each) for each in (*operands, result)]
    try:
        launch = device.load(bytes(code.data))[name]
        run = launch.launch(grid=kernel.grid, block=kernel.block, args=kernel.arguments(*buffers))
    except SimError as error:
        return str(error).splitlines()[0]
    expected = result.astype(np.float64)
    expected[: problem.m, : problem.n] = a @ b
    wrong = np.argwhere(buffers[2].download(kinds[2], result.shape).astype(np.float64) != expected)
    if len(wrong):
        return f"C{wrong[0].tolist()} is wrong, as are {len(wrong) - 1} other elements"
    bytes_ = run.counters["global_read_bytes"] + run.counters["global_write_bytes"]
    wanted = gemm_counters(tree.plan).global_bytes + _again(tree)
    return "" if bytes_ == wanted or not counted else f"{bytes_:,} bytes are requested, {wanted:,} by the plan"


def _again(tree: TiledComputation) -> int:
    """Returns the bytes that work-items load which another one also loads, for sizes that are multiples of the tile's."""
    layouts, problem, (columns, rows) = _layouts(tree), tree.problem, tree.plan.grid
    steps = problem.k // layouts.tile_k * rows * columns * problem.batch
    sides = (layouts.a, problem.element), (layouts.b, problem.element_b)
    return steps * sum(kind.packed_bytes(int((layout.times_loaded() - 1).sum())) for layout, kind in sides)


def coverage_lines(kernel: str, tree: TiledComputation, verdict: CoverageVerdict, launch: str) -> list[str]:
    """Returns the verdict for people. launch: how one shows that the kernel is wrong, if one does."""
    plan = tree.plan
    what = f"{kernel} for {plan.descriptor.name or plan.descriptor.arch}"
    if launch:
        return [f"counterexample: {what}", f"  {verdict.reason}", f"  {launch}"]
    if verdict.kind != "proved":
        return [f"unknown: {what}: {verdict.reason}"]
    tile = " x ".join(str(getattr(plan, f"tile_{axis}")) for axis in "mnk")
    matrices = {each.argument: each for each in product_plan(tree).matrices}
    lines = [f"proved: {what} accesses its matrices as planned, for all m, n and k, in tiles of {tile}"]
    for name, multiple in sorted(verdict.proved, key=lambda each: list(CLAIMS).index(each[0])):
        row, claim = matrices[name].axes[1], CLAIMS[name].format(times=_times(matrices[name].times))
        lines.append(f"  {name}: {claim}" + (f", if {row} is a multiple of {multiple}" if multiple > 1 else ""))
    if verdict.summed:
        sums = "C = A·B: each element is the sum of its k products"
        if plan.split_k > 1:
            sums = f"{plan.split_k} parts of K: each element of a part is the sum of its products"
        lines.append(f"  {sums}, each added once, under the same conditions")
    if product_plan(tree).launch:
        lines.append(
            f"  tiles: {plan.workgroups:,} workgroups of m = {tree.problem.m}, n = {tree.problem.n} have each of them once"
        )
    second = ["a second kernel adds the parts"] if plan.split_k > 1 else []
    return [*lines, "assumed:", *(f"  {text}" for text in (*verdict.assumed, *second))]


def _times(counts: np.ndarray | None) -> str:
    """Returns in words how often elements are accessed."""
    found = [1] if counts is None else sorted(set(map(int, counts.flat)))
    return " or ".join(("once", "twice")[each - 1] if each < 3 else f"{each} times" for each in found)


def coverage_document(kernel: str, tree: TiledComputation, verdict: CoverageVerdict, launch: str) -> dict[str, Any]:
    """Returns the verdict as a JSON document."""
    times = {each.argument: _times(each.times) for each in product_plan(tree).matrices}
    kind = "counterexample" if launch else "proved" if verdict.kind == "proved" else "unknown"
    matrices = [
        {"matrix": name, "claim": CLAIMS[name].format(times=times[name]), "multiple": multiple} for name, multiple in verdict.proved
    ]
    return {
        "verdict": kind, "kernel": kernel, "reason": verdict.reason, "seconds": verdict.seconds, "matrices": matrices,
        "accesses": verdict.accesses, "summed": verdict.summed, "assumed": list(verdict.assumed), "counterexample": launch or None,
    }  # fmt: skip
