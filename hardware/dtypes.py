"""Element types of CDNA matrix units, the numpy dtype that holds each, and the packing of types below a byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.hardware.errors import TargetError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type."""

    name: str
    bits: int  # in memory
    significand: int  # bits, including the hidden one; 0 for integers
    accumulator: str  # the type of C and D of the matrix instructions that take this type as input

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory; raises TargetError for a type whose elements share bytes."""
        if self.bits % 8:
            raise TargetError(f"{self.name} has {self.bits} bits: its elements share bytes, which this operation does not take")
        return self.bits // 8

    def packed_bytes(self, count: int) -> int:
        """Returns the bytes of `count` consecutive elements."""
        return -(-count * self.bits // 8)

    @property
    def registers(self) -> int:
        """Number of 32-bit registers of an element that is an accumulator."""
        return -(-self.bits // 32)


# Widths and significands: IEEE 754 (f16, f32, f64), bfloat16, OCP OFP8 (fp8 = E4M3, bf8 = E5M2). OCP MX 1.0 has fp6 = E2M3,
# bf6 = E3M2, fp4 = E2M1 and e8m0: powers of two, their scales. An xf32 is an f32 in memory: the matrix unit keeps 10
# mantissa bits (MMA-Sim, arXiv 2511.10909). Accumulators: AMD Matrix Instruction Calculator 1.3.2.
_ROWS = (
    DType("f64", 64, 53, "f64"),
    DType("f32", 32, 24, "f32"),
    DType("xf32", 32, 11, "f32"),
    DType("f16", 16, 11, "f32"),
    DType("bf16", 16, 8, "f32"),
    DType("fp8", 8, 4, "f32"),
    DType("bf8", 8, 3, "f32"),
    DType("fp6", 6, 4, "f32"),
    DType("bf6", 6, 3, "f32"),
    DType("fp4", 4, 2, "f32"),
    DType("e8m0", 8, 1, "f32"),
    DType("i8", 8, 0, "i32"),
    DType("i32", 32, 0, "i32"),
)
_BY_NAME = {row.name: row for row in _ROWS}

_PLAIN_NUMPY = {"f64": "float64", "f32": "float32", "xf32": "float32", "f16": "float16", "i8": "int8", "i32": "int32"}
_ML_DTYPES = {
    "bf16": "bfloat16", "fp8": "float8_e4m3fn", "bf8": "float8_e5m2", "fp6": "float6_e2m3fn", "bf6": "float6_e3m2fn",
    "fp4": "float4_e2m1fn", "e8m0": "float8_e8m0fnu",
}  # fmt: skip
# gfx942's 8-bit floats are the FNUZ kind (no negative zero, bias one higher); gfx950's are OCP [MI300 and CDNA4 ISA guides].
_ML_DTYPES_FNUZ = {"fp8": "float8_e4m3fnuz", "bf8": "float8_e5m2fnuz"}


# Names in other libraries and languages.
_ELSEWHERE = {
    **dict.fromkeys(("fp16", "float16", "half", "_float16", "h"), "f16"), **dict.fromkeys(("bfloat16", "bfloat", "b16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "single", "s"), "f32"), **dict.fromkeys(("fp64", "float64", "double", "d"), "f64"),
    **dict.fromkeys(("tf32", "xfloat32"), "xf32"), "int8": "i8", **dict.fromkeys(("int32", "int"), "i32"),
    **dict.fromkeys(("e4m3", "float8", "f8", "fp8_e4m3", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz"), "fp8"),
    **dict.fromkeys(("e5m2", "fp8_e5m2", "float8_e5m2", "float8_e5m2fnuz"), "bf8"),
    **dict.fromkeys(("e2m1", "float4", "f4", "mxfp4"), "fp4"), **dict.fromkeys(("e2m3", "mxfp6"), "fp6"), "e3m2": "bf6",
}  # fmt: skip


def dtype(name: str) -> DType:
    """Returns the element type called `name`. Raises TargetError, which lists the known ones.

    >>> dtype("bf16").bits, dtype("bf16").accumulator
    (16, 'f32')
    """
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):
        ours = _ELSEWHERE.get(str(name).lower().removeprefix("torch.").removeprefix("np."))
        near = f" (did you mean {ours}?)" if ours else ""
        raise TargetError(f"unknown data type {name!r}{near}: use one of {', '.join(_BY_NAME)}") from None


def numpy_dtype(name: str, arch: str = "gfx950") -> np.dtype:
    """Returns the numpy (or ml_dtypes) dtype of `arch`'s type `name`. Types below a byte have a byte each, in its low bits.

    >>> numpy_dtype("fp8"), numpy_dtype("fp8", "gfx942")
    (dtype(float8_e4m3fn), dtype(float8_e4m3fnuz))
    """
    import numpy as np

    if dtype(name).name in _PLAIN_NUMPY:
        return np.dtype(_PLAIN_NUMPY[name])
    import ml_dtypes

    fnuz = arch == "gfx942" and name in _ML_DTYPES_FNUZ
    held: np.dtype = np.dtype(getattr(ml_dtypes, (_ML_DTYPES_FNUZ if fnuz else _ML_DTYPES)[name]))
    return held


def float_limits(name: str, arch: str = "gfx950") -> np.finfo:
    """Returns the limits of `arch`'s floating-point type `name` by numpy's names: `max`, `nmant`, `minexp` and others.

    >>> float(float_limits("bf16").max), float_limits("f16").nmant
    (3.3895313892515355e+38, 10)
    """
    import numpy as np

    if dtype(name).name in _PLAIN_NUMPY:
        return np.finfo(numpy_dtype(name))
    import ml_dtypes

    limits: np.finfo = ml_dtypes.finfo(numpy_dtype(name, arch))
    return limits


def largest_value(name: str, arch: str = "gfx950") -> float:
    """Returns the largest finite value of `arch`'s type `name`.

    >>> largest_value("fp8", "gfx942"), largest_value("fp8", "gfx950"), largest_value("i8", "gfx908")
    (240.0, 448.0, 127.0)
    """
    import numpy as np

    held = numpy_dtype(name, arch)
    return float(np.iinfo(held).max if held.kind in "iu" else float_limits(name, arch).max)


def pack(values: np.ndarray, name: str) -> np.ndarray:
    """Packs elements of type `name`, (..., n), as in memory: uint8, (..., n * bits / 8).

    Elements below a byte are packed without a gap, the first in the lowest bits: fp4 two a byte, fp6 and bf6 four in
    three bytes, as the matrix instructions read registers. n * bits must be whole bytes.

    >>> import numpy as np
    >>> pack(np.array([1, 2, 3, 4], np.uint8), "fp4").tolist()
    [33, 67]
    """
    import numpy as np

    bits, raw = dtype(name).bits, np.ascontiguousarray(values).view(np.uint8)
    if bits % 8 == 0:
        return raw
    stream = np.unpackbits(raw[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(stream.reshape(*raw.shape[:-1], -1), axis=-1, bitorder="little")


def unpack(raw: np.ndarray, name: str, arch: str = "gfx950") -> np.ndarray:
    """Unpacks the result of `pack`, in `numpy_dtype(name, arch)`.

    >>> import numpy as np
    >>> unpack(np.array([0x42], np.uint8), "fp4").astype("f4").tolist()
    [1.0, 2.0]
    """
    import numpy as np

    bits, kind = dtype(name).bits, numpy_dtype(name, arch)
    if bits % 8 == 0:
        return np.ascontiguousarray(raw).view(kind)
    stream = np.unpackbits(np.ascontiguousarray(raw), axis=-1, bitorder="little").reshape(*raw.shape[:-1], -1, bits)
    return np.packbits(stream, axis=-1, bitorder="little")[..., 0].view(kind)
