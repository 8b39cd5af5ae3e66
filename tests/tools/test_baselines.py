"""Others' tiles next to ours, and the trials that a search needs: the tables, their accounting, their refusals."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simgpu import hardware
from simgpu.operators import (
    AttentionBackwardProblem,
    AttentionProblem,
    Conv2dProblem,
    GemmProblem,
    LayerNorm,
    Quantise,
    RmsNorm,
    RmsNormGemm,
    SoftmaxProblem,
)
from simgpu.tools.cli import main
from simgpu.tools.cost.baselines import baselines, origami
from simgpu.tools.cost.space import TILES, Space, Tile, space
from simgpu.tools.cost.trials import STARTS, Grid, trace, trials_until
from simgpu.tools.robustness.power import judge, run_case
from tests.support.exhaustive import examples, one_in

Capture = pytest.CaptureFixture[str]
RANKED = """bf16:
  NN:
    4096x4096x4096x1: [[256, 256, 64, 16, 16, 16, 2, 1], [128, 256, 64, 16, 16, 16, 2, 1]]
    8192x8192x4096x1: [[512, 512, 64, 16, 16, 16, 2, 1]]
"""
TABLE = "problem,rank,latency,mt_m,mt_n,mt_k\n4096x4096x4096x1,0,5.1e+07,128,128,64,32\n4096x4096x4096x1,1,5.1e+07,64,64,64,32\n"


@pytest.mark.parametrize(("target", "dtype"), [("mi300x", "bf16"), ("mi355x", "fp8"), ("mi100", "f32"), ("mi210", "f64")])
def test_every_baseline_fits_and_none_beats_the_search_by_its_own_kernel(target: str, dtype: str) -> None:
    d, p = hardware.target(target), GemmProblem(4096, 4096, 4096, dtype)
    found = {row.name: row for row in baselines(p, d)}
    more = set() if target == "mi355x" else {"the paper"}  # there, the paper's tile exceeds its registers
    assert set(found) == {"simgpu", "exhaustive search", "Triton's tutorial, best of 8"} | more
    assert all(0 < row.lds_bytes <= d.lds_bytes and row.tiles.resident >= 1 for row in found.values())
    assert found["exhaustive search"].seconds <= found["simgpu"].seconds <= 1.25 * found["exhaustive search"].seconds
    assert all(found["simgpu"].seconds < 1.001 * row.seconds for row in found.values() if row.name == "the paper")
    for row in found.values():
        t = row.tiles
        assert t.waves_m * t.waves_n == {"the paper": 16, "Triton's tutorial, best of 8": 8}.get(row.name, 4)
        gx, gy = -(-4096 // t.tile_n), -(-4096 // t.tile_m)
        step = t.tile_m * in_lines(t.tile_k * p.element.bytes, d.arch) + t.tile_k * in_lines(t.tile_n * p.element.bytes, d.arch)
        written = t.split_k * 4096 * 4096 * (8 if dtype == "f64" else 4)
        steps = -(-4096 // t.tile_k // t.split_k) * t.split_k
        assert row.l2_bytes == pytest.approx(step * steps * gx * gy + written) and row.workgroups == gx * gy * t.split_k


def in_lines(run: int, arch: str) -> float:
    """Bytes of the cache lines that a run touches, averaged over the starts of consecutive runs."""
    line = 128 if arch in ("gfx942", "gfx950") else 64
    return sum(((at + run - 1) // line - at // line + 1) * line for at in range(0, run * line, run)) / line


def test_origami_s_rankings_are_read_in_both_forms() -> None:
    d = hardware.target("mi300x")
    ((problem, ours, theirs),) = origami(RANKED, d, "bf16")  # 512 x 512 fits no CU
    assert (problem.m, problem.n, problem.k) == (4096, 4096, 4096) and ours.name == "simgpu"
    assert (theirs.tiles.tile_m, theirs.tiles.tile_n, theirs.tiles.tile_k) == (256, 256, 64)
    ((_, _, theirs),) = origami(TABLE, d, "bf16")
    assert (theirs.tiles.tile_m, theirs.tiles.tile_n) == (128, 128), "the first, not the second"


def test_the_verb(tmp_path: Path, capsys: Capture) -> None:
    assert main(["baselines", "8192x8192x64", "512x512x512", "--target", "mi355x", "--json"]) == 0
    large, small = json.loads(capsys.readouterr().out)["problems"]
    assert large["rows"][0]["of ours"] == 1 and len(large["rows"]) == 3, "the paper's tile does not fit"
    assert small["rows"][0]["of ours"] == 1 and len(small["rows"]) == 4, "below one tile a CU it is smaller"
    ranking = tmp_path / "ranking.yaml"
    ranking.write_text(RANKED)
    assert main(["baselines", "--origami", str(ranking), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["count"] == 1
    assert main(["baselines", "--origami", str(ranking)]) == 0
    assert "geometric means" in capsys.readouterr().out
    ranking.write_text("nothing ranked")
    for bad in (["4096"], ["axbxc"], ["--origami", str(tmp_path / "none")], ["--origami", str(ranking)]):
        assert main(["baselines", *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_the_closed_form_is_a_warm_start() -> None:
    """From the closed form, a search comes within 2 % in fewer trials than from random starts, on most of ten problems. It
    counts a tile once."""
    d, fewer = hardware.target("mi300x"), 0
    for number, sizes in enumerate([(64 * n, 32 * n, 128 * n) for n in range(3, 40, 4)]):
        tiles = space("gemm", GemmProblem(*sizes, "f16"), d)
        measured: list[Tile] = []
        seconds = modelled(tiles, measured)
        grid, least = Grid.of(tiles), tiles.best()[1]
        warm, cold = (trials_until(trace(grid, start, 300, number, seconds), least) or 301 for start in STARTS)
        fewer += warm < cold
        assert measured[0] == tiles.chosen and len(measured) == 600 and len(set(measured[:300])) == len(set(measured[300:])) == 300
        found = trace(grid, "random", 300, number, seconds)
        assert all(b <= a for a, b in pairwise(found)) and found[-1] >= least
    assert fewer >= 7
    assert trials_until([3.0, 1.5, 1.01, 1.0], 1.0) == 3 and trials_until([2.0], 1.0) is None


def modelled(tiles: Space, measured: list[Tile]) -> Callable[[Tile], float]:
    """Returns a function from a tile to seconds by the cost model; measured: receives each measured tile."""

    def seconds(tile: Tile) -> float:
        measured.append(tile)
        return float(tiles.seconds[tiles.rows.index(tile[:-1]), tiles.splits.index(tile[-1])])

    return seconds


SMALL = {
    "gemm": GemmProblem(150, 70, 900, "f16"), "conv2d": Conv2dProblem(2, 40, 20, 21, 72, 3, 3, padding=(1, 1), dtype="f16"),
    "attention": AttentionProblem(70, 600, 32, dtype="f16"), "softmax": SoftmaxProblem(5, 9000, "f16"),
    "rmsnorm_gemm": RmsNormGemm(90, 70, 100, "f16"), "rmsnorm": RmsNorm(40, 900, dtype="f16"),
    "layernorm": LayerNorm(6, 5000, dtype="f16"), "quantise": Quantise(9, 3000, dtype="f16"),
    "attention_backward": AttentionBackwardProblem(90, 300, 32, 2, dtype="f16", causal=True),
}  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["mi100", "mi300x"])
@pytest.mark.parametrize("op", one_in(2, list(TILES)))
def test_every_tile_of_a_space_is_a_kernel_with_the_right_result(op: str, target: str) -> None:
    """For each operator the fastest, the slowest and some other tiles run in the simulator."""
    tiles, rng = space(op, SMALL[op], hardware.target(target)), np.random.default_rng(3)
    places = np.argwhere(np.isfinite(tiles.seconds))
    order = tiles.seconds[tuple(places.T)].argsort()
    names = set()
    for row, column in places[[order[0], order[-1], *rng.choice(order[1:-1], min(examples(4) - 1, len(order) - 2), replace=False)]]:
        tree = tiles.tree((*tiles.rows[row], tiles.splits[column]))
        names.add(str(tree.derivation.sizes))
        assert judge(run_case(tree, 1, "normal"))[2] == []
    assert len(names) > 2


@pytest.mark.parametrize("op", TILES)
def test_a_search_of_all_tiles_finds_the_best(op: str) -> None:
    tiles = space(op, SMALL[op], hardware.target("mi210"))
    grid, count = Grid.of(tiles), int(np.isfinite(tiles.seconds).sum())
    assert set(grid.tiles.values()) >= {tiles.best()[0]} and len(grid.tiles) == count
    assert grid.tiles[grid.formula][:-1] == tiles.chosen[:-1]
    if count < 1000:
        for start in STARTS:
            found = trace(grid, start, 10**6, 0, modelled(tiles, []))
            assert len(found) == count and found[-1] == tiles.best()[1]


@pytest.mark.parametrize(
    "more", [{"activation": "swiglu"}, {"scales": "mx", "dtype": "fp8", "trans_b": True}, {"groups": 3}, {"dtype": "f64"}]
)
def test_every_kind_of_gemm_has_a_space(more: dict[str, Any]) -> None:
    """Also those that not all sizes have; groups, which do not split, have no splits."""
    p = GemmProblem(64, 64, 128, **more)
    tiles = space("gemm", p, hardware.target("mi355x"))
    assert (tiles.splits == (1,)) == bool(p.groups) and tiles.chosen[:-1] in tiles.rows


@pytest.mark.slow
def test_tune(tmp_path: Path, capsys: Capture) -> None:
    picture = tmp_path / "trials.svg"
    assert main(["tune", "gemm", "--budget", "30", "--problems", "4", "--svg", str(picture), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["start"] for row in rows] == list(STARTS) and all(row["searches"] == 4 for row in rows)
    lines = ElementTree.parse(picture).getroot().findall("{*}polyline")
    assert [len(line.get("points", "").split()) for line in lines] == [30, 30]
    assert main(["tune", "gemm", "--svg", str(picture)]) == 2 and "--force" in capsys.readouterr().err
    assert main(["tune", "gemm", "--budget", "0"]) == 2
    assert main(["tune", "softmax", "--dtype", "i8"]) == 2
    assert "softmax on mi300x has f32, f16, bf16, f64" in capsys.readouterr().err
    for op in ("conv2d", "attention", "softmax"):
        assert main(["tune", op, "--budget", "20", "--problems", "3", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["operator"] == op and document["timed_by"] == "the cost model"
        assert all(row["at the end"] <= row["first trial"] for row in document["rows"])
    assert main(["tune", "gemm", "--start", "formula", "--problems", "2", "--budget", "5"]) == 0
    assert "formula" in capsys.readouterr().out


def test_a_search_of_one_problem(capsys: pytest.CaptureFixture[str]) -> None:
    """A search takes sizes as every verb of an operator does; without sizes, problems are random."""
    words = ["--budget", "20", "--problems", "2", "--json"]
    assert main(["tune", "gemm", "-m", "512", "-n", "512", "-k", "512", *words]) == 0
    given = json.loads(capsys.readouterr().out)["rows"]
    assert main(["tune", "gemm", *words]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] != given and given[0]["searches"] == 2
    for sizes in (["softmax", "--rows", "9", "-n", "99"], ["attention", "-L", "300", "-d", "64", "--causal"]):
        assert main(["tune", *sizes, *words]) == 0
    capsys.readouterr()
    assert main(["tune", "gemm", "-m", "512"]) == 2
    assert "-n, -k must be given, too" in capsys.readouterr().err
