"""Maps host tensors into device memory: the bytes that a kernel may access through an argument, and their addresses.

A tensor is a numpy array or any object with PyTorch's `data_ptr`, `shape`, `stride` and `element_size` on the CPU.
Nothing is copied: a kernel's stores are the tensor's new values. A device address is the host's, so pointers stored in
tensors are valid.
"""

from __future__ import annotations

import bisect
import contextlib
import gc
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from triton.runtime.jit import TensorWrapper

from simgpu.engine.allocations import GRANULE, Allocation, DeviceMemory
from simgpu.hardware.errors import LaunchError

STORAGE, VIEW = GUARDS = ("storage", "view")
TABLE = 1 << 14  # most elements of a tensor that may be a table of pointers
MARK = "simgpu_place"  # attribute of PyTorch storages with a simulated GPU (`simgpu.tools.torch`): their memory, one of the next
HOST, PINNED, GPU = "host", "pinned", "cuda"  # GPU: also with a number, as PyTorch names it: "cuda:1"
HEAP = 1 << 32  # smaller numbers are not addresses: a 64-bit process has no allocations there


class Unreachable(LaunchError, ValueError):
    """Raised for a tensor that a real GPU could not access; it is a ValueError, as Triton's launchers raise."""


@dataclass(frozen=True)
class HostSpan:
    """Host memory that kernels may access through an argument."""

    pointer: int  # address of the tensor's element [0, 0, ...]
    start: int  # address of the first byte
    stop: int  # address after the last byte
    writable: bool
    label: str  # name in messages


class ArrayPointer:
    """A numpy array with the attributes that Triton reads of a tensor to choose a specialisation."""

    def __init__(self, array: np.ndarray) -> None:
        self.dtype = array.dtype
        self._array = array

    def data_ptr(self) -> int:
        """Returns the address, on host and device."""
        return int(self._array.ctypes.data)

    def ptr_range(self) -> int:
        """Returns the number of bytes from the pointer on. Up to 2 GiB, the AMD backend uses buffer instructions."""
        low, high = np.lib.array_utils.byte_bounds(self._array)
        # Offsets of buffer instructions are unsigned and cannot go back, as negative strides do.
        return high - low if low == self.data_ptr() else 1 << 63


def plain_torch() -> contextlib.AbstractContextManager[Any]:
    """Runs a block with PyTorch's own answers about tensors, even if a program overrides them."""
    torch = sys.modules.get("torch")
    return torch._C.DisableTorchFunction() if hasattr(torch, "_C") else contextlib.nullcontext()  # type: ignore[union-attr]


def is_tensor(value: object) -> bool:
    """True if a value is passed as a pointer to its elements."""
    return isinstance(value, np.ndarray) or hasattr(value, "data_ptr")


def lies_elsewhere(tensor: Any, index: int) -> str:
    """Returns the GPU of a tensor, such as "cuda:1", if it is not GPU `index`; "" for any other tensor."""
    tensor = unwrap(tensor)
    place = getattr(tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor, MARK, GPU)
    return place if place not in (HOST, PINNED, GPU, f"{GPU}:{index}") else ""


def unwrap(tensor: Any) -> Any:
    """Returns the tensor inside a `triton.reinterpret` wrapper, or the tensor itself."""
    return tensor.base if isinstance(tensor, TensorWrapper) else tensor


def span_of(name: str, tensor: Any, guard: str = STORAGE) -> HostSpan:
    """Returns the memory that kernels may access through a tensor. Raises LaunchError if it is not in host memory.

    name: for messages. guard: STORAGE: all of the memory that the tensor is a view of. VIEW: from its lowest element to its
    highest.
    """
    label, tensor = _label(name, tensor), unwrap(tensor)
    found = _view(name, tensor, label)
    if not found.pointer:
        return found  # an empty view: PyTorch's data_ptr() is null, wherever its storage is
    low, high = _storage(tensor) if guard == STORAGE else (found.start, found.stop)
    start, stop = (min(found.start, low), max(found.stop, high)) if high > low else (found.start, found.stop)
    label = found.label if (start, stop) == (found.start, found.stop) else f"{found.label[:-1]}, a view)"
    return replace(found, start=start, stop=stop, label=label)


