"""`simgpu emit` and `simgpu run` of operators other than gemm."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from simgpu import Device
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.machine.host_memory import aligned_bytes
from simgpu.operators import Softmax, SoftmaxProblem
from simgpu.tools.cases.execute import _adopt
from simgpu.tools.cases.operators import OPERATORS
from simgpu.tools.cases.operators.table import BUILT_IN
from simgpu.tools.cases.workload import StridedArray, contiguous
from simgpu.tools.cli import main
from simgpu.tools.shared.arrays import PIECE, random_array
from simgpu.tools.shared.inputs import Inputs
from simgpu.tools.shared.verdict import judge
from simgpu.tools.tables.read_back import ReadBack
from tests.support.operator_case import assert_right_in_checked_mode

SPLIT = ["softmax", "--rows", "1", "-n", "300000"]
RUNS = [
    "softmax --rows 5 -n 700 --dtype f16 --target mi300x --ldx 701 --ldy 703 --scale 0.5",
    "softmax --rows 9 -n 9 --mask --causal --policy published",
    "softmax --rows 1 -n 300000",
    "attention -L 70 --lk 90 -d 32 --heads 4 --kv-heads 2 --causal --window 33 --dtype bf16 --target mi300x",
    "attention -L 40 --lk 2000 -d 64 --batch 2",
    "attention -L 40 --lk 70 -d 128 --policy published --values fma",
    "unfused -L 40 --lk 70 -d 32 --heads 2 --causal",
    "conv2d --ic 20 --oc 40 --ih 13 --iw 30 --kh 3 --kw 3 --padding 1 --stride 1 2 --target mi300x --dtype bf16 --batch 2",
    "conv2d --ic 3 --oc 10 --ih 13 --iw 30 --kh 5 --kw 3 --target mi355x",
    "conv2d --ic 3 --oc 10 --ih 13 --iw 30 --kh 5 --kw 3 --dtype f16 --kernel naive",
    "conv2d --ic 3 --oc 10 --ih 13 --iw 30 --kh 5 --kw 3 --dtype bf16 --kernel pack",
    "conv2d --ic 8 --oc 8 --ih 9 --iw 9 --kh 2 --kw 2 --groups 2 --dilation 2 --dtype i8 --target mi210",
]
Capture = pytest.CaptureFixture[str]


def document(capsys: Capture, *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


@pytest.mark.parametrize("line", RUNS)
def test_run_passes_and_says_what_ran(capsys: Capture, line: str) -> None:
    made = document(capsys, "run", *line.split())
    assert made["pass"] and made["error"]["wrong"] == made["error"]["touched"] == 0 < made["error"]["total"]
    for kernel in made["kernels"]:
        planned = {row["name"]: row for row in kernel["resources"]}
        registers = planned.get("ArchVGPR")  # the paper's formulas do not split it in two files
        if registers and not any(word in kernel["kernel"] for word in ("merge", "gemm")):
            granule = 4  # of accum_offset (LLVM, "Kernel Descriptor")
            assert -(-registers["derived"] // granule) == -(-registers["actual"] // granule)
        assert kernel["instructions"] > 0


def test_run_is_a_report_for_people(capsys: Capture) -> None:
    assert main(["run", *RUNS[0].split()]) == 0
    text = capsys.readouterr().out
    assert "softmax 5x700 f16 on mi300x, corrected tiles" in text and "Y[" in text and text.endswith("PASS\n")


def test_an_operator_is_one_row(capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every verb with OP reads the table: a new row is all that the command needs."""
    monkeypatch.setitem(sys.modules, "an_operator", SimpleNamespace(OPERATORS=replace(OPERATORS["softmax"], name="added")))
    monkeypatch.setitem(BUILT_IN, "added", "an_operator")
    added = ["added", "--rows", "3", "-n", "70"]
    for verb in ("derive", "tree", "report", "run", "bench", "check"):
        assert main([verb, *added]) == 0
    assert main(["emit", *added, "--object", str(tmp_path / "k.co")]) == 0
    assert main(["trace", *added, "--at", "0x0"]) == 0
    assert capsys.readouterr().err == ""


def test_emit_writes_every_kernel(capsys: Capture, tmp_path: Path) -> None:
    paths = [str(tmp_path / "k.s"), str(tmp_path / "k.co")]
    assert main(["emit", *SPLIT, "-o", paths[0], "--object", paths[1]]) == 0
    assert len(CodeObject.parse(Path(paths[1]).read_bytes()).kernels) == 2 and "_results" in capsys.readouterr().out
    assert main(["emit", *SPLIT, "-o", paths[0]]) == 2 and "exists" in capsys.readouterr().err


