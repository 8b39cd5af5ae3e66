"""Copies the registers of a wave when it reaches an instruction in a launch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from simgpu.debugger.armed import ArmedPoints, Point
from simgpu.debugger.native.clock import PASSES, focus_on
from simgpu.debugger.native.points import always_test
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch, Supervisor
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_bytes_of, wave_of
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa import text
from simgpu.hardware.isa.instruction import EXEC, VCC, Instruction, Reg
from simgpu.machine import layout
from simgpu.machine.layout import Status


@dataclass(frozen=True)
class Snapshot:
    """State of a wave before it executes the instruction at `pc`."""

    pc: int  # code offset from the kernel's first instruction, bytes
    instruction: Instruction
    line: str | None  # `file:line` or None
    group: tuple[int, int, int]
    wave: int
    hit: int  # number of the wave's earlier visits
    scc: int
    scalars: np.ndarray  # uint32 (128,): scalar registers by their operand encoding
    vgprs: np.ndarray  # uint32 (256, 64)
    agprs: np.ndarray  # uint32 (256, 64)

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
        """Returns HTML for Jupyter: the place, and the vector registers of its instruction, as hexadecimal words by lane."""
        regs = [reg for reg in self.instruction.args.values() if isinstance(reg, Reg) and reg.file != "s"]
        rows = [(f"{reg.file}{reg.index + at}", words) for reg in regs for at, words in enumerate(self.registers(reg))]
        cells = "".join(f"<tr><th>{name}</th>{''.join(f'<td>{word:08x}</td>' for word in words)}</tr>" for name, words in rows)
        head = "".join(f"<th>{lane}</th>" for lane in range(layout.LANES))
        where = f"{self.pc:#x} `{self.text}`, workgroup {self.group}, wave {self.wave}, visit {self.hit}, EXEC {self.exec:#018x}"
        table = f"<table><tr><th></th>{head}</tr>{cells}</table>" if rows else ""
        return f"<p>{escape(where)}</p><div style='overflow-x:auto'>{table}</div>"

    def registers(self, reg: Reg) -> np.ndarray:
        """Returns registers as uint32: (count, 64) for vector registers, (count,) for scalar registers."""
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
    """Returns a snapshot for each of the first `hits` visits, after `skip` visits, of a wave to any of the code offsets `at`.

    The launch stops after the last requested visit. If it ends before, fewer are returned. Other arguments are those of
    `Kernel.launch`. Raises LaunchError for an invalid place, and the errors of `launch`.

    at: bytes from the kernel's first instruction
    group, wave: the workgroup, and the wave in it
    alone: True runs no other workgroup: faster, but raises Deadlock if this one waits for another
    """
    geometry = Geometry.of(grid, block, dynamic_lds)
    check_geometry(kernel.info, geometry)
    kernel.check_buffers(args)
    ids = _three_ids(group, geometry.groups)
    number = geometry.number(ids)
    # The debugger reads registers between instructions.
    visits = _Visits(at, ids, wave, hits, skip)
    parts = [range(number, number + 1)] if alone else ()
    launch = Launch(kernel, geometry, args, parts=parts, threads=1, fuse=False, supervisor=visits)
    for offset in at:
        if offset % 4 or not 0 <= launch.entry + offset // 4 < launch.program.count:
            raise LaunchError(f"{kernel.title}: no instruction can begin at {offset:#x}")
    if not 0 <= wave < launch.waves:
        raise LaunchError(f"{kernel.title}: wave {wave} of a workgroup that has {launch.waves}")
    try:
        launch.run()
    except _Enough:
        pass
    finally:
        visits.close()
    return visits.found


def _three_ids(group: Sequence[int], groups: tuple[int, int, int]) -> tuple[int, int, int]:
    ids = (*(int(i) for i in group), 0, 0)[:3]
    if len(group) > 3 or any(not 0 <= i < extent for i, extent in zip(ids, groups, strict=True)):
        raise LaunchError(f"workgroup {tuple(group)} is not in the grid {groups}")
    return ids[0], ids[1], ids[2]


class _Enough(Exception):
    """Raised when all requested visits were seen."""


class _Visits(Supervisor):
    """Stops a wave of one workgroup at some code offsets, `hits` times after `skip` visits, and copies its registers.

    Raises _Enough after the last visit. `close` removes the stops.
    """

    def __init__(self, at: Collection[int], group: tuple[int, int, int], wave: int, hits: int, skip: int) -> None:
        self._at, self._group, self._wave = at, group, wave
        self._hits, self._skip = hits, skip
        self.found: list[Snapshot] = []
        self._armed: dict[int, ArmedPoints] = {}  # by MODE's number, as `Launch.programs`

    def before_run(self, launch: Launch, workers: list[Worker]) -> None:
        self._records = {launch.entry + offset // 4 for offset in self._at}
        (worker,) = workers
        block = focus_on(worker, launch.waves)
        block["sole"], block["group"] = 1, self._group
        worker.set_context(PASSES, self._skip + 1)
        self._point = Point(always_test(launch.device.compiler), self._wave)
        self._arm(launch)

    def _arm(self, launch: Launch) -> None:
        """Adds the stop to lowered records that have none yet."""
        for number, program in launch.programs.items():
            if number not in self._armed:
                self._armed[number] = ArmedPoints(program)
            armed = self._armed[number]
            for record in self._records & program.instructions.keys():
                if not armed.at(record):
                    armed.add(record, self._point)

    def close(self) -> None:
        """Removes all stops from the code."""
        for armed in self._armed.values():
            for record in self._records:
                armed.remove(record, self._point)

    def serve(self, launch: Launch, worker: Worker) -> None:
        state = current_wave(worker)
        if state.status != Status.BREAK:
            launch.serve(worker)
            self._arm(launch)
            return
        self.found.append(self._snapshot(launch, worker, state.resume))
        if len(self.found) == self._hits:
            raise _Enough
        worker.set_context(PASSES, 1)
        wave_of(worker, *place_of_wave(worker)).status = Status.RUNNING

    def _snapshot(self, launch: Launch, worker: Worker, record: int) -> Snapshot:
        raw = wave_bytes_of(worker, *place_of_wave(worker)).copy()
        inst = launch.instruction(record)
        assert inst is not None
        pc = 4 * (record - launch.entry)

        def rows(start: int) -> np.ndarray:
            return raw[start : start + 256 * layout.ROW].view(np.uint32).reshape(256, layout.LANES)

        scalars = raw[: layout.SCC].view(np.uint32)
        return Snapshot(
            pc, inst, launch.kernel.module.code.source_line(launch.info.start + pc), self._group,
            self._wave, self._skip + len(self.found), int(raw[layout.SCC]), scalars, rows(layout.VGPR), rows(layout.AGPR),
        )  # fmt: skip
