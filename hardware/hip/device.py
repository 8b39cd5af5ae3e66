"""A real GPU with the interface of the simulated one: Device, Buffer, Module, Kernel, on the HIP runtime.

    from simgpu.hardware.hip import Device

    gpu = Device(0)                                 # raises HipError: no ROCm, no GPU, or not a target of simgpu
    run = gpu.load(code)["name"].launch(grid=…, block=…, args=[…])
    run.seconds                                     # GPU time, measured by events

Kernel arguments are packed by `simgpu.hardware.code_object.arguments`, as for the simulator, and passed as one buffer. This
module is imported only for a real GPU.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_float, c_size_t, c_void_p
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from simgpu.hardware.arrays import ArrayDevice, ArrayForm, as_bytes, extents_of
from simgpu.hardware.code_object.arguments import Geometry, pack
from simgpu.hardware.code_object.code_object import CodeObject, LoadedKernel, kernel_list, kernel_named
from simgpu.hardware.code_object.kernels import KernelInfo as KernelInfo
from simgpu.hardware.code_object.names import original
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import HipError, HipKernelError, LaunchError
from simgpu.hardware.hip import library as hip
from simgpu.hardware.hip.library import Library
from simgpu.hardware.targets import target, targets

DEFAULT_TIMEOUT = 60.0  # seconds until a launch counts as hung
POLL_SECONDS = 0.0005


@final
@dataclass(frozen=True)
class Run:
    """A finished launch."""

    seconds: float  # GPU time between an event before and one after it
    device: str
    findings: list[Any] = field(default_factory=list)


class Buffer:
    """GPU memory of `nbytes` at device address `address`. The user frees it (`Device.free`)."""

    def __init__(self, library: Library, address: int, nbytes: int) -> None:
        self._library = library
        self.address = address
        self.nbytes = nbytes
        self.form: ArrayForm | None = None  # of the array that it was made for

    def download(self, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> np.ndarray:
        """Returns a copy of the buffer's first bytes as an array of `dtype` and `shape`.

        The default is the type and shape of the array that the buffer was made for; with a dtype only, all of the buffer.
        Raises LaunchError if the buffer is too small, or has no type and none is given.
        """
        kind, extents = extents_of(self.nbytes, self.form, dtype, shape)
        array = np.empty(extents, kind)
        if array.nbytes:
            self._library.call("hipMemcpy", array.ctypes.data, self.address, array.nbytes, hip.DEVICE_TO_HOST)
        return array

    def write(self, array: np.ndarray) -> None:
        """Overwrites the buffer's first bytes with the array's."""
        raw = as_bytes(array)
        if raw.size > self.nbytes:
            raise LaunchError(f"{raw.size} bytes do not fit a buffer of {self.nbytes}")
        if raw.size:
            self._library.call("hipMemcpy", self.address, raw.ctypes.data, raw.size, hip.HOST_TO_DEVICE)

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes at {self.address:#x}{f', {self.form}' if self.form else ''} on the GPU>"


class Device(ArrayDevice[Buffer]):
    """A real GPU by its HIP index.

    timeout: seconds until a launch counts as hung. Raises HipError for a missing runtime, a missing GPU, or a GPU that
    is not a target of simgpu.

    >>> Device(0)   # doctest: +SKIP
    <Device GPU 0 (AMD Instinct MI300X, gfx942:sramecc+:xnack-)>
    """

    def __init__(self, index: int = 0, *, timeout: float = DEFAULT_TIMEOUT, library: Library | None = None) -> None:
        self.library = library or hip.open_library()
        self.timeout = timeout
        count = _devices(self.library)
        if not 0 <= index < count:
            raise HipError(f"no GPU {index}: HIP finds {count}", f"Give an index from 0 to {count - 1}.")
        self.library.call("hipSetDevice", index)
        self.index = index
        self.product, self.target_id = self.library.identity(index)
        self.arch = self.target_id.partition(":")[0]
        self.descriptor = _descriptor(self.product, self.arch, self.name)
        self.stream = self.library.new("hipStreamCreate")

    def __repr__(self) -> str:
        return f"<Device {self.name}>"

    @property
    def name(self) -> str:
        """Name for messages: the GPU's index, product and target with its features."""
        return f"GPU {self.index} ({self.product}, {self.target_id})"

    def alloc(self, nbytes: int) -> Buffer:
        """Allocates `nbytes` of GPU memory. Raises LaunchError for a negative size and HipError if there is no room."""
        if nbytes < 0:
            raise LaunchError(f"an allocation of {nbytes} bytes: the size must not be negative")
        try:
            return Buffer(self.library, self.library.new("hipMalloc", max(nbytes, 1)), nbytes)
        except HipError as error:
            if error.status != hip.OUT_OF_MEMORY:
                raise
            free, total = self.library.memory()
            raise HipError(
                f"{self.name} is out of memory: {nbytes:,} bytes asked for, {free:,} of {total:,} free: {error}",
                "Choose smaller sizes, or end what else uses the GPU (rocm-smi --showpids).",
                error.status,
            ) from None

    def free(self, buffer: Buffer) -> None:
        """Frees a buffer."""
        self.library.call("hipFree", buffer.address)

    def load(self, source: str | os.PathLike[str] | bytes) -> Module:
        """Loads a code object (ELF or clang offload bundle) from a path or from bytes.

        Raises LaunchError for a file that cannot be read, DecodeError for a damaged one and HipError for one that this GPU
        cannot run.
        """
        code = CodeObject.open(source, self.arch)
        wanted = unsuitable(code, self.target_id)
        if wanted:
            raise HipError(f"the code object is for {wanted}, {self.name} is not", f"Compile for {self.target_id}.")
        try:
            return Module(self, code, self.library.new("hipModuleLoadData", code.data))
        except HipError as error:
            raise HipError(f"{self.name} does not take the code object: {error}", error.advice, error.status) from None

    def time(self, launches: Sequence[Launch]) -> list[float]:
        """Runs launches in order and returns the GPU seconds of each. Raises HipKernelError for a fault or a hang."""
        library = self.library
        events = [(library.new("hipEventCreate"), library.new("hipEventCreate")) for _ in launches]
        for launch, (before, after) in zip(launches, events, strict=True):
            library.call("hipEventRecord", before, self.stream)
            launch.enqueue(library, self.stream)
            library.call("hipEventRecord", after, self.stream)
        if launches:
            self._wait(launches, events[-1][1])
        seconds = [self._elapsed_seconds(*pair) for pair in events]
        for event in (event for pair in events for event in pair):
            library.call("hipEventDestroy", event)
        return seconds

    def _wait(self, launches: Sequence[Launch], event: int) -> None:
        """Waits for the event by polling, because a blocking wait for a hung kernel never returns."""
        what = f"{launches[0].name} on {self.name}"
        patience = self.timeout * len(launches)
        deadline = time.monotonic() + patience
        while (status := self.library.status("hipEventQuery", event)) == hip.NOT_READY:
            if time.monotonic() > deadline:
                raise HipKernelError(
                    f"{what} hangs: not finished after {patience:g} s ({len(launches)} launch(es), --timeout {self.timeout:g})",
                    f"{hip.SIMULATE} A longer --timeout helps if it is only slow.",
                    status,
                )
            time.sleep(POLL_SECONDS)
        if status != hip.SUCCESS:
            raise HipKernelError(f"{what} failed: {self.library.words(status)}", hip.SIMULATE, status)

    def _elapsed_seconds(self, before: int, after: int) -> float:
        milliseconds = c_float()
        self.library.call("hipEventElapsedTime", ctypes.byref(milliseconds), before, after)
        return milliseconds.value / 1e3


