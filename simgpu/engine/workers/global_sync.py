"""Global wave sync: the ds_gws_* instructions, which synchronise waves of all workgroups.

A resource is a counter. BARRIER subtracts one and waits; the wave that finds 0 releases all waiting waves and sets the counter
to its data. SEMA_P waits for a counter above 0 and subtracts one, SEMA_V adds one, SEMA_BR adds its data. SEMA_RELEASE_ALL
releases all waiting waves (AMD "Vega" ISA guide, "Data share instructions", DS_GWS_*).
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from simgpu.engine.workers.worker import Worker, place_of_wave, wave_bytes_of, wave_of
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.machine import layout
from simgpu.machine.layout import Status, Wave
from simgpu.machine.shield import WAKE

RESOURCES = 64


@dataclass
class GlobalCounter:
    """A resource."""

    counter: int = 0
    waiting: deque[tuple[Wave, str]] = field(default_factory=deque)  # waiting waves and their instructions, such as "sema_p"


class GlobalSync:
    """Resources of one launch. count: initial counter of resource 0."""

    def __init__(self, count: int = 0) -> None:
        self._resources: defaultdict[int, GlobalCounter] = defaultdict(GlobalCounter)  # used resources, by number
        self._resources[0].counter = count
        self._changed = threading.Condition()
        self.released = 0  # number of waves released
        self.used = False  # True if a wave executed an instruction
        self._running = 0  # workers that have waves left
        self._idle: dict[int, int] = {}  # workers whose waves all wait, by id: `released` when they looked

    def serve(self, worker: Worker, inst: Instruction) -> None:
        """Executes the current wave's ds_gws instruction. Makes the wave run on, or wait."""
        slot, number = place_of_wave(worker)
        wave = wave_of(worker, slot, number)
        exec_mask = wave.sgprs[126] | wave.sgprs[127] << 32
        base = wave.sgprs[124] >> 16 & 0x3F
        what = inst.mnemonic.removeprefix("ds_gws_")
        with self._changed:
            self.used = True
            resource = self._resources[(base + int(inst.mods.get("offset", 0))) % RESOURCES]
            goes_on = self._execute(resource, what, _data(worker, slot, number, inst, exec_mask))
            if goes_on:
                wave.status = Status.RUNNING
            else:
                wave.status = Status.WAITING
                resource.waiting.append((wave, what))

    def _execute(self, resource: GlobalCounter, what: str, data: int) -> bool:
        """Applies the instruction's effect. Returns True if its wave continues."""
        if what == "init":
            resource.counter = data
        elif what == "barrier":
            if resource.counter > 0:
                resource.counter -= 1
                return False
            resource.counter = data
            self._let_on(resource, len(resource.waiting))
        elif what == "sema_p":
            if resource.counter <= 0:
                return False
            resource.counter -= 1
        elif what == "sema_release_all":
            self._let_on(resource, len(resource.waiting))
        else:
            resource.counter += data if what == "sema_br" else 1
            now = min(resource.counter, len(resource.waiting))
            resource.counter -= now
            self._let_on(resource, now)
        return True

    def _let_on(self, resource: GlobalCounter, count: int) -> None:
        for _ in range(count):
            wave, _ = resource.waiting.popleft()
            wave.status = Status.RUNNING
        self.released += count
        self._changed.notify_all()

    # -- workers -----------------------------------------------------------------------------------

    def begin(self, workers: int) -> None:
        """Sets the number of workers with waves to run, before any of them runs."""
        self._running = workers

    def leave(self) -> None:
        """Records that a worker has no more waves to run."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def wait(self, worker: Worker, seen: int) -> bool:
        """Waits a moment, on behalf of a worker whose waves all wait. seen: `released` before the worker looked at them.

        Returns False if the waves of all other workers wait as well, so that nothing can release them.
        """
        with self._changed:
            self._idle[id(worker)] = seen
            try:
                if len(self._idle) == self._running and set(self._idle.values()) == {self.released}:
                    return False
                if self.released == seen:
                    self._changed.wait(WAKE)
                return True
            finally:
                del self._idle[id(worker)]


def _data(worker: Worker, slot: int, number: int, inst: Instruction, exec_mask: int) -> int:
    """Returns the data operand of the first active lane (of lane 0 if none is active), 0 without an operand."""
    register = inst.args.get("addr")  # the encoding's name for its only register
    if not isinstance(register, Reg):
        return 0
    lane = (exec_mask & -exec_mask).bit_length() - 1 if exec_mask else 0
    at = layout.vector_register(register.file, register.index) + 4 * lane
    return int(wave_bytes_of(worker, slot, number)[at : at + 4].view(np.uint32)[0])
