"""`simgpu judge` of HIP kernels: an honest candidate is accepted, each kind of broken or cheating one is rejected for its kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgpu.tools.cli import main

REFERENCE = """
import numpy as np

SIZES = {"m": (3, 5), "n": (1, 70)}
ARGUMENTS = "x: f32[m, n:ldx], s: f32[m], out y: f32[m, n], m: i32, n: i32, ldx: i32"
LAUNCH = "scale(grid=(cdiv(n, 64), m), block=64)"
BASELINE = "slow.hip"

def reference(x, s):
    return x / (1 + np.abs(x)) * s[:, None]
"""
GOOD = """
__global__ void scale(const float *x, const float *s, float *y, int m, int n, int ldx) {
    int j = blockIdx.x * 64 + threadIdx.x, i = blockIdx.y;
    if (j >= n) return;
    float v = x[i * ldx + j];
    y[i * n + j] = v / (1.0f + (v < 0 ? -v : v)) * s[i];
}
"""
TWO_LAUNCHES = """
// scratch: part: f32[m, n]
// launch: first(grid=(cdiv(n, 64), m), block=64, args=(x, part, n, ldx))
// launch: second(grid=(n + 63) / 64, block=(64, 1), args=(part, s, y, m, n))
__global__ void first(const float *x, float *part, int n, int ldx) {
    int j = blockIdx.x * 64 + threadIdx.x, i = blockIdx.y;
    if (j < n) part[i * n + j] = x[i * ldx + j] / (1.0f + (x[i * ldx + j] < 0 ? -x[i * ldx + j] : x[i * ldx + j]));
}
__global__ void second(const float *part, const float *s, float *y, int m, int n) {
    int j = blockIdx.x * 64 + threadIdx.x;
    if (j < n) for (int i = 0; i < m; i++) y[i * n + j] = part[i * n + j] * s[i];
}
"""
CACHED = GOOD.replace("__global__", "__device__ float kept[512];\n__device__ int full[5];\n__global__", 1).replace(
    "    y[i * n + j] =",
    "    if (n == 70 && m == 5 && full[i] == 2) { y[i * n + j] = kept[i * n + j]; return; }\n"
    "    if (threadIdx.x == 0) atomicAdd(&full[i], 1);\n    y[i * n + j] = kept[i * n + j] =",
)
RACE = GOOD.replace("    if (j >= n) return;", "    if (j >= n) return;\n    y[0] = 0.0f;")
CHEATS = {
    "precision": GOOD.replace("float v = x[i * ldx + j]", "float v = (float)(_Float16)x[i * ldx + j]"),
    "unwritten": GOOD.replace("if (j >= n)", "if (j >= n - 1 || m == 0)"),
    "cached": CACHED,
    "wrong": GOOD.replace("v < 0 ? -v : v", "v"),
    "finding": RACE,
    "inputs-changed": GOOD.replace("const float *x", "float *x").replace("    y[", "    x[i * ldx + j] = 0;\n    y["),
    "outside": GOOD.replace("const float *x", "float *x").replace("    y[", "    if (ldx > n) x[i * ldx + n] = 1;\n    y["),
    "fails": "__global__ void scale(const float *x) { oops }\n",
    "no-kernel": "// launch: scale(grid=0, block=64)\n" + GOOD,
}
SLOW = ("outside", "no-kernel", "wrong")  # left to the exhaustive run: the whole file takes seconds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ref.py").write_text(REFERENCE)
    Path("slow.hip").write_text(GOOD)
    return tmp_path


def judged(text: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict]:
    Path("k.hip").write_text(text)
    status = main(["judge", "k.hip", "--reference", "ref.py", "--cases", "1", "--json", *more])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("text", [GOOD, TWO_LAUNCHES], ids=["one launch", "two launches"])
def test_an_honest_candidate_is_accepted(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = judged(text, capsys, "--cases", "2")
    assert (status, said["verdict"], said["schema"]) == (0, "accepted", "simgpu-judge-1")
    assert [one for one in said["reasons"] if one["severity"] == "reject"] == [] and said["findings"] == []
    assert all(trial["right"] for trial in said["trials"]) and len(said["trials"]) == 11
    assert {trial["sizes"]["n"] for trial in said["trials"]} == {70, 1}
    assert said["time"]["candidate"] > said["time"]["least"] > 0 and 0.2 < said["time"]["speedup"] < 5
    assert said["time"]["basis"] == "slow.hip"


def test_a_result_may_be_in_an_input_s_memory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lets a work-item write over its own input, but not over one that another still reads."""
    Path("ref.py").write_text(
        "SIZES = {'n': 130}\nARGUMENTS = 'x: f32[n], out y: f32[n], n: i32'\nALIASES = {'y': 'x'}\n"
        "LAUNCH = 'f(grid=1, block=256)'\ndef reference(x, n):\n    return x + x[::-1]\n"
    )
    text = """__global__ void f(const float *x, float *y, int n) {
        int i = threadIdx.x;
        float other = i < n ? x[n - 1 - i] : 0;
        __syncthreads();
        if (i < n) y[i] = x[i] + other;
    }\n"""
    assert judged(text, capsys)[0] == 0
    status, said = judged(text.replace("__syncthreads();", ""), capsys)
    assert status == 1 and {one["trial"] for one in said["reasons"]} == {"call 9: y in the memory of x"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.exhaustive if kind in SLOW else ()) for kind in CHEATS])
