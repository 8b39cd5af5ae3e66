"""A kernel's instructions as arrays: the properties that the CU model looks up for each executed instruction."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit, issue_of
from simgpu.timing.native.state import ATOMIC, COHERENT, COUNTS_LGKM, COUNTS_VM, DMA, STORE, STREAM


@dataclass(frozen=True)
class CodeColumns:
    """Columns by an instruction's number (its offset in the code segment / 4), int32. Numbers without an instruction never run."""

    unit: np.ndarray  # see `Unit`
    kind: np.ndarray  # see `Kind`
    clocks: np.ndarray  # clocks that it occupies its unit; for s_setprio the priority
    shadow: np.ndarray  # clocks until VALU may follow a matrix instruction, or a transcendental beside it
    vm: np.ndarray  # vmcnt that it waits for, or -1
    lgkm: np.ndarray  # lgkmcnt that it waits for, or -1
    flags: np.ndarray  # STORE, ATOMIC, COUNTS_VM, COUNTS_LGKM, DMA, INSTANT, AHEAD, STREAM, COHERENT
    port: np.ndarray  # clocks of the LDS port; of vector memory, clocks that a lane's data takes at the cache's rate
    step: np.ndarray  # difference to the next instruction's number
    lane_bytes: np.ndarray  # bytes of a lane

    @functools.cached_property
    def records(self) -> np.ndarray:
        """Returns the columns as one array of records, an instruction each."""
        made = np.empty(len(self.unit), np.dtype([(name, np.int32) for name in self.__dataclass_fields__]))
        for name in self.__dataclass_fields__:
            made[name] = getattr(self, name)
        return made

    @functools.cached_property
    def accesses(self) -> np.ndarray:
        """True for each instruction that has a row in a trace's accesses."""
        return np.isin(self.kind, (Kind.VMEM, Kind.LDS, Kind.SMEM))

    @functools.cached_property
    def short(self) -> np.ndarray:
        """True for each instruction whose requests are of 64 bytes, not of a line of the vector cache."""
        return (self.flags & (STORE | ATOMIC) != 0) | (self.kind == Kind.SMEM)


def code_of(instructions: Mapping[int, Instruction], count: int, row: Pipelines) -> CodeColumns:
    """Returns columns of `count` numbers; `instructions` holds the executed instructions, by number."""
    known: dict[Hashable, Issue] = {}  # most instructions of a kernel issue as others do
    issues = {}
    for number, inst in instructions.items():
        form = _form_of(inst)
        if form not in known:
            known[form] = issue_of(inst)
        issues[number] = known[form], inst.size // 4
    return columns(issues, count, row)


def _form_of(inst: Instruction) -> Hashable:
    """Returns what decides how an instruction issues on a target. Registers may, of an instruction that accesses memory."""
    return id(inst) if inst.spec.memory is not None else (id(inst.spec), inst.args.get("simm16"), *inst.mods.items())


def columns(issues: Mapping[int, tuple[Issue, int]], count: int, row: Pipelines) -> CodeColumns:
    """Returns columns of `count` numbers, from how each instruction issues and how many numbers it takes."""
    made = {name: np.zeros(count, np.int32) for name in CodeColumns.__dataclass_fields__}
    made["unit"][:] = Unit.NONE
    alike: dict[tuple[int, int], tuple[Issue, list[int]]] = {}
    for number, (issue, step) in issues.items():
        alike.setdefault((id(issue), step), (issue, []))[1].append(number)
    for (_, step), (issue, numbers) in alike.items():
        flags = STORE * issue.store | ATOMIC * issue.atomic | DMA * issue.dma | STREAM * issue.stream
        flags |= COUNTS_VM * issue.counts_vm | COUNTS_LGKM * issue.counts_lgkm | COHERENT * issue.coherent
        values = {
            "unit": issue.unit, "kind": issue.kind, "clocks": issue.clocks, "shadow": issue.shadow, "vm": issue.vm,
            "lgkm": issue.lgkm, "flags": flags, "port": _port(issue, row), "step": step, "lane_bytes": issue.lane_bytes,
        }  # fmt: skip
        if issue.kind is Kind.PRIORITY:
            values["clocks"] = issue.value
        for name, value in values.items():
            made[name][numbers] = value
    return CodeColumns(**made)


def _port(issue: Issue, row: Pipelines) -> int:
    nbytes = WAVEFRONT * issue.lane_bytes
    if issue.kind is Kind.LDS:
        # A store's address goes through the same port as its data, a load's data come back through another [RPC].
        return row.lds_port_overhead + -(-nbytes // row.lds_write_port) if issue.store else -(-nbytes // row.lds_read_port)
    if issue.kind is Kind.VMEM:
        return -(-nbytes // row.cache_rate)
    return 0
