"""What an executor runs: one slice of a launch, from the memory that the launch began with."""

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
from simgpu.slices.touched import Packed, taken
from simgpu.version import VERSION

if TYPE_CHECKING:
    from simgpu.engine.finding import Finding
    from simgpu.engine.result import Run

OWN_MEMORY = 1 << 46  # a worker's own allocations, such as kernel arguments, begin there: apart from all of the caller's


@dataclass(frozen=True)
class SentAllocation:
    """An allocation of the caller: what it holds, by hash; undefined: the same of the bits that nothing wrote, in checked mode."""

    address: int
    nbytes: int
    room: int  # bytes, whole granules
    writable: bool
    label: str
    data: str
    undefined: str = ""


@dataclass(frozen=True)
class Task:
    """A slice: the workgroups `part` of a launch, by their number in the order of dispatch, and all that a process needs to run it.

    version: see there; code: hash of the code object, of code_size bytes; segments: where it lies and what it holds; memory: the
    other allocations; args: as a launch takes them, addresses for buffers; folder: where bytes lie by their hash, or ""; given:
    bytes that come along.
    """

    version: str
    target: str
    checked: bool
    max_instructions: int
    timeout: float | None
    threads: int
    code: str
    code_size: int
    segments: tuple[SentAllocation, ...]
    memory: tuple[SentAllocation, ...]
    kernel: str
    geometry: Geometry
    args: tuple[object, ...]
    part: range
    folder: str = ""
    given: Mapping[str, bytes] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The hashes of all that it needs, each once."""
        blocks = (*self.segments, *self.memory)
        return [*dict.fromkeys([self.code, *(block.data for block in blocks), *(block.undefined for block in blocks)])]


@dataclass(frozen=True)
class Answer:
    """What a slice made, or why it made nothing.

    refused: why the worker runs no task of the caller's; failed: the kernel's error; waits: whether it ended as it may wait for
    another slice; alone: why the result may be another than in the whole launch; missing: hashes of what the worker lacks;
    findings: see `checked.seen`; touched: see `Touched.packed`; values: for each allocation written to, by base address, the
    bytes written (`taken`) and, in checked mode, which of their bits are undefined.
    """

    refused: str = ""
    failed: str = ""
    waits: bool = False
    alone: str = ""
    missing: tuple[str, ...] = ()
    run: Run | None = None
    findings: tuple[Finding, ...] = ()
    touched: Packed = ((), ())
    values: tuple[tuple[int, bytes, bytes], ...] = ()


@cache
def version() -> str:
    """The version, and a digest of the sources that decide what a slice does."""
    digest = hashlib.sha256(source_digest().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return f"{VERSION} ({digest.hexdigest()[:12]})"


def run_slice(task: Task) -> Answer:
    """Run a slice. What this raises is the executor's failure or a bug; what the kernel raises is in the answer."""
    if task.version != version():
        return Answer(refused=f"a worker has simgpu {version()}, the caller has {task.version}: install the same on both")
    with _turn():  # an executor may have threads; a launch uses those that it may by itself
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
            values.append((base, taken(bits, held[base].data), b"" if undefined is None else taken(bits, undefined)))
        return Answer(
            alone=part.alone, run=run, findings=tuple(part.seen), touched=part.touched.packed(), values=tuple(values)
        )
    finally:
        for allocation in placed:
            memory.free(allocation)


def _module(task: Task) -> Module:
    """The task's module, at its place."""
    fixed = tuple((block.address, "" if block.writable else block.data) for block in task.segments)
    module = _loaded(task.target, task.checked, task.code, task.code_size, fixed, task.folder)
    device = module.device
    device.max_instructions, device.timeout = task.max_instructions, task.timeout
    device.threads = min(task.threads, os.cpu_count() or 1)
    if not module.programs:  # what was written over the code since it was loaded comes first
        for allocation, block in zip(module.segments, task.segments, strict=True):
            _fill(allocation, block, task.folder)
    return module


@lru_cache(maxsize=8)
def _loaded(
    target: str, checked: bool, code: str, size: int, fixed: tuple[tuple[int, str], ...], folder: str
) -> Module:
    """A device of its own with the module; fixed: addresses of its segments, and hashes of those that nobody writes to."""
    from simgpu.checks.suite import CHECKS  # loaded for checked mode only

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
