"""Node model: boundary policy, views in any number of dimensions, levels, visitors, other operators on the command line."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.operators import (
    AttentionProblem,
    ComputeVisitor,
    Conv2d,
    Conv2dProblem,
    FeasibilityVisitor,
    FusedAttention,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    UnfusedAttention,
    derive_tiles,
)
from simgpu.operators.cost import KernelCost, choose, parts_of
from simgpu.operators.levels import Level, TileLoop
from simgpu.operators.split import Reduction
from simgpu.operators.tree import FLOOR, ZERO, Boundary, Extent, Root, View, representatives
from simgpu.tools.cli import main

TREES: list[Root] = [
    TiledComputation(300, 200, 100),
    Conv2d(Conv2dProblem(2, 8, 20, 20, 16, 3, 3)),
    Softmax(SoftmaxProblem(100, 5000)),
    FusedAttention(AttentionProblem(100, 300, 32, heads=2)),
]


@given(st.integers(1, 6), st.integers(-9, 9), st.integers(0, 9), st.sampled_from([ZERO, FLOOR]))
def test_boundary_reads_what_numpy_pads(size: int, low: int, length: int, boundary: Boundary) -> None:
    array = np.arange(1.0, size + 1)
    padded = np.pad(array, 30, constant_values=boundary.fill)
    np.testing.assert_array_equal(boundary.read(array, (low, low + length)), padded[30 + low : 30 + low + length])


def test_views() -> None:
    whole = View("X", Extent.whole(10), Extent.whole(20), (Extent.whole(3),))
    part = View("X", Extent(4, 8, 4), Extent(16, 20, 8), (Extent(1, 2, 1),))
    array = np.arange(600).reshape(3, 10, 20)
    assert part.shape == (1, 4, 4) and part.tile_shape == (1, 4, 8) and part.elements == 16 and str(part) == "X:(1,4,8)"
    assert (array[whole.index][part.within(whole)] == array[part.index]).all()


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: type(tree).__name__)
def test_one_node_model(tree: Root) -> None:
    assert [node.level for node in tree.representatives()] == list(Level)
    text = tree.tree()
    assert "boundary: " in text and "tiling: corrected for mi100" in text
    report = FeasibilityVisitor().visit(tree)
    assert report.feasible and report.binding in report.constraints and report.remedy == ""
    assert sum(len(node.constraints) for node in report.nodes) == len(report.constraints)
    moved = tree.on(hardware.target("mi355x"))
    assert moved.problem == tree.problem and moved.derivation.policy == tree.derivation.policy
    assert FeasibilityVisitor(hardware.target("mi355x")).visit(tree).tiles == moved.plan.sizes
    with pytest.raises(LaunchError, match="visit the root of a tree"):
        ComputeVisitor().visit(next(tree.children()))


@given(
    st.integers(1, 5000),
    st.integers(1, 500),
    st.floats(10, 1e5),
    st.floats(0, 1e5),
    st.integers(1, 8),
    st.integers(1, 10**6),
    st.floats(0, 1),
    st.integers(1, 10**7),
    st.sampled_from(["mi100", "mi210", "mi300x", "mi355x"]),
)
def test_a_split_never_loses(
    tiles: int, steps: int, step: float, stored: float, resident: int, asked: int, missed: float, partial: int, board: str
) -> None:
    rates = sustained_rates(hardware.target(board))

    def first(split: int) -> KernelCost:
        parts, each = parts_of(steps, split)
        moved = missed * asked * tiles * steps
        written = choose(parts > 1, parts * partial, partial) * 1.0
        return KernelCost(
            rates, tiles * parts, resident, each, matrix=step, asked=asked, flight=asked, missed_bytes=moved, hbm_bytes=moved,
            written_bytes=written, stored=stored,
        )  # fmt: skip

    work = Reduction(tiles, steps, -(-partial // 4), partial, partial, first)
    split = work.split()
    assert 1 <= split <= steps and split == work.parts(split)
    assert work.seconds(split) <= work.seconds(1)
    assert work.second_pass(1) == 0 and (split == 1 or work.second_pass(split) >= rates.launch)


COMMANDS = [
    "gemm -m 100 -n 100 -k 100",
    "conv2d --ic 3 --oc 64 --ih 32 --iw 32 --kh 7 --kw 7 --stride 2 --padding 3",
    "softmax --rows 7 -n 9000",
    "attention -L 1000 -d 64 --heads 8 --kv-heads 2 --causal --window 100",
    "unfused -L 500 -d 64",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("verb", ["derive", "tree"])
def test_verbs_of_every_operator(verb: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *command.split()]) == 0
    assert "mi100" in capsys.readouterr().out
    assert main([verb, *command.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operator"] == command.split()[0]


def test_reports_of_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "attention", "-L", "1000", "-d", "128", "--compare-targets", "mi100,mi355x", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["targets"]
    assert answers["mi355x"]["split_kv"] > answers["mi100"]["split_kv"] and answers["mi100"]["fits"] == "yes"


def test_an_operator_that_cannot_fit_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["derive", "attention", "-L", "4096", "-d", "4096"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "ArchVGPR needs" in error and "d <= 304 fits" in error
    assert (
        FusedAttention(AttentionProblem(4096, 4096, 256)).plan.feasible
        and not UnfusedAttention(AttentionProblem(64, 64, 64)).derivation.remedy
    )


@pytest.mark.parametrize("tree", [
    lambda: TiledComputation(3, 10**13, 1024, target="mi100"),
    lambda: TiledComputation(10**8, 10**8, 10**5, target="mi300x", batch=10**9),
    lambda: Softmax(SoftmaxProblem(10**12, 5000), "mi300x"),
    lambda: FusedAttention(AttentionProblem(10**10, 10**10, 64, batch=10**6, heads=10**6), "mi300x"),
], ids=["one row of tiles", "batch", "softmax", "attention"])  # fmt: skip
def test_huge_trees_are_described_at_once(tree: Callable[[], Root]) -> None:
    """Iteration to the first node of each level never holds that node's siblings."""
    tracemalloc.start()
    try:
        assert len(list(representatives(tree()))) == 4
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


