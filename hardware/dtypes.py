"""Element types that CDNA matrix units take, and the numpy dtype that holds each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.hardware.errors import TargetError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type."""

    name: str
    bits: int  # in memory
    significand: int  # bits, the hidden one included; 0 for integers
    accumulator: str  # the type of C and D of the matrix instructions that take this type as input

    @property
    def bytes(self) -> int:
        """The bytes of one element in memory."""
        return self.bits // 8

    @property
    def registers(self) -> int:
        """The number of 32-bit registers that one element takes when it is an accumulator."""
        return -(-self.bits // 32)


# Widths and significands: IEEE 754 (f16, f32, f64), bfloat16, OCP OFP8 (fp8 = E4M3, bf8 = E5M2). xf32 is an f32 in memory of which
# the matrix unit keeps 10 mantissa bits (MMA-Sim, arXiv 2511.10909). Accumulators: AMD Matrix Instruction Calculator 1.3.2.
_ROWS = (
    DType("f64", 64, 53, "f64"),
    DType("f32", 32, 24, "f32"),
    DType("xf32", 32, 11, "f32"),
    DType("f16", 16, 11, "f32"),
    DType("bf16", 16, 8, "f32"),
    DType("fp8", 8, 4, "f32"),
    DType("bf8", 8, 3, "f32"),
    DType("i8", 8, 0, "i32"),
    DType("i32", 32, 0, "i32"),
)
_BY_NAME = {row.name: row for row in _ROWS}

_PLAIN_NUMPY = {"f64": "float64", "f32": "float32", "xf32": "float32", "f16": "float16", "i8": "int8", "i32": "int32"}
_ML_DTYPES = {"bf16": "bfloat16", "fp8": "float8_e4m3fn", "bf8": "float8_e5m2"}
# gfx942's 8-bit floats are the FNUZ kind (no negative zero, bias one higher); gfx950's are OCP [MI300 and CDNA4 ISA guides].
_ML_DTYPES_FNUZ = {"fp8": "float8_e4m3fnuz", "bf8": "float8_e5m2fnuz"}


def dtype(name: str) -> DType:
    """The element type called `name`. Raises TargetError, which lists the known ones."""
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):
        raise TargetError(f"unknown data type {name!r}: use one of {', '.join(_BY_NAME)}") from None


def numpy_dtype(name: str, arch: str = "gfx950") -> np.dtype:
    """The numpy (or ml_dtypes) dtype whose bytes are what `arch` reads for type `name`."""
    import numpy as np

    if dtype(name).name in _PLAIN_NUMPY:
        return np.dtype(_PLAIN_NUMPY[name])
    import ml_dtypes

    fnuz = arch == "gfx942" and name in _ML_DTYPES_FNUZ
    held: np.dtype = np.dtype(getattr(ml_dtypes, (_ML_DTYPES_FNUZ if fnuz else _ML_DTYPES)[name]))
    return held
