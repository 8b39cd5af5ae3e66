"""Fidelity: agreement of an instruction's results with the hardware's, and the evidence."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from simgpu.hardware import mfma
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import Flag


@dataclass(frozen=True)
class Fidelity:
    """Agreement of a result with the hardware."""

    # bounded: by a documented error; unverified: by a rule that nothing public confirms
    kind: Literal["exact", "bounded", "unverified"]
    why: str = ""  # the error bound and its source, or the part that is not public; "" if the result is exact


EXACT = Fidelity("exact")

# Error bounds that the ISA guides document for the hardware. tests/hardware/isa/test_approx.py checks results here against
# mpmath; they need not be equal to the hardware's.
_ULP = "within 1 ulp on hardware and here (CDNA ISA guides, VOP1)"
_SEED = "hardware within 2^29 ulp (CDNA ISA guides, VOP1), here within 2 ulp"
_ANGLE = "within 1 ulp here; the guides give no error, and those of CDNA1 and CDNA2 the domain |a| <= 256 (VOP1)"
BOUNDS = {
    **dict.fromkeys(
        "v_exp_f32 v_exp_legacy_f32 v_log_f32 v_log_legacy_f32 v_rcp_f32 v_rcp_iflag_f32 v_rsq_f32 v_sqrt_f32".split(), _ULP
    ),
    **dict.fromkeys("v_rcp_f16 v_sqrt_f16 v_rsq_f16 v_log_f16 v_exp_f16".split(), _ULP),
    **dict.fromkeys("v_sin_f32 v_cos_f32 v_sin_f16 v_cos_f16".split(), _ANGLE),
    **dict.fromkeys("v_rcp_f64 v_rsq_f64 v_sqrt_f64".split(), _SEED),
}  # fmt: skip

# Parts of the meaning that are not public, by prefix of the mnemonic (docs/reference/semantics.md).
OPEN = {
    "ds_read_b64_tr_b4": "which element goes where: as the 8- and 16-bit forms",
    "ds_read_b96_tr_b6": "which element goes where, and the packing of 6-bit elements",
    "v_dot2": "whether the sum rounds after each product",
    "v_cvt_rpi_i32_f32": "how a + 0.5 rounds (8388609.0 gives 8388610, as the guide's formula does), and what a NaN gives",
    "v_cvt_flr_i32_f32": "what a NaN gives; 0 is assumed",
    "v_trig_preop_f64": "what a NaN gives; it counts as a number of its exponent",
    "v_div_scale_f32": "VCC where an operand is zero: 0, as the guides say, and 1 on RDNA3's silicon",
    "v_div_scale_f64": "VCC where an operand is zero: 0, as the guides say, and 1 on RDNA3's silicon",
    "v_cvt_pk_u8_f32": "how it rounds; to nearest is assumed",
    "v_cvt_pkaccum_u8_f32": "how it rounds; to nearest is assumed",
    "v_cvt_sr_": "how the random bits are aligned; as in ROCm's host emulation",
    "v_cvt_scalef32_": "gfx950's scaled conversions have no public bit-accurate model",
    "s_memtime": "time: the clock counts executed code",
    "s_memrealtime": "time: the clock counts executed code",
}


def fidelity_of(inst: Instruction) -> Fidelity:
    """Returns the fidelity of an instruction on its target.

    >>> from simgpu.hardware.isa import decode
    >>> fidelity_of(decode(bytes.fromhex("0203047e"), 0, "gfx942")).kind
    'exact'
    """
    if inst.spec.kind == "matrix":
        return _matrix(inst.mnemonic, inst.target)
    if inst.mnemonic in BOUNDS:
        return Fidelity("bounded", BOUNDS[inst.mnemonic])
    if Flag.UNVERIFIED in inst.spec.flags or inst.mnemonic in OPEN:
        return Fidelity("unverified", next(why for name, why in OPEN.items() if inst.mnemonic.startswith(name)))
    return EXACT


@functools.cache
def _matrix(mnemonic: str, target: str) -> Fidelity:
    row: Any = mfma.find(mnemonic, target)
    if row.fidelity() == "exact":
        return EXACT
    where = "of gfx950's matrix units; as on gfx942" if target == "gfx950" else "of sparse products"
    doubts = "; ".join(filter(None, dict.fromkeys(row.doubt(operand) for operand in "ABCD")))
    return Fidelity(row.fidelity(), f"order and rounding of the sum {where}" + (f"; {doubts}" if doubts else ""))
