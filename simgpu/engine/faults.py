"""Turns a stopped wave into an error for people: kernel, pc, instruction, line, wave, lane, address."""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.engine.dispatch import Dispatch
from simgpu.engine.positions import argument_names, element, place
from simgpu.engine.workers.worker import Worker, current_wave, live_waves, wave_of
from simgpu.hardware.errors import (
    Deadlock,
    DecodeError,
    InstructionLimit,
    KernelTrap,
    MemoryFault,
    SimError,
    TimeLimit,
    UnsupportedInstruction,
)
from simgpu.machine import layout
from simgpu.machine.layout import Fault, Status


def describe(launch: Dispatch, worker: Worker) -> SimError:
    """Returns the error for a worker that stopped at a fault."""
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
        near = launch.memory.describe(address, argument_names(launch))
        return MemoryFault(f"{where}: access to {address:#x}, {near} ({who}{lane})")
    if kind == Fault.READONLY:
        return MemoryFault(f"{where}: write to read-only memory at {address:#x}{element(launch, address)} ({who}{lane})")
    if kind == Fault.MISALIGNED:
        return MemoryFault(
            f"{where}: atomic at {address:#x}{element(launch, address)}, which is no multiple of its size ({who}{lane})"
        )
    if kind == Fault.LDS:
        return MemoryFault(
            f"{where}: LDS offset {address:#x} is outside the {launch.lds_bytes} bytes "
            f"of the workgroup{_granules(launch)} ({who}{lane})"
        )
    if kind == Fault.SCRATCH:
        return MemoryFault(
            f"{where}: private offset {address:#x} is outside the {launch.private} bytes "
            f"of a lane ({who}{lane})"
        )
    if kind == Fault.TRAP:
        return KernelTrap(f"{where}: the kernel trapped ({who}){_complaints(launch)}")
    return MemoryFault(f"{_jump(launch, state.resume, address)} ({who})")


def _granules(launch: Dispatch) -> str:
    return f", for which the chip reserves {launch.lds_room}" if launch.lds_room > launch.lds_bytes else ""


def outside_lds(launch: Dispatch, workers: Sequence[Worker]) -> list[str]:
    """Returns a note if a load read outside LDS in plain mode."""
    found = [int(worker.context[layout.CTX_OUTSIDE_LDS // 8]) for worker in workers]
    at = max(found, default=-1)
    if at < 0:
        return []
    return [f"{place(launch, at)}: reads outside LDS and gets 0, as on the GPU; checked mode shows lane and offset"]


def _jump(launch: Dispatch, index: int, address: int) -> str:
    """Describes where control left the code, and its target. address: device address of the target."""
    base, count = launch.program.base, launch.program.count
    code = f"the code, {base:#x} to {base + 4 * count:#x}"
    if index == count:  # no jump led here: a jump out of the code faults itself
        last = max((i for program in launch.programs.values() for i in program.instructions), default=0)
        return f"{place(launch, last)}: the wave ran on past the end of {code}: the code ends here"
    away = address - (base + 4 * index)
    inside = base <= address < base + 4 * count
    wrong = "which is no multiple of 4, in" if inside else "outside"
    return f"{place(launch, index)}: jump to {address:#x}, {away:+#x} bytes from here, {wrong} {code}"


def _complaints(launch: Dispatch) -> str:
    """Returns the kernel's output to stderr before it trapped, such as failed assertions."""
    said = launch.output.taken_complaints()
    return "".join(f"\n{text.strip()}" + (f" ({times} lanes)" if times > 1 else "") for text, times in said.items())


def all_wait(launch: Dispatch, worker: Worker) -> Deadlock:
    """Returns the error for a launch whose waves all wait at ds_gws instructions. worker: one of its workers with such waves."""
    waves = [wave for wave in live_waves(worker) if wave.status == Status.WAITING]
    where = place(launch, waves[0].resume) if waves else launch.info.title
    return Deadlock(
        f"{launch.info.title}: all remaining waves wait for others, {len(waves)} of one host thread before {where}: "
        "not all workgroups reach the same ds_gws instructions, or their data is not the number of waves less 1"
    )


def out_of_budget(launch: Dispatch, worker: Worker) -> SimError:
    """Returns the error for a launch that used up its instructions. worker: one that ran when the budget ended."""
    spent = f"after {launch.max_instructions} instructions (max_instructions)"
    where = _running_at(launch, worker, spent)
    if isinstance(where, Deadlock):
        return where
    return InstructionLimit(f"{where}: still running {spent}; raise max_instructions if it is meant to ({_group(worker)})")


def out_of_time(launch: Dispatch, workers: list[Worker]) -> SimError:
    """Returns the error for a launch that used up its time. workers: those that have not finished."""
    spent = f"after {launch.timeout:g} s (timeout)"
    worker = next((worker for worker in workers if any(live_waves(worker))), None)
    if worker is None:
        said = "the compiled code is cached, so a second try takes less time"
        return TimeLimit(f"{launch.info.title}: no wave ran yet {spent}; {said}")
    where = _running_at(launch, worker, spent)
    if isinstance(where, Deadlock):
        return where
    return TimeLimit(f"{where}: still running {spent}; give it more time if it is meant to ({_group(worker)})")


def _group(worker: Worker) -> str:
    return f"workgroup {current_wave(worker).group}"


def _running_at(launch: Dispatch, worker: Worker, spent: str) -> str | Deadlock:
    """Returns the place of a running wave in the worker's workgroup, or a Deadlock if other waves wait for one that never
    arrives."""
    state = current_wave(worker)
    slot = worker.job.current
    waiting: list[int] = []
    running: list[tuple[int, int]] = []
    for wave in range(worker.slots[slot].waves):
        held = wave_of(worker, slot, wave)
        if held.status == Status.BARRIER:
            waiting.append(wave)
        elif held.status != Status.ENDED:
            running.append((wave, held.resume))
    if not waiting or not running:
        return place(launch, running[0][1] if running else state.resume)
    waits = place(launch, wave_of(worker, slot, waiting[0]).resume)
    return Deadlock(
        f"{_group(worker)}: wave {waiting[0]} waits at the barrier before {waits}, wave {running[0][0]} never reaches one "
        f"and is at {place(launch, running[0][1])} {spent}"
    )
