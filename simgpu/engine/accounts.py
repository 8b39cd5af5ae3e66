"""Costs of a launch's executed instructions: classes, fidelity, bytes moved, arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.engine.program import Program
from simgpu.hardware import mfma
from simgpu.hardware.isa.fidelity import Fidelity, fidelity_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind
from simgpu.hardware.isa.spec import Spec

WAITS = (ControlKind.WAITCNT, ControlKind.BARRIER, ControlKind.NOP, ControlKind.SLEEP)
BRANCHES = {ControlKind.BRANCH, *CONDITIONAL_BRANCHES, ControlKind.GETPC, ControlKind.SETPC, ControlKind.SWAPPC}
CLASSES = ("valu", "salu", "mfma", "vmem", "smem", "lds", "branch", "wait", "other")


def instruction_class(inst: Instruction) -> str:
    """Returns the class that an instruction counts in."""
    spec = inst.spec
    if spec.kind == "matrix":
        return "mfma"
    if spec.encoding == "ds":
        return "lds"
    if spec.encoding == "smem":
        return "smem"
    if spec.encoding in ("flat", "mubuf", "mtbuf"):
        return "vmem"
    if spec.kind == "control":
        return "wait" if spec.control in WAITS else "branch" if spec.control in BRANCHES else "other"
    return "salu" if spec.encoding.startswith("sop") else "valu"


@dataclass(frozen=True)
class Account:
    """Costs of one execution of an instruction."""

    category: str  # its class
    fidelity: Fidelity
    flops: int  # see `matrix_flops`; 0 if it is no matrix instruction
    moved: Mapping[str, int] | None  # see `bytes_moved`; None if it is no memory instruction

    @classmethod
    def of(cls, inst: Instruction) -> Account:
        """Returns the account of an instruction: one object for all with this mnemonic on this target."""
        known = _accounts(inst.target)
        key = inst.spec, inst.mnemonic
        if key not in known:
            flops = matrix_flops(inst) if inst.spec.kind == "matrix" else 0
            moved = bytes_moved(inst) if inst.spec.memory else None
            known[key] = cls(instruction_class(inst), fidelity_of(inst), flops, moved)
        return known[key]


@functools.cache
def _accounts(target: str) -> dict[tuple[Spec, str], Account]:
    """Accounts of a target's instructions that were asked for, by specification and mnemonic."""
    return {}


FIDELITIES = ("exact", "bounded", "unverified", "unsupported")
COUNTED = tuple(f"instructions_{name}" for name in CLASSES)
MOVED = ("global_read_bytes", "global_write_bytes", "lds_read_bytes", "lds_write_bytes", "scalar_read_bytes")
MOVED_NOTHING = dict.fromkeys(MOVED, 0)


@dataclass(frozen=True)
class Accounts:
    """Costs of the instructions that a launch may execute, one row per instruction in code order."""

    records: np.ndarray  # (rows,)
    places: np.ndarray  # (3 * rows,): where the records' entries, exits and lanes are in a worker's flattened `counts`
    offsets: np.ndarray  # (rows,): bytes of code from the entry
    counted: np.ndarray  # (rows, columns): an execution's count in each class, each fidelity and mfma_flops
    memory: np.ndarray  # rows of memory instructions
    moved: np.ndarray  # (memory rows, columns of MOVED): bytes a lane
    inexact: Sequence[tuple[int, str, Fidelity]]  # (row, mnemonic, fidelity): results that may differ from the hardware's bits
    settled: bool  # True if code that is lowered later does not add to them

    @classmethod
    def of(cls, programs: Sequence[Program], entry: int) -> Accounts:
        """Returns the accounts of one program's code from an entry on, or of all lowered code of several programs."""
        first, *others = programs
        only = first.executable(entry) if not others else None
        instructions, accounts = first.instructions, first.map_instructions(Account.of, only)
        for program in others:
            instructions, accounts = instructions | program.instructions, accounts | program.map_instructions(Account.of)
        records = sorted(instructions if only is None else only)
        rows = [accounts[record] for record in records]
        different = list({id(account): account for account in rows}.values())
        number = {id(account): at for at, account in enumerate(different)}
        which = np.array([number[id(account)] for account in rows], np.int64)  # of `different`, by row
        counted = np.zeros((len(different), len(CLASSES) + len(FIDELITIES) + 1), np.int64)
        for row, account in zip(counted, different, strict=True):
            row[CLASSES.index(account.category)] = 1
            row[len(CLASSES) + FIDELITIES.index(account.fidelity.kind)] = 1
            row[-1] = account.flops
        bytes_ = [[(each.moved or {}).get(key, 0) for key in MOVED] for each in different]
        moved = np.array(bytes_, np.int64).reshape(-1, len(MOVED))
        memory = np.flatnonzero(np.array([each.moved is not None for each in different], np.bool_)[which])
        inexact = [
            (at, instructions[record].mnemonic, rows[at].fidelity) for at, record in enumerate(records) if rows[at].fidelity.why
        ]
        at = np.array(records, np.int64)
        places = (at + (programs[0].count + 1) * np.arange(3)[:, None]).reshape(-1)
        settled = only is not None and first.is_settled(only)
        return cls(at, places, 4 * (at - entry), counted[which], memory, moved[which[memory]], inexact, settled)


def bytes_moved(inst: Instruction) -> dict[str, int]:
    """Returns the bytes that a memory instruction moves for each lane, by counter.

    A load into LDS counts as a global read only, a scalar store as a global write.
    """
    memory = inst.spec.memory
    assert memory is not None
    moved = memory.bits * memory.count // 8
    if memory.space == "ds":
        reads, writes = "lds_read_bytes", "lds_write_bytes"
    elif inst.spec.encoding == "smem":
        reads, writes = "scalar_read_bytes", "global_write_bytes"
    else:  # flat, global, scratch, buffer
        reads, writes = "global_read_bytes", "global_write_bytes"
    found = {}
    if memory.op in ("load", "atomic"):
        found[reads] = moved
    if memory.op in ("store", "atomic"):
        found[writes] = moved
    return found


def matrix_flops(inst: Instruction) -> int:
    """Returns the operations of one matrix instruction for the whole wave; a multiply-add counts as two."""
    row: Any = mfma.find(inst.mnemonic, inst.target)
    return 2 * row.m * row.n * row.k * row.blocks
