"""Element that `simgpu why` explains: one by name, the first NaN, or the one farthest from the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.writer import writer_of
from simgpu.debugger.focus import Initial, whole_launch
from simgpu.hardware.errors import LaunchError
from simgpu.tools.shared.console import progress

if TYPE_CHECKING:
    from simgpu.debugger.named import NamedArray
    from simgpu.tools.cases.subject import Subject


def result_of(subject: Subject, name: str | None = None) -> tuple[str, np.ndarray]:
    """Returns the name and the float64 values of an array after the whole launch (default: the result). Memory is unchanged
    afterwards."""
    known = subject.names or {}
    if name is None:
        name = subject.result or next(reversed(known), None)
    if name is None or name not in known:
        raise LaunchError(f"no array {name or ''}: there are {', '.join(known) or 'none with type and shape'}")
    array = known[name]
    with progress(f"running {subject.kernel.title}"):
        held = whole_launch(subject.kernel, subject.geometry, subject.call["args"], array.address)
    return name, values_of(array, held)


def values_of(array: NamedArray, raw: np.ndarray) -> np.ndarray:
    """Returns the elements of an array as float64, from its bytes."""
    size = array.dtype.itemsize
    view = np.lib.stride_tricks.as_strided(raw, (*array.shape, size), (*array.strides, 1))
    return np.ascontiguousarray(view).view(array.dtype).reshape(array.shape).astype(np.float64)


def first_nan(subject: Subject) -> str:
    """Names the first element of the result that is NaN."""
    name, values = result_of(subject)
    found = np.argwhere(np.isnan(values))
    if not len(found):
        raise LaunchError(f"no element of {name} is NaN")
    return f"{name}[{','.join(map(str, found[0]))}]"


def worst(subject: Subject) -> tuple[str, float, float]:
    """Returns the element of the result farthest from the float64 reference, its value, and the reference's; NaN is farthest."""
    if subject.want is None:
        raise LaunchError("--worst compares with an operator's float64 reference: a file has none, name an element")
    name, values = result_of(subject)
    want = subject.want()
    away = np.abs(values - want)
    away[np.isnan(away)] = np.inf
    at = np.unravel_index(int(np.argmax(away)), away.shape)
    return f"{name}[{','.join(map(str, at))}]", float(values[at]), float(want[at])


def group_of(subject: Subject, address: int) -> tuple[int, int, int]:
    """Finds the last workgroup that writes a byte of memory (`writer_of`) and restores memory. Raises LaunchError if none does."""
    before = Initial(subject.kernel.module.device.memory)
    try:
        with progress("looking for the workgroup that writes it"):
            group = writer_of(subject.kernel, subject.geometry, subject.call["args"], address)
    finally:
        before.restore()
    if group is None:
        raise LaunchError(f"no workgroup writes the byte at {address:#x}")
    return group
