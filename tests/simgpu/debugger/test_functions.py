"""Functions that kernels call: their names in findings, breakpoints in them, and the calls that have not returned."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.checks.lint.kernel import lint
from simgpu.debugger.debugger import Debugger, debug
from simgpu.hardware.errors import LaunchError
from simgpu.tools.debug import views

SOURCE = """
__device__ __attribute__((noinline)) float twice(const float *a, int i)
{
    float value = a[i];
    return value + value;
}

__device__ __attribute__((noinline)) float both(const float *a, int i)
{
    float left = twice(a, i);
    float right = twice(a, i + 64);
    return left - right;
}

__device__ __attribute__((noinline)) int fall(int i, const int *step)
{
    int rest = i > *step ? fall(i - *step, step) : 0;
    return rest + i;
}

__device__ __attribute__((noinline)) void early(float *out)
{
    asm volatile("global_load_dword v40, %0, off\\n v_add_f32 v40, v40, v40" :: "v"(out) : "v40");
}

extern "C" __global__ void k(const float *a, float *out)
{
    out[threadIdx.x] = both(a, threadIdx.x);
}

extern "C" __global__ void falls(const int *step, int *out)
{
    out[threadIdx.x] = fall(5, step);
}

extern "C" __global__ void lacks_wait(float *out)
{
    early(out);
}
"""


def line(text: str) -> int:
    return next(number for number, each in enumerate(SOURCE.splitlines(), 1) if text in each)


@pytest.fixture(params=["mi300x", "mi210"])
def kernels(request: pytest.FixtureRequest, tmp_path: Path) -> simgpu.Module:
    file = tmp_path / "calls.hip"
    file.write_text(SOURCE)
    return simgpu.load(str(file), request.param, threads=1)


@pytest.fixture
def held(kernels: simgpu.Module) -> Iterator[Debugger]:
    gpu = kernels.device
    with debug(kernels["k"], grid=1, block=64, args=[gpu.upload(np.arange(128, dtype="f4")), gpu.zeros(64)]) as debugger:
        yield debugger


def stack(debugger: Debugger) -> list[tuple[str, int]]:
    """Returns the names without parameters, and the lines, of the functions that the wave is in."""
    frames = list(views.stack(debugger))
    return [(frame.function.partition("(")[0], int(frame.line.rpartition(":")[2])) for frame in frames]


def test_functions_of_a_file(kernels: simgpu.Module) -> None:
    code = kernels.code
    assert {function.title.partition("(")[0] for function in code.functions} == {"twice", "both", "fall", "early"}
    for function in code.functions:
        name = function.title.partition("(")[0]
        last = function.start + function.code_size - 4
        assert code.part_at(code.kernels["k"], function.start) == code.part_at(code.kernels["k"], last) == function
        assert code.address_name(code.kernels["k"], last) == f"{name}+{function.code_size - 4:#x}"
    kernel = code.kernels["k"]
    assert code.address_name(kernel, kernel.start + 4) == "k+0x4" and code.part_at(kernel, kernel.start) is kernel
    assert code.address_name(kernel, 1 << 40) == "0x10000000000"


def test_a_line_of_a_function_that_no_wave_has_called_yet(held: Debugger) -> None:
    held.breakpoint(f"calls.hip:{line('return value')}")
    first = held.go_on()
    assert first.kind == "breakpoint" and held.code.address(held.record()).startswith("twice+")
    assert stack(held) == [("twice", line("return value")), ("both", line("left =")), ("k", line("both(a, threadIdx"))]
    held.go_on()
    assert stack(held)[1] == ("both", line("right ="))
    held.reverse_go_on()
    assert held.stop.place == first.place and stack(held)[1] == ("both", line("left ="))


def test_next_leaves_a_function_and_finish_returns_to_its_caller(held: Debugger) -> None:
    held.breakpoint("twice")
    held.go_on()
    assert held.code.address(held.record()) == "twice+0x0"
    while stack(held)[0][0] == "twice":
        held.next()
    assert stack(held)[0] == ("both", line("left ="))
    held.go_on()
    held.finish()
    assert [name for name, _ in stack(held)] == ["both", "k"]
    held.finish()
    assert stack(held) == [("k", line("both(a, threadIdx"))]


def test_places_in_functions_by_name(held: Debugger) -> None:
    start = held.code.find("both")
    assert held.code.address(start) == "both+0x0" and held.code.find("both+0x4") == start + 1
    with pytest.raises(LaunchError, match=r"both\(float const\*, int\) has 0x[0-9a-f]+ bytes of code"):
        held.code.find("both+0x10000")
    with pytest.raises(LaunchError, match="nowhere: no such label; there are k, twice, both, fall, early;"):
        held.code.find("nowhere")


def test_a_function_that_calls_itself(kernels: simgpu.Module) -> None:
    gpu = kernels.device
    with debug(kernels["falls"], grid=1, block=64, args=[gpu.upload(np.array([2], "i4")), gpu.zeros(64, "i4")]) as held:
        held.breakpoint("fall")
        depths = []
        while held.go_on().kind == "breakpoint":
            depths.append([name for name, _ in stack(held)])
    assert depths == [["fall"] * depth + ["falls"] for depth in (1, 2, 3)]


def test_findings_name_the_function(kernels: simgpu.Module) -> None:
    (found,) = [each for each in lint(kernels.code) if each.kind == "missing-wait"]
    assert found.at.startswith("early+0x") and found.other_at.startswith("early+0x")
    assert f"at {found.at} `" in str(found) and f"earlier {found.other_at} `" in str(found)
    gpu = simgpu.Device(kernels.code.target, check=True, threads=1)
    run = gpu.load(kernels.code.data)["k"].launch(grid=1, block=64, args=[gpu.empty(128), gpu.zeros(64)])
    assert any(each.other_at.startswith("twice+") for each in run.findings)  # the load of data that nothing wrote


def test_disasm_and_trace_name_functions(kernels: simgpu.Module, tmp_path: Path) -> None:
    file = tmp_path / "calls.co"
    file.write_bytes(kernels.code.data)

    def printed(verb: str, *options: str) -> str:
        command = [sys.executable, "-m", "simgpu", verb, str(file), *options]
        return subprocess.run(command, text=True, capture_output=True, check=True).stdout

    assert "\ntwice(float const*, int): " in printed("disasm") and "twice(" not in printed("disasm", "--kernel", "k")
    launch = ["--kernel", "k", "--grid", "1", "--arg", "zeros:f32:128", "--arg", "zeros:f32:64"]
    assert printed("trace", "--at", "twice+0x0", *launch).startswith("before twice+0x0  s_waitcnt")
