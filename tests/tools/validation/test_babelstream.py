"""BabelStream: figures, sizes, and launches that write what the kernels are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from simgpu.timing.predict import predict
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation import babelstream, judge
from simgpu.tools.validation.babelstream import ARRAYS, MeasuredStream

KERNELS = """
template <typename T>
__global__ void copy_kernel(const T * a, T * c)
{
  const size_t i = threadIdx.x + blockIdx.x * blockDim.x;
  c[i] = a[i];
}

template <typename T>
__global__ void dot_kernel(const T * a, const T * b, T * sum, int array_size)
{
  const size_t i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < array_size && threadIdx.x == 0) sum[blockIdx.x] = a[i] * b[i] * startScalar;
}
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(babelstream, "ELEMENTS", 1 << 20)
    (tmp_path / babelstream.SOURCE).parent.mkdir(parents=True)
    (tmp_path / babelstream.SOURCE).write_text(KERNELS)
    return tmp_path


def test_every_published_figure_is_a_row(checkout: Path) -> None:
    found = list(babelstream.rows())
    assert len(found) == len({row.name for row in found}) == 15
    assert {row.group for row in found} == {"node", "single", "Hunter", "dot"}
    assert judge.MeasurementFolders(None, babelstream=checkout).rows("babelstream") == found
    assert judge.MeasurementFolders(None).rows("babelstream") == []


def test_a_bandwidth_counts_each_array_once() -> None:
    """Compares with times that the source gives beside these bandwidths."""
    times = {row.kernel: row.seconds for row in babelstream.rows() if row.run == "node"}
    assert list(times) == list(ARRAYS)
    assert [round(times[kernel], 5) for kernel in ("copy", "triad")] == [0.00101, 0.00163]


@pytest.mark.parametrize("kernel", ["copy", "dot"])
def test_a_row_is_judged_by_its_kernel(checkout: Path, kernel: str) -> None:
    row = MeasuredStream(kernel, "node", "mi300x", 4e6)
    launched = babelstream.sampled_stream(checkout, row)
    assert launched.groups == babelstream.ELEMENTS // (2048 if kernel == "dot" else 1024)
    assert predict(launched).seconds > 0


def test_another_version_s_kernels_are_refused(checkout: Path) -> None:
    later = KERNELS.replace("T * c)", "T * c, size_t array_size)")
    (checkout / babelstream.SOURCE).write_text(later)
    with pytest.raises(UsageError, match=r"give a checkout of github\.com/UoB-HPC/BabelStream at v5\.0"):
        babelstream.sampled_stream(checkout, MeasuredStream("copy", "node", "mi300x", 1.0))
