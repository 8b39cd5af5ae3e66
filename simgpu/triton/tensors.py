"""Host tensors as a kernel sees them: which bytes an argument may reach, and where they lie on the device.

A tensor is a numpy array or whatever has PyTorch's `data_ptr`, `shape`, `stride` and `element_size` on the
CPU. Its memory is used as it is: nothing is copied, so a kernel's stores are the tensor's new values.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.engine.allocations import Allocation, Memory
from simgpu.hardware.errors import LaunchError


@dataclass(frozen=True)
class Span:
    """Host addresses that an argument reaches, first to one past the last; pointer: its element [0, 0, ...]."""

    pointer: int
    start: int
    stop: int
    writable: bool
    label: str


class ArrayPointer:
    """What Triton asks of a tensor when it chooses a specialisation, for a numpy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.dtype = array.dtype
        self._array = array

    def data_ptr(self) -> int:
        """The host address: the device address differs from it by a multiple of 256."""
        return int(self._array.ctypes.data)

    def ptr_range(self) -> int:
        """Bytes from the pointer on (up to 2 GiB, the AMD backend addresses them by buffer instructions)."""
        low, high = np.lib.array_utils.byte_bounds(self._array)
        # Offsets of buffer instructions are unsigned: they cannot reach back, as negative strides do.
        return high - low if low == self.data_ptr() else 1 << 63


def is_tensor(value: object) -> bool:
    """Whether a value is passed as a pointer to its elements."""
    return isinstance(value, np.ndarray) or hasattr(value, "data_ptr")


def span_of(name: str, tensor: Any) -> Span:
    """The bytes that a view's elements occupy; LaunchError for a tensor that is not in host memory."""
    if isinstance(tensor, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(tensor)
        high = high if tensor.size else low
        return Span(tensor.ctypes.data, low, high, tensor.flags.writeable, _label(name, tensor))
    # A tensor's own word may be changed, as by `tools.torch.on_host`; that of its storage is the truth.
    place = getattr(tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor, "device", "cpu")
    if getattr(place, "type", str(place)) not in ("cpu", ""):
        raise LaunchError(f"argument {name} is a tensor on {place}: a simulated kernel needs it on the CPU")
    pointer = int(tensor.data_ptr())
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    reach = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1
    nbytes = reach * int(tensor.element_size()) if all(shape) else 0
    return Span(pointer, pointer, pointer + nbytes, True, _label(name, tensor))


def _label(name: str, tensor: Any) -> str:
    """How messages name the memory."""
    return f"argument {name} ({'x'.join(str(extent) for extent in tensor.shape) or 'scalar'} {tensor.dtype})"


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans that overlap as one, by address: views of one tensor stay the same memory."""
    whole: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, s.stop)):
        last = whole[-1] if whole else None
        if last is None or span.start >= last.stop:
            whole.append(span)
            continue
        label = last.label if span.label == last.label else f"{last.label} and {span.label}"
        stop = max(last.stop, span.stop)
        whole[-1] = Span(last.pointer, last.start, stop, last.writable and span.writable, label)
    return whole


class Shared:
    """The tensors of one launch in device memory, from `__enter__` to `__exit__`."""

    def __init__(self, memory: Memory, tensors: Mapping[str, Any]) -> None:
        self._memory = memory
        self._tensors = dict(tensors)  # keeps them alive while kernels use their memory
        self._allocations: list[tuple[Span, Allocation]] = []

    def __enter__(self) -> Shared:
        spans = merged(span_of(name, tensor) for name, tensor in self._tensors.items())
        self._allocations = [(span, self._memory.share(_bytes_of(span), span.writable, span.label)) for span in spans]
        return self

    def __exit__(self, *_: object) -> None:
        for _span, allocation in self._allocations:
            self._memory.free(allocation)

    def address(self, name: str) -> int:
        """Device address of the tensor's element [0, 0, ...]."""
        wanted = span_of(name, self._tensors[name])
        for span, allocation in self._allocations:
            if span.start <= wanted.start and wanted.stop <= span.stop:
                return allocation.address + wanted.pointer - span.start
        raise LaunchError(f"argument {name} is not part of this launch")

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        return tuple(allocation for _span, allocation in self._allocations)


def _bytes_of(span: Span) -> np.ndarray:
    """The host memory of a span as uint8, not copied."""
    nbytes = span.stop - span.start
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(span.start)), np.uint8)