@given(st.lists(st.tuples(st.sampled_from("mnk"), st.integers(1, 9)), max_size=4))
def test_windows_are_nested_loops(tiles: list[tuple[str, int]]) -> None:
    """Each loop cuts its axis as the loops outside it left it, and the last loop is the fastest."""
    node = TiledComputation(7, 5, 11)
    expected = [dict(node.axes)]
    for axis, tile in tiles:
        expected = [{**axes, axis: part} for axes in expected for part in axes[axis].split(tile)]
    assert list(node.windows(tuple(TileLoop(axis, tile) for axis, tile in tiles))) == expected


@pytest.mark.parametrize("policy", ["corrected", "published"])
def test_tiles_print_a_line_a_node(policy: str) -> None:
    tiles = derive_tiles(hardware.target("mi100"), L=16384, d=128, policy=policy)
    lines = str(tiles).splitlines()
    assert lines[0].startswith("attention 1x1 heads, 16384 queries") and lines[1].startswith(f"  bound by {tiles.binding.name} ")
    assert lines[2].startswith(f"  tile_Q={tiles.tile_Q}, ")
    nodes = [line for line in lines if line.startswith("  +-- ")]
    assert [line.split()[1] for line in nodes] == ["device:", "block:", "warp:", "atom:"] and max(map(len, lines)) <= 80
    binds = nodes[tiles.binding.level.depth]
    assert binds.startswith(f"  +-- {tiles.binding.level}: {tiles.binding.name} ") or not tiles.binding.hard


@pytest.mark.parametrize("make", [
    lambda d: TiledComputation(4000, 3000, 2000, d, dtype="fp8", scales="block"),
    lambda d: Conv2d(Conv2dProblem(2, 300, 130, 110, 200, 7, 7, dtype="bf16"), d), lambda d: Softmax(SoftmaxProblem(64, 10**6), d),
    lambda d: FusedAttention(AttentionProblem(4096, 4096, 128, 16, 4, causal=True, dtype="f16", softcap=3.0), d),
    lambda d: UnfusedAttention(AttentionProblem(2048, 2048, 64, 8), d),
])  # fmt: skip
@pytest.mark.parametrize("board", ["mi300x", "mi355x"])
def test_trees_and_plans_fit_eighty_columns(make: Callable[[str], Root], board: str) -> None:
    tree = make(board)
    lines = f"{tree.tree()}\n{tree.derivation}".splitlines()
    assert max(map(len, lines)) <= 80
    assert {"+--", "bound"} <= set(" ".join(lines).split())


@pytest.mark.parametrize("plan", [
    lambda: TiledComputation(100, 70, 50).derivation, lambda: derive_tiles(hardware.target("mi100"), L=64, d=4096),
    lambda: derive_tiles(hardware.target("mi100"), L=64, d=4096, policy="published"),
    lambda: Conv2d(Conv2dProblem(2, 9, 13, 11, 20, 3, 3)).derivation, lambda: Softmax(SoftmaxProblem(64, 640)).derivation,
    lambda: TiledComputation(4096, 4096, 4096, "mi355x", dtype="i8", policy="published").derivation,
])  # fmt: skip
def test_a_remedy_counts_only_what_is_too_much(plan: Any) -> None:
    for row in plan().constraints:
        numbers = [int(number) for number in re.findall(r"free (-?\d+)", row.remedy)]
        assert not re.search(r"-\d", row.remedy) and numbers == ([row.use - row.limit] if numbers else [])
        assert not numbers or not row.satisfied
