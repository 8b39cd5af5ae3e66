"""Workloads on an MI300A: rows, launches that cover the published sizes, sums of launches, and errors."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import judge, workloads
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.mgpusim import Buffers, compile_program
from simgpu.tools.validation.workloads import WORKLOADS, MeasuredWorkload

HEADER = "run_id,suite,benchmark,platform,problem_size,kernel_name,iterations,avg_ms,min_ms,max_ms,stddev_ms\n"
TABLE = HEADER + (
    "a,shoc,Triad,hip,4096,triad,10,0.0044,0.0043,0.0050,0.0002\n"
    "a,rodinia,bfs,hip,4096,bfs,10,1,1,1,0\n"
    "a,polybench,mvt,hip,512,mvt,10,0.1889,0.1828,0.1962,0.0046\n"
    "a,parboil,sgemm,hip,64,sgemm_tiled,10,0.0063,0.0061,0.0067,0.0002\n"
)
SOURCES = {
    "shoc/Triad/hip/triad.cpp": """
__global__ void triad_kernel(float* a, const float* b, const float* c, float scalar, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) a[i] = b[i] + scalar * c[i];
}
static void triad_cpu(float* a, int N) { for (int i = 0; i < N; ++i) a[i] = 0; }
""",
    "polybench/mvt/hip/mvt.cpp": """
__global__ void mvt_kernel1(float* A, float* x, float* y, int N) { x[hipBlockIdx_x * 256 + hipThreadIdx_x] = A[0] + N; }
__global__ void mvt_kernel2(float* A, float* x, float* y, int N) { x[hipBlockIdx_x * 256 + hipThreadIdx_x] = y[0]; }
""",
    "parboil/sgemm/hip/sgemm.cpp": """
template <int TILE_WIDTH>
__global__ void sgemm_tiled(const float* A, const float* B, float* C, int N, float alpha, float beta) {
    C[(hipBlockIdx_y * TILE_WIDTH + hipThreadIdx_y) * N + hipBlockIdx_x * TILE_WIDTH + hipThreadIdx_x] = A[0] * B[0] * alpha + beta;
}
""",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    compile_program.cache_clear()
    for name, text in {**SOURCES, "results/table": TABLE}.items():
        path = tmp_path / workloads.RESULTS if name == "results/table" else tmp_path / workloads.FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if name == "results/table" else f'#include "bench_common_hip.h"\n{text}\nint main(int argc) {{}}\n')
    return tmp_path


def test_rows_are_the_least_times_of_known_workloads(checkout: Path) -> None:
    found = list(workloads.rows(checkout))
    assert [(row.name, round(row.us, 3), row.group) for row in found] == [
        ("shoc/triad 4096", 4.3, "shoc/triad short"), ("polybench/mvt 512", 182.8, "polybench/mvt long"),
        ("parboil/sgemm_tiled 64", 6.1, "parboil/sgemm_tiled short"),
    ]  # fmt: skip
    assert judge.MeasurementFolders(None, mgpusim=checkout).rows("workloads") == found
    assert judge.MeasurementFolders(None).rows("workloads") == []


def test_launches_have_the_published_sizes(checkout: Path) -> None:
    """A product's template is compiled for tiles of 16."""
    triad, mvt, sgemm = (workloads.sampled_workload(checkout, row) for row in workloads.rows(checkout))
    assert [[(one.times, one.sampled.groups, one.sampled.used.waves) for one in made] for made in (triad, mvt, sgemm)] == [
        [(1, 16, 4)], [(1, 2, 4), (1, 2, 4)], [(1, 16, 4)],
    ]  # fmt: skip


def test_a_row_is_the_sum_of_its_launches(checkout: Path) -> None:
    """Launches of two kernels take twice the launch itself, at least."""
    triad, mvt, _ = (judge._workload(row, checkout)(judge.Mechanisms()) for row in workloads.rows(checkout))
    assert triad.low < triad.predicted < triad.high and mvt.low < mvt.predicted < mvt.high
    assert (triad.rows, triad.board, triad.fits) == ("workloads", "mi300a", False)
    assert mvt.predicted > 2 * 2.7 > triad.predicted > 2.7


@pytest.mark.parametrize(("workload", "size", "launches"), [
    ("polybench/2DConvolution", 100, [(1, 49)]), ("polybench/3DConvolution", 33, [(1, 3 * 3 * 33)]),
    ("polybench/gemm", 64, [(1, 16)]), ("polybench/syrk", 64, [(1, 16)]), ("polybench/syr2k", 65, [(1, 25)]),
    ("polybench/gesummv", 300, [(1, 2)]), ("polybench/bicg", 300, [(1, 2), (1, 2)]),
    ("polybench/fdtd2d", 64, [(10, 1), (10, 16), (10, 16), (10, 16)]), ("shoc/DeviceMemory_Read", 1, [(1, 1024)]),
    ("shoc/DeviceMemory_Write", 128, [(1, 65535)]), ("heteromark/bs", 1000, [(1, 4)]),
    ("polybench/2mm", 65, [(1, 25), (1, 25)]), ("polybench/3mm", 64, [(1, 16)] * 3), ("shoc/gemm", 64, [(1, 16)]),
    ("shoc/MaxFlops", 512, [(1, 2)]), ("shoc/s3d", 300, [(1, 2), (1, 2)]), ("shoc/md", 128, [(1, 1)]),
    ("rodinia/nn", 1000, [(1, 4)]), ("rodinia/layerforward", 256, [(1, 1)]), ("rodinia/adjust_weights", 512, [(1, 3 * 16)]),
    ("parboil/ComputeSAD", 48, [(1, 9)]), ("parboil/FindMinSAD", 320, [(1, 2)]),
    ("parboil/stencil_kernel", 24, [(5, 96)] * 2), ("parboil/lbm_stream_collide", 16, [(5, 16)] * 2),
])  # fmt: skip
def test_each_workload_covers_its_elements(workload: str, size: int, launches: list[tuple[int, int]]) -> None:
    import simgpu

    made = WORKLOADS[workload].launches(Buffers(simgpu.Device("mi300a", threads=1)), size)
    assert [(step.times, prod(step.launch.geometry.groups)) for step in made] == launches


def test_launches_follow_each_other_on_the_same_buffers() -> None:
    """A product loads what another one stored, a stencil goes back and forth, and each launch of a row is after the others."""
    import simgpu

    of = Buffers(simgpu.Device("mi300a", threads=1))
    first, second, third = (step.launch.args for step in WORKLOADS["polybench/3mm"].launches(of, 64))
    assert (third[0], third[1]) == (first[2], second[2])
    there, back = (step.launch.args for step in WORKLOADS["parboil/stencil_kernel"].launches(of, 24))
    assert there[:2] == back[1::-1]


def test_a_launch_with_much_memory_is_not_judged(checkout: Path) -> None:
    with pytest.raises(NotJudged, match="1024 MB"):
        workloads.sampled_workload(checkout, MeasuredWorkload("shoc/triad", "134217728", 1.0))


def test_errors_name_the_file(checkout: Path) -> None:
    (checkout / workloads.FOLDER / "shoc/Triad/hip/triad.cpp").write_text("no kernels")
    with pytest.raises(UsageError, match=r"triad\.cpp: no kernels between bench_common_hip\.h and main"):
        workloads.sampled_workload(checkout, MeasuredWorkload("shoc/triad", "4096", 1.0))
    (checkout / workloads.RESULTS).write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="a row lacks suite"):
        list(workloads.rows(checkout))
    with pytest.raises(UsageError, match="give a checkout of github"):
        list(workloads.rows(checkout / "nowhere"))
