"""Small HIP programs on an MI300A: rows, launches that cover the published sizes, and programs that are not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from simgpu.timing.predict import predict
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import judge, mgpusim
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.mgpusim import MeasuredProgram

HEADER = "kernel_name,problem_size,iterations,avg_ms,min_ms,max_ms\n"
SOURCE = """// a program
#include "bench_common.h"
__global__ void %s {
    unsigned int at = hipBlockDim_x * hipBlockIdx_x + hipThreadIdx_x;
    %s
}
int main(int argc, char** argv) { return runBenchmark(argc); }
"""
PROGRAMS = {
    "relu": ("ReLUForward(const int count, float* in, float* out)", "if (at < count) out[at] = in[at] > 0 ? in[at] : 0;"),
    "spmv": (
        "spmv_csr_scalar_kernel(const float* val, const float* vec, const int* cols, const int* rows, const int n, float* out)",
        "float sum = 0; for (int j = rows[at]; j < rows[at + 1]; j++) sum += val[j] * vec[cols[j]]; if (at < n) out[at] = sum;",
    ),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / mgpusim.FOLDER
    folder.mkdir()
    (folder / "mi300a.csv").write_text(
        HEADER + "relu,4096,51,0.0048,0.0042,0.0102\nbfs,nodes4096,51,1,1,1\nspmv_csr_scalar,1024x1024_nnz4096,51,0.03,0.025,0.1\n"
    )
    for name, (head, body) in PROGRAMS.items():
        (folder / f"{name}.cpp").write_text(SOURCE % (head, body))
    return tmp_path


def test_rows_are_those_of_programs_with_one_kernel(checkout: Path) -> None:
    found = list(mgpusim.rows(checkout))
    assert [(row.name, row.us, row.group) for row in found] == [
        ("relu 4096", 4.2, "relu short"), ("spmv_csr_scalar 1024x1024_nnz4096", 25.0, "spmv_csr_scalar long"),
    ]  # fmt: skip


def test_a_launch_has_the_published_size(checkout: Path) -> None:
    relu, spmv = (mgpusim.sampled_program(checkout, row) for row in mgpusim.rows(checkout))
    assert relu.groups * relu.used.waves * 64 == 4096 and spmv.groups * spmv.used.waves * 64 == 1024
    assert predict(spmv).result.clocks > predict(relu).result.clocks  # four columns a row


def test_a_row_is_judged_with_its_band(checkout: Path) -> None:
    one = judge._mgpusim(next(iter(mgpusim.rows(checkout))), checkout)(judge.Mechanisms())
    assert (one.rows, one.board, one.fits) == ("mgpusim", "mi300a", False) and one.low < one.predicted < one.high


def test_a_launch_with_much_memory_is_not_judged(checkout: Path) -> None:
    with pytest.raises(NotJudged, match="1024 MB"):
        mgpusim.sampled_program(checkout, MeasuredProgram("relu", "1073741824", 1.0))


@pytest.mark.parametrize("program, size, lanes", [
    ("vectoradd", (1000,), 1024), ("matrixtranspose", (192, 192), 192 * 192 // 16), ("fir", (1024, 16), 1024),
    ("simpleconvolution", (32, 32, 3), 1024), ("stencil2d", (128, 128), 128 * 128 // 16), ("kmeans", (1024, 8, 5), 1024),
    ("im2col", (1, 1, 8, 8, 3, 3), 256),
])  # fmt: skip
def test_each_program_has_a_lane_for_its_elements(program: str, size: tuple[int, ...], lanes: int) -> None:
    """Transposes take 16 elements a lane, stencils 16 rows."""
    import simgpu

    call = mgpusim.PROGRAMS[program](mgpusim.Buffers(simgpu.Device("mi300a", threads=1)), *size)
    x, y, z = call.geometry.global_size
    assert x * y * z == lanes


def test_errors_name_the_file(checkout: Path) -> None:
    row = MeasuredProgram("relu", "4096", 1.0)
    (checkout / mgpusim.FOLDER / "relu.cpp").write_text("no kernels")
    mgpusim.compile_program.cache_clear()
    with pytest.raises(UsageError, match=r"relu\.cpp: no kernels between"):
        mgpusim.sampled_program(checkout, row)
    with pytest.raises(UsageError, match="give a checkout of github"):
        list(mgpusim.rows(checkout / "nowhere"))
    (checkout / mgpusim.FOLDER / "mi300a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="a row lacks"):
        list(mgpusim.rows(checkout))
