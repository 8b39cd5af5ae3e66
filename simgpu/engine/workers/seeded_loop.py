"""Scheduling loop of weak mode: a seed chooses which wave runs, and for how long.

All workgroups that the worker has memory for are resident. Each turn goes to a wave of any of them that can run.
Sometimes a wave is held back while others have many turns.
"""

from __future__ import annotations

from typing import Any

from simgpu.engine.workers.scheduler import BUSY, EMPTY, FINISHED, IDLE, LIMIT, NEED_PYTHON, PAUSED, STOPPED, WorkerJob
from simgpu.engine.workers.scheduler_loop import JOB, SLOT, WAVE, open_group, release_barrier, run_piece
from simgpu.machine.layout import Status
from simgpu.machine.runtime import draw, load64, part, records, runtime, structure

RANDOM = WorkerJob.random.offset  # of the generator's state in a job
SHORTEST, SPREAD = 8, 10  # record steps of a turn: SHORTEST times a power of 2 below 2^SPREAD
SHORT_HOLD, HOLDS = 16, 7  # others' turns while a wave is held back: below SHORT_HOLD times a power of 2 below 2^HOLDS


@part
def wave_at(job: Any, slot: int, wave: int) -> int:
    """Returns the address of a wave."""
    return job.wave_memory + (slot * job.waves + wave) * job.wave_bytes


@part
def can_run(status: int) -> bool:
    """True if a wave with this status is not waiting."""
    return status == Status.RUNNING or status == Status.YIELD or status == Status.LOWER


@part
def choose_wave(job: Any, slots: Any, random: int) -> bool:
    """Chooses the wave that has the next turn. Returns False if none can run."""
    count = job.open * job.waves
    if job.hold == 0 and draw(random) & (1 << job.holds) - 1 == 0:
        job.held = job.current * job.waves + job.wave
        job.hold = draw(random) & (SHORT_HOLD << draw(random) % HOLDS) - 1
    job.hold = max(job.hold - 1, 0)
    first, found = draw(random) % max(count, 1), -1
    for step in range(count):
        at = (first + step) % count
        slot, wave = slots[at // job.waves], structure(wave_at(job, at // job.waves, at % job.waves), WAVE)
        if slot.state == BUSY and at % job.waves < slot.waves and can_run(wave.status):
            found = at
            if job.hold == 0 or at != job.held:
                break
    if found < 0:
        return False
    job.current, job.wave, job.turn = found // job.waves, found % job.waves, SHORTEST << draw(random) % SPREAD
    return True


@part
def run_turn(job: Any, slots: Any) -> int:
    """Runs the current wave for a piece of its turn. Returns FINISHED, or NEED_PYTHON."""
    slot, wave = slots[job.current], wave_at(job, job.current, job.wave)
    state = structure(wave, WAVE)
    if not can_run(state.status):
        job.turn = -1
        return FINISHED
    status = run_piece(job, wave, state)
    if status == Status.ENDED:
        slot.left -= 1
    elif status == Status.BARRIER:
        slot.waiting += 1
        job.turn = -1
    elif status == Status.WAITS:
        state.status = Status.RUNNING
        job.turn = -1
    elif status != Status.YIELD:
        return NEED_PYTHON
    if slot.left and slot.waiting == slot.left:
        release_barrier(job, slots, job.current)
    if slot.left == 0:
        slot.state = EMPTY
        job.taken -= 1
    return FINISHED


@runtime
def run_seeded_worker(job_at: int, slots_at: int, resident: int) -> int:
    """Runs workgroups until none is left, or until it must return to Python. resident: number of slots."""
    job, slots = structure(job_at, JOB), records(slots_at, resident, SLOT)
    random = job_at + RANDOM
    while True:
        if slots[job.current].state == EMPTY or job.turn < 0:
            for number in range(resident):
                if slots[number].state == EMPTY and not job.exhausted:
                    open_group(job, slots, number)
                    job.open = max(job.open, number + 1)
            if not choose_wave(job, slots, random):
                return FINISHED if job.taken == 0 else IDLE
        status = run_turn(job, slots)
        if status != FINISHED:
            return status
        if load64(job.budget) < job.spent:
            return LIMIT
        if job.stop:
            return STOPPED
        if job.pause < 0:
            return PAUSED
