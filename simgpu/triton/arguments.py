"""Converts the arguments of a Triton kernel to those of its compiled code, by its signature.

The order is Triton's (triton/backends/amd/driver.py): tuples are flattened, `constexpr` are left out. A tensor descriptor
becomes base, shape, strides, two flags, shape and strides again. Pointers to global and profile scratch come last.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from simgpu.hardware.errors import LaunchError

_FLOATS: dict[str, Any] = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64,
}  # fmt: skip


@dataclass(frozen=True)
class ArgumentValue:
    """An argument of the compiled kernel."""

    name: str  # such as "x", or "x[1]" inside a tuple
    type: str  # Triton's name of it
    value: Any

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")


def flatten(signature: Mapping[str, Any], values: Sequence[Any]) -> list[ArgumentValue]:
    """Returns the arguments of the compiled kernel. signature: types by name. values: in its order.

    Constants at the end may be missing: Triton's launcher never reads them (its driver.c, extractArgs). Raises LaunchError if
    other values are missing, or if there are more values than names.
    """
    read = max((at for at, kind in enumerate(signature.values(), 1) if kind != "constexpr"), default=0)
    if not read <= len(values) <= len(signature):
        names = ", ".join(signature)
        raise LaunchError(f"the kernel takes {len(signature)} arguments, {len(values)} were given; they are {names}")
    flat: list[ArgumentValue] = []
    for (name, kind), value in zip(signature.items(), values, strict=False):
        flat += _flatten(name, kind, value)
    return flat


def _flatten(name: str, kind: Any, value: Any) -> Iterator[ArgumentValue]:
    if isinstance(kind, tuple):
        for index, (inner, item) in enumerate(zip(kind, value, strict=True)):
            yield from _flatten(f"{name}[{index}]", inner, item)
    elif kind.startswith("tensordesc"):
        for index, (inner, item) in enumerate(_descriptor(kind, value)):
            yield ArgumentValue(name if index == 0 else f"{name}.{index}", inner, item)
    elif kind != "constexpr":
        yield ArgumentValue(name, kind, value)


_DESCRIPTOR = re.compile(r"tensordesc[^<]*<([^[>]*)\[")


def _descriptor(kind: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields (type, value) for the parts of a host descriptor, as Triton's AMD backend passes it on GPUs without descriptors."""
    found = _DESCRIPTOR.match(kind)
    if found is None:
        raise LaunchError(f"a tensor descriptor of type {kind}: this release of Triton writes them in a way that is not known here")
    yield "*" + found[1], value.base
    yield from (("i64", extent) for extent in (*value.shape, *value.strides))
    yield "i1", value.padding == "nan"
    yield "i1", getattr(value, "round_f32_to_tf32", False)
    yield from (("i32", extent) for extent in value.shape)
    yield from (("i64", step) for step in value.strides)


def encode(argument: ArgumentValue) -> bytes:
    """Returns the bytes of a number argument. Raises LaunchError if it is no number.

    Triton's launcher converts integers as C does (its backends/amd/driver.c, extractI32): of one that does not fit, the kernel gets
    the lowest bits. This function warns then. Integers beyond an int64 are refused, as there.
    """
    value, kind = argument.value, argument.type
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, (int, float)):
        raise LaunchError(f"argument {argument.name} ({kind}) got {type(value).__name__}: pass a number")
    if kind in _FLOATS:
        with np.errstate(over="ignore"):  # C's conversion to infinity is silent
            return np.array(value).astype(_FLOATS[kind]).tobytes()
    bits = int(kind[1:])
    if not -(1 << bits - 1) <= value < 1 << bits:
        said = f"argument {argument.name} ({kind}) got {value}, which does not fit {bits} bits"
        if not -(1 << 63) <= value < 1 << 63:
            raise LaunchError(said)
        warnings.warn(f"{said}: the kernel gets its lowest {bits}, as on a GPU", stacklevel=2)
    return (int(value) % (1 << bits)).to_bytes(max(1, bits // 8), "little")
