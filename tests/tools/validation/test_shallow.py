"""A shallow-water solver: figures, sizes, and launches that write what the kernels are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simgpu.timing.gpu import Mechanisms
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import judge, shallow
from simgpu.tools.validation.shallow import STAGES_OF_TUTORIAL, MeasuredSolver, Stage

NOVICE = """
#include <vector>
constexpr int NX = 512;  // interior cells in x
__host__ __device__ inline int IDX(int i, int j, int pitch) {
    return j * pitch + i;
}
__global__ void apply_reflect_bc(float* h, float* hu, float* hv, int pitch)
{
    h[IDX(0, threadIdx.x, pitch)] = NX;
}
__global__ void compute_rhs(const float* h, const float* hu, const float* hv, float* dh, float* dhu, float* dhv, int pitch)
{
    int id = IDX(blockIdx.x * blockDim.x + threadIdx.x + 1, blockIdx.y * blockDim.y + threadIdx.y + 1, pitch);
    dh[id] = h[id] + fmaxf(hu[id], hv[id]);
}
__global__ void update_stage(
    float* a, float* b, float* c, float* d, float* e, float* f, float* g, float* h, float* i, float dt, int pitch)
{
    a[IDX(threadIdx.x, blockIdx.y, pitch)] = dt * d[0];
}
int main() { return 0; }
"""
ADVANCED = """
constexpr float   DX = 1.0f;
__host__ __device__ inline int IDX(int i, int j, int pitch) { return j * pitch + i; }
__global__ void apply_reflect_bc_x_yphys(float* h, float* hu, float* hv, int pitch, int nx, int ny, int isBottom, int isTop)
{
    if (isTop) h[IDX(threadIdx.x, ny + 1, pitch)] = DX;
}
__global__ __launch_bounds__(256,1) void compute_rhs(float* a, float* b, float* c,
    float* d, float* e, float* f, int pitch, int nx, int ny)
{
    d[IDX(threadIdx.x, nx - ny, pitch)] = a[0];
}
"""
SMALL = Stage("novice/0_baseline", 512, 256, (16, 16), {"compute_rhs": 5.0})
PARALLEL = Stage("advanced/0_baseline", 512, 512, (64, 4), {"compute_rhs": 5.0})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for stage, text in ((SMALL, NOVICE), (PARALLEL, ADVANCED)):
        (tmp_path / stage.source).parent.mkdir(parents=True)
        (tmp_path / stage.source).write_text(text)
    return tmp_path


def test_every_published_figure_is_a_row(checkout: Path) -> None:
    found = list(shallow.rows())
    counts = [len(one.kernels) + bool(one.mcups) for one in STAGES_OF_TUTORIAL]
    assert len(found) == len({row.name for row in found}) == sum(counts) == 21
    assert {row.group for row in found} == {"kernel 512", "kernel 2048", "kernel 8192", "step 2048", "step 8192"}
    assert judge.MeasurementFolders(None, examples=checkout).rows("shallow") == found
    assert judge.MeasurementFolders(None).rows("shallow") == []


def test_a_step_s_time_is_that_of_the_tutorial_s_table() -> None:
    """Compares with seconds of 500 steps, which the tutorial gives beside these rates."""
    steps = {row.stage.folder: row.us for row in shallow.rows() if row.group == "step 2048"}
    assert [round(500e-6 * us, 3) for us in steps.values()] == [0.396, 0.285, 0.243]


@pytest.mark.parametrize(("stage", "kernel", "groups"), [
    (SMALL, "compute_rhs", 512), (SMALL, "apply_reflect_bc", 2), (PARALLEL, "compute_rhs", 1024), (SMALL, "update_stage", 512),
    (PARALLEL, "apply_reflect_bc_x_yphys", 2),
])  # fmt: skip
def test_a_row_is_judged_by_its_kernel(checkout: Path, stage: Stage, kernel: str, groups: int) -> None:
    row = MeasuredSolver(stage, kernel, 5.0)
    ((times, launched, warm),) = shallow.sampled_solver(checkout, row)
    assert (times, launched.groups, warm) == (1, groups, "last")  # the host waits between kernels of this size
    found = judge._shallow(row, checkout)(Mechanisms())
    assert 0 < found.low < found.predicted < found.high and (found.group, found.measured) == ("kernel 512", 5.0)


def test_a_step_is_judged_by_all_of_its_launches(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "launches", property(lambda _: {"compute_rhs": (4, 6), "apply_reflect_bc": (3, 3)}))
    kernels = "compute_rhs", "apply_reflect_bc"
    parts = [judge._shallow(MeasuredSolver(SMALL, kernel, 5.0), checkout)(Mechanisms()) for kernel in kernels]
    step = judge._shallow(MeasuredSolver(replace(SMALL, mcups=1.0), "", 50.0), checkout)(Mechanisms())
    # A profiler's time of a kernel is shorter than its part of a step.
    assert step.predicted > 4 * parts[0].predicted + 3 * parts[1].predicted


def test_another_repository_is_refused(checkout: Path) -> None:
    (checkout / SMALL.source).write_text("int main() {}")
    with pytest.raises(UsageError, match=r"no kernel compute_rhs; give a checkout of github\.com/amd/HPCTrainingExamples"):
        shallow.sampled_solver(checkout, MeasuredSolver(SMALL, "compute_rhs", 1.0))
