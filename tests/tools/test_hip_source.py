"""HIP sources in a user's words: kernels by their C++ names, lines of the user's file, arguments by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import simgpu
from simgpu import LaunchError
from simgpu.tools.cli import main

SOURCE = """template <typename T> __device__ T root(T v) { return sqrtf(v); }

template <typename T> __global__ void scale(T *y, const T *x, int n) {
    __shared__ T part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = x[i];
    T value = part[(threadIdx.x + 1) % 256];
    if (threadIdx.x < 64) __syncthreads();
    if (i < n) y[i] = root(value);
}
template __global__ void scale<float>(float *, const float *, int);

namespace ns {
__global__ void over(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) atomicAdd(y + i, x[0]);
}
}
"""
SCALE = ["--target", "mi300x", "--grid", "2", "--block", "256", *["--arg", "count:f32:512"] * 2, "--arg", "i32:512"]
OVER = ["--target", "mi300x", "--grid", "1", *["--arg", "zeros:f32:48"] * 2, "--arg", "i32:60"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("bugs.hip").write_text(SOURCE)
    return "bugs.hip"


def test_findings_name_the_users_kernel_and_lines(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", source, "--kernel", "scale", *SCALE]) == 1
    said = capsys.readouterr().out
    assert "scale<float>+0x" in said and "(bugs.hip:7)" in said and "_Z" not in said
    assert "(bugs.hip:8, in __syncthreads, hip.h:" in said, "a barrier is a line of the user's, and of what it calls"


def test_out_of_bounds_names_the_argument(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", source, "--kernel", "ns::over", *OVER, "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    found = next(one for one in findings if one["kind"] == "out-of-bounds")
    assert "past the end of argument y (float32 48)" in found["message"]
    assert found["kernel"] == "ns::over(float*, float const*, int)" and found["source"] == "bugs.hip:16"
    assert [frame.partition(" in ")[2] for frame in found["frames"]] == ["atomicAdd", ""]
    assert found["frames"][-1] == "bugs.hip:16"


def test_sarif_has_the_inlined_calls(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--sarif", "found.sarif", source, "--kernel", "over", *OVER]) == 1
    result = json.loads(Path("found.sarif").read_text())["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 16
    frames = [frame["location"] for frame in result["stacks"][0]["frames"]]
    assert [frame["message"]["text"] for frame in frames] == ["atomicAdd", "the kernel"]
    assert frames[1]["physicalLocation"] == {"artifactLocation": {"uri": "bugs.hip"}, "region": {"startLine": 16}}


@pytest.mark.parametrize("name", ["scale", "scale<float>", "scale<float>(float*, float const*, int)", "_Z5scaleIfEvPT_PKS0_i"])
def test_a_kernel_goes_by_any_of_its_names(name: str, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", source, "--target", "mi300x", "--kernel", name]) == 0, capsys.readouterr().err
    kernels = simgpu.load(source, target="mi300x")
    assert kernels[name].title == "void scale<float>(float*, float const*, int)"


@pytest.mark.slow
def test_a_name_that_fits_several_or_none_is_refused(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(source).write_text(SOURCE + "template __global__ void scale<double>(double *, const double *, int);\n")
    for name, said in (("scale", "may be any of: void scale<float>("), ("ovr", "no kernel 'ovr' (did you mean over?)")):
        assert main(["lint", source, "--target", "mi300x", "--kernel", name]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(KeyError, match="may be any of"):
        simgpu.load(source, target="mi300x")["scale"]


@pytest.mark.parametrize(("argument", "said"), [
    ("f32:60", "argument n of ns::over(float*, float const*, int) is i32: give i32:60"),
    ("zeros:i32:4", "argument n (by_value, 4 bytes) got a buffer: pass a number"),
])  # fmt: skip
def test_an_argument_of_another_type_is_refused_by_name(
    argument: str, said: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert main(["exec", source, "--kernel", "over", *OVER[:-1], argument]) == 2
    assert said in capsys.readouterr().err


def test_python_names_the_argument(source: str) -> None:
    kernels = simgpu.load(source, target="mi300x")
    x = kernels.device.empty(64, "f4")
    with pytest.raises(LaunchError, match=r"ns::over\(float\*, float const\*, int\): argument n .* got str"):
        kernels["over"].launch(grid=1, block=64, args=[x, x, "60"])
