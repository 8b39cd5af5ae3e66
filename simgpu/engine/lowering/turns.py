"""Chooses the instructions after which a wave lets the others of its workgroup run (`Frame.let_others_on`).

On a GPU, memory and LDS take longer than the other waves' lag in instructions, and LDS serves waves in turn. Kernels rely on
that: they reuse LDS after a barrier, reads and their wait, without a second barrier. So a wave that waits lets the others run
before it touches LDS again. So does a wave that changes from reads to writes of LDS.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Literal

from simgpu.hardware.isa.instruction import Imm, Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effect import LdsUse
from simgpu.hardware.timing_rules.effects import lds_use_of
from simgpu.hardware.timing_rules.waits import awaited_counters

AHEAD = 64  # instructions that are examined
PASSED = (ControlKind.NONE, ControlKind.NOP, ControlKind.SETPRIO)
MEETS = (ControlKind.BARRIER, ControlKind.ENDPGM)


def lets_others_on(inst: Instruction, behind: Iterable[Instruction]) -> bool:
    """True if the other waves of the workgroup run after an instruction. `behind`: the instructions after it in the code."""
    if waits(inst):
        return _next_lds_use(behind) != "meets"
    return lds_use(inst) == "read" and _next_lds_use(behind) == "write"


def waits(inst: Instruction) -> bool:
    """True if an instruction waits for memory or LDS."""
    if inst.spec.control is not ControlKind.WAITCNT:
        return False
    counts = inst.args["simm16"]
    assert isinstance(counts, Imm)
    return bool(awaited_counters(counts.value))


def lds_use(inst: Instruction) -> LdsUse:
    """Returns an instruction's use of LDS. A flat instruction counts as a use, because it may access LDS."""
    memory = inst.spec.memory
    if memory is not None and memory.space == "flat":
        return "read" if memory.op == "load" else "write"
    return lds_use_of(inst)


def _next_lds_use(behind: Iterable[Instruction]) -> Literal["read", "write", "meets", "else"]:
    """Returns the first event: "read" or "write" of LDS, "meets" (the wave waits, meets others or ends), or "else", such as a
    jump."""
    for inst in islice(behind, AHEAD):
        use = lds_use(inst)
        if use:
            return use
        if waits(inst) or inst.spec.control in MEETS:
            return "meets"
        if inst.spec.control not in (*PASSED, ControlKind.WAITCNT):
            break
    return "else"
