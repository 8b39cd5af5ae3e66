"""Packs kernel arguments by metadata, for the simulator and for the real GPU.

Offsets are the metadata's own, so hidden arguments of every code object version are where the kernel reads them (AMDGPUUsage
"Code Object V5 Metadata": value kinds `hidden_*`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simgpu.hardware.code_object.kernels import Argument, KernelInfo
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError

FLOAT_FORMATS = {2: "<e", 4: "<f", 8: "<d"}
WORKGROUP_LIMIT = 1024  # work-items; gpu-arch-specs, all four targets


def dispatch_number(x: int, y: int, z: int, across: int, down: int) -> int:
    """Returns the number of workgroup (x, y, z) in the order of dispatch: x first, then y, then z.

    across: workgroups in x; down: in y. It uses only integers, because handlers also call it (`checks.races.accesses`).
    """
    return x + across * (y + down * z)


@dataclass(frozen=True)
class Geometry:
    """Extent of a launch.

    >>> Geometry.of(grid=3, block=(64, 2)).global_size
    (192, 2, 1)
    """

    block: tuple[int, int, int]  # work-items of a workgroup
    global_size: tuple[int, int, int]  # work-items in all
    dynamic_lds: int = 0  # bytes
    # Hidden arguments that only a runtime knows, by value kind (`hidden_queue_ptr`, `hidden_hostcall_buffer`); else 0.
    extra: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        grid: int | Sequence[int] | None,
        block: int | Sequence[int],
        dynamic_lds: int = 0,
        global_size: int | Sequence[int] | None = None,
    ) -> Geometry:
        """Returns the geometry of a block (work-items) and either a grid (workgroups) or a global_size (work-items).

        Each has one to three extents, x first. Raises LaunchError for both or neither of grid and global_size, an extent
        below 1 and negative dynamic LDS (bytes).
        """
        extents = _three("block", block)
        if (grid is None) == (global_size is None):
            raise LaunchError("give either grid (workgroups) or global_size (work-items)")
        if grid is not None:
            (gx, gy, gz), (bx, by, bz) = _three("grid", grid), extents
            x, y, z = gx * bx, gy * by, gz * bz
        else:
            assert global_size is not None
            x, y, z = _three("global_size", global_size)
        if dynamic_lds < 0:
            raise LaunchError(f"dynamic_lds={dynamic_lds}: must not be negative")
        return cls(extents, (x, y, z), dynamic_lds)

    @property
    def groups(self) -> tuple[int, int, int]:
        """Workgroups in each dimension, including partial ones."""
        (x, y, z), (bx, by, bz) = self.global_size, self.block
        return -(-x // bx), -(-y // by), -(-z // bz)

    def number(self, group: Sequence[int]) -> int:
        """Returns the number of a workgroup in the order of dispatch."""
        x, y, z = group
        across, down, _ = self.groups
        return dispatch_number(x, y, z, across, down)

    def group(self, number: int) -> tuple[int, int, int]:
        """Returns the workgroup that has a number in the order of dispatch."""
        across, down, _ = self.groups
        return number % across, number // across % down, number // (across * down)

    @property
    def used_dimensions(self) -> int:
        """Number of dimensions up to the last with more than one work-item, at least 1."""
        return max((axis + 1 for axis in range(3) if self.global_size[axis] > 1), default=1)


def _three(name: str, extents: int | Sequence[int]) -> tuple[int, int, int]:
    """Returns three extents: the one to three given, then ones. Raises LaunchError for any other value."""
    if type(extents) is int and extents > 0:  # the common cases
        return extents, 1, 1
    if type(extents) is tuple and len(extents) == 3:
        x, y, z = extents
        if type(x) is type(y) is type(z) is int and x > 0 and y > 0 and z > 0:
            return x, y, z
    values: tuple[object, ...] = (extents,)
    if isinstance(extents, (Sequence, np.ndarray)) and not isinstance(extents, str):
        values = tuple(extents)
    numbers = [int(v) for v in values if isinstance(v, (int, np.integer))]
    if not 1 <= len(values) <= 3 or len(numbers) < len(values):
        raise LaunchError(f"{name}={extents!r}: give one to three integers")
    filled = numbers + [1] * (3 - len(numbers))
    if any(v < 1 for v in filled):
        raise LaunchError(f"{name}={tuple(values)}: every extent must be at least 1")
    return filled[0], filled[1], filled[2]


def hidden_value(kernel: KernelInfo, kind: str, geometry: Geometry) -> int:
    """Returns the value of a hidden argument by its value kind: of `geometry.extra`, or by the launch's extents, or else 0.

    hidden_grid_dims is work_dim for OpenCL, and 3 for HIP, which launches every kernel in three dimensions.
    """
    if kind in geometry.extra:
        return geometry.extra[kind]
    name, _, axis = kind.rpartition("_")
    if name and axis in ("x", "y", "z"):
        at = "xyz".index(axis)
        size, block = geometry.global_size[at], geometry.block[at]
        per_axis = {
            "hidden_block_count": size // block,
            "hidden_group_size": block,
            "hidden_remainder": size % block,
        }
        return per_axis.get(name, 0)
    if kind == "hidden_grid_dims":
        return geometry.used_dimensions if kernel.language.startswith("OpenCL") else 3
    return geometry.dynamic_lds if kind == "hidden_dynamic_lds_size" else 0


def check_geometry(kernel: KernelInfo, geometry: Geometry) -> None:
    """Raises LaunchError if the kernel does not allow the workgroup or the grid."""
    for label, extents in (("block", geometry.block), ("grid", geometry.global_size)):
        if len(extents) != 3 or min(extents) < 1 or max(extents) >= 1 << 32:
            raise LaunchError(f"{kernel.title}: {label} {extents} needs three extents from 1 to 2^32-1")
    items = geometry.block[0] * geometry.block[1] * geometry.block[2]
    limit = min(kernel.max_flat_workgroup_size or WORKGROUP_LIMIT, WORKGROUP_LIMIT)
    if items > limit:
        raise LaunchError(
            f"{kernel.title}: a block of {geometry.block} has {items} work-items; "
            f"the kernel allows {limit} (max_flat_workgroup_size)"
        )
    required = kernel.required_workgroup_size
    if required and tuple(required) != tuple(geometry.block):
        raise LaunchError(
            f"{kernel.title}: compiled for a block of {tuple(required)}, launched with {geometry.block}"
        )


def pack(kernel: KernelInfo, args: Sequence[object], geometry: Geometry) -> bytes:
    """Packs the kernarg segment; `args` has one entry for each explicit argument, in the metadata's order.

    An entry is an int, a float, a numpy scalar, bytes of exactly the argument's size, or an object with `.address` (a
    buffer) for a pointer. Raises LaunchError with the argument's name.
    """
    return fill(kernel, args, hidden_segment(kernel, geometry))


def hidden_segment(kernel: KernelInfo, geometry: Geometry) -> bytes:
    """Returns the kernarg segment with hidden arguments only, for `fill`. Raises LaunchError for a geometry that the kernel does
    not allow."""
    check_geometry(kernel, geometry)
    segment = bytearray(kernel.kernarg_size)
    for argument in kernel.arguments:
        if argument.hidden:
            value = hidden_value(kernel, argument.value_kind, geometry) % (1 << 8 * argument.size)
            segment[argument.offset : argument.offset + argument.size] = value.to_bytes(argument.size, "little")
    return bytes(segment)


def fill(kernel: KernelInfo, args: Sequence[object], hidden: bytes) -> bytes:
    """Returns the kernarg segment: the one of `hidden_segment` with the explicit arguments of `pack`."""
    explicit = _explicit(kernel, args)
    if len(args) != len(explicit):
        names = ", ".join(f"{a.name} ({a.size} bytes)" for a in kernel.named_arguments) or "none"
        raise LaunchError(f"{kernel.title} takes {len(explicit)} arguments, got {len(args)}: {names}")
    segment = bytearray(hidden)
    for index, (argument, value) in enumerate(zip(explicit, args, strict=True)):
        if type(value) is bytes and len(value) == argument.size:  # all arguments of HIP programs
            segment[argument.offset : argument.offset + argument.size] = value
            continue
        try:
            raw = encode(kernel.title, argument, value)
        except LaunchError:  # repeats with the name from debug information, which is read only for this
            raw = encode(kernel.title, replace(argument, name=kernel.named_arguments[index].name), value)
        segment[argument.offset : argument.offset + argument.size] = raw
    return bytes(segment)


def _explicit(kernel: KernelInfo, args: Sequence[object]) -> tuple[Argument, ...]:
    """Returns the explicit arguments. Debug information is read only if a number needs a type that no other source has."""
    explicit = kernel.explicit_arguments
    return kernel.typed_arguments if any(map(_needs_type, explicit, args)) else explicit


def _needs_type(argument: Argument, value: object) -> bool:
    if argument.value_type or argument.value_kind != "by_value":
        return False
    if isinstance(value, (np.generic, np.ndarray)):
        return value.ndim == 0 and value.dtype.itemsize != argument.size
    return isinstance(value, (int, float))


def encode(kernel: str, argument: Argument, value: object) -> bytes:
    """Returns the bytes of `value` as `argument` takes it. Raises LaunchError with a message for users."""
    where = f"{kernel}: argument {argument.name} ({argument.value_kind}, {argument.size} bytes)"
    if isinstance(value, (bytes, bytearray, memoryview)):
        raw = bytes(value)
        if len(raw) != argument.size:
            raise LaunchError(f"{where} got {len(raw)} bytes")
        return raw
    address = getattr(value, "address", None)
    if address is not None:
        if argument.value_kind == "by_value" and argument.size != 8:
            raise LaunchError(f"{where} got a buffer: pass a number")
        return _integer(where, argument.size, address)
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        return _numpy_scalar(where, argument, np.asarray(value))
    if isinstance(value, int):
        return _integer(where, argument.size, int(value), argument.value_type)
    if isinstance(value, float):
        return _real(where, argument, value)
    raise LaunchError(
        f"{where} got {type(value).__name__}: pass a buffer, a number or bytes of its size"
    )


def _integer(where: str, size: int, value: int, type_: str = "") -> bytes:
    if _is_float(type_) and size in FLOAT_FORMATS:
        return _pack_number(where, size, value, type_)
    bits = 8 * size
    if not -(1 << bits) <= 2 * value < 2 << bits:
        raise LaunchError(f"{where} got {value}, which does not fit {bits} bits")
    return (value % (1 << bits)).to_bytes(size, "little")


def _is_float(type_: str) -> bool:
    return type_.startswith(("f", "bf"))


def _real(where: str, argument: Argument, value: float) -> bytes:
    integer = argument.value_type.startswith(("i", "u"))
    if argument.is_pointer or integer or argument.size not in FLOAT_FORMATS:
        raise LaunchError(f"{where} got the float {value}: pass a buffer, an integer or bytes")
    return _pack_number(where, argument.size, value, argument.value_type)


def _pack_number(where: str, size: int, value: float, type_: str) -> bytes:
    try:
        if type_ != "bf16":
            return struct.pack(FLOAT_FORMATS[size], float(value))
        with np.errstate(over="ignore"):
            rounded = np.asarray(float(value)).astype(numpy_dtype("bf16"))
        if not np.isfinite(rounded) and math.isfinite(value):
            raise OverflowError
        return rounded.tobytes()
    except OverflowError:
        raise LaunchError(f"{where} got {value}, which is past the largest float of its size") from None


def _numpy_scalar(where: str, argument: Argument, value: np.ndarray) -> bytes:
    """Packs a numpy scalar: with the argument's width, its bits; with another width, converted as a Python number."""
    if value.dtype.itemsize == argument.size and value.dtype.kind != "b":
        return value.tobytes()
    if value.dtype.kind in "iub":
        return _integer(where, argument.size, int(value), argument.value_type)
    if value.dtype.kind == "f":
        return _real(where, argument, float(value))
    raise LaunchError(f"{where} got a {value.dtype} of {value.dtype.itemsize} bytes")


def assumptions(kernel: KernelInfo, args: Sequence[object]) -> tuple[str, ...]:
    """Returns a message for each number whose type `pack` guesses, because neither the code object nor the caller gives it.

    An integer may be meant as a float, a float of two bytes as bf16; 0 has the same bits in each.
    """
    if not [value for value in args if isinstance(value, (int, float))]:
        return ()
    found = []
    for argument, value in zip(_explicit(kernel, args), args, strict=False):
        if argument.value_type or argument.value_kind != "by_value" or not isinstance(value, (int, float)) or not value:
            continue
        if isinstance(value, float):
            other = ("f16", "ml_dtypes.bfloat16") if argument.size == 2 else None
        else:
            names = {2: "numpy.float16", 4: "numpy.float32", 8: "numpy.float64"}
            small = argument.size in names and abs(value) < 1 << 32  # not an address
            other = ("an integer", names[argument.size]) if small else None
        if other:
            found.append(
                f"argument {argument.name} ({argument.size} bytes): the code object does not say its type; {value} was passed as "
                f"{other[0]}, pass {other[1]}({value}) if it is one"
            )
    return tuple(found)
