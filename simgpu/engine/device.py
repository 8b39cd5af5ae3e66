"""Simulated GPU: memory, modules, kernels. `simgpu.Device` adds launches, and checked mode by name."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

import numpy as np
from numpy.typing import DTypeLike

from simgpu import hardware
from simgpu.engine.allocations import GRANULE, Allocation, DeviceMemory, whole_granules
from simgpu.engine.check import Check, guard
from simgpu.engine.dispatch import Dispatch
from simgpu.engine.failures import name_of
from simgpu.engine.hostcall.heap import Heap
from simgpu.engine.node import DeviceNode
from simgpu.engine.program import Program
from simgpu.engine.result import Run
from simgpu.engine.suppressions import Suppressions
from simgpu.engine.workers.initial_state import mode_register, registers
from simgpu.engine.workers.kept import ReusePool
from simgpu.hardware.architectures import GFX12
from simgpu.hardware.arrays import ArrayDevice, ArrayForm, as_bytes, extents_of
from simgpu.hardware.code_object.arguments import Geometry, hidden_segment
from simgpu.hardware.code_object.code_object import CodeObject, LoadedKernel, kernel_list, kernel_named
from simgpu.hardware.code_object.kernels import KernelInfo as KernelInfo
from simgpu.hardware.errors import LaunchError, says_it_all
from simgpu.machine.jit import Compiler, compiler
from simgpu.machine.mode import Mode, number

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


__tracebackhide__ = says_it_all

# Default of `max_instructions`: a kernel that executes more counts as a runaway.
DEFAULT_INSTRUCTIONS = 20_000_000_000

HEAP_BYTES = 1 << 30  # bytes of host memory, used only where kernels touch it

# Most bytes of code in a module; rocBLAS has 74 MB in one. Each dword of code has a record of 64 bytes, which is host memory once
# code near it is lowered.
CODE_LIMIT = 1 << 27


# Takes the size of a module's image, in bytes. Returns its address and the host memory for it.
Place = Callable[[int], tuple[int, np.ndarray]]


class Watcher(Protocol):
    """Observer of a device's launches: `simgpu.profile.Profiler`."""

    def working(self) -> AbstractContextManager[None]:
        """Returns a context around the work of one worker's thread."""

    def after_launch(self, launch: Dispatch, run: Run) -> None:
        """Called after a launch that ended without an error."""