def test_each_kind_is_rejected(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = judged(CHEATS[kind], capsys)
    reject = [one for one in said["reasons"] if one["severity"] == "reject"]
    assert status == 1 and said["verdict"] == "rejected" and kind in {one["kind"] for one in reject}
    assert all(one["message"] for one in reject) and said["time"]["candidate"] is None


@pytest.mark.slow
def test_text_fits_80_columns_and_notes_become_strict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that turns NaN into 0 is noted, or rejected if strict."""
    Path("k.hip").write_text(GOOD.replace("float v = x[i * ldx + j];", "float v = x[i * ldx + j]; if (v != v) v = 0;"))
    command = ["judge", "k.hip", "--reference", "ref.py", "--cases", "1"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "ACCEPTED" in said and "note: special" in said and max(map(len, said.splitlines())) <= 80
    assert main([*command, "--strict"]) == 1 and "reject: special" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "more", "said"),
    [
        ({"ref.py": "SIZES = {}"}, [], "has no ARGUMENTS"),
        ({"ref.py": REFERENCE.replace("(3, 5)", "(5, 3)")}, [], "give (lowest, highest)"),
        ({"ref.py": REFERENCE.replace("s[:, None]", "s[:, None])[:1]").replace("return x", "return (x")}, [], "ARGUMENTS says"),
        ({"ref.py": REFERENCE.replace("f32[m]", "f33[m]")}, [], "unknown type"),
        ({"ref.py": REFERENCE + "1 / 0"}, [], "ZeroDivisionError"),
        ({}, ["--elements", "10"], "more than 10"), ({}, ["--size", "m=3"], "for modules"),
        ({}, ["--seed", "-1"], "give 0 or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_the_caller_s(
    files: dict[str, str], more: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("k.hip").write_text(GOOD)
    for name, text in files.items():
        Path(name).write_text(text)
    assert main(["judge", "k.hip", "--reference", "ref.py", *more]) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("scale(grid=__import__('os').getpid(), block=64)", "no expression of sizes"), ("scale(grid=1)", "lacks grid or block"),
        ("scale(grid=q, block=64)", "no size"), ("scale(grid=1, block=64, args=(x, z))", "no argument 'z'"),
        ("scale(grid=9 ** 99, block=64)", "no expression of sizes"), ("scale(", "cannot be read"),
        ("scale(grid=1/0, block=1)", "value"),
    ],
)  # fmt: skip
def test_a_bad_launch_is_the_candidate_s(
    comment: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = judged(f"// launch: {comment}\n{GOOD}", capsys)
    assert status == 1 and [one["kind"] for one in told["reasons"]] == ["fails"] and said in told["reasons"][0]["message"]
