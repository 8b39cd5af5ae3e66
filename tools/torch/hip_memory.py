"""PyTorch's tensors in kernels that a program launches through HIP, as FlyDSL does, under `simgpu hip`.

The tensors of the pretended GPU are in the program's own memory, which HIP's kernels cannot reach unless it is registered. So the
HIP library names the numbers of a launch that may be pointers. The memory of the tensors that they point to is registered until
the launch is over, and the launch is over when its call returns, since PyTorch's operators on the host do not wait for streams.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator

from simgpu.hardware.errors import LaunchError
from simgpu.hip.library import NAMES, SERVER, SOCKET
from simgpu.triton.tensors import HostSpan, Unreachable, merge_spans, plain_torch, pointees, span_of

BEFORE, AFTER = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32), ctypes.CFUNCTYPE(None)


@functools.cache
def hip_library() -> ctypes.CDLL | None:
    """Returns the HIP library of a program that `simgpu hip` started; None in any other program."""
    return ctypes.CDLL(NAMES[0]) if os.environ.get(SOCKET) or os.environ.get(SERVER) else None


def new_stream() -> int | None:
    """Returns the handle of a new stream of HIP; None in a program without HIP."""
    library, handle = hip_library(), ctypes.c_void_p()
    if library is None:
        return None
    if status := library.hipStreamCreate(ctypes.byref(handle)):
        raise LaunchError(f"hipStreamCreate: error {status}")
    return handle.value


@contextlib.contextmanager
def lend_tensors() -> Iterator[None]:
    """Lets kernels of HIP reach PyTorch's tensors on the pretended GPUs for a block; does nothing in a program without HIP."""
    library = hip_library()
    if library is None:
        yield
        return
    loan = _Loan(library)
    calls = BEFORE(loan.lend), AFTER(loan.take_back)
    library.simgpuLendMemory(*calls)
    try:
        yield
    finally:
        library.simgpuLendMemory(None, None)


class _Loan(threading.local):
    """Memory that this thread's launch may use."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._register: Callable[..., int] = library.simgpuRegisterNamed
        self._unregister: Callable[..., int] = library.hipHostUnregister
        self._spans: list[HostSpan] = []

    def lend(self, numbers: ctypes.Array[ctypes.c_uint64], count: int) -> None:
        """Registers the memory of the tensors that numbers point to, and of those that tables of pointers among them name.

        Findings name them "tensor 1", "tensor 2", ... in the order of the numbers.
        """
        given, spans = numbers[:count], []
        with plain_torch():
            held = pointees([], given)
            for _, tensor in (*held, *pointees(held)):
                with contextlib.suppress(Unreachable):  # the host's: the kernel's access is a fault, as on a GPU
                    spans.append(span_of("tensor", tensor))

        def first(span: HostSpan) -> int:
            return next((at for at, number in enumerate(given) if span.start <= number < span.stop), count)

        for number, span in enumerate(sorted(merge_spans(spans), key=first), 1):
            name = span.label.replace("tensor", f"tensor {number}", 1).encode()
            if not self._register(ctypes.c_void_p(span.start), ctypes.c_size_t(span.stop - span.start), name):
                self._spans.append(span)

    def take_back(self) -> None:
        """Unregisters all of it."""
        while self._spans:
            self._unregister(ctypes.c_void_p(self._spans.pop().start))
