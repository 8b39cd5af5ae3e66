"""AMD's Laplacian: figures, launches that stay in their buffers, and bytes beside times."""

from __future__ import annotations

from pathlib import Path

import pytest

from simgpu.timing.predict import predict
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import judge, laplacian
from simgpu.tools.validation.laplacian import MeasuredLaplacian

# A copy of m rows along y, in the form of the sources. Kernel 6 has y, z and x in the grid.
SOURCE = """#include "hip/hip_runtime.h"
#define m 8
#define LB 256
template <typename T>
__launch_bounds__(LB)
__global__ void laplacian_kernel(T *f, const T *u, int nx, int ny, int nz, T x2, T y2, T z2, T xyz2%s) {
    int i = threadIdx.x + blockIdx.%s * blockDim.x, j = %sm * (threadIdx.y + blockIdx.%s * blockDim.y);
    int k = threadIdx.z + blockIdx.%s * blockDim.z;
    if (i >= nx || k >= nz) return;
    size_t pos = i + nx * (j + (size_t)ny * k);
    for (int n = 0; n < m; n++) {
        f[pos + n * nx] = u[pos + n * nx]
                        * xyz2;
    }
}
template <typename T>
void laplacian(T *f, T *u) { laplacian_kernel<<<1, 1>>>(f, u); }
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / laplacian.FOLDER).mkdir(parents=True)
    for kernel in range(1, 8):
        axes = "zxy" if kernel == 6 else "xyz"
        text = SOURCE % (", int sy" if kernel == 7 else "", axes[0], "sy + " if kernel == 7 else "", axes[1], axes[2])
        text = text.replace("f[pos + n * nx] =", "f[pos] =") if kernel == 1 else text
        (tmp_path / laplacian.FOLDER / f"kernel{kernel}.hpp").write_text(text)
    return tmp_path


def test_every_published_figure_is_a_row(checkout: Path) -> None:
    found = list(laplacian.rows(checkout))
    assert len(found) == len({(row.name, row.counter) for row in found}) == 2 * (1 + 4 + 4 + 5 + 1 + 1 + 4)
    (six,) = (row for row in found if row.kernel == 6 and not row.counter)
    assert (six.side, six.group) == (1024, "1024³") and six.value == pytest.approx(16008, rel=1e-4)
    assert found[0].value == pytest.approx(2641.72, rel=1e-5), "part 1 prints this time beside its bandwidth"
    assert found[1].group == "FETCH_SIZE" and found[1].value == 2.014


@pytest.mark.parametrize("kernel, block", [(1, (256, 1, 1)), (5, (128, 1, 8)), (6, (256, 1, 1)), (7, (256, 1, 1))])
def test_a_launch_covers_its_part_of_the_cube(checkout: Path, kernel: int, block: tuple[int, int, int]) -> None:
    row = MeasuredLaplacian(kernel, 64, 1 if kernel == 1 else 8, 1.0, block=block)
    (launch,) = laplacian.sampled_laplacian(checkout, row)
    found = launch.sampled
    lanes = 64 * found.used.waves * found.groups
    assert launch.times == (4 if kernel == 7 else 1)
    assert launch.times * lanes * row.factor >= 64**3 and predict(found).seconds > 0
    assert found.all_traced and len(found.stores) == len(found.loads) == 1


def test_a_streamed_store_is_one(checkout: Path) -> None:
    for streamed in (False, True):
        (launch,) = laplacian.sampled_laplacian(checkout, MeasuredLaplacian(1, 64, 1, 1.0, streamed=streamed))
        stores = [inst for inst in launch.sampled.instructions.values() if "store" in inst.mnemonic]
        assert stores and all(bool(inst.mods.get("slc")) == streamed for inst in stores)


def test_rows_are_judged_by_time_and_by_bytes(checkout: Path) -> None:
    def judged(row: MeasuredLaplacian) -> judge.RowVerdict:
        return judge._laplacian(row, checkout)(judge.Mechanisms())

    one = judged(MeasuredLaplacian(5, 128, 8, 10.0))
    assert (one.rows, one.board, one.fits) == ("laplacian", "mi250x", True) and one.low < one.predicted < one.high and one.limit
    fetched = judged(MeasuredLaplacian(5, 128, 8, 0.0168, True))
    assert fetched.predicted == pytest.approx(8e-9 * 128**3, rel=0.02), "each point is loaded once"


def test_other_folders_are_refused(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(UsageError, match="amd-lab-notes"):
        list(laplacian.rows(tmp_path / "none"))
    (checkout / laplacian.FOLDER / "kernel2.hpp").write_text("int x;\n")
    with pytest.raises(UsageError, match="kernel2"):
        laplacian.sampled_laplacian(checkout, MeasuredLaplacian(2, 64, 8, 1.0))
