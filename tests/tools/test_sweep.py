"""`simgpu sweep`: a row a case, resumed where it stopped, read by other tools."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from simgpu.tools.cases import cluster
from simgpu.tools.cases.sweep import SweepCase, SweepRows, flatten, shapes, write_table
from simgpu.tools.cli import main
from simgpu.tools.verbs import sweep


@pytest.fixture
def here(monkeypatch, tmp_path):
    """Runs cases in threads of this process, and makes a file of shapes."""
    monkeypatch.setattr(cluster, "Processes", ThreadPoolExecutor)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes").write_text("# two shapes\n-m 40 -n 33 -k 7\n-m 9 -n 5 -k 17 --trans-b  # odd\n\n")
    return tmp_path


@pytest.mark.slow
def test_a_table_of_targets_types_and_shapes(here, capsys):
    command = ["sweep", "gemm", "--targets", "mi100,mi300x", "--dtypes", "f32,f16", "--shapes", "shapes", "-o", "table.csv"]
    assert main(command) == 0
    assert "8 cases: 8 pass\nRan 8 in" in capsys.readouterr().out
    rows = list(csv.DictReader((here / "table.csv").open()))
    assert [(row["target"], row["dtype"]) for row in rows[::2]] == [
        ("mi100", "f32"), ("mi100", "f16"), ("mi300x", "f32"), ("mi300x", "f16"),
    ]  # fmt: skip
    assert rows[1]["options"] == "-m 9 -n 5 -k 17 --trans-b" and rows[1]["problem.trans_b"] == "True"
    assert all(int(row["instructions"]) > 0 and row["status"] == "pass" for row in rows)


def test_what_is_finished_does_not_run_again(here, capsys, monkeypatch):
    command = ["sweep", "gemm", "--shapes", "shapes", "-o", "table.json"]
    assert main(command) == 0
    table = (here / "table.json").read_bytes()
    with (here / "table.json.cases").open("a") as file:
        file.write('{"case": "half a li')  # killed while it wrote
    monkeypatch.setattr(sweep, "row_of", lambda case: pytest.fail("it runs"))
    assert main(command) == 0
    assert "2 pass\nRan 0 in" in capsys.readouterr().out.split("table.json has all of it\n", 1)[1]
    assert (here / "table.json").read_bytes() == table
    (here / "shapes").write_text("-m 9 -n 5 -k 17 --trans-b\n-m 1 -n 1 -k 1\n")
    monkeypatch.undo()
    monkeypatch.setattr(cluster, "Processes", ThreadPoolExecutor)
    monkeypatch.chdir(here)
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == 1


def test_a_failed_case_is_a_row_with_its_error(here, capsys):
    (here / "shapes").write_text("-m 4 -n 4 -k 4\n-m 4\n-m 4 -n 4 -k -1\n")
    assert main(["sweep", "gemm", "--targets", "mi100,mi1", "--shapes", "shapes", "-o", "t.json"]) == 1
    rows = json.loads((here / "t.json").read_text())
    assert [row["status"] for row in rows] == ["pass", *["error"] * 5]
    assert "-n, -k" in rows[1]["error"] and "k = -1" in rows[2]["error"] and "mi1" in rows[3]["error"]
    assert "Not passed" in capsys.readouterr().out


@pytest.mark.parametrize(("how", "column"), [("--check", "findings"), ("--time", "cycles")])
def test_checked_and_timed(here, how, column):
    (here / "shapes").write_text("-m 40 -n 33 -k 7\n")
    assert main(["sweep", "gemm", "--shapes", "shapes", "-o", "t.json", how]) == 0
    (row,) = json.loads((here / "t.json").read_text())
    assert row["status"] == "pass" and column in row
    if how == "--time":
        assert row["cycles"] > 0 and row["seconds"] > 0 and row["limit"]


def test_a_case_that_no_worker_ran_runs_the_next_time(here):
    class Dead:
        def __init__(self, count): ...
        def __enter__(self):
            return self
        def __exit__(self, *about): ...
        def submit(self, fn, case):
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(os.kill, -(1 << 22), signal.SIGTERM)

    rows = SweepRows("t.json")
    case = SweepCase("run", "gemm", "mi100", "f32", "-m 4 -n 4 -k 4", "1")
    ((_, future),) = cluster.as_they_finish(Dead(1), sweep.row_of, [case], 1)
    row = sweep._row(case, future)
    assert row["status"] == "lost" and row["error"]
    rows.add(case.key, row)
    assert rows.of([case]) == [row] and not SweepRows("t.json").of([case])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shapes", "none", "-o", "t.csv"], "none: No such file"),
        (["--shapes", "shapes", "-o", "t.txt"], "ends in .json, .csv, .parquet"),
        (["--shapes", "empty", "-o", "t.csv"], "no line with options"),
        (["--shapes", "quote", "-o", "t.csv"], "No closing quotation"),
        (["--shapes", "shapes", "-o", "mine.csv"], "mine.csv exists"),
        (["--shapes", "shapes", "-o", "t.csv", "--cluster", "local:0"], "1 to 1024"),
        (["--shapes", "shapes", "-o", "t.csv", "--cluster", "mars"], "--cluster mars: give here, local:N"),
    ],
)
def test_bad_input(here, capsys, arguments, said):
    (here / "empty").write_text("# nothing\n")
    (here / "quote").write_text("-m '4\n")
    (here / "mine.csv").write_text("mine")
    assert main(["sweep", "gemm", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert (here / "mine.csv").read_text() == "mine"


def test_tables_are_read_by_others(tmp_path):
    rows = [{"a": 1, "b": "x,y"}, {"a": 2.5, "c": None}]
    assert json.loads(write_table(rows, ".json")) == rows
    assert list(csv.DictReader(write_table(rows, ".csv").decode().splitlines())) == [
        {"a": "1", "b": "x,y", "c": ""}, {"a": "2.5", "b": "", "c": ""},
    ]  # fmt: skip
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert parquet.read_table(io.BytesIO(write_table(rows, ".parquet"))).to_pylist() == [
        {"a": 1.0, "b": "x,y", "c": None}, {"a": 2.5, "b": None, "c": None},
    ]  # fmt: skip


def test_lists_and_nests_of_a_document():
    assert flatten({"a": {"b": {"c": 1}}, "d": [1, 2], "e": "x"}) == {"a.b.c": 1, "d": 2, "e": "x"}


def test_the_same_shape_twice_is_one_case(tmp_path):
    (tmp_path / "s").write_text("-m 1   -n 2\n-m 1 -n 2\n")
    assert shapes(str(tmp_path / "s")) == ["-m 1 -n 2"]
