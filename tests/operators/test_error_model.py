"""Error model: spacing of narrow types against consecutive values, noise of exact zeros, default architectures."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from simgpu import hardware
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.operators import AttentionProblem, GemmProblem, SoftmaxProblem, TiledComputation, reference
from simgpu.operators.error_model import Rounding
from simgpu.tools.cli import main


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["f16", "bf16", "fp8", "bf8"])
def test_spacing_is_the_distance_to_the_next_value(name: str, arch: str) -> None:
    kind = numpy_dtype(name, arch)
    bits = np.arange(1 << min(14, 8 * kind.itemsize - 2), dtype=f"u{kind.itemsize}")  # 0, all subnormals, some normals
    values = bits.view(kind).astype(np.float64)
    distances = (bits + 1).astype(bits.dtype).view(kind).astype(np.float64) - values
    for x in (values, -values):
        np.testing.assert_array_equal(Rounding.of(name, arch).spacing(x), distances)


def test_narrow_results_have_the_spacing_of_the_architecture() -> None:
    """1/192 is between consecutive fp8 of OCP, 2^-9 apart, and of fnuz, 2^-10 apart."""
    x, apart = np.zeros((1, 192)), []
    for arch in ("gfx950", "gfx942"):
        found = reference.softmax_typical_error(SoftmaxProblem(1, 192, dtype_y="fp8"), x, arch=arch)
        apart.append(float(np.log2(found.deviation[0, 0] * 12**0.5)))
    assert apart == pytest.approx([-9, -10], abs=0.01)


def test_zeros_have_no_noise() -> None:
    zeros = np.zeros((2, 4))
    product = reference.gemm_typical_error(GemmProblem(2, 2, 4, "f16", dtype_c="f16"), zeros, zeros.T, arch="gfx942")
    keep = np.array([[True, True, False, False]])
    rows = reference.softmax_typical_error(SoftmaxProblem(1, 4, mask=True, dtype_y="f16"), zeros[:1], keep)
    assert product is not None and product.deviation.max() < 2.0**-24  # the smallest f16
    assert rows.deviation[0, 2:].max() < 2.0**-24 < rows.deviation[0, :2].min()


def test_masked_keys_add_no_noise() -> None:
    """A row that sees one key has weight 1; the weights of its 63 masked keys are 0, which bf16 holds exactly."""
    p = AttentionProblem(lq=64, lk=64, d=8, dtype="bf16", causal=True)
    q, k, v = (np.random.default_rng(seed).standard_normal((1, 1, 64, 8)).astype(numpy_dtype("bf16")) for seed in range(3))
    found = reference.attention_typical_error(p, q, k, v, arch="gfx942")
    rounding = 2.0**-7 / 12**0.5  # deviation of a rounding at 1
    assert found.shared[0, 0, 0].max() < 1.1 * rounding
    assert (found.deviation[0, 0, 0] < 1.1 * rounding * np.abs(found.expected[0, 0, 0])).all()


def test_references_and_their_errors_are_for_the_default_target_of_trees() -> None:
    target = inspect.signature(TiledComputation).parameters["target"].default
    parameters = [inspect.signature(getattr(reference, name)).parameters for name in reference.__all__]
    assert {each["arch"].default for each in parameters if "arch" in each} == {hardware.target(target).arch}


def test_a_logarithm_in_f64_is_as_exact_as_its_differences() -> None:
    """Scores of thousands leave a reference of float64 as close to numpy's long double as its own last place."""
    x = np.random.default_rng(3).normal(size=(40, 30)) * 2000
    wide = np.longdouble(-1.3) * x.astype(np.longdouble)
    below = wide - wide.max(-1, keepdims=True)
    exact = below - np.log(np.exp(below).sum(-1, keepdims=True))
    got = reference.softmax(SoftmaxProblem(rows=40, n=30, dtype="f64", scale=-1.3, log=True), x)
    assert (np.abs(got - exact) <= 2.0**-51 * np.abs(exact)).all()
    largest = np.abs(wide).max(-1, keepdims=True)
    assert (np.abs(exact) < largest / 64).sum() > 20  # a difference of rounded scores would be off by more


@pytest.mark.parametrize("scale", ["3e5", "6.55e4"])
def test_a_logarithm_may_leave_the_range_of_f16(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"run softmax --target mi210 --dtype f16 --rows 70 -n 33 --scale {scale} --log"
    assert main(words.split()) == 0 and capsys.readouterr().out.endswith("PASS\n")


def test_equal_rows_of_attention_have_their_errors_in_common(capsys: pytest.CaptureFixture[str]) -> None:
    """Each row of one-hot inputs has the same sums, so their roundings are a common factor, in f32, too."""
    words = "run unfused --target gpu_a --lq 86 --lk 226 -d 1 --heads 8 --inputs one-hot"
    assert main(words.split()) == 0 and capsys.readouterr().out.endswith("PASS\n")
