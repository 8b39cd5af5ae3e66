"""Kernels in all launches: right ones are proved, broken ones have a launch that checked mode confirms, the rest is unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest

from simgpu import Device
from simgpu.hardware.code_object import CodeObject
from simgpu.proof.safety.judge import SafetyVerdict, judge
from simgpu.proof.safety.launches import Assumptions
from simgpu.proof.safety.sizes import SizeExpression
from simgpu.tools.cases.sources import compile

BOTH = ("out-of-bounds", "race")
ITEM = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
LINE = {"x": "4*n", "y": "4*n"}
TILES = """__shared__ float tile[16][17];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < n && y < m) tile[threadIdx.y][threadIdx.x] = a[y * n + x];
  __syncthreads();
  x = blockIdx.y * 16 + threadIdx.x; y = blockIdx.x * 16 + threadIdx.y;
  if (x < m && y < n) c[y * m + x] = tile[threadIdx.x][threadIdx.y];"""
PRODUCT = """__shared__ float as[16][16], bs[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += 16) {
    as[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0;
    bs[ty][tx] = k0 + ty < k && col < n ? b[(k0 + ty) * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += as[ty][i] * bs[i][tx];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;"""
REDUCTION = """__shared__ float s[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) {
    if (t < k) s[t] += s[t + k];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];"""
ANY_REDUCTION = REDUCTION.replace("__shared__ float s[256]", "extern __shared__ float s[]").replace("256", "blockDim.x").replace(
    "int k = 128", "unsigned k = blockDim.x / 2"
)
VECTORS = "float *y, const float *x, int n, int m"
MATRICES = "float *c, const float *a, const float *b, int m, int n, int k"
# Parameters, body, sizes of buffers, block.
RIGHT: dict[str, tuple[str, str, Mapping[str, str], tuple[int, ...]]] = {
    "saxpy": (VECTORS, f"{ITEM} if (i < n) y[i] += 2 * x[i];", LINE, (256,)),
    "any_saxpy": (VECTORS, f"{ITEM} if (i < n) y[i] += 2 * x[i];", LINE, ()),
    "grid_stride": (VECTORS, f"{ITEM} for (; i < n; i += blockDim.x * gridDim.x) y[i] += 2 * x[i];", LINE, ()),
    "stencil": (VECTORS, f"{ITEM} if (i >= 1 && i < n - 1) y[i] = x[i - 1] + x[i + 1];", LINE, ()),
    "rows": (
        VECTORS, f"{ITEM} if (i < m) {{ float s = 0; for (int k = 0; k < n; k++) s += x[i * n + k]; y[i] = s; }}",
        {"x": "4*m*n", "y": "4*m"}, (),
    ),
    "unrolled": (
        VECTORS, f"{ITEM} float s = 0; for (int k = 0; k + 3 < n; k += 4) s += x[k] * x[k + 1] + x[k + 2] * x[k + 3];\n"
        "  if (i < n) y[i] = s;",
        LINE, (),
    ),
    "down": (VECTORS, f"{ITEM} float s = 0; for (int k = n - 1; k >= 0; k--) s = 2 * s + x[k]; if (i < n) y[i] = s;", LINE, ()),
    "nested": (
        VECTORS, f"{ITEM} float s = 0; for (int j = 0; j < m; j++) for (int k = 0; k < n; k++) s += x[j * n + k];\n"
        "  if (i < m) y[i] = s;",
        {"x": "4*m*n", "y": "4*m"}, (),
    ),
    "transpose": (MATRICES, TILES, {"a": "4*m*n", "c": "4*m*n"}, (16, 16)),
    "product": (MATRICES, PRODUCT, {"a": "4*m*k", "b": "4*k*n", "c": "4*m*n"}, (16, 16)),
    "reduction": (VECTORS, REDUCTION, {"x": "4*n", "y": "4*grid_x"}, (256,)),
    "any_reduction": (VECTORS, ANY_REDUCTION, {"x": "4*n", "y": "4*grid_x"}, ()),
}  # fmt: skip
# A right kernel, a part of its source, its replacement, and the fault.
BROKEN = {
    "saxpy_n": ("saxpy", "i < n", "i <= n", "out-of-bounds"),
    "stencil_first": ("stencil", "i >= 1 && ", "", "out-of-bounds"),
    "stencil_last": ("stencil", "n - 1", "n", "out-of-bounds"),
    "down_first": ("down", "k = n - 1", "k = n", "out-of-bounds"),
    "unrolled_last": ("unrolled", "k + 3 < n", "k + 2 < n", "out-of-bounds"),
    "rows_stride": ("rows", "i * n + k", "i * n + k + 1", "out-of-bounds"),
    "transpose_guard": ("transpose", "x < m && y < n", "x < m", "out-of-bounds"),
    "transpose_barrier": ("transpose", "__syncthreads();", "", "race"),
    "product_barrier": ("product", "__syncthreads();\n  }", "}", "race"),
    "product_mask": ("product", "k0 + ty < k", "k0 + ty <= k", "out-of-bounds"),
    "reduction_barrier": ("reduction", "s[t + k];\n    __syncthreads();", "s[t + k];", "race"),
    "reduction_lds": ("reduction", "s[t + k]", "s[t + k + 129]", "out-of-bounds"),
    "saxpy_same": ("any_saxpy", "y[i] +=", "y[i / 2] +=", "race"),
}  # fmt: skip
QUICK = ("saxpy", "saxpy_n", "grid_stride", "saxpy_same")  # the others are marked exhaustive


def source(name: str) -> str:
    """Returns a kernel's HIP source."""
    right, old, new, _ = BROKEN.get(name, (name, "", "", ""))
    parameters, body, _, _ = RIGHT[right]
    assert old in body
    return f'extern "C" __global__ void {name}({parameters}) {{\n  {body.replace(old, new) if old else body}\n}}\n'


@cache
def judged(name: str, properties: Sequence[str] = BOTH, target: str = "gfx942") -> SafetyVerdict:
    """Returns the verdict on a kernel."""
    code = CodeObject.parse(compile(source(name), target))
    _, _, buffers, block = RIGHT[BROKEN[name][0] if name in BROKEN else name]
    lds = 4096 if name == "any_reduction" else 0
    assumptions = Assumptions({key: SizeExpression.parse(text) for key, text in buffers.items()}, (), block, lds)
    return judge(code, name, properties, assumptions)


def marked(names: Sequence[str], quick: Sequence[str] = QUICK) -> list[object]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.exhaustive) for name in names]


@pytest.mark.parametrize("name", marked(list(RIGHT)))
def test_right_kernels_are_proved(name: str) -> None:
    verdict = judged(name)
    assert verdict.kind == "proved", verdict.reason
    assert verdict.counterexample is None and "pointer arguments are buffers apart from each other" in verdict.assumed


@pytest.mark.parametrize("name", marked(list(BROKEN)))
def test_broken_kernels_have_a_launch_that_shows_it(name: str) -> None:
    verdict = judged(name)
    assert verdict.kind == "counterexample", verdict.reason
    shown = verdict.counterexample
    assert shown is not None and shown.finding.kind == BROKEN[name][3]
    gpu = Device("gfx942", check=True)
    given = [gpu.upload(value) if isinstance(value, np.ndarray) else value for value in shown.arguments]
    kernel = gpu.load(compile(source(name), "gfx942"))[name]
    try:
        findings = kernel.launch(grid=shown.grid, block=shown.block, args=given).findings
    except Exception as error:  # a launch that leaves memory ends
        findings = error.findings  # type: ignore[attr-defined]
    assert any(finding.kind == shown.finding.kind for finding in findings)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx950"])
def test_other_targets(target: str) -> None:
    assert judged("stencil", target=target).kind == "proved"
    assert judged("stencil_last", target=target).kind == "counterexample"


UNKNOWN = {
    "size": (f"{ITEM} if (i < n) y[i] = x[m];", {"y": "4*n"}, "the size of buffer x is not stated: --buffer x=BYTES"),
    "memory": (f"{ITEM} if (i < n) ((float**)y)[i][m] = 1;", {"y": "8*n"}, "an address that is in no argument's buffer"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_is_not_stated_is_unknown(what: str) -> None:
    body, buffers, reason = UNKNOWN[what]
    code = CodeObject.parse(compile(f'extern "C" __global__ void f({VECTORS}) {{\n  {body}\n}}\n', "gfx942"))
    assumptions = Assumptions({key: SizeExpression.parse(text) for key, text in buffers.items()})
    verdict = judge(code, "f", ("out-of-bounds",), assumptions)
    assert verdict.kind == "unknown" and reason in verdict.reason


@pytest.mark.exhaustive
def test_a_condition_makes_a_kernel_without_a_guard_right() -> None:
    """Takes a kernel without a guard, which is right if the launch has as many work-items as elements."""
    code = CodeObject.parse(compile(f'extern "C" __global__ void f({VECTORS}) {{\n  {ITEM} y[i] = x[i];\n}}\n', "gfx942"))
    buffers = {key: SizeExpression.parse(text) for key, text in LINE.items()}
    for condition, kind in (("grid_x * block_x == n", "proved"), ("grid_x * block_x <= n + 1", "counterexample")):
        verdict = judge(code, "f", ("out-of-bounds",), Assumptions(buffers, [SizeExpression.parse(condition)]))
        assert verdict.kind == kind, verdict.reason