class Module(Mapping[str, "Kernel"]):
    """A loaded code object, a mapping of kernels by name (see `kernel_named`)."""

    def __init__(self, device: Device, code: CodeObject, handle: int) -> None:
        self.device = device
        self.code = code
        self.handle = handle

    def __repr__(self) -> str:
        return f"<Module for {self.code.target} with {kernel_list(self)} on {self.device.name}>"

    def __getitem__(self, name: str) -> Kernel:
        info = kernel_named(self.code.kernels, name)
        raw = original(info.name).encode(errors="surrogateescape")
        function = self.device.library.new("hipModuleGetFunction", self.handle, raw)
        return Kernel(self, info, function)

    def __iter__(self) -> Iterator[str]:
        return iter(self.code.kernels)

    def __len__(self) -> int:
        return len(self.code.kernels)


@dataclass(frozen=True)
class Launch:
    """Arguments of hipModuleLaunchKernel for a launch."""

    name: str  # of the kernel
    function: int  # handle
    groups: tuple[int, int, int]  # workgroups in x, y, z
    block: tuple[int, int, int]  # work-items of a workgroup in x, y, z
    dynamic_lds: int  # bytes
    segment: bytes  # the packed arguments

    def enqueue(self, library: Library, stream: int) -> None:
        """Enqueues the launch in a stream. The runtime copies the arguments before it returns."""
        raw = ctypes.create_string_buffer(self.segment, max(len(self.segment), 1))
        size = c_size_t(len(self.segment))
        extra = (c_void_p * 5)(
            hip.PARAM_BUFFER_POINTER, ctypes.addressof(raw), hip.PARAM_BUFFER_SIZE, ctypes.addressof(size), hip.PARAM_END
        )
        library.call(
            "hipModuleLaunchKernel", self.function, *self.groups, *self.block, self.dynamic_lds, stream, None, extra
        )


