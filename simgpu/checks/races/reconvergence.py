"""Finds where all paths meet after code that depends on a value: a branch, or lanes that are switched off.

A region begins with a branch, or with an instruction that writes EXEC. It ends where all paths through it meet with the old
EXEC: for example an if with its else, such as the two arms of `tanh`. After the end, the only traces of a wave's path and lanes
are registers that some instruction of the region writes. The reason is that a region has
* no loop, so that every wave comes to its end;
* no memory or LDS instruction, no barrier, no message, and nothing that writes M0 or a mode.

To show that EXEC is restored, masks are Boolean functions of unknown masks: old values, and results of the region's instructions.
`s_and_saveexec_b64 s[0:1], vcc` leaves `exec & vcc`, and a later `s_or_b64 exec, exec, s[0:1]` restores the old mask. A function
is its truth table, of at most `SYMBOLS` unknown masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simgpu.engine.program import Program
from simgpu.hardware.isa.instruction import EXEC, VCC, Const, Instruction, Operand, Reg
from simgpu.hardware.isa.kinds import STATE_BRANCHES, ControlKind
from simgpu.hardware.timing_rules.register_use import Register

LENGTH = 4096  # most instructions of a region
SYMBOLS = 8  # most unknown masks
ALL = (1 << (1 << SYMBOLS)) - 1  # truth table of a mask with all lanes
EXEC_MASK, VCC_MASK = Reg("s", EXEC, 2), Reg("s", VCC, 2)
CONSTANTS = {128: 0, 193: ALL}  # encodings of 0 and -1
RELATIONS: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ALL ^ a & b, "nor": lambda a, b: ALL ^ (a | b), "xnor": lambda a, b: ALL ^ a ^ b,
    "andn1": lambda a, b: ~a & b, "andn2": lambda a, b: a & ~b,
    "orn1": lambda a, b: ALL ^ a | b, "orn2": lambda a, b: a | ALL ^ b,
}  # fmt: skip
PURE = frozenset((
    ControlKind.NONE, ControlKind.NOP, ControlKind.WAITCNT, ControlKind.SETPRIO, ControlKind.BRANCH, *STATE_BRANCHES,
))  # fmt: skip
IMPURE_CLASSES = frozenset(("movrel", "setreg", "sendmsg", "smem", "vmem", "ds", "gds", "lds_direct"))
START = -1  # origin of a mask that keeps its value from before the region
SPECIAL = frozenset(("vcc", "scc", "exec"))  # registers without a number that a region may write

# Masks that changed since the start of the region: a truth table, or, below 0, the origin (`_made_at`).
Masks = dict[Reg, int]


class DependentRegion(NamedTuple):
    """Code that depends on a value; it begins with a branch or an instruction that writes EXEC."""

    end: int  # record at which all paths meet, with EXEC as it was before
    writes: frozenset[Register]  # without EXEC; none of them in lanes that were inactive before


def region(program: Program, start: int) -> DependentRegion | None:
    """Returns the shortest region that begins at a record, None if there is none. Cached."""
    key = "region", start
    if key not in program.kept:
        program.kept[key] = _find(program, start)
    found: DependentRegion | None = program.kept[key]
    return found


def _find(program: Program, start: int) -> DependentRegion | None:
    """Computes `region`, uncached."""
    way, seen = start, {start}
    while len(seen) < LENGTH and _is_pure(program, way):
        way = program.following(way)[0]  # any path serves: the end is on all of them
        if way in seen or way not in program.instructions:
            return None
        seen.add(way)
        if "exec" in program.effect(way).access.writes:  # the else of s_or_saveexec_b64 has all lanes for a moment
            continue
        order = _in_order(program, start, way)
        if order is not None and _restores(program, order, way):
            writes = frozenset[Register]().union(*(program.effect(at).access.writes for at in order))
            return DependentRegion(way, writes - {"exec"})
    return None


def _is_pure(program: Program, at: int) -> bool:
    """True if an instruction only writes registers or branches directly."""
    inst = program.instructions.get(at)
    if inst is None or inst.spec.control not in PURE or inst.spec.memory is not None or not program.following(at):
        return False
    access = program.effect(at).access
    special = any(isinstance(register, str) and register not in SPECIAL for register in access.writes)
    return not special and not access.classes & IMPURE_CLASSES


def _in_order(program: Program, start: int, end: int) -> list[int] | None:
    """Returns the records from `start` on, before `end`, in topological order; None if a path leads elsewhere or loops."""
    done: list[int] = []
    is_done: dict[int, bool] = {}  # records that were met
    pending = [start]
    while pending:
        at = pending[-1]
        if at in is_done:
            pending.pop()
            if not is_done[at]:
                is_done[at] = True
                done.append(at)
            continue
        following = [to for to in program.following(at) if to != end]
        is_done[at] = False
        loops = any(is_done.get(to) is False for to in following)
        if loops or len(is_done) > LENGTH or not _is_pure(program, at):
            return None
        pending += [to for to in following if to not in is_done]
    return done[::-1]


def _restores(program: Program, order: list[int], end: int) -> bool:
    """True if EXEC at the end is the mask from the start, and never has other lanes in between."""
    numbers: dict[tuple[Reg, int], int] = {}
    before: dict[int, Masks] = {order[0]: {}}
    first = _unknown(EXEC_MASK, START, numbers)
    for at in order:
        masks = _masks_after(program, at, before[at], numbers)
        if masks is None or len(numbers) > SYMBOLS or masks.get(EXEC_MASK, first) & ~first:
            return False
        for to in program.following(at):
            before[to] = _meet(before.get(to), masks, to)
    return before[end].get(EXEC_MASK, first) == first


def _meet(known: Masks | None, masks: Masks, at: int) -> Masks:
    """Returns the masks where paths meet at a record."""
    if known is None:
        return masks
    return {
        mask: known[mask] if mask in known and known[mask] == masks.get(mask) else _made_at(at, ways_meet=True)
        for mask in known.keys() | masks.keys()
    }


def _made_at(at: int, ways_meet: bool = False) -> int:
    """Returns the origin, below START, of an unknown mask that a record made, or that differs between the paths to it."""
    return START - 1 - 2 * at - ways_meet


def _table(operand: Operand, masks: Masks, numbers: dict[tuple[Reg, int], int]) -> int | None:
    """Returns the truth table of an operand, None if it is no mask.

    numbers: of the unknown masks, by origin. The caller must check for more than `SYMBOLS`.
    """
    if isinstance(operand, Const):
        return CONSTANTS.get(operand.code)
    if not isinstance(operand, Reg) or operand.file != "s" or operand.count != 2:
        return None
    held = masks.get(operand, START)
    return held if held >= 0 else _unknown(operand, held, numbers)


def _unknown(mask: Reg, origin: int, numbers: dict[tuple[Reg, int], int]) -> int:
    """Returns the truth table of an unknown mask."""
    number = numbers.setdefault((mask, origin), len(numbers))
    half = 1 << min(number, SYMBOLS - 1)
    return sum(((1 << half) - 1) << low for low in range(half, 1 << SYMBOLS, 2 * half))


def _masks_after(program: Program, at: int, before: Masks, numbers: dict[tuple[Reg, int], int]) -> Masks | None:
    """Returns the masks after an instruction, None if EXEC is unknown."""
    inst, writes = program.instructions[at], program.effect(at).access.writes
    masks = dict(before)
    for register in writes:
        if isinstance(register, tuple) and register[0] == "s":
            masks[Reg("s", register[1] & ~1, 2)] = _made_at(at)
        elif register == "vcc":
            masks[VCC_MASK] = _made_at(at)
    table = _result_mask(inst, before, numbers)
    target = inst.args.get("sdst")
    if table is None or not isinstance(target, Reg):
        return None if "exec" in writes else masks
    if "saveexec" in inst.mnemonic:
        masks[target] = _table(EXEC_MASK, before, numbers) or 0
        target = EXEC_MASK
    masks[target] = table
    return masks


def _result_mask(inst: Instruction, masks: Masks, numbers: dict[tuple[Reg, int], int]) -> int | None:
    """Returns the truth table of an instruction's result, None if it is not a Boolean function of masks."""
    words = inst.mnemonic.split("_")
    if words[0] != "s" or words[-1] != "b64":
        return None
    first = _table(inst.args["src0"], masks, numbers) if "src0" in inst.args else None
    if first is None or words[1] == "mov":
        return first
    if words[1] == "not":
        return ALL ^ first
    relation = RELATIONS.get(words[1])
    other = EXEC_MASK if words[2] == "saveexec" else inst.args.get("src1")
    second = None if other is None else _table(other, masks, numbers)
    return None if relation is None or second is None else relation(first, second)
