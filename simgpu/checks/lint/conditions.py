"""Which way branches can go, where scalar registers remember a condition.

Compilers keep the outcome of one branch as 0 or -1 in SGPRs and branch by it again. A path that takes the one and not the other
does not exist, and what lacks on it lacks nowhere. Facts say what such registers, SCC and VCC hold on a path; a condition
that is put into a register without being known divides the path in two. EXEC counts as not 0 where a condition is masked by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from simgpu.checks.lint.registers import FILES, NAMED
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.constants import INTEGERS
from simgpu.hardware.isa.instruction import Const, Literal, Operand, Reg
from simgpu.hardware.isa.kinds import STATE_BRANCHES

Facts = tuple[tuple[int, int], ...]  # (cell, value) in order; a cell is the number of an SGPR, or one of these two
SCC, VCC_ANY, EXEC_ANY = -1, -2, -3  # SCC; whether VCC and EXEC are not 0
TESTED = {"scc": SCC, "vcc": VCC_ANY, "exec": EXEC_ANY}
NO_FACTS: Facts = ()
AT_ENTRY: Facts = ((EXEC_ANY, 1),)  # a wave begins with a lane that is active
WORD = 0xFFFFFFFF
FLAGS = (0, 1, WORD)  # the values that are kept
EXEC_OPERAND = Reg("s", isa.EXEC, 2)
COMPARISONS = {"eq": int.__eq__, "lg": int.__ne__, "gt": int.__gt__, "ge": int.__ge__, "lt": int.__lt__, "le": int.__le__}
MOVES = ("s_mov_b32", "s_mov_b64", "s_cselect_b32", "s_cselect_b64", "s_xor_b64", "s_not_b64")


def remembered(steps: Iterable[LintStep]) -> frozenset[int]:
    """The SGPRs that hold conditions: what is compared with a number or masked by EXEC, and what is moved there."""
    steps = list(steps)
    found: set[int] = set()
    for step in steps:
        sources = [operand for operand in (step.inst.args.get("src0"), step.inst.args.get("src1")) if operand is not None]
        masked = step.inst.mnemonic in ("s_and_b64", "s_andn2_b64") and EXEC_OPERAND in sources
        compared = step.inst.mnemonic.startswith("s_cmp_") and any(isinstance(operand, Const) for operand in sources)
        if masked or compared:
            found.update(*map(_cells, sources))
    before = -1
    while len(found) != before:
        before = len(found)
        for step in steps:
            if step.inst.mnemonic in MOVES and found.intersection(_cells(step.inst.args.get("sdst"))):
                found.update(_cells(step.inst.args.get("src0")), _cells(step.inst.args.get("src1")))
    return frozenset(found - {isa.EXEC, isa.EXEC + 1})


def feasible(step: LintStep, taken: bool, facts: Facts) -> Facts | None:
    """What holds behind a conditional branch that was taken or not; None where it cannot go that way."""
    tested = STATE_BRANCHES.get(step.control)
    if tested is None:
        return facts
    state, where_set = tested
    cell, value = TESTED[state], int(taken == where_set)
    known = dict(facts)
    if known.setdefault(cell, value) != value:
        return None
    return tuple(sorted(known.items()))


def behind(step: LintStep, facts: Facts, kept: frozenset[int]) -> list[Facts]:
    """What may hold behind an instruction: one way, or two where it keeps a condition that is not known."""
    if not facts and not step.inst.mnemonic.startswith("s_"):
        return [facts]
    known = dict(facts)
    name = step.inst.mnemonic
    if name in ("s_cselect_b32", "s_cselect_b64") and SCC not in known and kept.intersection(_cells(step.inst.args.get("sdst"))):
        one, other = (_value(step.inst.args.get(source), known) for source in ("src0", "src1"))
        if one is not None and other is not None and one != other:
            return [_behind(step, known | {SCC: way}, kept) for way in (0, 1)]
    return [_behind(step, known, kept)]


def _behind(step: LintStep, known: dict[int, int], kept: frozenset[int]) -> Facts:
    results = _results(step, known)
    for cell in _written(step):
        known.pop(cell, None)
    known |= {cell: value for cell, value in results.items() if cell < 0 or (cell in kept and value in FLAGS)}
    return tuple(sorted(known.items()))


def _cells(operand: Operand | None) -> range:
    if isinstance(operand, Reg) and operand.file == "s":
        return range(operand.index, operand.index + operand.count)
    return range(0)


def _written(step: LintStep) -> list[int]:
    cells = [*_cells(step.inst.args.get("sdst"))]
    scalars = step.writes >> FILES["s"] & (1 << 128) - 1
    while scalars:
        cells.append((scalars & -scalars).bit_length() - 1)
        scalars &= scalars - 1
    if step.writes >> NAMED["scc"] & 1:
        cells.append(SCC)
    if step.writes >> NAMED["vcc"] & 1:
        cells += [VCC_ANY, isa.VCC, isa.VCC + 1]
    if step.writes >> NAMED["exec"] & 1:
        cells.append(EXEC_ANY)
    return cells


def _value(operand: Operand | None, known: dict[int, int]) -> int | None:
    """A source as a number below 2^64, where it is known."""
    if isinstance(operand, Const) and operand.code in INTEGERS:
        return INTEGERS[operand.code] & (1 << 64) - 1
    if isinstance(operand, Literal):
        return operand.value
    words = [known.get(cell) for cell in _cells(operand)]
    if not words or None in words:
        return None
    return sum(word << 32 * at for at, word in enumerate(words) if word is not None)


def _results(step: LintStep, known: dict[int, int]) -> dict[int, int]:
    """The cells that get a known value."""
    name, args = step.inst.mnemonic, step.inst.args
    one, other = _value(args.get("src0"), known), _value(args.get("src1"), known)
    target = _cells(args.get("sdst"))
    if name.startswith("s_cmp_") and one is not None and other is not None:
        return {SCC: _compared(name, one, other)}
    if name.startswith("s_mov_b") and one is not None:
        return _words(target, one)
    if name.startswith("s_cselect_b") and SCC in known:
        chosen = one if known[SCC] else other
        return {} if chosen is None else _words(target, chosen)
    full = (1 << 64) - 1
    if name == "s_not_b64" and one is not None:
        return _words(target, one ^ full) | {SCC: int(one != full)}
    if name == "s_xor_b64" and one is not None and other is not None:
        return _words(target, one ^ other) | {SCC: int(one != other)}
    if name in ("s_and_b64", "s_andn2_b64") and EXEC_OPERAND in (args.get("src0"), args.get("src1")):
        mask = other if args.get("src0") == EXEC_OPERAND else one
        if mask is not None and name == "s_andn2_b64":
            mask = mask ^ full if args.get("src0") == EXEC_OPERAND else None
        if mask == 0:
            return _words(target, 0) | {SCC: 0}
        if mask == full:
            return {SCC: 1} | ({VCC_ANY: 1} if isa.VCC in target else {})
    return {}


def _words(target: range, value: int) -> dict[int, int]:
    found = {cell: value >> 32 * at & WORD for at, cell in enumerate(target)}
    for first, cell in ((isa.VCC, VCC_ANY), (isa.EXEC, EXEC_ANY)):
        if target == range(first, first + 2):
            found[cell] = int(value != 0)
    return found


def _compared(name: str, one: int, other: int) -> int:
    relation, kind = name.removeprefix("s_cmp_").split("_")
    if kind == "i32":
        one, other = ((value & WORD ^ 1 << 31) - (1 << 31) for value in (one, other))
    elif kind == "u32":
        one, other = one & WORD, other & WORD
    return int(COMPARISONS[relation](one, other))
