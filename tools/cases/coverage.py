"""An operator's plan as a claim about its kernel: which elements a workgroup accesses; and the verdict for people and programs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.operators.gemm.problem import GATES, PANEL_ROWS
from simgpu.operators.gemm.tree import BlockGemmNode
from simgpu.tools.cases.operator_options import add_operator_options, operator_tree
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.parser import Parser

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.hardware.code_object import CodeObject
    from simgpu.operators import TiledComputation
    from simgpu.operators.gemm.layout import TileLayout, TileLayouts
    from simgpu.proof.coverage.judge import CoverageVerdict, MatrixPlan, OperandPlan, ProductPlan
    from simgpu.proof.coverage.parts import PartsPlan
    from simgpu.proof.solver import Limits

WORD = 4  # bytes of a scale
CHUNK = 16  # bytes that a load of operands has at most
STORED = (1, 2, 4)  # columns that a store has
CLAIMS = {
    "C": "each element is written {times}",
    "partials": "each element of each part is written {times}",
    "A": "each element is read {times} by each column of tiles",
    "B": "each element is read {times} by each row of tiles",
}
# Options of products about which no claim is made, and why.
REFUSED = {
    "groups": "where a group's rows begin is a sum of numbers in memory",
    "block": "products are scaled block by block before they are added, which the proof of sums does not follow",
    "mx": "matrix instructions that scale, and elements that share bytes, are not followed",
}
MOST_COUNTED = 4096  # workgroups whose tiles are counted: seconds


def planned_kernel(op: str, words: list[str]) -> tuple[TiledComputation, EmittedKernel]:
    """Returns the tree that OP and its options describe, and its kernel. UsageError if no claim is made about such a kernel."""
    parser = Parser(prog="simgpu prove", add_help=False)
    add_operator_options(parser)
    options: Namespace = parser.parse_args([op, *words])
    if options.operator.name != "gemm":
        raise UsageError(f"{op}: only gemm has a plan whose accesses are proved")
    tree: Any = operator_tree(options)
    problem = tree.problem
    name, value = ("groups", problem.groups) if problem.groups else ("scales", problem.scales)
    reason = REFUSED["groups"] if problem.groups else REFUSED.get(problem.scales)
    if reason is not None:
        raise UsageError(f"--{name} {value}: no claim is made, as {reason}")
    return tree, options.operator.choose_kernels(options).emit(tree)


def product_plan(tree: TiledComputation) -> ProductPlan:
    """Returns what a kernel's accesses must be, and its launch."""
    from simgpu.asm.gemm.operands import second_pass
    from simgpu.asm.gemm.tile_order import NAMES, order_words
    from simgpu.proof.coverage.judge import ProductPlan

    problem, plan, split = tree.problem, tree.plan, second_pass(tree.plan)
    tile = {"m": plan.tile_m, "n": plan.tile_n, "k": plan.tile_k}
    words = {"m": problem.m, "n": problem.n, "k": problem.k, "k_part": min(problem.k, tree.loop("k").tile)}
    words |= zip(NAMES, order_words(tree), strict=True)
    columns, rows = plan.grid
    tiles = rows, columns, tree.trips("k") if split else 1, problem.batch
    counted = plan.workgroups <= MOST_COUNTED
    plan_ = ProductPlan(
        _matrices(tree, split), tile, NAMES, factor_type=problem.epilogue_type, operands=() if split else _operands(tree)
    )  # fmt: skip
    return replace(plan_, launch=words, tiles=tiles) if counted else plan_


