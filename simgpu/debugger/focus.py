"""Which memory a workgroup begins from: the launch's own where no workgroup reads what another one writes, else what those
before it leave; and whether others must run with it, as it or one before it waits for a later one."""

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
ENDLESS = (Deadlock, InstructionLimit, TimeLimit)  # what a workgroup that waits for another one ends in
SPARE, FEWEST = 4, 1_000_000  # of a part's instructions: so many times the whole launch's, and so many at least
WAITS = re.compile(r"atomic|_load.*\b(glc|sc0|sc1)\b|buffer_inv|buffer_wbinvl1|s_dcache_inv|ds_gws")
HEAP = 1 << 28  # bytes of memory of the launch's own that is not copied: the heap, which is fresh where nothing points into it


class Initial:
    """Copies of all memory that kernels may write."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._copies: dict[int, tuple[Allocation, np.ndarray]] = {}
        self.keep()

    def keep(self) -> None:
        """Copy what is there now and was not yet copied."""
        for one in self._memory.allocations:
            if one.writable and one.base not in self._copies and (one.tracked or one.nbytes < HEAP):
                self._copies[one.base] = one, one.data.copy()

    def again(self) -> None:
        """Take what is there now for the beginning."""
        self._copies.clear()
        self.keep()

    def restore(self) -> None:
        """All of it as it was."""
        for one, data in self._copies.values():
            one.data[:] = data

    def undo(self, table: AllocationTable) -> None:
        """The same where a launch may have written, by its table; memory that the table does not track is restored as a whole."""
        for base, first, end in table.written():
            if base in self._copies:
                one, data = self._copies[base]
                one.data[first:end] = data[first:end]
        for one, data in self._copies.values():
            if not one.tracked:
                one.data[:] = data

    def bytes_at(self, address: int, nbytes: int) -> bytes:
        """Bytes as they were."""
        held = self._memory.find(address)
        if held is None:
            return b""
        data = self._copies[held.base][1] if held.base in self._copies else held.data
        return data[address - held.base : address - held.base + nbytes].tobytes()

    def changed(self) -> str:
        """Words for untracked memory, a module's variables or its heap, that is not as it was; "" where all is."""
        for one, data in self._copies.values():
            if not one.tracked and not np.array_equal(one.data, data):
                return one.label or f"memory at {one.address:#x}"
        return ""


class Dependence(Supervisor):
    """Finds out whether a launch's workgroups may depend on each other. why: how, "" where none reads what another one writes."""

    why = "the device counts no unique bytes"

    def ran(self, launch: Launch, workers: list[Worker]) -> None:
        if launch.table.bitmaps is not None:
            byte = launch.table.dependence()
            self.why = "" if byte is None else f"the byte at {byte:#x} is read and written"


class Focus:
    """The memory of one launch: as it was before it, and as each workgroup finds it.

    how: in words, how the workgroup that was last asked for gets its memory; whole: whether all others run, too, as it or one
    before it waits for a later one.
    """

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        self._kernel, self._geometry, self._args = kernel, geometry, args
        self._memory = kernel.module.device.memory
        self.before = Initial(self._memory)
        self._independent: bool | None = None  # not known yet
        self._most = 0  # instructions that the whole launch executed, 0 where it failed
        self.how = ""
        self.whole = False

    def memory_of(self, number: int) -> Initial:
        """Memory as workgroup `number`, in the order of dispatch, finds it, or the launch where `whole`; what it was at the time of
        the call is lost."""
        self.before.restore()
        self.whole = False
        if self._independent is None and (number or _may_wait(self._kernel)):
            self._prove()
        if self._independent in (None, True):
            self.how = "no workgroup reads what one writes: each begins from the launch's memory" if number else FIRST
            return self.before
        try:
            found = self._left_by(number)
        except ENDLESS:
            self.whole = True
            self.how = "workgroups wait for later ones: all of the launch runs, on one thread, in the order of dispatch"
            found = self.before
        except SimError:
            self.how = f"the {number} workgroups before it fail: memory is as before the launch"
            found = self.before
        self.before.restore()
        found.restore()
        return found

    def _left_by(self, number: int) -> Initial:
        """Memory as the workgroups before one leave it. Raises what they raise, and Deadlock or a limit's error where the one does
        not end alone behind them."""
        kernel = _limited(self._kernel, self._most)
        self.how = FIRST
        if number:
            Launch(kernel, self._geometry, self._args, parts=[range(number)]).run()
            self.how = f"workgroups may read what others write: the {number} before it ran first"
        found = Initial(self._memory)
        try:
            Launch(kernel, self._geometry, self._args, parts=[range(number, number + 1)]).run()
        except ENDLESS:
            raise
        except SimError:
            pass  # a kernel that fails is what one debugs
        return found

    def _prove(self) -> None:
        """Runs the whole launch once and looks at its bitmaps."""
        dependence = Dependence()
        try:
            self._most = Launch(self._kernel, self._geometry, self._args, supervisor=dependence).run().instructions
            self._independent = not dependence.why and not self.before.changed()
        except SimError:  # a kernel that fails is what one debugs
            self._independent = False
        self.before.restore()


def _limited(kernel: Kernel, most: int) -> Kernel:
    """The kernel with a limit of instructions beyond which a part of a launch waits in vain; most: what the whole one executes."""
    device = kernel.module.device.sharing(())
    if most:
        device.max_instructions = min(device.max_instructions, SPARE * most + FEWEST)
    return Kernel(kernel.module.on(device), kernel.info)


def _may_wait(kernel: Kernel) -> bool:
    """Whether a kernel has an instruction without which no workgroup sees what another one has just written: an atomic operation,
    or a load past the caches."""
    info = kernel.info
    raw = kernel.module.code.read(info.start, info.code_size)
    return any(inst is not None and WAITS.search(text(inst)) for _, inst in decode_around(raw, kernel.module.device.arch))


def whole_launch(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int) -> np.ndarray:
    """The bytes from an address to its allocation's end after the whole launch, which leaves memory as it was."""
    memory = kernel.module.device.memory
    before, held = Initial(memory), memory.find(address)
    assert held is not None
    try:
        Launch(kernel, geometry, args).run()
        return held.data[address - held.base :].copy()
    finally:
        before.restore()