class Buffer:
    """Device memory that the user owns: `address` (device), `nbytes`.

    >>> from simgpu import Device
    >>> buffer = Device("mi300x").upload(np.ones((2, 3), np.float32))
    >>> buffer.nbytes, buffer.download()[0]
    (24, array([1., 1., 1.], dtype=float32))
    """

    def __init__(self, device: Device, allocation: Allocation) -> None:
        self._device = device
        self._allocation = allocation
        self.form: ArrayForm | None = None  # dtype and shape of the array that it was made for

    @property
    def address(self) -> int:
        return self._allocation.address

    @property
    def nbytes(self) -> int:
        return self._allocation.nbytes

    def download(self, dtype: DTypeLike | None = None, shape: int | Sequence[int] | None = None) -> np.ndarray:
        """Returns a copy of the buffer's first bytes as an array of `dtype` and `shape`.

        Defaults: dtype and shape of the array that the buffer was made for; if only `dtype` is given, the whole buffer. Raises
        LaunchError if the buffer is too small, has no dtype and none is given, or was freed.
        """
        self.require(self._device, "read it")
        kind, extents = extents_of(self.nbytes, self.form, dtype, shape)
        wanted = int(np.prod(extents, dtype=np.int64)) * kind.itemsize
        return self._allocation.data[:wanted].copy().view(kind).reshape(extents)

    def write(self, array: np.ndarray) -> None:
        """Overwrites the buffer's first bytes with the array's. Raises LaunchError if they do not fit, or it was freed."""
        self.require(self._device, "write to it")
        raw = as_bytes(array)
        if raw.size > self.nbytes:
            raise LaunchError(f"{raw.size} bytes do not fit a buffer of {self.nbytes}")
        self._allocation.data[: raw.size] = raw
        self._allocation.define(0, raw.size)

    def require(self, device: Device, purpose: str) -> None:
        """Raises LaunchError unless the buffer is the device's and not freed. purpose: the action that fails otherwise."""
        if self._device.memory is not device.memory:
            raise LaunchError(
                f"{self!r} is memory of another Device ({self._device.arch}): this one ({device.arch}) cannot {purpose}; "
                "upload the data to it"
            )
        if not device.memory.holds(self._allocation):
            raise LaunchError(f"{self!r} was freed before: nobody can {purpose}")

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes at {self.address:#x}{f', {self.form}' if self.form else ''}>"


class Device(ArrayDevice[Buffer]):
    """A simulated GPU with given checks. `simgpu.Device` documents the other arguments.

    check: the requested mode; False: memory does not track undefined bits, whatever the checks. checks: checks to run in launches
    """

    def __init__(
        self,
        target: str | hardware.HardwareDescriptor,
        *,
        check: bool | str = False,
        checks: tuple[Check, ...] = (),
        threads: int | None = None,
        max_instructions: int | None = None,
        timeout: float | None = None,
        unique_bytes: bool = True,
        suppressions: Suppressions | None = None,
        schedule: int | None = None,
        ring: bool = False,
    ) -> None:
        if threads is not None and threads < 1:
            raise LaunchError(f"threads={threads}: at least one is needed")
        if max_instructions is not None and max_instructions < 1:
            raise LaunchError(f"max_instructions={max_instructions}: at least one is needed")
        if timeout is not None and not timeout > 0:
            raise LaunchError(f"timeout={timeout}: give seconds above 0, or None")
        self.descriptor = hardware.target(target)
        self.arch: str = self.descriptor.arch
        self.check = check
        self.memory = DeviceMemory(bool(check) and any(one.undefined for one in checks), unique_bytes)
        self.checks = checks  # guarded from here on
        self.weak: int | None = None  # seed of weak mode, None outside it
        self.late: int | None = None  # seed of late mode, None outside it
        self.schedule = schedule
        self.node: DeviceNode | None = None  # devices that share memory with this one, and its number among them
        self.number = 0
        self.threads = threads or os.cpu_count() or 1
        self.max_instructions = max_instructions or DEFAULT_INSTRUCTIONS
        self.timeout = timeout
        self.kept = ReusePool()
        self.heap_bytes = HEAP_BYTES
        self._heaps: list[Heap] = []  # at most one, shared by all devices that share the memory
        self.stdout: TextIO | None = None  # destination of kernels' printf, None for the process's own
        self.stderr: TextIO | None = None
        self.shadows: dict[str, Any] = {}  # data that checks keep from one launch to the next
        self.footprints = False  # True if checked launches find their footprint, see `Run.footprint`
        self.profiler: Watcher | None = None
        self.suppressions = suppressions or Suppressions()
        self.shown: Callable[[Dispatch], AbstractContextManager[None]] | None = None  # returns a context entered around a launch
        self.compiler: Compiler = compiler()
        self.ring = ring

    @property
    def settings(self) -> tuple[object, ...] | None:
        """Values that launches have in common if one can take another's place; None if no other can, as with checks."""
        if self.checks or self.timeout is not None or not (self.schedule is self.weak is self.late is self.node is None):
            return None
        return self.memory, self.threads, self.max_instructions, self.suppressions, self.shadows

    def __repr__(self) -> str:
        modes = {False: "", True: ", checked", "performance": ", checked with notes on performance"}
        checked = modes.get(self.check, f", check of {self.check}")
        return f"<Device {self.descriptor.name}, {self.arch}, {self.threads} host thread(s){checked}>"

    @property
    def seeded(self) -> bool:
        """True in weak and late mode, whose checks change what kernels compute."""
        return self.weak is not None or self.late is not None

    @property
    def heap(self) -> Heap:
        """Memory for malloc and new in kernels: `heap_bytes` bytes, allocated at the first use."""
        if not self._heaps:
            self._heaps.append(Heap(self.memory, self.heap_bytes))
        return self._heaps[0]

    @property
    def made_heap(self) -> Heap | None:
        """Heap of the device, None if it was not used so far."""
        return self._heaps[0] if self._heaps else None

    @property
    def checks(self) -> tuple[Check, ...]:
        return self._checks

    @checks.setter
    def checks(self, checks: Sequence[Check]) -> None:
        if not self.memory.checked and any(check.undefined for check in checks):
            names = ", ".join(name_of(check) for check in checks if check.undefined)
            raise LaunchError(
                "this device was made without checks, so that nobody noted which bytes of its memory are defined, "
                f"which {names} asks: make another, Device(…, check=True)"
            )
        self._checks: tuple[Check, ...] = tuple(map(guard, checks))

    def sharing(self, checks: Sequence[Check]) -> Self:
        """Returns a device that shares this one's memory, for extra launches with other checks; see `Module.on`.

        These launches are neither profiled nor shown, and their kernels' output is dropped.
        """
        other = copy.copy(self)
        other.checks, other.profiler, other.shown = checks, None, None
        other.stdout = other.stderr = io.StringIO()
        return other

    def alloc(self, nbytes: int) -> Buffer:
        """Allocates device memory of `nbytes`. Raises LaunchError for a negative size."""
        return Buffer(self, self.memory.allocate(nbytes))

    def place(
        self, address: int, data: np.ndarray, *,
        nbytes: int | None = None, writable: bool = True, label: str = "", defined: bool = False,
    ) -> Buffer:  # fmt: skip
        """Maps host memory as device memory, at an address of the caller's choice, without a copy. `free` ends it.

        Raises LaunchError for other data, and if the address range is in use.

        data: uint8, contiguous, whole dwords
        nbytes: requested bytes (default: all); accesses to the rest of the last dword are the user's error
        label: its name in errors and findings
        defined: True if the host wrote all of it, for checked mode; `memory.define` does so for parts
        """
        asked = data.size if nbytes is None else nbytes
        if data.dtype != np.uint8 or not data.flags.c_contiguous or address % GRANULE or data.size != whole_granules(asked):
            raise LaunchError(
                f"{asked} bytes at {address:#x} in an array of {data.size} x {data.dtype}: give contiguous bytes (uint8), as many "
                f"as whole dwords hold, at a multiple of {GRANULE}"
            )
        if not 0 < address <= (1 << 63) - data.size:
            raise LaunchError(f"{data.size} bytes at {address:#x}: give an address above 0 within 63 bits")
        placed = self.memory.place(address, data, writable, label, nbytes=asked, tracked=True, defined=defined)
        return Buffer(self, placed)

    def free(self, buffer: Buffer) -> None:
        """Frees a buffer. A kernel that still touches it faults. Raises LaunchError for a freed buffer or one of another device."""
        buffer.require(self, "free it")
        self.memory.free(buffer._allocation)

    def load(self, source: str | os.PathLike[str] | bytes, place: Place | None = None) -> Module:
        """Loads a code object (ELF, clang offload bundle or host file with a fat binary) from a path or from bytes.

        place: called with the size of the module's image, returns its address and the host memory for it (uint8, zero). By
        default the device chooses both. Raises DecodeError for damaged files and LaunchError for another target's.
        """
        code = CodeObject.open(source, self.arch)
        if code.target != self.arch:
            raise LaunchError(
                f"the code object is for {code.target}, this device is {self.arch}: "
                f"compile for {self.arch}" + ("" if code.target in GFX12 else f" or use Device({code.target!r})")
            )
        return self.module_class(self, code, place)

    def unload(self, module: Module) -> None:
        """Removes a module's image from device memory. Its kernels can no longer be launched. Raises LaunchError the second
        time."""
        module.unload()

    module_class: type[Module]


class Module(Mapping[str, "Kernel"]):
    """A loaded code object: kernels by name.

    origins: the Python line of `asm` that emitted a line of assembly, by `CodeObject.source_line`. `asm.launch` sets it, and
    findings name it.
    """

    kernel_class: type[Kernel]

    def __init__(self, device: Device, code: CodeObject, place: Place | None = None) -> None:
        self.device = device
        self.code = code
        self.origins: Mapping[str, str] = {}
        base = min((segment.address for segment in code.segments), default=0)
        end = max((segment.end for segment in code.segments), default=0)
        code_bytes = sum(segment.memory_size for segment in code.segments if segment.executable)
        if code_bytes > CODE_LIMIT:
            raise LaunchError(f"the module has {code_bytes} bytes of code, the limit is {CODE_LIMIT}")
        room = whole_granules(end - base)
        address, memory = (place or device.memory.reserve)(room)
        image, first = code.image(address)
        memory[: len(image)] = np.frombuffer(image, np.uint8)
        self.bias = address - first
        self._programs: dict[tuple[int, int, bool], Program] = {}
        self._starts: dict[int, np.ndarray] = {}  # `Program.starts` by segment address
        self._segments: list[Allocation] = []
        for segment in code.segments:
            start = segment.address - first
            raw = memory[start : start + segment.memory_size]
            placed = device.memory.place(address + start, raw, segment.writable, "the module", tracked=segment.writable)
            self._segments.append(placed)

    def on(self, device: Device) -> Self:
        """Returns the same module, in the same place, for launches on a device that shares the memory; see `Device.sharing`."""
        other = copy.copy(self)
        other.device, other._programs, other._starts = device, {}, {}
        return other

    def unload(self) -> None:
        """Removes the module; see `Device.unload`."""
        segments, self._segments = self._segments, []
        if not segments:
            raise LaunchError("the module was unloaded before")
        for segment in segments:
            self.device.memory.free(segment)

    @property
    def segments(self) -> tuple[Allocation, ...]:
        """Allocations of its segments, in the code object's order; none after `unload`."""
        return tuple(self._segments)

    def symbol(self, name: str) -> tuple[int, int]:
        """Returns a symbol's device address and size in bytes. Raises KeyError if the module does not define it."""
        symbol = self.code.symbols.get(name)
        if symbol is None or not symbol.defined:
            raise KeyError(f"no symbol {name!r} in the module")
        return symbol.address + self.bias, symbol.size

    def __repr__(self) -> str:
        return f"<Module for {self.code.target} with {kernel_list(self)}>"

    def __getitem__(self, name: str) -> Kernel:
        info = kernel_named(self.code.kernels, name)
        return self.kernel_class(self, info)

    def __iter__(self) -> Iterator[str]:
        return iter(self.code.kernels)

    def __len__(self) -> int:
        return len(self.code.kernels)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Programs that launches have made so far: one per segment, value of MODE and `fuse`."""
        return tuple(self._programs.values())

    def patch(self, address: int, data: bytes) -> None:
        """Replaces instructions at a virtual address of the code object. The bytes before and after are whole instructions."""
        start = address + self.bias
        allocation = self.device.memory.find(start)
        if allocation is None:
            raise LaunchError(f"{address:#x} is not an address of the module's code")
        at = start - allocation.address
        allocation.data[at : at + len(data)] = np.frombuffer(data, np.uint8)
        for program in self.programs:
            if program.base <= start < program.base + len(program.code):
                program.patch(start - program.base, data)

    def program(self, info: KernelInfo, word: int, fuse: bool) -> Program:
        """Returns the program of the segment with the kernel's code, for a value of the MODE register. fuse: see `Program`."""
        if not self._segments:
            raise LaunchError(f"{info.title}: its module was unloaded")
        for segment in self.code.segments:
            if segment.executable and segment.address <= info.start < segment.end:
                key = segment.address, number(word), fuse
                if key not in self._programs:
                    start = segment.address + self.bias
                    allocation = self.device.memory.find(start)
                    assert allocation is not None
                    code = allocation.data.tobytes()
                    starts = self._starts.setdefault(segment.address, np.zeros(len(code) // 4 + 9, np.uint8))
                    mode = Mode.of_register(word, self.device.ring)
                    self._programs[key] = Program(
                        code, start, self.device.arch, mode, self.device.compiler, self.device.checks, fuse, starts
                    )
                self._programs[key].begin_at((info.start + self.bias - self._programs[key].base) // 4)
                return self._programs[key]
        raise LaunchError(f"{info.title}: its entry {info.start:#x} is not in an executable segment")


class Kernel(LoadedKernel):
    """A kernel of a module: `arguments` (explicit ones), `resources`."""

    def __init__(self, module: Module, info: KernelInfo) -> None:
        self.module = module
        self.info = info
        self._hidden: tuple[Geometry, bytes] | None = None  # the last result of `hidden_segment`

    @cached_property
    def mode(self) -> int:
        """MODE register that its waves begin with."""
        return mode_register(self.info.descriptor)

    def hidden_segment(self, geometry: Geometry) -> bytes:
        """Returns `arguments.hidden_segment` of a launch; most programs launch a kernel many times with one geometry."""
        known = self._hidden
        if known is None or (known[0] is not geometry and known[0] != geometry):
            known = self._hidden = geometry, hidden_segment(self.info, geometry)
        return known[1]

    def check_buffers(self, args: Sequence[object]) -> None:
        """Raises LaunchError if an argument is a buffer of another device, a freed one, or has an address with no memory."""
        device = self.module.device
        for index, value in enumerate(args[: len(self.arguments)]):
            if type(value) is bytes:
                continue
            problem, address = "", getattr(value, "address", None)
            if isinstance(value, Buffer):
                try:
                    value.require(device, "use it")
                except LaunchError as error:
                    problem = str(error)
            elif isinstance(address, int) and address and device.memory.find(address) is None:
                problem = (
                    f"{value!r} is not memory of this Device, which has no allocation at {address:#x}, "
                    f"{device.memory.describe(address)}; pass a bare address as an int"
                )
            if problem:
                raise LaunchError(f"{self.title}: argument {self.info.named_arguments[index].name}: {problem}")

    def resident_groups(self, block: int | Sequence[int] = 64, dynamic_lds: int = 0) -> int:
        """Returns the number of workgroups that fit on the GPU at once, by registers and LDS: the limit of a cooperative launch."""
        geometry = Geometry.of(1, block, dynamic_lds)
        items = geometry.block[0] * geometry.block[1] * geometry.block[2]
        gpu, descriptor = self.module.device.descriptor, self.info.descriptor
        vectors, accumulators = registers(descriptor, self.module.device.arch)
        lds = self.info.group_segment_size + dynamic_lds
        return gpu.num_cus * gpu.blocks_per_cu(vectors, accumulators, descriptor.sgprs, lds, -(-items // 64))


Device.module_class, Module.kernel_class = Module, Kernel
