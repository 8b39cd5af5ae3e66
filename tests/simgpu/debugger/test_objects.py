"""Arrays, structs and pointers of HIP sources, in registers, private memory, LDS and device memory, against what numpy computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.debugger.assign import assign
from simgpu.debugger.debugger import Debugger, debug
from simgpu.debugger.locals import local_values, object_named
from simgpu.hardware.code_object.shared import Shared, offsets
from simgpu.hardware.errors import LaunchError
from simgpu.tools.debug import values

SOURCE = """
struct Base { int id; };
struct P : Base { float x, y; int n[3]; union { int raw; float real; }; struct Q { short a; double b; } q[2]; };
__constant__ float coef[4] = {1, 2, 3, 4};
__device__ int counter = 7;
__device__ float table[2][3] = {{1, 2, 3}, {4, 5, 6}};
__shared__ float whole[32];
__global__ void k(const float *x, float *y, P *ps, int n) {
    __shared__ float t[64];
    __shared__ char letters[13];
    __shared__ double wide[5];
    __shared__ float2 unused[9];
    int i = threadIdx.x;
    P p;
    p.id = 9; p.x = x[i]; p.y = 2; p.n[0] = 1; p.n[1] = 2; p.n[2] = i; p.real = 1.5f; p.q[1].b = i * 0.5;
    t[i] = x[i] * 3;
    if (i < 13) letters[i] = i + 1;
    if (i < 5) wide[i] = i * 0.25;
    if (i < 32) whole[i] = -i;
    __syncthreads();
    float s = 0;
    for (int j = 0; j < n; j++)
        s += t[(i + j) & 63] * p.n[(i + j) % 3] + letters[(i + j) % 13] + wide[(i + j) % 5]
        + whole[j] + p.q[j & 1].b;
    ps[i] = p;
    y[i] = s + table[i & 1][i % 3] + coef[i & 3];
    atomicAdd(&counter, 1);
}
"""
LANE = np.arange(64)


@pytest.fixture(params=["mi300x", "mi210"])
def stopped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Debugger]:
    file = tmp_path / "k.hip"
    file.write_text(SOURCE)
    kernel = simgpu.load(str(file), request.param, threads=1)["k"]
    gpu = kernel.module.device
    x, y, ps = gpu.upload(np.arange(64, dtype="f4")), gpu.zeros(64), gpu.zeros(64 * 20)
    with debug(kernel, grid=1, block=64, args=[x, y, ps, 5]) as held:
        line = next(number for number, text in enumerate(SOURCE.splitlines(), 1) if "ps[i] = p" in text)
        held.breakpoint(str(line))
        held.go_on()
        yield held


def value(held: Debugger, text: str) -> np.ndarray:
    found = object_named(held, text)
    assert found is not None, text
    return found.values()


def test_parts(stopped: Debugger) -> None:
    wanted = {
        "t[3]": np.float32(9), "letters[12]": 13, "wide[3]": 0.75, "whole[4]": np.float32(-4), "coef[2]": np.float32(3),
        "table[1][2]": np.float32(6), "counter": 7, "p.id": np.int32(9), "p.n[1]": np.int32(2), "p.x": LANE.astype("f4"),
        "p.n[2]": LANE, "p.n[2][5]": 5, "p.q[1].b": LANE * 0.5, "p.real": np.float32(1.5), "*(p.n)": None,
        "*x": np.float32(0), "x[7]": np.float32(7), "ps->n[0]": 0, "ps[3].y": np.float32(0), "*t": np.float32(0),
    }  # fmt: skip
    for text, want in wanted.items():
        if want is None:
            assert object_named(stopped, text) is None
        else:
            assert (value(stopped, text) == want).all(), text
    assert [each.name for each in local_values(stopped) if each.is_global] == ["whole", "coef", "counter", "table"]
    found = object_named(stopped, "*x@5")
    assert found is not None and list(values.lines(found, 1, "")) == ["*x@5 = {0, 1, 2, 3, 4}"]


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t[64]", "it has 64 elements"),
        ("p.z", "there is no member z; there are x, y"),
        ("*n", "it is no pointer"),
        ("n@4", "write *p@4"),
        ("p.n[2][64]", "a lane is a number"),
        ("*x@99999999", "at most"),
    ],
)
def test_parts_that_do_not_exist(stopped: Debugger, text: str, said: str) -> None:
    with pytest.raises(LaunchError, match=said.replace("*", r"\*")):
        object_named(stopped, text)


def test_changes(stopped: Debugger) -> None:
    """Each change is read back, and the kernel computes on with it."""
    changes = {"t[3]": "100", "p.n[1]": "77", "p.n[2][5]": "-3", "wide[0]": "0.5", "table[0][0]": "50", "*x": "8"}
    for text, number in changes.items():
        assign(stopped, text, number)
        assert (value(stopped, text) == float(number)).all(), text
    changed = LANE.copy()
    changed[5] = -3
    assert (value(stopped, "p.n[2]") == changed).all()
    with pytest.raises(LaunchError, match=r"t is no number: set one of its parts, as t\[0\]"):
        assign(stopped, "t", "1")
    ps = int(value(stopped, "ps"))
    stopped.go_on()
    made = np.frombuffer(stopped.memory(ps, 64 * 64), np.int32).reshape(64, 16)
    assert (made[:, 4] == 77).all() and (made[:, 5] == changed).all()


def test_texts(stopped: Debugger) -> None:
    shown = {each.name: values.summary(each, (1 << 64) - 1) for each in local_values(stopped)}
    assert shown["p"].startswith("{{id = 9}, x = 0, y = 2, n = {1, 2, 0}") and shown["p"].endswith("(lane 0; the lanes differ)")
    assert shown["coef"] == "{1, 2, 3, 4}" and shown["table"] == "{{1, 2, 3}, {4, 5, 6}}"
    found = object_named(stopped, "p.n")
    assert found is not None
    assert list(values.lines(found, 0b1110, "")) == ["p.n =", "      [1] {1, 2, 1}", "      [2] {1, 2, 2}", "      [3] {1, 2, 3}"]
    repeated = object_named(stopped, "*y@40")
    assert repeated is not None and list(values.lines(repeated, 1, "")) == ["*y@40 = {0 <repeats 40 times>}"]


def test_a_layout_with_a_removed_variable() -> None:
    known = [Shared("a", 4, 4), Shared("t", 256, 4), Shared("unused", 1024, 4)]
    assert offsets(known, 260) == [256, 0, None]
    assert offsets(known, 1) == [None, None, None]
    assert offsets([Shared("a", 4, 4), Shared("b", 4, 4)], 4) == [None, None], "either may have been removed"


def test_a_line_in_several_copies(tmp_path: Path) -> None:
    """A line stops in each inlined call, and in both loops that unrolling made of one; a loop's own line stops once."""
    file = tmp_path / "k.hip"
    file.write_text("""__device__ float weigh(float v) { return v * 3 + 1; }
__global__ void k(const float *x, float *y, int n) {
    int i = threadIdx.x;
    float s = weigh(x[i]);
#pragma unroll 4
    for (int j = 0; j < n; j++)
        s += x[(i * j) & 63] * j;
    y[i] = s + weigh(s);
}
""")
    kernel = simgpu.load(str(file), "mi300x", threads=1)["k"]
    gpu = kernel.module.device
    stops = {}
    for count in (1, 3, 4, 6):
        for line in (1, 6, 7):
            with debug(kernel, grid=1, block=64, args=[gpu.zeros(64), gpu.zeros(64), count]) as held:
                held.breakpoint(str(line))
                stops[line, count] = 0
                while held.go_on().kind == "breakpoint":
                    stops[line, count] += 1
    assert {stops[1, count] for count in (1, 3, 4, 6)} == {2} and {stops[6, count] for count in (1, 3, 4, 6)} == {1}
    assert [stops[7, count] for count in (1, 3)] == [1, 3] and stops[7, 4] >= 1 and stops[7, 6] >= 3
