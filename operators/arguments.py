"""Checks of arguments that all operators share: sizes, names, shapes of arrays."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.errors import LaunchError

POLICIES = ("corrected", "published")  # names of tile policies
LARGEST = 1 << 48  # elements: a GPU's addresses have 48 bits


def positive_dimension(name: str, value: int) -> int:
    """Returns `value` as an int. LaunchError unless it is an integer from 1 to LARGEST."""
    try:
        size = operator.index(value)
    except TypeError:
        raise LaunchError(f"{name} = {value!r} is not an integer: give {name} >= 1") from None
    if size < 1:
        raise LaunchError(f"{name} = {size} is not a size: give {name} >= 1")
    if size > LARGEST:
        raise LaunchError(f"{name} = {size} is more than a GPU's addresses reach: give {name} <= {LARGEST}")
    return size


def nonnegative(name: str, value: float) -> float:
    """Returns `value`. LaunchError unless it is a finite number from 0 on."""
    if not 0 <= value < np.inf:
        raise LaunchError(f"{name} = {value!r}: give a number from 0 on")
    return value


def one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    """Returns `value`. LaunchError lists the known values if it is none of them."""
    if value not in known:
        raise LaunchError(f"unknown {name} {value!r}: use one of {', '.join(known)}")
    return value


def expect_shape(name: str, given: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Returns `given` as an array. LaunchError if it does not have `shape`."""
    array = np.asarray(given)
    if array.shape != shape:
        raise LaunchError(f"{name} has shape {array.shape}: the problem stores it as {shape}")
    return array


def expect_arrays(reader: str, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Returns the given arrays that have a shape, by name. LaunchError names one that is missing or of another shape."""
    for name, shape in shapes.items():
        if given.get(name) is None:
            raise LaunchError(f"{reader} reads {name}, but none was given: pass one of shape {shape}")
    return {name: expect_shape(name, given[name], shape) for name, shape in shapes.items()}


def row_stride(name: str, given: int | None, least: int, row: str = "row") -> int:
    """Returns a stride in elements, `least` for None. LaunchError for one that is shorter than a row. row: the name of a row."""
    stride = least if given is None else positive_dimension(name, given)
    if stride < least:
        raise LaunchError(f"{name} = {stride} is shorter than a {row} of {least} elements: give {name} >= {least}")
    return stride
