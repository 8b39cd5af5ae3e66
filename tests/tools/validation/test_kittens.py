"""HipKittens' kernels: each published time is a row, and a launch has the arguments that the kernel reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import judge, kittens
from simgpu.tools.validation.kittens import SIZES, MeasuredKitten

# A tensor as include/types/global/gl.cuh lays it out: -1 is an extent that is passed.
HEADER = """#pragma once
#include <hip/hip_runtime.h>
struct none {};
template <int N> struct extent { __device__ operator size_t() const { return N; } };
template <> struct extent<-1> { size_t v; __device__ operator size_t() const { return v; } };
template <class T, int B, int D, int R, int C> struct gl {
    T *at; extent<B> batch; extent<D> depth; extent<R> rows; extent<C> cols; none more;
};
#include "more/words.cuh"
"""
# Each stores to its last tensor only if the extents of all are right.
BY_STRUCTURE = """#include "kittens.cuh"
#include <iostream>
using t = gl<short, -1, -1, -1, -1>;
struct globals { t a, b, c; hipStream_t stream; };
__global__ void micro(const globals g) {
    if (g.a.rows == N && g.b.cols == N && g.c.batch == 1 && g.c.depth == 1 && g.c.rows == N && g.c.cols == N && !g.stream)
        g.c.at[blockIdx.x * blockDim.x + threadIdx.x] = word(g.a.at[threadIdx.x]);
}
void dispatch_micro(globals g) { std::cout << "host"; micro<<<1, 1>>>(g); }
"""
BY_TENSORS = """#include "kittens.cuh"
template <int M, int N, int K>
__global__ void matmul_device_1024(gl<char, 1, 1, M, K> a, gl<char, 1, 1, N, K> b, gl<short, 1, 1, M, N> c) {
    c.at[blockIdx.x * blockDim.x + threadIdx.x] = a.at[threadIdx.x] + b.at[threadIdx.x];
}
// Rotating buffer
int main() { matmul_device_1024<7, 7, 7><<<1, 1>>>(); }
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    analysis = tmp_path / "analysis"
    files = {
        tmp_path / "include/kittens.cuh": HEADER,
        tmp_path / "include/more/words.cuh": "__device__ short word(short x) { return x + 1; }\n",
        analysis / "bf16_gemm/mi350x/kernel_1024.cpp": BY_STRUCTURE.replace("N)", "1024)").replace("N &&", "1024 &&"),
        tmp_path / "kernels/gemm/fp8fp32/FP8_4wave/4_wave.cu": BY_TENSORS,
        analysis / "bf16_gemm/mi350x/mi355x_bf16_gemm.json": {"avg_time": 0.5},
        analysis / "fp8_gemm/mi350x/mi355x_fp8_gemm.json": {"avg_time": 0.25},
        analysis / "rotary/mi350x/mi355x_rotary.json": {"avg_time_tk": 0.125},
    }
    for kind in ("mha", "gqa"):
        for width in ("", "d64_"):
            for mask in ("causal", "non_causal"):
                name = f"attn/fwd/benchmark/mi355x_{width}{kind}_{mask}_fwd.json"
                files[analysis / name] = {"avg_time": 1.0, "tflops": 1000.0}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps({str(size): content for size in SIZES}))
    return tmp_path


def test_every_published_time_is_a_row(checkout: Path) -> None:
    found = list(kittens.rows(checkout))
    assert len(found) == len({row.name for row in found}) == 5 * (3 + 8)
    assert [row.us for row in found if row.size == 2048][:3] == [500.0, 250.0, 125.0]
    # 10^12 operations in a millisecond: 4 of a query, a key, a head and an element, or half as many with a mask.
    (row,) = (one for one in found if one.name == "attention causal gqa d64 1024")
    assert row.batch == round(1e12 / (2 * 1024 * 1024 * 64 * 64))
    assert judge.MeasurementFolders(None, hipkittens=checkout).rows("kittens") == found
    assert judge.MeasurementFolders(None).rows("kittens") == []


@pytest.mark.parametrize("group, groups, nbytes", [("bf16 GEMM", 64, 2 << 20), ("fp8 GEMM", 256, 2 << 20)])
def test_a_row_is_judged_by_its_kernel(checkout: Path, group: str, groups: int, nbytes: int) -> None:
    row = MeasuredKitten(group, 1024, 10.0)
    launched = kittens.sampled_kitten(checkout, row)
    assert launched.groups == groups and launched.used.waves == (8 if group == "bf16 GEMM" else 4)
    assert list(launched.stores.values()) == [nbytes + kittens.BEYOND]  # so the kernel found its extents
    judged = judge.Findings()
    assert len(list(judge.judges(judge.MeasurementFolders(None, hipkittens=checkout), ["kittens"], None, judged))) == 2
    assert {one.name for one in judged.judged} == {"bf16 GEMM 1024", "fp8 GEMM 1024"}
    assert all(one.predicted > 0 for one in judged.judged)


def test_what_cannot_be_judged_says_why(checkout: Path) -> None:
    with pytest.raises(judge.NotJudged, match="more than 3 GB of buffers"):
        kittens.sampled_kitten(checkout, MeasuredKitten("rotary", 1 << 20, 1.0))
    with pytest.raises(UsageError, match=r"give a checkout of github\.com/HazyResearch/HipKittens"):
        kittens.sampled_kitten(checkout, MeasuredKitten("bf16 GEMM", 2048, 1.0))
    (checkout / "analysis/bf16_gemm/mi350x/mi355x_bf16_gemm.json").write_text("{}")
    with pytest.raises(UsageError, match="cannot be read as HipKittens' times"):
        list(kittens.rows(checkout))
