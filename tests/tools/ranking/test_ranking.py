"""`simgpu time --rank`: candidates in the order of their modelled times."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from simgpu.hardware import target
from simgpu.hardware.errors import SimError
from simgpu.operators import GemmProblem
from simgpu.tools.cli import main
from simgpu.tools.cost.space import space
from simgpu.tools.ranking import objects
from simgpu.tools.ranking.ranked import Ranked, rank
from simgpu.tools.ranking.tiles import least_cost

GEMM = ["gemm", "-m", "160", "-n", "96", "-k", "64", "--target", "mi300x"]
TUNED = """
import numpy as np, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 512})], key=["n"])
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)

x, y = np.ones(1 << 14, np.float32), np.empty(1 << 14, np.float32)
scale[lambda meta: (triton.cdiv(1 << 14, meta["BLOCK"]),)](x, y, 1 << 14)
raise SystemExit("the chosen candidate was launched")
"""


def test_candidates_are_ordered_and_failures_are_last() -> None:
    def fails() -> Ranked:
        raise SimError("no\n such kernel")

    rows = {"slow": lambda: Ranked("slow", 2.0, "LDS"), "none": fails, "fast": lambda: Ranked("fast", 1.0, "VALU")}
    found = rank("x", rows.items())
    assert [row.name for row in found.rows] == ["fast", "slow", "none"]
    assert found.failures() == ["none: no such kernel"]
    assert [str(row[0]) for row in found.sheet(5).rows] == ["fast", "slow"] and len(found.sheet(1).rows) == 1


def test_long_names_fit_a_screen() -> None:
    """Cuts the beginning that all names share, then their middles."""
    names = [f"f4gemm_bf16_per1x32Fp4_{'a' * 60}_{size}x128" for size in (32, 64)]
    sheet = rank("x", [(name, lambda name=name: Ranked(name, 1.0, "latency of memory and LDS")) for name in names]).sheet(2)
    said = [str(row[0]) for row in sheet.rows]
    assert all(len(name) <= 33 for name in said) and [name[-6:] for name in said] == ["32x128", "64x128"]
    assert sum(sheet.widths) + 3 * len(sheet.widths) - 3 <= 80


@pytest.mark.slow
def test_tiles_of_least_cost_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["time", "--rank", "--most", "3", *GEMM, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    assert len(found) == 3 and [row["seconds"] for row in found] == sorted(row["seconds"] for row in found)
    closed = [row for row in found if "closed form" in row["name"]]
    assert main(["time", *GEMM, "--json"]) == 0
    assert closed[0]["seconds"] == pytest.approx(json.loads(capsys.readouterr().out)["seconds"], rel=1e-3)
    assert main(["time", "--rank", "--most", "1", *GEMM]) == 0
    assert "1 of" in (said := capsys.readouterr().out) and all(len(line) <= 80 for line in said.splitlines()[1:])


def test_each_tile_has_its_best_split() -> None:
    tiles = space("gemm", GemmProblem(64, 64, 4096, dtype="f16"), target("mi300x"))
    found = least_cost(tiles, 10)
    assert found[0] == tiles.chosen and len(found) == 10
    assert len({tile[:3] for tile in found[1:]}) == 9
    assert tiles.best()[0] in found


def test_launches_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = tmp_path / "launches.txt"
    listed.write_text(f"{' '.join(GEMM)}  # ours\nsoftmax --rows 8 -n 64 --target mi300x\nnone.co --grid 4\n")
    assert main(["time", "--rank", str(listed)]) == 1
    said = capsys.readouterr().out
    assert "3 launches" in said and said.index("softmax") < said.index("gemm")
    assert "Not timed: none.co --grid 4: none.co: No such file" in said
    assert main(["time", "--rank", str(listed), "--dtype", "f16"]) == 2
    assert "each line of" in capsys.readouterr().err


def test_objects_of_a_table(tmp_path: Path) -> None:
    """Splits of K are tried where the table allows them; a tile that does not divide n is left out."""
    folder = tmp_path / "f4gemm"
    folder.mkdir()
    (folder / "t.csv").write_text("tile_M,tile_N,splitK,knl_name,co_name\n64,128,1,a,a.co\n32,96,0,b,b.co\n32,96,0,c,missing.co\n")
    for name in ("a.co", "b.co"):
        (folder / name).touch()
    assert objects.is_aiter(str(folder)) and not objects.is_aiter(str(tmp_path))
    names = [name for name, _ in objects._candidates(folder, "mi355x", 64, 1024, 1024)]
    assert names == ["a split 1", "a split 2", "a split 4", "b split 1"]
    other = folder.rename(tmp_path / "i8gemm")
    assert [name for name, _ in objects._candidates(other, "mi300x", 64, 1024, 256)] == ["a split 1"]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "knl_name,co_name\na,a.co\n", "tile_M,tile_N,knl_name,co_name\n0,64,a,a.co\n"])
def test_other_tables_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "f4gemm"
    folder.mkdir()
    (folder / "t.csv").write_text(text)
    assert main(["time", "--rank", str(folder), "-m", "64", "-n", "64", "-k", "256"]) == 2
    assert "t.csv: n" in capsys.readouterr().err


def test_a_table_may_name_objects_elsewhere_and_all_tables_are_read_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "f4gemm"
    folder.mkdir()
    (folder / "a.csv").write_text("tile_M,tile_N,knl_name,co_name\n64,64,a,../other/a.co\n")
    words = ["time", "--rank", str(folder), "-m", "64", "-n", "64", "-k", "256"]
    assert main(words) == 2
    assert "no kernel of it" in capsys.readouterr().err
    (folder / "b.csv").write_text("tile_M,knl_name,co_name\n64\n")
    assert main(words) == 2
    assert "b.csv: not a table" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_configurations_of_an_autotuner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "tuned.py"
    script.write_text(TUNED)
    assert main(["time", "--rank", str(script)]) == 0
    said = capsys.readouterr().out
    assert "scale on mi300x: 2 configurations" in said and "BLOCK=64 " in said and "num_warps" not in said


@pytest.mark.parametrize(("words", "message"), [
    (["gemm", "-m", "4", "-n", "4", "-k", "4", "--most", "0"], "--most 0: give 1 or more"),
    (["--warm", *GEMM], "--warm: --rank has times only"), (["--lines", "4", *GEMM], "--lines: --rank has times only"),
    (["k.co"], "give an operator, a script"),
    (["unfused", "-L", "64", "-d", "16"], "it has no tiles to choose from"),
])  # fmt: skip
def test_other_words_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["time", "--rank", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_gradients_are_timed_without_attention_in_float64(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("attention", "attention_lse", "attention_backward"):
        monkeypatch.setattr(f"simgpu.operators.reference.{name}", None)
    words = ["attention_backward", "-L", "128", "-d", "32", "--target", "mi300x", "--json"]
    assert main(["time", "--rank", "--most", "2", *words[:-1], "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["candidates"]) == 2
    assert main(["time", *words]) == 0
