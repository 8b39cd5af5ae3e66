"""Arrays of dynamic LDS by name: where the declaration is in scope, at the place that the kernel's code uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simgpu.debugger.assign import assign
from simgpu.debugger.dynamic_lds import Declared, declarations
from simgpu.debugger.locals import local_values, object_named
from simgpu.tools.cases.subject import subject

SOURCE = """struct pair { int a, b; };
__device__ double other(int i) {
    extern __shared__ double shared[];
    return shared[i ^ 1];
}
__global__ void first(double *y) {
    // extern __shared__ int shared[];
    extern __shared__ __align__(8) double shared[];
    extern __shared__ struct pair pairs[];
    __shared__ int fixed[5];
    int i = threadIdx.x;
    fixed[i % 5] = i;
    shared[i] = 2.0 * i;
    __syncthreads();
    y[i] = other(i) + fixed[i % 3] + pairs[i].a;
}
__global__ void second(double *y) {
    HIP_DYNAMIC_SHARED(unsigned short, words)
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = words[threadIdx.x ^ 1];
}
"""


def test_declarations() -> None:
    found = declarations(SOURCE.replace("unsigned short", "std::uint16_t"))
    assert found == [
        Declared("shared", "f64", 3, 5),
        Declared("shared", "f64", 8, 16),
        Declared("pairs", "", 9, 16),
        Declared("words", "u16", 18, 22),
    ]


@pytest.mark.parametrize(
    "line, kind",
    [
        ("extern __shared__ unsigned char s[];", "u8"),
        ("extern __shared__ __attribute__((aligned(16))) unsigned s[];", "u32"),
        ("extern volatile __shared__ float s[];", "f32"),
        ("extern __shared__ alignas(16) float4 s [ ] ;", ""),
        ("extern __shared__ int64_t s[];", "i64"),
        ("extern __shared__ size_t s[];", "u64"),
    ],
)
def test_types(line: str, kind: str) -> None:
    assert declarations(f"void k() {{ {{ int t; }} {line} }}") == [Declared("s", kind, 1, 1)]


@pytest.mark.parametrize(
    "line", ["extern float s[];", "__shared__ float s[4];", "// extern __shared__ float s[];", 'f("extern __shared__ float s[];");']
)
def test_other_lines_declare_none(line: str) -> None:
    assert declarations(f"void k() {{ {line} }}") == []


def test_values_are_those_that_the_kernel_stored(tmp_path: Path) -> None:
    path = tmp_path / "k.hip"
    path.write_text(SOURCE)
    options = ["--target", "mi300x", "--grid", "1", "--block", "64", "--dynamic-lds", "512", "--arg", "zeros:f64:64"]
    with subject("debug", str(path), ["--kernel", "first", *options]).debugger() as debugger:
        debugger.breakpoint("15")
        debugger.go_on()
        held = object_named(debugger, "shared[9]")
        assert held is not None and held.values() == 18.0
        assert {each.name for each in local_values(debugger)} >= {"shared", "pairs", "fixed", "y"}
        assign(debugger, "shared[9]", "5")
        held = object_named(debugger, "shared[9]")
        assert held is not None and held.values() == 5.0
    with subject("debug", str(path), ["--kernel", "second", *options]).debugger() as debugger:
        debugger.breakpoint("21")
        debugger.go_on()
        words = object_named(debugger, "words")
        assert words is not None and words.type.count == 256
        assert not {"shared", "pairs"} & {each.name for each in local_values(debugger)}
        np.testing.assert_array_equal([each.values() for each in words.children()][:64], np.arange(64))
