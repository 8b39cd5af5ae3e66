"""Looking into a running kernel: the registers of a wave when it reaches an instruction.

A record that a wave is to stop at holds the handler of a record not lowered yet, so that reaching
it returns to Python with the wave's state whole. To go on, every record but that one is made to
stop, which executes exactly one instruction, and then all are put back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch
from simgpu.engine.lowering.handlers import leave
from simgpu.engine.program import Program
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_bytes_of
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa import text
from simgpu.hardware.isa.instruction import EXEC, VCC, Instruction, Reg
from simgpu.machine import layout
from simgpu.machine.layout import Status


@dataclass(frozen=True)
class Snapshot:
    """A wave's state before it executes the instruction at `pc`.

    pc: code offset from the kernel's first instruction, bytes; line: `file:line` or None;
    hit: how often the wave had been there, from 0; scalars: uint32 (128,), numbered as the
    encodings number scalar operands; vgprs, agprs: uint32 (256, 64).
    """

    pc: int
    instruction: Instruction
    line: str | None
    group: tuple[int, int, int]
    wave: int
    hit: int
    scc: int
    scalars: np.ndarray
    vgprs: np.ndarray
    agprs: np.ndarray

    @property
    def text(self) -> str:
        return text(self.instruction)

    @property
    def exec(self) -> int:
        """EXEC as 64 bits, lane 0 lowest."""
        return self._pair(EXEC)

    @property
    def vcc(self) -> int:
        return self._pair(VCC)

    def _pair(self, number: int) -> int:
        return int(self.scalars[number]) | int(self.scalars[number + 1]) << 32

    def _repr_html_(self) -> str:
        """For Jupyter: the place, and the vector registers of its instruction, as hexadecimal words by lane."""
        regs = [reg for reg in self.instruction.args.values() if isinstance(reg, Reg) and reg.file != "s"]
        rows = [(f"{reg.file}{reg.index + at}", words) for reg in regs for at, words in enumerate(self.registers(reg))]
        cells = "".join(f"<tr><th>{name}</th>{''.join(f'<td>{word:08x}</td>' for word in words)}</tr>" for name, words in rows)
        head = "".join(f"<th>{lane}</th>" for lane in range(layout.LANES))
        where = f"{self.pc:#x} `{self.text}`, workgroup {self.group}, wave {self.wave}, visit {self.hit}, EXEC {self.exec:#018x}"
        table = f"<table><tr><th></th>{head}</tr>{cells}</table>" if rows else ""
        return f"<p>{escape(where)}</p><div style='overflow-x:auto'>{table}</div>"

    def registers(self, reg: Reg) -> np.ndarray:
        """uint32: (count, 64) of vector registers, (count,) of scalar ones."""
        if reg.file == "s":
            return self.scalars[reg.index : reg.index + reg.count]
        file = self.vgprs if reg.file == "v" else self.agprs
        return file[reg.index : reg.index + reg.count]


def trace(
    kernel: Kernel,
    at: Collection[int],
    *,
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 64,
    args: Sequence[object] = (),
    dynamic_lds: int = 0,
    group: Sequence[int] = (0, 0, 0),
    wave: int = 0,
    hits: int = 1,
    skip: int = 0,
    alone: bool = False,
) -> list[Snapshot]:
    """The first `hits` visits, after `skip`, of a wave to any of the code offsets `at`.

    at: bytes from the kernel's first instruction; group, wave: the workgroup and the wave in it; alone: whether no other workgroup
    runs, which is quicker, and raises Deadlock where it waits for another one;
    grid, block, args, dynamic_lds as `Kernel.launch`. The kernel stops after the last visit asked
    for; fewer come back where it ends before. Raises LaunchError for a place that is none, and what
    `launch` raises.
    """
    geometry = Geometry.of(grid, block, dynamic_lds)
    check_geometry(kernel.info, geometry)
    kernel.check_buffers(args)
    run = _Traced(kernel, geometry, args, at, _three_ids(group, geometry.groups), wave, hits, skip, alone)
    if not 0 <= wave < run.waves:
        raise LaunchError(f"{kernel.name}: wave {wave} of a workgroup that has {run.waves}")
    run.run()
    return run.found


def _three_ids(group: Sequence[int], groups: tuple[int, int, int]) -> tuple[int, int, int]:
    ids = (*(int(i) for i in group), 0, 0)[:3]
    if len(group) > 3 or any(not 0 <= i < extent for i, extent in zip(ids, groups, strict=True)):
        raise LaunchError(f"workgroup {tuple(group)} is not in the grid {groups}")
    return ids[0], ids[1], ids[2]


class _Enough(Exception):
    """All visits asked for were seen."""


class _Traced(Launch):
    """A launch on one thread that stops at places."""

    fuse = False  # registers are looked at between instructions

    def __init__(
        self, kernel: Kernel, geometry: Geometry, args: Sequence[object], at: Collection[int],
        group: tuple[int, int, int], wave: int, hits: int, skip: int, alone: bool,
    ) -> None:  # fmt: skip
        super().__init__(kernel, geometry, args)
        self.workers = 1
        self.stops = {self.entry + offset // 4 for offset in at}
        self.group, self.wave, self.alone = group, wave, alone
        self.first, self.last = skip, skip + hits
        self.visits = 0
        self.found: list[Snapshot] = []
        # Handlers that stops replaced, by program and record.
        self.replaced: dict[int, tuple[Program, dict[int, np.ndarray]]] = {}
        code = self.program.count
        for offset in at:
            if offset % 4 or not 0 <= self.entry + offset // 4 < code:
                raise LaunchError(f"{self.info.name}: no instruction can begin at {offset:#x}")

    def _run_groups(self, workers: list[Worker], first: int, last: int) -> None:
        if self.alone:
            (x, y, z), (gx, gy, _) = self.group, self.geometry.groups
            first = x + gx * (y + gy * z)
            last = first + 1
        super()._run_groups(workers, first, last)

    def _arm(self, program: Program) -> None:
        """Make the places stop that are lowered and do not stop yet."""
        handlers = self.replaced.setdefault(id(program), (program, {}))[1]
        for index in self.stops & program.instructions.keys():
            if index not in handlers:
                handlers[index] = program.records[index, :2].copy()
                program.records[index, :2] = self._pending(program)

    def _disarm(self) -> None:
        for program, handlers in self.replaced.values():
            for index, handler in handlers.items():
                program.records[index, :2] = handler

    def _pending(self, program: Program) -> np.ndarray:
        address = program.compiler.address("lower", leave(Status.LOWER))
        return np.array([address & 0xFFFFFFFF, address >> 32], np.uint32)

    def _loop(self, worker: Worker) -> None:
        try:
            self._arm(self.program)
            super()._loop(worker)
        except _Enough:
            pass
        finally:
            self._disarm()

    def _serve(self, worker: Worker) -> None:
        """Answer what the worker came back with; raises _Enough after the last visit."""
        state = current_wave(worker)
        program = self.program_for(state.mode)
        handlers = self.replaced.get(id(program), (program, {}))[1]
        if state.status == Status.LOWER and state.resume in handlers:
            self._visit(worker, state.resume, program)
            if len(self.found) == self.last - self.first:
                raise _Enough
            self._step(worker, state.resume, program)
            return
        super()._serve(worker)
        self._arm(self.program_for(current_wave(worker).mode))

    def _visit(self, worker: Worker, index: int, program: Program) -> None:
        state = current_wave(worker)
        if state.group != self.group or state.wave != self.wave:
            return
        if self.first <= self.visits < self.last:
            self.found.append(self._snapshot(worker, index, program))
        self.visits += 1

    def _step(self, worker: Worker, index: int, program: Program) -> None:
        """Execute the instruction at the stop and nothing else, and answer what it came back with, if anything."""
        inst = program.instructions[index]
        behind = index + inst.size // 4
        # Where it may go on: all of the code is looked through for an instruction that jumps only.
        rows = slice(None) if inst.spec.kind == "control" else slice(behind, behind + 1)
        before = program.records[rows, :2].copy()
        program.records[rows, :2] = self._pending(program)
        stop = program.records[index, :2].copy()
        program.records[index, :2] = self.replaced[id(program)][1][index]
        worker.job.stop = 1  # come back too where the wave ends or waits
        try:
            status = scheduler.run_worker(worker.job, worker.slots)
        finally:
            worker.job.stop = 0
            program.records[index, :2] = stop
            program.records[rows, :2] = before
        if status == scheduler.LIMIT:
            self._refill([worker])
        elif status == scheduler.NEED_PYTHON and current_wave(worker).status != Status.LOWER:
            self._serve(worker)

    def _snapshot(self, worker: Worker, index: int, program: Program) -> Snapshot:
        raw = wave_bytes_of(worker, *place_of_wave(worker)).copy()
        module = self.kernel.module
        pc = 4 * (index - self.entry)

        def rows(start: int) -> np.ndarray:
            return raw[start : start + 256 * layout.ROW].view(np.uint32).reshape(256, layout.LANES)

        scalars = raw[: layout.SCC].view(np.uint32)
        return Snapshot(
            pc, program.instructions[index], module.code.source_line(self.info.start + pc), self.group,
            self.wave, self.visits, int(raw[layout.SCC]), scalars, rows(layout.VGPR), rows(layout.AGPR),
        )  # fmt: skip
