"""Traffic counted without executing: the same as a ComputeVisitor's at the atom level."""

from __future__ import annotations

import json

import numpy as np
import pytest

from simgpu import asm
from simgpu.operators import (
    AttentionProblem,
    ComputeVisitor,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    UnfusedAttention,
)
from simgpu.operators.traffic import block_counters
from simgpu.operators.tree import Root
from simgpu.tools.cli import main

TREES: list[tuple[Root, tuple[tuple[int, ...], ...]]] = [
    (TiledComputation(70, 50, 300), ((70, 300), (300, 50))),
    (Conv2d(Conv2dProblem(2, 8, 19, 21, 6, 3, 3, (2, 1), (1, 2), (1, 2), 2)), ((2, 8, 19, 21), (6, 4, 3, 3))),
    (Conv2d(Conv2dProblem(1, 3, 20, 20, 40, 3, 3, padding=(1, 1))), ((1, 3, 20, 20), (40, 3, 3, 3))),
    (Conv2d(Conv2dProblem(1, 256, 9, 9, 8, 3, 3, dtype="f16", dtype_c="f16")), ((1, 256, 9, 9), (8, 256, 3, 3))),
    (Softmax(SoftmaxProblem(10, 700)), ((10, 700),)),
    (Softmax(SoftmaxProblem(3, 40000)), ((3, 40000),)),
    (Softmax(SoftmaxProblem(10, 700, "f16", dtype_y="f32")), ((10, 700),)),
    (Softmax(SoftmaxProblem(3, 40000, "f64"), "mi300x"), ((3, 40000),)),
    (
        FusedAttention(AttentionProblem(70, 90, 32, heads=4, kv_heads=2, causal=True, window=20)),
        ((1, 4, 70, 32), (1, 2, 90, 32), (1, 2, 90, 32)),
    ),
    (
        FusedAttention(AttentionProblem(70, 90, 32, heads=4, kv_heads=2, causal=True, window=20), policy="published"),
        ((1, 4, 70, 32), (1, 2, 90, 32), (1, 2, 90, 32)),
    ),
    (UnfusedAttention(AttentionProblem(40, 50, 16, heads=2)), ((1, 2, 40, 16), (1, 2, 50, 16), (1, 2, 50, 16))),
]


@pytest.mark.parametrize(("tree", "shapes"), TREES, ids=lambda x: type(x).__name__ if isinstance(x, Root) else "")
def test_counted_as_executed(tree: Root, shapes: tuple[tuple[int, ...], ...]) -> None:
    visitor = ComputeVisitor("atom")
    visitor.visit(tree, *(np.zeros(shape) for shape in shapes))
    counted = block_counters(tree)
    assert counted == visitor.counters


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_split_rows_move_the_states_that_kernels_store(dtype: str) -> None:
    tree = Softmax(SoftmaxProblem(3, 40000, dtype), "mi300x")
    assert tree.plan.split_n > 1
    elements = 3 * 40000 * {"f32": 4, "f64": 8}[dtype]
    states = block_counters(tree).global_bytes - (tree.plan.reads + 1) * elements
    ((_, stored),) = asm.emit(tree).scratch
    assert states == 2 * stored  # each part writes one, the merge reads it


COMMANDS = [
    "conv2d --ic 3 --oc 64 --ih 32 --iw 32 --kh 7 --kw 7", "softmax --rows 7 -n 9000", "attention -L 4096 -d 64",
    "unfused -L 500 -d 64", "gemm -m 300 -n 200 -k 100",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_report_prints_the_counters(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *command.split()]) == 0
    assert "re-reads included" in capsys.readouterr().out
    assert main(["report", *command.split(), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["counters"]
    _, once, _, moved, _ = (row["value"] for row in rows[:5])
    assert moved >= once > 0
    levels = ["device"] * 3 + ["block"] * 2 + ["atom"]
    assert [row["level"] for row in rows] == (levels if "softmax" in command else [*levels[:5], "block", "warp", "warp", "atom"])
    assert main(["report", *command.split(), "--compare-targets", "mi100,mi300x", "--json"]) == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    assert targets["mi100"]["bytes, re-reads included"] == moved and targets["mi300x"]["fits"] == "yes"
