"""Clock that a board sustains, by matrix duty, active CUs and type."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from simgpu import hardware
from simgpu.hardware.rates.clocks import WIDE, Busy, element, sustained_clock


@pytest.mark.parametrize(
    "mnemonic, formats, dtype",
    [
        ("v_mfma_f32_32x32x8_f16", (0, 0), "f16"), ("v_mfma_f32_32x32x8_bf16_1k", (0, 0), "bf16"),
        ("v_mfma_f32_16x16x32_fp8_bf8", (0, 0), "f8"), ("v_mfma_f32_16x16x128_f8f6f4", (0, 1), "f8"),
        ("v_mfma_f32_16x16x128_f8f6f4", (4, 4), "f4"), ("v_mfma_scale_f32_32x32x64_f8f6f4", (2, 4), "f4"),
        ("v_mfma_f32_16x16x128_f8f6f4", (4, 0), "f8"), ("v_mfma_f64_16x16x4_f64", (0, 0), "f64"),
    ],
)  # fmt: skip
def test_types_of_matrix_instructions(mnemonic: str, formats: tuple[int, int], dtype: str) -> None:
    assert element(mnemonic, formats) == dtype


@pytest.mark.parametrize(
    "board, dtype, tflops, flops, mhz",
    [("mi300x", "f16", 654, 2048, 1115), ("mi300x", "bf16", 708, 2048, 1207), ("mi300x", "f8", 1273, 4096, 1230),
     ("mi325x", "f16", 794, 2048, 1354), ("mi325x", "bf16", 843, 2048, 1447), ("mi325x", "f8", 1519, 4096, 1464)],
)  # fmt: skip
def test_published_clocks_come_back_at_the_duty_that_they_were_measured_at(
    board: str, dtype: str, tflops: int, flops: int, mhz: int
) -> None:
    """ROCm blog, "Measuring max-achievable FLOPs": TFLOPS at an average clock imply a duty."""
    chip = hardware.target(board)
    duty = tflops * 1e12 / (flops * chip.num_cus * mhz * 1e6)
    assert sustained_clock(chip, Busy.product(duty), 1.0, dtype).mhz == pytest.approx(mhz, rel=0.005)


def test_a_board_without_figures_has_its_peak_and_a_wide_band() -> None:
    chip = replace(hardware.target("mi300x"), name="unheard-of")
    held = sustained_clock(chip, Busy(1.0, 1.0, 1.0), 1.0, "f16")
    assert held.mhz == chip.clock_mhz and held.band == WIDE


@pytest.mark.parametrize("board", [name for name in hardware.targets() if name.startswith("mi")])
def test_more_work_never_raises_the_clock(board: str) -> None:
    chip = hardware.target(board)
    cases = list(product((0.0, 0.3, 1.0), repeat=4))  # matrix, VALU, LDS, working CUs
    held = {case: sustained_clock(chip, Busy(*case[:3]), case[3], "f16").mhz for case in cases}
    for one, other in product(cases, repeat=2):
        assert held[one] <= held[other] or any(a < b for a, b in zip(one, other, strict=True))
    assert max(held.values()) <= chip.clock_mhz
