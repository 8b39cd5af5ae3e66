"""Launch as checks, errors and findings see it: code, memory, lowered programs. `launch.Launch` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simgpu.engine.accounts import Accounts
from simgpu.engine.allocations import DeviceMemory
from simgpu.engine.hostcall.output import Output
from simgpu.engine.node import DeviceNode
from simgpu.engine.program import Program
from simgpu.engine.suppressions import Suppressions
from simgpu.engine.workers.borrowed import LaunchLoan
from simgpu.engine.workers.scheduler import SharedState
from simgpu.engine.workers.worker import Worker
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import KernelInfo as KernelInfo
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.isa import Instruction
from simgpu.memory.table import AllocationTable


class Dispatch:
    """State of one launch."""

    # Request:
    info: KernelInfo
    code: CodeObject  # the kernel's module
    bias: int  # device address of the code minus the virtual one
    origins: Mapping[str, str]  # emitters by source line, see `device.Module`
    geometry: Geometry
    args: list[object]
    notes: Sequence[str]  # assumptions about arguments
    # Device:
    chip: HardwareDescriptor
    memory: DeviceMemory
    shadows: dict[str, Any]  # data that checks keep from one launch to the next
    node: DeviceNode | None  # devices that share memory with this one
    number: int  # the device's number among them
    check: bool | str  # see `device.Device`
    footprints: bool  # True if checked launches find their footprint
    suppressions: Suppressions  # findings that are not reported
    weak: int | None  # seed of weak mode, None outside it
    late: int | None  # seed of late mode, None outside it
    seed: int | None  # seed of the order in which waves run, None if they run in order
    max_instructions: int
    timeout: float | None  # seconds
    # Derived values:
    groups: int  # workgroups of the grid
    parts: Sequence[range]  # numbers of the workgroups that run, in dispatch order
    count: int  # number of workgroups in `parts`
    waves: int  # waves of a whole workgroup
    lds_bytes: int  # bytes of LDS that a workgroup asks for
    exact_lds: bool  # see `Check`
    lds_room: int  # bytes of LDS that it gets: whole granules, as on the chip; with exact_lds what it asks for
    private: int  # bytes of private memory of a lane
    entry: int  # record of the kernel's first instruction
    # State while it runs:
    program: Program  # program for the MODE register's first value
    programs: dict[int, Program]  # programs by `mode.number`
    table: AllocationTable  # table of the allocations
    borrowed: LaunchLoan
    output: Output
    checks: dict[str, Any]  # data of checks that is not a worker's
    shared: SharedState
    at_work: Sequence[Worker]  # the launch's workers, once they are made

    @property
    def arch(self) -> str:
        """Architecture of the chip: "gfx942"."""
        return self.chip.arch

    @property
    def progress(self) -> tuple[int, int]:
        """Numbers of workgroups that have ended, and of all that run. Other threads may read it while the launch runs."""
        begun = sum(min(max(self.shared.counter - part.start, 0), len(part)) for part in self.parts)
        return begun - sum(worker.job.taken for worker in self.at_work), self.count

    @property
    def accounts(self) -> Accounts:
        """Costs of the instructions lowered so far, cached until more are lowered."""
        version = [program.version for program in self.programs.values()]
        known = self.program.kept.get(("accounts", self.entry))
        if known is None or (known[0] != version and not (known[1].settled and len(version) == 1)):
            known = version, Accounts.of(tuple(self.programs.values()), self.entry)
            self.program.kept["accounts", self.entry] = known
        found: Accounts = known[1]
        return found

    def instruction(self, index: int) -> Instruction | None:
        """Returns the instruction at a record, None if no program lowered it."""
        found = (program.instructions.get(index) for program in self.programs.values())
        return next((inst for inst in found if inst is not None), None)

    def problem(self, index: int) -> str:
        """Returns the reason why a record cannot be executed, or ""."""
        return next((p.problems[index] for p in self.programs.values() if index in p.problems), "")
