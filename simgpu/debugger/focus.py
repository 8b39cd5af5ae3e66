"""Which memory a workgroup begins from: the launch's own where no workgroup reads what another one writes, else what those
before it leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from simgpu.engine.launch import Launch
from simgpu.engine.result import Run, summarise
from simgpu.engine.workers.worker import Worker
from simgpu.hardware.errors import Deadlock, InstructionLimit, LaunchError, SimError, TimeLimit

if TYPE_CHECKING:
    from simgpu.engine.allocations import Allocation, Memory
    from simgpu.engine.device import Kernel
    from simgpu.hardware.code_object.arguments import Geometry
    from simgpu.memory.table import Table


HEAP = 1 << 28  # bytes of memory of the launch's own that is not copied: the heap, which is fresh where nothing points into it


class Initial:
    """Copies of all memory that kernels may write."""

    def __init__(self, memory: Memory) -> None:
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

    def undo(self, table: Table) -> None:
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


class _Part(Launch):
    """The first workgroups of a launch, on all threads."""

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object], count: int) -> None:
        super().__init__(kernel, geometry, args)
        self.count = count
        self.dependence = "the device counts no unique bytes"  # why workgroups may depend on each other; "" where none does

    def _run(self, workers: list[Worker]) -> Run:
        self._run_groups(workers, 0, self.count)
        for worker in workers:
            if worker.error is not None:
                raise worker.error
        assert self._table is not None
        table = self._table[1]
        if table.bitmaps is not None:
            byte = table.dependence()
            self.dependence = "" if byte is None else f"the byte at {byte:#x} is read and written"
        return summarise(self, workers, 0.0)


class Focus:
    """The memory of one launch: as it was before it, and as each workgroup finds it.

    how: in words, how the workgroup that was last asked for gets its memory.
    """

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        self._kernel, self._geometry, self._args = kernel, geometry, args
        self._memory = kernel.module.device.memory
        self.before = Initial(self._memory)
        self._independent: bool | None = None  # not known yet
        self.how = ""

    def memory_of(self, number: int) -> Initial:
        """Memory as workgroup `number`, in the order of dispatch, finds it; what it was at the time of the call is lost.

        Raises LaunchError where those before it never end without it.
        """
        self.before.restore()
        if number == 0:
            self.how = "the first workgroup begins from the launch's memory"
            return self.before
        if self._independent is None:
            self._prove()
        if self._independent:
            self.how = "no workgroup reads what one writes: each begins from the launch's memory"
            return self.before
        try:
            _Part(self._kernel, self._geometry, self._args, number).run()
        except (Deadlock, InstructionLimit, TimeLimit) as error:
            self.before.restore()
            raise LaunchError(f"the workgroups before it do not end without it: {error}") from None
        except SimError:
            self.how = f"the {number} workgroups before it fail: memory is as before the launch"
            self.before.restore()
            return self.before
        found = Initial(self._memory)
        self.how = f"workgroups may read what others write: the {number} before it ran first"
        self.before.restore()
        found.restore()
        return found

    def _prove(self) -> None:
        """Runs the whole launch once and looks at its bitmaps."""
        groups = self._geometry.groups
        whole = _Part(self._kernel, self._geometry, self._args, groups[0] * groups[1] * groups[2])
        try:
            whole.run()
            self._independent = not whole.dependence and not self.before.changed()
        except SimError:  # a kernel that fails is what one debugs
            self._independent = False
        self.before.restore()


CHUNKS = 64  # into which a launch is cut, to find who wrote a byte


class _Writer(Launch):
    """A launch in chunks of workgroups, after each of which somebody may look."""

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int, first: int, last: int) -> None:
        super().__init__(kernel, geometry, args)
        self.address, self.first, self.last = address, first, last
        self.found: tuple[int, int] | None = None  # the chunk that wrote the byte first

    def _run(self, workers: list[Worker]) -> Run:
        assert self._table is not None
        size = -(-(self.last - self.first) // CHUNKS)
        for first in range(self.first, self.last, size):
            last = min(self.last, first + size)
            self._run_groups(workers, first, last)
            for worker in workers:
                if worker.error is not None:
                    raise worker.error
            if self._table[1].was_written(self.address):
                self.found = first, last
                break
        return summarise(self, workers, 0.0)


def writer_of(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int) -> int | None:
    """The first workgroup, in the order of dispatch, that writes a byte of memory; None where none does. Memory is as before."""
    before = Initial(kernel.module.device.memory)
    groups = geometry.groups
    found: tuple[int, int] | None = (0, groups[0] * groups[1] * groups[2])
    try:
        while found is not None and found[1] - found[0] > 1:
            launch = _Writer(kernel, geometry, args, address, *found)
            launch.run()
            found = launch.found
            before.restore()
    finally:
        before.restore()
    return None if found is None else found[0]


def whole_launch(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int) -> np.ndarray:
    """The bytes from an address to its allocation's end after the whole launch, which leaves memory as it was."""
    memory = kernel.module.device.memory
    before, held = Initial(memory), memory.find(address)
    assert held is not None
    groups = geometry.groups
    try:
        _Part(kernel, geometry, args, groups[0] * groups[1] * groups[2]).run()
        return held.data[address - held.base :].copy()
    finally:
        before.restore()
