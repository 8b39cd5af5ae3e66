"""Comparison on a GPU of another maker: what of it runs without one."""

from __future__ import annotations

import importlib.util

import pytest

from simgpu.hardware.errors import TargetError
from simgpu.operators import AttentionProblem, GemmProblem, SoftmaxProblem
from simgpu.tools.validation.paper.silicon.__main__ import line, main, summary
from simgpu.tools.validation.paper.silicon.boards import board
from simgpu.tools.validation.paper.silicon.candidates import BYTES, RESULTS_OF_A_LANE, CandidateTiles, by_formula, candidates
from simgpu.tools.validation.paper.silicon.shapes import DRAW, draw

H100 = board("NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize("operator", DRAW)
def test_every_problem_has_candidates_and_the_formula_names_powers_of_two(operator: str) -> None:
    for problem in draw(operator, 3, 10):
        tried = candidates(problem, H100)
        assert len(tried) == len(set(tried)) > 5
        mine = by_formula(problem, H100)
        if mine is None:
            assert operator == "softmax"
            continue
        assert all(side & side - 1 == 0 for side in (mine.m, mine.n, mine.k, mine.warps, mine.split)) and mine.stages >= 1


def test_candidates_of_a_gemm_fit_shared_memory_and_registers() -> None:
    for one in candidates(GemmProblem(4096, 4096, 4096, dtype="f16"), H100):
        assert one.stages * (one.m + one.n) * one.k * BYTES <= 227 << 10
        assert one.m * one.n <= 32 * one.warps * RESULTS_OF_A_LANE


def test_tiles_follow_from_the_descriptor() -> None:
    """Each is the plan's: 160 x 192 is nearest to 128 x 256; a row of 4,096 stays whole; registers hold 128 queries of d = 64."""
    assert by_formula(GemmProblem(8192, 8192, 8192, dtype="f16"), H100) == CandidateTiles(128, 256, 32, 8, 4)
    row = by_formula(SoftmaxProblem(4096, 4096, dtype="f16"), H100)
    assert row is not None and row.whole and row.n == 4096
    tiles = by_formula(AttentionProblem(8192, 8192, 64, 16, dtype="f16"), H100)
    assert tiles is not None and (tiles.m, tiles.n) == (128, 64)
    assert by_formula(SoftmaxProblem(16, 50944, dtype="f16"), H100) is None, "four blocks share a row"


def test_boards() -> None:
    assert round(H100.matrix_tflops("f16")) == 989
    assert board("NVIDIA H200").hbm_bandwidth_tb == 4.8
    assert board("AMD Instinct MI300X", "gfx942:sramecc+:xnack-").arch == "gfx942"
    with pytest.raises(TargetError, match="H100, H200"):
        board("NVIDIA A100")


def test_a_row_and_a_summary() -> None:
    best = {"m": 64, "n": 64, "k": 32, "warps": 4, "stages": 3, "split": 2}
    rows: list[dict[str, object]] = [
        {"operator": "gemm", "sizes": "64x64x64", "best": best, "best_us": 4.0, "corrected": best, "corrected_regret": regret,
         "published": None, "published_regret": float("nan")}
        for regret in (1.0, 1.21)
    ]  # fmt: skip
    assert "64x64x32 w4 s3 /2" in line(rows[0])
    corrected = "gemm corrected: 2 of 2 have a kernel; regret: mean 1.100, median 1.210, worst 1.21"
    assert summary("gemm", "corrected", rows) == corrected
    assert summary("gemm", "published", rows) == "gemm published: none of 2 has a kernel"


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch may find a GPU")
def test_without_a_gpu_it_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "needs PyTorch, Triton and a GPU" in capsys.readouterr().err