def _matrices(tree: TiledComputation, split: bool) -> tuple[MatrixPlan, ...]:
    """Returns the accesses to C, or parts of it, A and B."""
    from simgpu.hardware.dtypes import dtype
    from simgpu.proof.coverage.judge import MatrixPlan

    problem, plan = tree.problem, tree.plan
    axes = {
        "C": ("m", "n"),
        "A": ("k", "m") if problem.trans_a else ("m", "k"),
        "B": ("n", "k") if problem.trans_b else ("k", "n"),
    }
    sizes = dtype(problem.accumulator if split else problem.dtype_c).bytes, problem.element.bits // 8, problem.element_b.bits // 8
    layouts, found = tile_layouts(tree), []
    columns = 2 if problem.activation in GATES and not split else 1
    times = {
        "C": (np.arange(plan.tile_n) % columns == 0).astype(int)[None],
        "A": _stored_as(axes["A"], layouts.a), "B": _stored_as(axes["B"], layouts.b),
    }  # fmt: skip
    for (name, along), size in zip(axes.items(), sizes, strict=True):
        kind: Any = "store" if name == "C" else "load"
        multiples = tuple(columns * each for each in STORED) if name == "C" else (CHUNK // size,)
        argument = "partials" if name == "C" and split else name
        found.append(
            MatrixPlan(argument, kind, along, f"ld{name.lower()}", f"batch_{name.lower()}", size, multiples, times[name],
                       columns if name == "C" else 1, PANEL_ROWS * (name == "B" and problem.preshuffle_b))
        )  # fmt: skip
    return tuple(found)


def parts_plan(tree: TiledComputation) -> PartsPlan:
    """Returns what a second kernel does, which adds parts."""
    from simgpu.asm.builder.formula import division_words
    from simgpu.hardware.dtypes import dtype
    from simgpu.proof.coverage.parts import PartsPlan

    problem, gated = tree.problem, tree.problem.activation in GATES
    shapes = problem.scale_shapes or ((0,), (0,))
    batches = {name: str(WORD * shape[0]) for name, shape in zip(("scale_a", "scale_b"), shapes, strict=True)}
    result, *operands = (replace(each, batch=batches.get(each.argument, each.batch)) for each in _operands(tree))
    return PartsPlan(
        tree.trips("k"), dtype(problem.accumulator).registers, 1 + gated, result, tuple(operands),
        division_words(problem.n // (1 + gated)),
    )  # fmt: skip


def _operands(tree: TiledComputation) -> tuple[OperandPlan, ...]:
    """Returns what the epilogue reads."""
    from simgpu.asm.gemm.prologue import epilogue_pointers
    from simgpu.hardware.dtypes import dtype
    from simgpu.proof.coverage.judge import OperandPlan

    problem = tree.problem
    of_c, size = ("m", "n"), dtype(problem.dtype_c).bytes
    along = ("m", "n") if problem.scales == "row" else ("", "")
    kinds = {
        "C": (of_c, size, "ldc", "batch_c"), "residual": (of_c, size, "ldc", "batch_c"),
        "bias": (("", "n"), dtype(problem.dtype_addend).bytes, "", ""),
        "scale_a": (("", along[0]), WORD, "", along[0]), "scale_b": (("", along[1]), WORD, "", along[1]),
    }  # fmt: skip
    return tuple(OperandPlan(name, *kinds[name]) for name in ("C", *epilogue_pointers(problem)))


def tile_layouts(tree: TiledComputation) -> TileLayouts:
    from simgpu.operators.gemm.layout import TileLayouts

    block = tree.first()
    assert isinstance(block, BlockGemmNode)
    return TileLayouts.of(block)


def _stored_as(axes: tuple[str, str], layout: TileLayout) -> np.ndarray:
    """Returns how often a step loads each element, by row and column as the matrix is stored."""
    times = layout.times_loaded()
    return times.T if axes[0] == "k" else times


def judge_kernel(tree: TiledComputation, code: CodeObject, name: str, second: bool, limits: Limits) -> CoverageVerdict:
    """Judges one of a computation's kernels. second: it is the one that adds parts."""
    from simgpu.proof.coverage.judge import cover
    from simgpu.proof.coverage.parts import add_up

    return add_up(code, name, parts_plan(tree), limits) if second else cover(code, name, product_plan(tree), limits)


def coverage_lines(kernel: str, tree: TiledComputation, verdict: CoverageVerdict, launch: str, second: bool = False) -> list[str]:
    """Returns the verdict for people. launch: how one shows that the kernel is wrong, if one does. second: it adds parts."""
    plan = tree.plan
    what = f"{kernel} for {plan.descriptor.name or plan.descriptor.arch}"
    if launch:
        return [f"counterexample: {what}", f"  {verdict.reason}", f"  {launch}"]
    if verdict.kind != "proved":
        return [f"unknown: {what}: {verdict.reason}"]
    said = _second_lines(what, tree) if second else _first_lines(what, tree, verdict)
    return [*said, "assumed:", *(f"  {text}" for text in verdict.assumed)]


def _first_lines(what: str, tree: TiledComputation, verdict: CoverageVerdict) -> list[str]:
    plan, made = tree.plan, product_plan(tree)
    tile = " x ".join(str(getattr(plan, f"tile_{axis}")) for axis in "mnk")
    matrices = {each.argument: each for each in made.matrices}
    lines = [f"proved: {what} accesses its matrices as planned, for all m, n and k, in tiles of {tile}"]
    for name, multiple in sorted(verdict.proved, key=lambda each: list(CLAIMS).index(each[0])):
        row, claim = matrices[name].axes[1], CLAIMS[name].format(times=_times(matrices[name].times))
        lines.append(f"  {name}: {claim}" + (f", if {row} is a multiple of {multiple}" if multiple > 1 else ""))
    if verdict.summed:
        sums = f"C = {'a gate of pairs of columns of ' * made.gated}A·B: each element is the sum of its k products"
        if "partials" in matrices:
            sums = f"{tree.trips('k')} parts of K: each element of a part is the sum of its products"
        lines.append(f"  {sums}, each added once, under the same conditions")
        lines += _operand_lines(made.operands)
    if made.launch:
        lines.append(
            f"  tiles: {plan.workgroups:,} workgroups of m = {tree.problem.m}, n = {tree.problem.n} have each of them once"
        )
    return lines


def _second_lines(what: str, tree: TiledComputation) -> list[str]:
    plan = parts_plan(tree)
    parts = f"{plan.parts} parts" if plan.parts > 1 else "1 part"
    return [
        f"proved: {what} adds the parts as planned, for all m and n",
        f"  partials: each element of C is made of {parts}, each read and added once",
        "  C: each element is written once",
        *_operand_lines((plan.result, *plan.operands)),
    ]


def _operand_lines(operands: Sequence[OperandPlan]) -> list[str]:
    """Returns the claims about operands of the epilogue."""
    places = {("m", "n"): "row and column", ("", "m"): "row", ("", "n"): "column", ("", ""): "product of the batch"}
    others = [each for each in operands if each.argument != "C"]
    lines = [f"  {each.argument}: each result has that of its {places[each.axes]}, once" for each in others]
    old = ["  old C, if beta is not 0: no result has another element's, or has it twice"]
    return lines + old * (len(others) < len(operands))


def _times(counts: np.ndarray | None) -> str:
    """Returns in words how often elements are accessed."""
    found = [1] if counts is None else sorted(set(map(int, counts.flat)) - {0})
    return " or ".join(("once", "twice")[each - 1] if each < 3 else f"{each} times" for each in found)


def coverage_document(
    kernel: str, tree: TiledComputation, verdict: CoverageVerdict, launch: str, second: bool = False
) -> dict[str, Any]:
    """Returns the verdict as a JSON document."""
    times = {} if second else {each.argument: _times(each.times) for each in product_plan(tree).matrices}
    kind = "counterexample" if launch else "proved" if verdict.kind == "proved" else "unknown"
    claims = {**CLAIMS, "partials": "each part is read and added once"} if second else CLAIMS
    matrices = [
        {"matrix": name, "claim": claims[name].format(times=times.get(name, "once")), "multiple": multiple}
        for name, multiple in verdict.proved
    ]  # fmt: skip
    return {
        "verdict": kind, "kernel": kernel, "reason": verdict.reason, "seconds": verdict.seconds, "matrices": matrices,
        "accesses": verdict.accesses, "summed": verdict.summed, "assumed": list(verdict.assumed), "counterexample": launch or None,
    }  # fmt: skip
