"""AMD's seismic stencils: figures, sizes, and launches that stay in their buffers."""

from __future__ import annotations

from pathlib import Path

import pytest

from simgpu.timing.predict import predict
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import judge, seismic
from simgpu.tools.validation.seismic import MeasuredStencil
from tests.support.exhaustive import one_in

HELPER = """// Table containing finite difference coefficients
template <int R> __constant__ float d_dz[2 * R + 1];
template <int R>
void host();
// Vectorized floats
#define VEC_LEN (1 << (VEC_EXP))
using vec = __attribute__((__vector_size__(VEC_LEN * sizeof(float)))) float;
// Integer division: round up
"""
KERNEL = """#pragma once
#define BLOCK_DIM_X %d
#define BLOCK_DIM_Y %d
template <int R>
__launch_bounds__((BLOCK_DIM_X) * (BLOCK_DIM_Y))
__global__ void kernel(float *to, const float *from, const float *, int line, int slice, int x0, int x1, int y0, int y1,
                       int z0, int z1) {
    int i = x0 + VEC_LEN * (threadIdx.x + blockIdx.x * blockDim.x), j = y0 + threadIdx.y + blockIdx.y * blockDim.y;
    int k = z0 + blockIdx.z;
    if (i >= x1 || j >= y1 || k >= z1) return;
    long at = i + line * j + (long)slice * k;
    vec sum = {0.0f};
    for (int r = -R; r <= R; r++) sum += *(const vec *)(from + at + r * (long)slice) * d_dz<R>[r + R];
    *(vec *)(to + at) = sum;
}
template <int R>
void host();
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(seismic, "SIDE", 64)
    (tmp_path / seismic.FOLDER / "figures").mkdir(parents=True)
    for name, text in {"helper": HELPER, "compute_fd_z": KERNEL % (64, 8), "compute_fd_z_vec": KERNEL % (64, 4)}.items():
        (tmp_path / seismic.FOLDER / f"{name}.hpp").write_text(text)
    for name in seismic.WINDOWS:
        (tmp_path / seismic.FOLDER / f"figures/{name}.csv").write_text("$n_w$,Bandwidth,Read\n1,200,9\n2,300,9\n16,900,9\n")
    return tmp_path


def test_every_published_figure_is_a_row(checkout: Path) -> None:
    found = list(seismic.rows(checkout))
    assert len(found) == len({row.name for row in found}) == 12 + 3 + 6 + 2 + 4
    assert {row.group for row in found} == {"plain", "vectors", "window"}
    assert sum(row.fits for row in found) == len(seismic.IN_VIEW)


def test_bandwidth_counts_the_cube_with_its_halo_and_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """seismic-stencils part 1: (nx ny nz + 2 R PLANE) and nx ny nz floats, here of 956 GB/s."""
    row = MeasuredStencil("x", 4, 956)
    assert row.nbytes == 4 * (512**3 + 2 * 4 * 512**2) + 4 * 512**3
    assert row.seconds == pytest.approx(1.132e-3, rel=1e-3)
    assert MeasuredStencil("xyz_lds_window_vec", 4, 1000).nbytes - MeasuredStencil("z", 4, 1).nbytes == 4 * 2 * 8 * 512**2


@pytest.mark.parametrize("row", one_in(3, [
    MeasuredStencil("z", 4, 217), MeasuredStencil("z", 1, 915), MeasuredStencil("z", 4, 297, True),
    MeasuredStencil("z_vec", 4, 1163, True, 2),
]), ids=lambda row: row.name)  # fmt: skip
def test_a_launch_stays_in_its_buffers_and_covers_the_cube(checkout: Path, row: MeasuredStencil) -> None:
    found = predict(seismic.sampled_stencil(checkout, row))
    stored = 4 * 64**3
    assert found.seconds > 0 and found.sampled.groups * found.sampled.used.waves * 64 * 4 * (1 << row.exponent) >= stored


def test_a_row_is_judged_with_its_band(checkout: Path) -> None:
    one = judge._seismic(MeasuredStencil("z", 4, 217), checkout)(judge.Mechanisms())
    assert (one.rows, one.board, one.fits) == ("seismic", "mi250x", True) and one.low < one.predicted < one.high


def test_other_folders_are_refused(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(UsageError, match="HPCTrainingExamples"):
        list(seismic.rows(tmp_path / "none"))
    (checkout / seismic.FOLDER / "compute_fd_z.hpp").write_text((KERNEL % (64, 8)).replace("sum +=", "sun +="))
    with pytest.raises(UsageError, match="compute_fd_z"):
        seismic.sampled_stencil(checkout, MeasuredStencil("z", 3, 394))
