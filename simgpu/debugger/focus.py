"""Provides device memory as it is at a workgroup's beginning, and decides if other workgroups must run with it.

If no workgroup reads bytes that another one writes, a workgroup begins from the launch's initial memory. Otherwise it begins from
the memory that the workgroups before it leave. If it, or one before it, waits for a later workgroup, all must run with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch, Supervisor
from simgpu.hardware.errors import Deadlock, InstructionLimit, SimError, TimeLimit
from simgpu.hardware.isa import decode_around, text

if TYPE_CHECKING:
    from simgpu.engine.allocations import Allocation, DeviceMemory
    from simgpu.engine.workers.worker import Worker
    from simgpu.hardware.code_object.arguments import Geometry
    from simgpu.memory.table import AllocationTable


FIRST = "the first workgroup begins from the launch's memory"
ENDLESS = (Deadlock, InstructionLimit, TimeLimit)  # errors that end a workgroup which waits for another one
SPARE, FEWEST = 4, 1_000_000  # limit of a part's instructions: a multiple of the whole launch's, and the least limit
WAITS = re.compile(r"atomic|_load.*\b(glc|sc0|sc1)\b|buffer_inv|buffer_wbinvl1|s_dcache_inv|ds_gws")
# Larger untracked allocations, in bytes, are not copied: that is the heap, which is as good as new if nothing points into it.
HEAP = 1 << 28


class Initial:
    """Copies of all memory that kernels may write."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._copies: dict[int, tuple[Allocation, np.ndarray]] = {}
        self.keep()

    def keep(self) -> None:
        """Copies memory that was not yet copied."""
        for one in self._memory.allocations:
            if one.writable and one.base not in self._copies and (one.tracked or one.nbytes < HEAP):
                self._copies[one.base] = one, one.data.copy()

    def restore(self) -> None:
        """Restores all copied memory."""
        for one, data in self._copies.values():
            one.data[:] = data

    def undo(self, table: AllocationTable) -> None:
        """Restores the bytes that a launch may have written, by its table, and all of the untracked memory."""
        for base, first, end in table.written_ranges():
            if base in self._copies:
                one, data = self._copies[base]
                one.data[first:end] = data[first:end]
        for one, data in self._copies.values():
            if not one.tracked:
                one.data[:] = data

    def bytes_at(self, address: int, nbytes: int) -> bytes:
        """Returns the initial bytes at an address."""
        held = self._memory.find(address)
        if held is None:
            return b""
        data = self._copies[held.base][1] if held.base in self._copies else held.data
        return data[address - held.base : address - held.base + nbytes].tobytes()

    def changed_memory(self) -> str:
        """Returns the name of untracked memory that has changed, such as the heap; "" if none has."""
        for one, data in self._copies.values():
            if not one.tracked and not np.array_equal(one.data, data):
                return one.label or f"memory at {one.address:#x}"
        return ""


class Dependence(Supervisor):
    """Tests if a launch's workgroups may depend on each other. why: the reason, "" if no byte is both read and written."""

    why = "the device counts no unique bytes"

    def after_run(self, launch: Launch, workers: list[Worker]) -> None:
        if launch.table.bitmaps is not None:
            byte = launch.table.dependence()
            self.why = "" if byte is None else f"the byte at {byte:#x} is read and written"


class Focus:
    """Device memory before a launch, and at the beginning of any of its workgroups.

    how: text on how `memory_of` made the last memory. whole: True if all workgroups must run, because that workgroup or one before
    it waits for a later one.
    """

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        self._kernel, self._geometry, self._args = kernel, geometry, args
        self._memory = kernel.module.device.memory
        self.before = Initial(self._memory)
        self._independent: bool | None = None  # not known yet
        self._most = 0  # instructions that the whole launch executed, 0 if it failed
        self.how = ""
        self.whole = False

    def memory_of(self, number: int) -> Initial:
        """Restores and returns memory as it is at the beginning of workgroup `number`, in dispatch order; if `whole`, as it is at
        the launch's beginning. The current contents of memory are lost.
        """
        self.before.restore()
        seed = self._kernel.module.device.weak
        self.whole = seed is not None
        if self.whole:
            self.how = f"weak mode: the whole launch runs, its waves in the order of seed {seed}"
            return self.before
        if self._independent is None and (number or _may_wait(self._kernel)):
            self._prove()
        if self._independent in (None, True):
            self.how = "no workgroup reads data that another one writes: each begins with the launch's memory" if number else FIRST
            return self.before
        try:
            found = self._left_by(number)
        except ENDLESS:
            self.whole = True
            self.how = "workgroups wait for later ones: the whole launch runs, on one thread, in the order of dispatch"
            found = self.before
        except SimError:
            self.how = f"the {number} workgroups before it fail: memory is as before the launch"
            found = self.before
        self.before.restore()
        found.restore()
        return found

    def _left_by(self, number: int) -> Initial:
        """Returns memory as the workgroups before `number` leave it. Then runs that workgroup, to test if it ends by itself.

        Raises the errors of the earlier workgroups, and one of ENDLESS if this one does not end without later ones.
        """
        kernel = _with_limit(self._kernel, self._most)
        self.how = FIRST
        if number:
            Launch(kernel, self._geometry, self._args, parts=[range(number)]).run()
            self.how = f"workgroups may read data that others write: the {number} before it ran first"
        found = Initial(self._memory)
        try:
            Launch(kernel, self._geometry, self._args, parts=[range(number, number + 1)]).run()
        except ENDLESS:
            raise
        except SimError:
            pass  # a failing kernel is the normal case for a debugger
        return found

    def _prove(self) -> None:
        """Runs the whole launch once, to find out if workgroups are independent, and restores memory."""
        dependence = Dependence()
        try:
            self._most = Launch(self._kernel, self._geometry, self._args, supervisor=dependence).run().instructions
            self._independent = not dependence.why and not self.before.changed_memory()
        except SimError:  # a failing kernel is the normal case for a debugger
            self._independent = False
        self.before.restore()


def _with_limit(kernel: Kernel, most: int) -> Kernel:
    """Returns the kernel on a device with a limit of instructions: a part of a launch that exceeds it must be waiting.

    most: instructions of the whole launch, 0 if unknown
    """
    device = kernel.module.device.sharing(())
    if most:
        device.max_instructions = min(device.max_instructions, SPARE * most + FEWEST)
    return Kernel(kernel.module.on(device), kernel.info)


def _may_wait(kernel: Kernel) -> bool:
    """True if a kernel has an atomic or a load past the caches: without these, no workgroup can wait for another."""
    info = kernel.info
    raw = kernel.module.code.read(info.start, info.code_size)
    return any(inst is not None and WAITS.search(text(inst)) for _, inst in decode_around(raw, kernel.module.device.arch))


def whole_launch(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int) -> np.ndarray:
    """Returns the bytes from an address to its allocation's end after the whole launch. Restores memory."""
    memory = kernel.module.device.memory
    before, held = Initial(memory), memory.find(address)
    assert held is not None
    try:
        Launch(kernel, geometry, args).run()
        return held.data[address - held.base :].copy()
    finally:
        before.restore()