class Kernel(LoadedKernel):
    """A kernel of a loaded module."""

    def __init__(self, module: Module, info: KernelInfo, function: int) -> None:
        self.module = module
        self.info = info
        self.function = function

    def prepare(
        self,
        grid: int | Sequence[int] | None = None,
        block: int | Sequence[int] = 64,
        args: Sequence[object] = (),
        dynamic_lds: int = 0,
        *,
        global_size: int | Sequence[int] | None = None,
    ) -> Launch:
        """Returns a launch for `Device.time`; parameters and LaunchError as for `launch`."""
        geometry = Geometry.of(grid, block, dynamic_lds, global_size)
        segment = pack(self.info, args, geometry)
        if any(size % extent for size, extent in zip(geometry.global_size, geometry.block, strict=True)):
            raise LaunchError(
                f"{self.name}: hipModuleLaunchKernel takes whole workgroups, a global size of {geometry.global_size} "
                f"is none of blocks of {geometry.block}: round it up, or simulate"
            )
        return Launch(
            name=self.name, function=self.function, groups=geometry.groups, block=geometry.block, dynamic_lds=dynamic_lds,
            segment=segment,
        )  # fmt: skip

    def launch(
        self,
        grid: int | Sequence[int] | None = None,
        block: int | Sequence[int] = 64,
        args: Sequence[object] = (),
        dynamic_lds: int = 0,
        *,
        global_size: int | Sequence[int] | None = None,
    ) -> Run:
        """Runs the kernel and waits for its end; parameters as for the simulated kernel.

        Raises LaunchError for unsuitable arguments or geometry, HipError if the runtime rejects the launch, HipKernelError
        if the kernel faults or hangs.
        """
        device = self.module.device
        prepared = self.prepare(grid, block, args, dynamic_lds, global_size=global_size)
        (seconds,) = device.time([prepared])
        return Run(seconds, device.name)


def _devices(library: Library) -> int:
    """Returns the number of GPUs. Raises HipError if there is none."""
    said = "hipGetDeviceCount: 0"
    count = 0
    try:
        library.call("hipInit", 0)
        count = library.count("hipGetDeviceCount")
    except HipError as error:
        if error.status not in (hip.NO_DEVICE, hip.INVALID_DEVICE):
            raise
        said = str(error)
    if not count:
        raise HipError(f"{library.path} finds no AMD GPU: {said}", hip.NO_GPU, hip.NO_DEVICE)
    return count


def _descriptor(product: str, arch: str, name: str) -> HardwareDescriptor:
    """Returns the descriptor of the board in the product's name ("AMD Instinct MI210"), or else of its architecture.

    Raises HipError if simgpu does not have the architecture.
    """
    boards = [row for row in map(target, targets()) if row.arch == arch]
    words = product.lower().split()
    named = [row for row in boards if row.name in words]
    if not boards:
        known = ", ".join(sorted({target(board).arch for board in targets()}))
        raise HipError(f"{name} is none of simgpu's targets", f"These are {known}; HIP_VISIBLE_DEVICES chooses the GPU.")
    return named[0] if named else target(arch)


def unsuitable(code: CodeObject, target_id: str) -> str:
    """Returns the code object's target, such as gfx90a:xnack+, if the GPU of `target_id` cannot run it; else ""."""
    arch, *features = target_id.split(":")
    states = {feature[:-1]: feature[-1:] for feature in features}
    wanted = {"sramecc": code.sramecc, "xnack": code.xnack}
    signs = {name: {"on": "+", "off": "-"}[state] for name, state in wanted.items() if state in ("on", "off")}
    if code.target == arch and all(states.get(name, sign) == sign for name, sign in signs.items()):
        return ""
    return ":".join((code.target, *(f"{name}{sign}" for name, sign in signs.items())))
