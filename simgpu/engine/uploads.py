"""Arrays as arguments of a launch: uploaded before it, and copied back after it if the kernel may have changed them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.engine.device import Buffer, Kernel
from simgpu.hardware.code_object.demangled import parameter_types
from simgpu.hardware.code_object.kernels import Argument
from simgpu.hardware.errors import LaunchError

# numpy kinds and bytes of C++ element types: a pointer to one of these takes no array of another kind or size.
ELEMENTS = {"float": ("f", 4), "double": ("f", 8), "_Float16": ("f", 2), "__half": ("f", 2)} | {
    f"{sign}{word}": ("iu", size) for sign in ("", "unsigned ") for word, size in (("short", 2), ("int", 4), ("long", 8))
}


@dataclass(eq=False)
class _Upload:
    """An array in device memory for one launch."""

    where: str  # kernel and argument, for messages
    array: np.ndarray
    buffer: Buffer
    written: bool  # the kernel may write to it

    def take_back(self) -> None:
        """Copies the buffer into the array. Raises LaunchError if the kernel wrote to an array that is read-only."""
        if not self.written:
            return
        after = self.buffer.download()
        if self.array.flags.writeable:
            self.array[...] = after
        elif after.tobytes() != self.array.tobytes():
            raise LaunchError(f"{self.where}: the kernel wrote to it, and the array is read-only: pass a copy")


@contextmanager
def upload_arrays(kernel: Kernel, args: Sequence[object]) -> Iterator[list[object]]:
    """Uploads the arrays among a launch's arguments; yields the arguments with buffers instead. Frees the buffers after the block.

    An array is a numpy array with at least one axis, or a PyTorch tensor on the CPU. At the end of the block, also if it raises,
    each array gets the values that the kernel wrote; `T const*` arguments are not copied back. An array that is passed twice has
    one buffer. Raises LaunchError if arrays overlap and one may be written, and if elements do not fit the parameter's type.
    """
    given, device = list(args), kernel.module.device
    if not any(map(is_array, given)):
        yield given
        return
    held: list[_Upload] = []
    with ExitStack() as stack:
        for index, value in enumerate(given):
            if is_array(value):
                one = _find_or_upload(kernel, index, value, held)
                if one not in held:
                    held.append(one)
                    stack.callback(device.free, one.buffer)
                given[index] = one.buffer
        for one in held:
            stack.callback(one.take_back)
        yield given


def is_array(value: object) -> bool:
    """True for a numpy array with at least one axis, or a tensor. A numpy array without axes is passed as a number."""
    return (isinstance(value, np.ndarray) and value.ndim > 0) or hasattr(value, "untyped_storage")


def _find_or_upload(kernel: Kernel, index: int, value: Any, held: Sequence[_Upload]) -> _Upload:
    """Returns the upload of an argument's array, a held one if it is the same array. Raises LaunchError if the argument takes no
    such array."""
    argument = _argument(kernel, index)
    where = f"{kernel.info.title}: argument {argument.name}"
    array = _as_array(where, value)
    types = parameter_types(kernel.name)
    type_ = types[index] if len(types) == len(kernel.arguments) else argument.type_name
    if not argument.is_pointer:
        raise LaunchError(f"{where} is {type_ or 'a number'}, not a pointer: pass a number, not an array")
    _check_elements(where, type_, array)
    written = "const" not in type_ and argument.access != "read_only"
    for other in held:
        if _same(other.array, array):
            other.written |= written
            return other
        if np.may_share_memory(other.array, array) and (written or other.written):
            raise LaunchError(f"{where} and {other.where.rpartition(' ')[2]} share memory: upload it once, and pass addresses")
    return _Upload(where, array, kernel.module.device.upload(array), written)


def _argument(kernel: Kernel, index: int) -> Argument:
    """Returns the explicit argument at an index. Raises LaunchError if the kernel takes fewer."""
    arguments = kernel.info.named_arguments
    if index >= len(arguments):
        raise LaunchError(f"{kernel.info.title} takes {len(arguments)} arguments, got an array as number {index + 1}")
    return arguments[index]


def _as_array(where: str, value: Any) -> np.ndarray:
    """Returns a numpy view of an array or tensor; for a dtype that numpy lacks, of its bits as integers.

    Raises LaunchError for a tensor that is not on the CPU.
    """
    if isinstance(value, np.ndarray):
        return value
    if value.device.type != "cpu":
        raise LaunchError(f"{where} is a tensor on {value.device}: a simulated kernel needs it on the CPU")
    tensor = value.detach()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:  # bf16, and floats of 8 bits
        torch = sys.modules["torch"]
        return np.asarray(tensor.view({1: torch.uint8, 2: torch.int16}[tensor.element_size()]).numpy())


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """True if two arrays are views of the same elements."""
    return one.__array_interface__["data"] == other.__array_interface__["data"] and one.shape == other.shape and (
        one.strides == other.strides and one.dtype == other.dtype
    )


def _check_elements(where: str, type_: str, array: np.ndarray) -> None:
    """Raises LaunchError for elements of another kind or size than the parameter's."""
    element = type_.replace("const", "").replace("*", "").strip()
    kinds, size = ELEMENTS.get(element, (array.dtype.kind, array.itemsize))
    if array.dtype.kind not in kinds or array.itemsize != size:
        raise LaunchError(f"{where} is {type_}, and the array's elements are {array.dtype}: convert it, or view it as that type")