@pytest.mark.parametrize("line", [" ".join(SPLIT), RUNS[7]])
def test_report_reads_back_what_the_plan_says(capsys: Capture, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = document(capsys, "report", *line.split())
    assert made["assembled"] and made["binding"]
    assert {row["resource"] for row in made["read_back"]} == {"LDS", "ArchVGPR", "AccVGPR", "SGPR"}
    assert all(row["equal"] and row["ranges"] for row in made["read_back"] if row["planned"])
    assert main(["report", *line.split()]) == 0 and "read back" in capsys.readouterr().out
    monkeypatch.setenv("SIMGPU_CLANG", "/nonexistent/clang")
    assert not document(capsys, "report", *line.split())["assembled"]


def test_a_kernel_that_takes_more_is_not_equal() -> None:
    assert ReadBack("k", "ArchVGPR", 29, 32, 4, "").equal and not ReadBack("k", "ArchVGPR", 29, 33, 4, "").equal
    assert not ReadBack("k", "LDS", 32, 33, 1, "").equal


@pytest.mark.parametrize("types", [("f32", "bf16"), ("bf16", "f32")])
def test_a_softmax_with_another_type_of_its_result_is_compared_in_that_type(types: tuple[str, str]) -> None:
    problem = SoftmaxProblem(7, 27, types[0], ldx=29, ldy=31, dtype_y=types[1])
    assert_right_in_checked_mode(Softmax(problem, "mi300x"), "mi300x")


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("count", [1, PIECE - 1, PIECE, 2 * PIECE + 7])
def test_floats_that_are_drawn_in_pieces_are_those_of_one_draw(count: int, kind: type) -> None:
    drawn = random_array(np.random.default_rng(5), np.dtype(kind), (count,))
    one = 2 * np.random.default_rng(5).random(count, np.float32) - 1
    assert drawn.dtype == kind and np.array_equal(drawn, one.astype(kind))


@pytest.mark.parametrize("distribution", ["uniform", "ties"])
@pytest.mark.parametrize("kind", [np.float64, ml_dtypes.bfloat16, np.int8, np.uint32])
@pytest.mark.parametrize("stride", [3, 4])
def test_an_array_that_is_drawn_in_place_is_one_that_is_filled(stride: int, kind: type, distribution: str) -> None:
    form = np.dtype(kind), (2, 3), (stride, 1)
    inputs, again = (Inputs(np.random.default_rng(5), distribution) for _ in range(2))
    drawn, filled = StridedArray.draw(inputs, *form), StridedArray.empty(*form).fill(again.array(*form[:2]))
    assert drawn.flat.tobytes() == filled.flat.tobytes() and drawn.strides == filled.strides


@pytest.mark.parametrize("compares", [True, False])
def test_results_are_nan_before_a_launch_if_somebody_compares_them(compares: bool) -> None:
    form = np.dtype(np.float32), (2, 3), (4, 1)
    made = StridedArray.for_results(Inputs(np.random.default_rng(5), compares=compares), *form)
    expected = StridedArray.empty(*form).flat
    assert np.array_equal(made.flat, expected if compares else 0 * np.nan_to_num(expected), equal_nan=True)


def test_a_launch_that_nobody_compares_uses_an_array_in_place() -> None:
    device, array = Device("mi300x"), aligned_bytes(64).view(np.float32)
    array[:] = np.arange(16)
    adopted, copied, odd = (_adopt(device, each) for each in (array, array[1:], array.view(np.uint8)[:63]))
    assert all(np.array_equal(buffer.download(np.uint8, 60), array.view(np.uint8)[skip : skip + 60])
               for buffer, skip in ((adopted, 0), (copied, 4), (odd, 0)))  # fmt: skip
    array[:] = 7
    assert np.array_equal(adopted.download(), array) and not np.array_equal(copied.download(), array[1:])
    assert not np.array_equal(odd.download(), array.view(np.uint8)[:63])


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("stride", [3, 4])
def test_a_filled_array_has_its_elements_and_nan_around_them(stride: int, kind: type) -> None:
    whole = StridedArray.empty(np.dtype(kind), (2, 3), (stride, 1))
    values = np.arange(6).reshape(2, 3).astype(kind)
    made = whole.fill(values)
    assert np.array_equal(made.view, values) and np.isnan(whole.flat.astype(float)).all()
    assert np.isnan(made.flat.astype(float)).sum() == len(whole.flat) - 6 > 0


def test_padding_that_is_written_fails() -> None:
    before = StridedArray.empty(np.dtype(np.float32), (2, 3), (4, 1)).fill(np.ones((2, 3)))
    after = before.flat.copy()
    after[0], after[3] = 5, 6
    assert before.count_touched(before.flat.copy()) == 0 and before.count_touched(after) == 1
    assert contiguous((2, 3, 4)) == (12, 4, 1)
    one = np.ones((2, 2))
    assert judge(one, one, one * 0, None, 0, "Y").passed and not judge(one, one, one, None, 1, "Y").passed
    worse = judge(one, np.array([[1, 2.5], [1, 1]]), one, None, 0, "Y")
    assert not worse.passed and worse.worst == (0, 1) and "Y[0, 1]" in worse.lines()[0]
    nan = np.array([[np.nan, 1.0]])
    assert judge(nan, nan, nan * 0, None, 0, "Y").passed and not judge(nan, np.ones((1, 2)), one[:1], None, 0, "Y").passed
