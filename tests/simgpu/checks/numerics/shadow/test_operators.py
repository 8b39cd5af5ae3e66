"""Whole kernels: with f64 inside, the worst element matches the float64 reference."""

from __future__ import annotations

import json

import pytest

from simgpu.tools.cli import main


@pytest.mark.parametrize("arguments, mnemonic, exact", [
    ("gemm -m 40 -n 35 -k 70 --target mi100", "v_mfma_f32_16x16x4f32", 1e-12),
    ("gemm -m 20 -n 35 -k 70 --target mi210 --dtype bf16", "v_mfma_f32", 1e-12),
    ("attention -L 40 -d 32 --target mi300x --dtype f16", "v_cvt_f16_f32", 1e-6),
])  # fmt: skip
def test_the_worst_element(arguments: str, mnemonic: str, exact: float, capsys: pytest.CaptureFixture[str]) -> None:
    """softmax and attention multiply by log2 e in f32, which f64 does not mend."""
    assert main(["check", *arguments.split(), "--numerics", "--shadow", "f64", "--json"]) == 0
    worst = json.loads(capsys.readouterr().out)["worst"]
    assert worst["shadow"] == pytest.approx(worst["want"], rel=exact)
    assert abs(worst["value"] - worst["want"]) > 10 * abs(worst["shadow"] - worst["want"])
    first = worst["origins"][0]
    assert first["where"]["text"].startswith(mnemonic) and worst["complete"]
    assert sum(origin["share"] for origin in worst["origins"]) == pytest.approx(1)


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *"gemm -m 40 -n 35 -k 70 --target mi100 --numerics --shadow f64".split()]) == 0
    said = capsys.readouterr().out
    assert "C[" in said and "with f64 inside" in said and "gemm/emitter.py" in said and "%" in said


@pytest.mark.parametrize("arguments, said", [
    ("gemm -m 8 -n 8 -k 8 --shadow f64", "--shadow f64 needs --numerics"),
    ("gemm -m 8 -n 8 -k 8 --denormals", "need --numerics"),
    ("gemm -m 8 -n 8 -k 8 --cancellation 5", "need --numerics"),
    ("gemm -m 8 -n 8 -k 8 --numerics --cancellation 99", "cancellation=99"),
    ("gemm -m 8 -n 8 -k 8 --numerics --performance", "leave --performance out"),
    ("gemm -m 8 -n 8 -k 8 --target mi300x --dtype f64 --numerics --shadow f64", "follows results of float32"),
])  # fmt: skip
def test_bad_options(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments.split()]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
