"""How far matrix arithmetic may be from exact: a roundoff a step and type, for the references' error bounds."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST_F32 = 2.0**-149


@dataclass(frozen=True)
class Arithmetic:
    """Model of one input type's matrix arithmetic: unit roundoff of a step, relative error of an input."""

    step: float
    input_error: float = 0.0


# Steps: f32 and f64 are fused multiply-add chains; the narrow types sum exact products in f32, on gfx942 and gfx950 with terms cut
# at 2^-24 of the largest, at most 8 or 16 at a time (MMA-Sim, arXiv 2511.10909). 4 units a step cover a cut of each product, of C
# and of the sum, besides its rounding. xf32 drops 13 mantissa bits by truncation, 2^-10 of the value.
STEPS = {
    "f32": Arithmetic(2.0**-24),
    "f64": Arithmetic(2.0**-53),
    "f16": Arithmetic(4 * 2.0**-24),
    "bf16": Arithmetic(4 * 2.0**-24),
    "fp8": Arithmetic(4 * 2.0**-24),
    "bf8": Arithmetic(4 * 2.0**-24),
    "xf32": Arithmetic(4 * 2.0**-24, input_error=2.0**-10),
    "i8": Arithmetic(0.0),
}
# gfx90a reads subnormal f16 and bf16 inputs as 0 (MMA-Sim; MIOpen, "MI200 MFMA behavior specifics").
FLUSHED_INPUT = {"f16": 2.0**-14, "bf16": 2.0**-126}


def gamma(steps: int, unit: float) -> float:
    """Largest relative error of so many steps of roundoff `unit` (Higham, Accuracy and Stability, section 3.1)."""
    return steps * unit / (1 - steps * unit)
