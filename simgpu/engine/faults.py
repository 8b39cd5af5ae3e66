"""From a stopped wave to an error for people: kernel, pc, instruction, line, wave, lane, address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.engine.workers.worker import Worker, current_wave, wave_of
from simgpu.hardware.errors import (
    Deadlock,
    DecodeError,
    InstructionLimit,
    KernelTrap,
    MemoryFault,
    SimError,
    UnsupportedInstruction,
)
from simgpu.hardware.isa import text
from simgpu.machine.layout import Fault, Status

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch


def place(launch: Launch, index: int) -> str:
    """Words for a record: code offset, instruction text and source line."""
    inst = launch.instruction(index)
    shown = text(inst) if inst is not None else "no instruction"
    virtual = launch.program.base + 4 * index - launch.kernel.module.bias
    line = launch.kernel.module.code.source_line(virtual)
    offset = 4 * (index - launch.entry)
    return f"{launch.info.name}+{offset:#x} (pc {virtual:#x}) `{shown}`" + (f" at {line}" if line else "")


def describe(launch: Launch, worker: Worker, limit: bool = False) -> SimError:
    """The error for a worker that stopped at a fault, or at its instruction budget."""
    if limit:
        return _out_of_budget(launch, worker)
    state = current_wave(worker)
    where = place(launch, state.resume)
    who = f"workgroup {state.group}, wave {state.wave}"
    problem = launch.problem(state.resume)
    if state.status == Status.UNSUPPORTED:
        return UnsupportedInstruction(f"{where}: {problem or 'not executable here'} ({who})")
    lane = f", lane {state.fault_lane}" if state.fault_lane >= 0 else ""
    address = state.fault_address
    kind = state.fault_kind
    if kind == Fault.REGISTER and not problem:
        return DecodeError(f"{where}: M0 = {address:#x} moves a register past its file ({who})")
    if kind in (Fault.UNDECODABLE, Fault.REGISTER):
        return DecodeError(f"{where}: {problem} ({who})")
    if kind == Fault.MEMORY:
        near = launch.device.memory.describe(address)
        return MemoryFault(f"{where}: access to {address:#x}, {near} ({who}{lane})")
    if kind == Fault.READONLY:
        return MemoryFault(f"{where}: write to read-only memory at {address:#x} ({who}{lane})")
    if kind == Fault.MISALIGNED:
        return MemoryFault(
            f"{where}: atomic at {address:#x}, which is no multiple of its size ({who}{lane})"
        )
    if kind == Fault.LDS:
        return MemoryFault(
            f"{where}: LDS offset {address:#x} is outside the {launch.lds_bytes} bytes "
            f"of the workgroup ({who}{lane})"
        )
    if kind == Fault.SCRATCH:
        return MemoryFault(
            f"{where}: private offset {address:#x} is outside the {launch.private} bytes "
            f"of a lane ({who}{lane})"
        )
    if kind == Fault.TRAP:
        return KernelTrap(f"{where}: the kernel trapped ({who}){_complaints(launch)}")
    return MemoryFault(f"{where}: jump to {address:#x}, {problem or 'outside the code'} ({who})")


def _complaints(launch: Launch) -> str:
    """What the kernel wrote to stderr before it trapped, as failed assertions do."""
    if launch.host is None:
        return ""
    said = dict(launch.host.complaints)
    launch.host.complaints.clear()
    return "".join(f"\n{text.strip()}" + (f" ({times} lanes)" if times > 1 else "") for text, times in said.items())


def _out_of_budget(launch: Launch, worker: Worker) -> SimError:
    """A runaway kernel; a deadlock where some of its waves wait for the ones that run away."""
    state = current_wave(worker)
    slot = worker.job.current
    waiting: list[tuple[int, int, int]] = []
    running: list[tuple[int, int, int]] = []
    for wave in range(worker.slots[slot].waves):
        held = wave_of(worker, slot, wave)
        (waiting if held.status == Status.BARRIER else running).append((wave, held.resume, held.status))
    spent = f"after {launch.device.max_instructions} instructions (max_instructions)"
    alive = [entry for entry in running if entry[2] != Status.ENDED]
    if waiting and alive:
        return Deadlock(
            f"workgroup {state.group}: wave {waiting[0][0]} waits at the barrier before "
            f"{place(launch, waiting[0][1])}, wave {alive[0][0]} never reaches one and is at "
            f"{place(launch, alive[0][1])} {spent}"
        )
    at = alive[0][1] if alive else state.resume
    return InstructionLimit(
        f"{place(launch, at)}: still running {spent}; raise max_instructions if it is meant to "
        f"(workgroup {state.group})"
    )
