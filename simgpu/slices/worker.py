"""Function that an executor runs: one slice of a launch, from the memory that the launch began with."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from simgpu.engine.allocations import Allocation, DeviceMemory
from simgpu.engine.device import Device, Kernel, Module
from simgpu.engine.launch import Launch
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import InstructionLimit, SimError
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import source_digest
from simgpu.slices.blobs import blobs
from simgpu.slices.part import SliceElsewhere
from simgpu.slices.touched import PackedBits, gather_bytes
from simgpu.version import VERSION

if TYPE_CHECKING:
    from simgpu.engine.finding import Finding
    from simgpu.engine.result import Run

OWN_MEMORY = 1 << 46  # first address of a worker's other allocations, such as kernel arguments; the caller has none there


@dataclass(frozen=True)
class SentAllocation:
    """An allocation of the caller, with its content by hash."""

    address: int
    nbytes: int  # bytes that were requested
    room: int  # bytes, whole granules
    writable: bool
    label: str
    data: str  # hash of its bytes
    undefined: str = ""  # hash of the bits that nothing wrote, in checked mode


@dataclass(frozen=True)
class Task:
    """A slice: some workgroups of a launch, and everything that a process needs to run them."""

    version: str  # see `version`
    target: str
    checked: bool
    max_instructions: int
    timeout: float | None
    threads: int
    code: str  # hash of the code object
    code_size: int  # bytes
    segments: tuple[SentAllocation, ...]  # addresses and contents of the code object's segments
    memory: tuple[SentAllocation, ...]  # the other allocations
    kernel: str
    geometry: Geometry
    args: tuple[object, ...]  # as a launch takes them; addresses for buffers
    part: range  # workgroups, by their number in the order of dispatch
    folder: str = ""  # folder with files that are named by their hash, or ""
    given: Mapping[str, bytes] = field(default_factory=dict)  # bytes that come with the task, by hash

    def names(self) -> list[str]:
        """Returns the hashes of all bytes that it needs, each once."""
        blocks = (*self.segments, *self.memory)
        return [*dict.fromkeys([self.code, *(block.data for block in blocks), *(block.undefined for block in blocks)])]


@dataclass(frozen=True)
class Answer:
    """Result of a slice, or the reason why it has none."""

    refused: str = ""  # reason why the worker cannot run tasks of this caller
    failed: str = ""  # the error that ended it
    waits: bool = False  # True if it ended because it may wait for another slice
    alone: str = ""  # reason why the result may differ from that in the whole launch
    missing: tuple[str, ...] = ()  # hashes of bytes that the worker lacks
    run: Run | None = None
    findings: tuple[Finding, ...] = ()  # see `checked.unsorted_findings`
    touched: PackedBits = ((), ())  # see `TouchedBytes.pack`
    # Base address of each written allocation, the written bytes (`gather_bytes`) and, in checked mode, their undefined bits.
    values: tuple[tuple[int, bytes, bytes], ...] = ()


@cache
def version() -> str:
    """Returns the version, and a digest of the sources that decide what a slice does."""
    digest = hashlib.sha256(source_digest().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return f"{VERSION} ({digest.hexdigest()[:12]})"


def run_slice(task: Task) -> Answer:
    """Runs a slice. The kernel's errors are in the answer; exceptions are bugs."""
    if task.version != version():
        return Answer(refused=f"a worker has simgpu {version()}, the caller has {task.version}: install the same on both")
    with _turn():  # an executor may have threads; a launch already uses as many as it may
        blobs().add(task.given, task.names())
        missing = tuple(name for name in task.names() if not blobs().has(name, task.folder))
        if missing:
            return Answer(missing=missing)
        try:
            return _run(task)
        except SimError as error:
            return Answer(failed=f"{type(error).__name__}: {error}", waits=isinstance(error, InstructionLimit))


@cache
def _turn() -> threading.Lock:
    return threading.Lock()


def _run(task: Task) -> Answer:
    module = _module(task)
    memory = module.device.memory
    for allocation, block in zip(module.segments, task.segments, strict=True):
        if block.writable:
            _fill(allocation, block, task.folder)
    placed: list[Allocation] = []
    try:
        for block in task.memory:
            data = blobs().find(block.data, block.room, task.folder)
            placed.append(memory.place(block.address, data, block.writable, block.label, nbytes=block.nbytes, tracked=True))
            _define(placed[-1], block, task.folder)
        if heap := module.device.made_heap:
            heap.clear()
        part, kernel = SliceElsewhere(), Kernel(module, module.code.kernels[task.kernel])
        run = Launch(kernel, task.geometry, task.args, parts=[task.part], supervisor=part).run()
        held = {allocation.base: allocation for allocation in (*placed, *module.segments)}
        values = []
        for base, bits in part.touched.written.items():
            undefined = held[base].undefined
            values.append((base, gather_bytes(bits, held[base].data), b"" if undefined is None else gather_bytes(bits, undefined)))
        return Answer(
            alone=part.alone, run=run, findings=tuple(part.seen), touched=part.touched.pack(), values=tuple(values)
        )
    finally:
        for allocation in placed:
            memory.free(allocation)


def _module(task: Task) -> Module:
    """Returns the task's module, loaded at the caller's addresses."""
    fixed = tuple((block.address, "" if block.writable else block.data) for block in task.segments)
    module = _load(task.target, task.checked, task.code, task.code_size, fixed, task.folder)
    device = module.device
    device.max_instructions, device.timeout = task.max_instructions, task.timeout
    device.threads = min(task.threads, os.cpu_count() or 1)
    if not module.programs:  # the caller may have written over the code after loading it
        for allocation, block in zip(module.segments, task.segments, strict=True):
            _fill(allocation, block, task.folder)
    return module


@lru_cache(maxsize=8)
def _load(
    target: str, checked: bool, code: str, size: int, fixed: tuple[tuple[int, str], ...], folder: str
) -> Module:
    """Loads the module on a new device; fixed: addresses of its segments, and hashes of read-only segments."""
    from simgpu.checks.suite import CHECKS  # only for checked mode

    device = Device(target, check=checked, checks=CHECKS if checked else ())
    device.memory = DeviceMemory(checked, first=OWN_MEMORY)
    device.stdout = device.stderr = io.StringIO()
    address = min(at for at, _ in fixed)
    return device.load(blobs().find(code, size, folder).tobytes(), lambda room: (address, aligned_bytes(room)))


def _fill(allocation: Allocation, block: SentAllocation, folder: str) -> None:
    allocation.data[:] = blobs().find(block.data, block.room, folder)
    _define(allocation, block, folder)


def _define(allocation: Allocation, block: SentAllocation, folder: str) -> None:
    if allocation.undefined is not None:
        allocation.undefined[:] = blobs().find(block.undefined, block.room, folder)
        allocation.whole = False
