"""Propagates constants in scalar registers, to find the targets of jumps that s_getpc_b64 and additions compute.

A table of known SGPRs and SCC flows along the edges of the graph. Where paths meet, only values on which they agree are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from simgpu.checks.lint.registers import EXEC, FILES, M0, SCC, VCC
from simgpu.checks.lint.steps import CALLS, LintStep
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.constants import INTEGERS
from simgpu.hardware.isa.instruction import Const, Imm, Literal, Operand, Reg
from simgpu.hardware.isa.kinds import ControlKind

Known = Mapping[int, int]  # keys: an SGPR's number, or SCC_CELL
SCC_CELL = -1
STATE_CELLS = ((VCC, isa.VCC, 2), (M0, isa.M0, 1), (EXEC, isa.EXEC, 2))  # named state that is stored among the SGPRs
WORD = 0xFFFFFFFF
NOTHING: Known = {}
# Additions of 32 bits: True if they add SCC.
ADDS = {"s_add_u32": False, "s_addc_u32": True, "s_add_co_u32": False, "s_add_co_ci_u32": True}
Read = Callable[[int, int], bytes | None]  # returns the bytes at an address if no store changes them, else None


def flow(steps: Sequence[LintStep], following: Sequence[Sequence[int]], entries: Iterable[int], read: Read) -> list[Known | None]:
    """Returns the values known before each node, None for an unreached node. following: the successors of each node."""
    before: list[Known | None] = [None] * len(steps)
    work = list(entries)
    for node in work:
        before[node] = NOTHING
    while work:
        node = work.pop()
        known = before[node]
        assert known is not None
        after = _transfer(steps[node], known, read)
        for other in following[node]:
            had = before[other]
            joined = after if had is None else _meet(had, after)
            if had is None or len(joined) < len(had):
                before[other] = joined
                work.append(other)
    return before


def address(known: Known, operand: Operand | None) -> int | None:
    """Returns the 64-bit value of an SGPR pair, None if unknown."""
    if not isinstance(operand, Reg) or operand.file != "s":
        return None
    low, high = known.get(operand.index), known.get(operand.index + 1)
    return None if low is None or high is None else low | high << 32


def _meet(one: Known, other: Known) -> Known:
    if one is other or one == other:
        return one
    return {cell: value for cell, value in one.items() if other.get(cell) == value}


def _transfer(step: LintStep, known: Known, read: Read) -> Known:
    results = _results(step, known, read)
    changed = _written_cells(step)
    if not results and not any(cell in known for cell in changed):
        return known
    kept = {cell: value for cell, value in known.items() if cell not in changed}
    return kept | results


def _written_cells(step: LintStep) -> list[int]:
    """Returns the cells that an instruction writes."""
    cells = [SCC_CELL] if step.writes & SCC else []
    for state, first, count in STATE_CELLS:
        if step.writes & state:
            cells += range(first, first + count)
    named = (step.inst.args.get(field) for field in ("sdst", "sdata", "vdst"))
    for operand in named:
        if isinstance(operand, Reg) and operand.file == "s":
            cells += range(operand.index, operand.index + operand.count)
    scalars = step.writes >> FILES["s"] & (1 << 128) - 1
    while scalars:
        cells.append((scalars & -scalars).bit_length() - 1)
        scalars &= scalars - 1
    return cells


def _value(operand: Operand | None, known: Known, word: int = 0) -> int | None:
    """Returns one 32-bit word of a source, None if unknown."""
    if isinstance(operand, Reg):
        return known.get(operand.index + word) if operand.file == "s" and word < operand.count else None
    if isinstance(operand, Const) and operand.code in INTEGERS:
        return INTEGERS[operand.code] >> 32 * word & WORD
    if isinstance(operand, Literal | Imm):
        return operand.value & WORD if word == 0 else (WORD if operand.value >> 31 & 1 else 0)
    return None


def _wide(operand: Operand | None, known: Known) -> int | None:
    """Returns a 64-bit source, None if unknown."""
    if isinstance(operand, Literal):
        return operand.value
    low, high = _value(operand, known), _value(operand, known, 1)
    return None if low is None or high is None else low | high << 32


def _results(step: LintStep, known: Known, read: Read) -> dict[int, int]:
    """Returns the cells that get a known value."""
    args, name = step.inst.args, step.inst.mnemonic
    target = args.get("sdst")
    if not isinstance(target, Reg) or target.file != "s" or step.control in CALLS:
        return {}
    at = target.index
    if step.control is ControlKind.GETPC:
        return {at: step.next_address & WORD, at + 1: step.next_address >> 32}
    if name in ("s_mov_b32", "s_mov_b64"):
        words = range(1 if name == "s_mov_b32" else 2)
        moved = {at + word: _value(args.get("src0"), known, word) for word in words}
        return {cell: value for cell, value in moved.items() if value is not None}
    if name in ADDS:
        one, other = _value(args.get("src0"), known), _value(args.get("src1"), known)
        carry = known.get(SCC_CELL) if ADDS[name] else 0
        if one is None or other is None or carry is None:
            return {}
        total = one + other + carry
        return {at: total & WORD, SCC_CELL: total >> 32}
    if name == "s_add_nc_u64":
        one, other = (_wide(args.get(source), known) for source in ("src0", "src1"))
        return {} if one is None or other is None else {at: one + other & WORD, at + 1: one + other >> 32 & WORD}
    if name in ("s_load_dwordx2", "s_load_b64"):  # an entry of the global offset table
        base, offset = address(known, args.get("sbase")), args.get("soffset", args.get("ioffset"))
        raw = read(base + offset.value, 8) if base is not None and isinstance(offset, Imm) else None
        if raw is not None:
            return {at: int.from_bytes(raw[:4], "little"), at + 1: int.from_bytes(raw[4:], "little")}
    return {}
