"""Kernels with right numbers give no findings."""

from __future__ import annotations

import pytest

import simgpu
from simgpu.tools.cli import main
from simgpu.tools.robustness.corpus import cases
from tests.support.places import CORPUS

# Compilers' kernels that mask, exponentiate, divide and convert. All 82 but cl_float_misc, whose input is special numbers, are
# silent.
TELLING = ("tt_flash_d64_mi32.gfx942", "tt_softmax_2000_w8.gfx950", "tt_layernorm_loop.gfx908")


@pytest.mark.parametrize("arguments", [
    "gemm -m 65 -n 40 -k 33 --target mi100", "gemm -m 33 -n 40 -k 65 --target mi210 --dtype bf16",
    "gemm -m 33 -n 40 -k 65 --target mi300x --dtype fp8", "gemm -m 33 -n 17 -k 19 --target mi300x --dtype f64",
    "softmax --rows 5 -n 100 --causal --mask --target mi100", "softmax --rows 3 -n 70 --mask --dtype f16 --target mi300x",
    "attention -L 70 -d 32 --causal --window 5 --target mi300x --dtype f16", "attention -L 40 -d 32 --causal --target mi100",
    "conv2d --ic 3 --ih 9 --iw 8 --oc 5 --kh 3 --kw 3 --target mi355x --dtype f16",
])  # fmt: skip
def test_the_four_operators(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Their values include masks of -inf, exp2 of them and empty rows."""
    assert main(["check", *arguments.split(), "--numerics"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.corpus
@pytest.mark.skipif(not (CORPUS / "manifest.json").exists(), reason="../shared/corpus is not here")
def test_kernels_that_compilers_made() -> None:
    chosen = cases(str(CORPUS), TELLING)
    assert len(chosen) == len(TELLING)
    for case in chosen:
        gpu = simgpu.Device(case.target, check="numerics", threads=1)
        run, _ = case.launch(gpu, gpu.load(case.code)[case.entry])
        assert run.findings == [], case.name
