"""Facts about registers in inactive lanes, for the walk of `expected`: which of these lanes an instruction switches on.

LLVM's loops and branches switch lanes off and on like this, M and E masks in scalar registers:

    s_or_b64 M, …, M; s_andn2_b64 exec, exec, M     lanes that leave a loop; they are in M, which only grows
    s_or_b64 exec, exec, M                          after the loop: all of them are active again
    s_andn2_saveexec_b64 …, E                       `else`: lanes of E that are inactive, and no active one

So facts about lanes that left a loop end with the loop, and those about lanes of a branch are none of its `else`.
"""

from __future__ import annotations

from simgpu.checks.races.lanes import narrows
from simgpu.hardware.isa.instruction import EXEC, Instruction, Reg
from simgpu.hardware.timing_rules.effects import registers_of
from simgpu.hardware.timing_rules.register_use import Register

Marks = frozenset[tuple[Register, int]]  # (register, fact)
Left = frozenset[tuple[Register, int, Reg | None]]  # the same of inactive lanes, and a mask that has all of these lanes
NOTHING: Marks = frozenset()
MASK = Reg("s", EXEC, 2)


def without_masks(left: Left) -> Marks:
    """Returns the facts about inactive lanes, wherever they are."""
    return frozenset((register, kind) for register, kind, _ in left)


def after_mask(inst: Instruction, writes: frozenset[Register], active: Marks, left: Left) -> tuple[Marks, Left]:
    """Returns the facts about active and inactive lanes after an instruction that writes registers, EXEC or a mask among them."""
    left = _with_masks_that_hold(inst, writes, left)
    if "exec" not in writes:
        return active, left
    everything, mask = active | without_masks(left), _other_mask(inst)
    if inst.mnemonic == "s_andn2_saveexec_b64":
        return without_masks(left), _in_lanes_of(None, everything)
    if narrows(inst):
        return active, left | _in_lanes_of(mask if inst.mnemonic == "s_andn2_b64" else None, active)
    if inst.mnemonic == "s_or_b64" and mask is not None:
        return everything, frozenset(mark for mark in left if mark[2] != mask)
    return everything, _in_lanes_of(None, everything)


def _in_lanes_of(mask: Reg | None, known: Marks) -> Left:
    return frozenset((register, kind, mask) for register, kind in known)


def _other_mask(inst: Instruction) -> Reg | None:
    """Returns M of an instruction on EXEC and M whose result is EXEC."""
    sides = [inst.args.get("src0"), inst.args.get("src1")]
    if inst.args.get("sdst") != MASK or MASK not in sides:
        return None
    sides.remove(MASK)
    return sides[0] if isinstance(sides[0], Reg) and sides[0].file == "s" else None


def _with_masks_that_hold(inst: Instruction, writes: frozenset[Register], left: Left) -> Left:
    """Returns the facts without the masks that an instruction writes, unless it only adds lanes to one."""
    target = inst.args.get("sdst")
    grows = inst.mnemonic == "s_or_b64" and target in (inst.args.get("src0"), inst.args.get("src1"))
    return frozenset(
        (register, kind, None if mask is not None and registers_of(mask) & writes and not (grows and target == mask) else mask)
        for register, kind, mask in left
    )