def _view(name: str, tensor: Any, label: str) -> HostSpan:
    """Returns the bytes that the tensor's elements occupy."""
    if isinstance(tensor, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(tensor)
        return HostSpan(tensor.ctypes.data, low, high if tensor.size else low, tensor.flags.writeable, label)
    holder = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor
    with plain_torch():
        place = getattr(holder, "device", "cpu")
    kind = getattr(place, "type", str(place))
    if kind == "meta":
        raise Unreachable(f"{name} is a meta tensor, which has no elements: make it on the GPU")
    pointer, shape = int(tensor.data_ptr()), tuple(tensor.shape)
    if getattr(holder, MARK, GPU) == HOST and (pointer or all(shape)):  # an empty tensor's null pointer is valid on a GPU
        # Triton's words come first: tests look for them.
        said = f"Pointer argument cannot be accessed from Triton (cpu tensor?): {name} is in host memory"
        raise Unreachable(f"{said}, which a GPU cannot reach: move it there, as by .cuda()")
    if kind not in ("cpu", ""):
        raise LaunchError(f"{name} is a tensor on {place}: a simulated kernel needs it on the CPU")
    size = int(tensor.element_size())
    reaches = [(extent - 1) * stride * size for extent, stride in zip(shape, tensor.stride(), strict=True)]
    if not all(shape):
        return HostSpan(pointer, pointer, pointer, True, label)
    low, high = (pointer + sum(pick(reach, 0) for reach in reaches) for pick in (min, max))
    return HostSpan(pointer, low, high + size, True, label)


def _storage(tensor: Any) -> tuple[int, int]:
    """Returns the first address of the memory that a tensor is a view of, and the address after it; (0, 0) if unknown."""
    if isinstance(tensor, np.ndarray):
        owner, base = tensor, tensor.base
        while base is not None:  # skips objects that are not arrays, as below `as_strided`
            owner = base if isinstance(base, np.ndarray) else owner
            base = getattr(base, "base", None)
        low, high = np.lib.array_utils.byte_bounds(owner)
        return (low, high) if owner.size else (low, low)
    if not hasattr(tensor, "untyped_storage"):
        return 0, 0
    try:  # tensors of PyTorch's tracers and of `vmap` have no memory of their own
        storage = tensor.untyped_storage()
        if str(getattr(storage, "device", "")) == "meta":
            return 0, 0
        low = int(storage.data_ptr())
    except RuntimeError:
        return 0, 0
    return low, low + int(storage.nbytes())


def _label(name: str, tensor: Any) -> str:
    """Returns the memory's name in messages."""
    return f"{name} ({'x'.join(str(extent) for extent in tensor.shape) or 'scalar'} {tensor.dtype})"


def merge_spans(spans: Iterable[HostSpan]) -> list[HostSpan]:
    """Merges spans that share a dword, by address: views of one tensor stay the same memory, writable if one of them is."""
    whole: list[HostSpan] = []
    for span in sorted(spans, key=lambda s: (s.start, s.stop)):
        last = whole[-1] if whole else None
        if last is None or span.start // GRANULE * GRANULE >= last.stop:
            whole.append(span)
            continue
        label = last.label if span.label == last.label or span.stop <= last.stop else f"{last.label} and {span.label}"
        whole[-1] = HostSpan(last.pointer, last.start, max(last.stop, span.stop), last.writable or span.writable, label)
    return whole


def pointees(tensors: Iterable[tuple[str, Any]], numbers: Iterable[object] = ()) -> list[tuple[str, Any]]:
    """Returns PyTorch's tensors that numbers and the elements of small 64-bit integer tensors point to.

    A table of pointers, as for a grouped GEMM, holds results of `data_ptr`. The tensors that they point to are alive, but are no
    arguments. numbers: arguments that are not tensors, which may also be results of `data_ptr`. The result leaves `tensors` out.
    """
    torch = sys.modules.get("torch")
    known = list(tensors)
    if torch is None or not (wanted := _pointers(known, numbers)):
        return []
    found: dict[int, tuple[str, Any]] = {}
    for held in gc.get_objects():
        if not issubclass(type(held), torch.Tensor) or held.device.type != "cpu" or held.layout is not torch.strided:
            continue
        low, high = _storage(held)
        at = bisect.bisect_left(wanted, low)
        if at < len(wanted) and wanted[at] < high:
            found.setdefault(low, (f"a tensor that {wanted[at]:#x} points to", held))
    return list(found.values())


def _pointers(tensors: Iterable[tuple[str, Any]], given_numbers: Iterable[object]) -> list[int]:
    """Returns numbers that may be addresses outside of all these tensors, ascending: of `given_numbers`, and of the elements of
    int64 tensors."""
    spans = [span_of(name, tensor) for name, tensor in tensors]
    numbers = {int(number) for number in given_numbers if isinstance(number, (int, np.integer)) and number >= HEAP}
    for _, given in tensors:
        tensor = unwrap(given)
        if not str(tensor.dtype).endswith("int64") or not 0 < int(np.prod(tensor.shape)) <= TABLE:
            continue
        if not (isinstance(tensor, np.ndarray) or hasattr(tensor, "detach")):
            continue  # an array-like of neither library, whose elements are unknown
        held = tensor if isinstance(tensor, np.ndarray) else tensor.detach().numpy()
        numbers.update(int(number) for number in held.reshape(-1) if number >= HEAP)
    return sorted(number for number in numbers if not any(span.start <= number < span.stop for span in spans))


# Form in which engine/allocations.py reports an address by the allocation next to it.
_OUTSIDE = re.compile(
    r"access to (?P<address>0x[0-9a-f]+), \d+ bytes (?:past the end of|before) (?P<name>argument [\w.\[\]]+)"
)


class SharedTensors:
    """Tensors of one launch in device memory, at the host's addresses, from `__enter__` to `__exit__`."""

    def __init__(self, memory: DeviceMemory, tensors: Iterable[tuple[str, Any]], guard: str = STORAGE) -> None:
        self._memory = memory
        self._tensors = list(tensors)  # keeps them alive while kernels use their memory
        self._guard = guard
        self._allocations: list[Allocation] = []

    def __enter__(self) -> SharedTensors:
        spans = merge_spans(span_of(name, tensor, self._guard) for name, tensor in self._tensors)
        for span in spans:
            if span.stop > span.start:
                shared = self._memory.share(span.start, span.stop - span.start, span.writable, span.label, self._element)
                self._allocations.append(shared)
        return self

    def __exit__(self, *_: object) -> None:
        for allocation in self._allocations:
            self._memory.free(allocation)

    def with_index(self, message: str) -> str:
        """Adds the index of an address outside of an argument to a message about it."""
        found = _OUTSIDE.search(message)
        if found is None:
            return message
        name, address = found["name"], int(found["address"], 16)
        tensor = next((tensor for known, tensor in self._tensors if known == name), None)
        index = "" if tensor is None else outside_of(name, tensor, address)
        return f"{message[: found.end('address')]}, which would be {index}{message[found.end('address') :]}" if index else message

    def _element(self, address: int) -> str:
        """Returns the element of the first tensor that has one at an address: `out[3, 5]`."""
        return next(filter(None, (element_at(name, tensor, address) for name, tensor in self._tensors)), "")


def element_at(name: str, tensor: Any, address: int) -> str:
    """Returns the tensor's element at an address, as `out[3, 5]`, with `, byte 2` inside of it; "" if it has none there."""
    return _index(name, tensor, address, within=True)


def outside_of(name: str, tensor: Any, address: int) -> str:
    """Returns the index that an address outside of a tensor would have, `out[20, 0]` or `out[-1, 3]`; "" without axes."""
    return _index(name, tensor, address, within=False)


def _index(name: str, tensor: Any, address: int, within: bool) -> str:
    """Returns the index of an address; within: only the tensor's own, else the longest stride's index may leave the tensor."""
    tensor = unwrap(tensor)
    if isinstance(tensor, np.ndarray):
        size, strides = tensor.itemsize, [stride // max(tensor.itemsize, 1) for stride in tensor.strides]
    else:
        size, strides = int(tensor.element_size()), [int(stride) for stride in tensor.stride()]
    shape = tuple(tensor.shape)
    if not all(shape) or any(stride < 0 for stride in strides):
        return ""
    left, byte = divmod(address - pointer_of(tensor), size)
    if left < 0 and within:
        return ""
    index, first = [0] * len(shape), True
    for axis in sorted(range(len(shape)), key=lambda axis: -strides[axis]):
        if strides[axis]:
            steps = left // strides[axis]
            index[axis] = steps if first and not within else min(steps, shape[axis] - 1)
            left -= index[axis] * strides[axis]
            first = False
    named = f"{name.removeprefix('argument ')}[{', '.join(map(str, index))}]"
    return "" if left or not (index or within) else f"{named}, byte {byte}" if byte else named


def pointer_of(tensor: Any) -> int:
    """Returns the address of a tensor's element [0, 0, ...], on host and device."""
    return int(tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr())
