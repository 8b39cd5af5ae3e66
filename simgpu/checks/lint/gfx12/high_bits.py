"""Resolves the high bits of VGPR numbers: the s_set_vgpr_msb in effect at each instruction, on all paths to it.

The low byte of its operand extends the numbers of four operands by two bits each; the high byte is the byte before, for people
(LLVM, AMDGPULowerVGPREncoding). MODE holds the byte in bits 12 to 19, so an s_setreg there changes it, too.
"""

from __future__ import annotations

from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.gfx12.immediates import MODE_REGISTER
from simgpu.hardware.isa.instruction import Imm
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.gfx12 import effect_of

BYTE = 0xFF
FIRST_BIT, BITS = 12, 8  # in MODE
UNKNOWN = -1


def resolve(blocks: StraightBlocks) -> list[LintStep]:
    """Replaces the instructions of a graph by those with the right VGPRs. Returns those whose high bits depend on the path."""
    graph = blocks.graph
    before: dict[int, int] = dict.fromkeys(blocks.entries, 0)
    work = list(blocks.entries)
    while work:
        block = work.pop()
        high = before[block]
        for step in blocks.steps(block):
            high = _after(step, high)
        for other in blocks.following[block]:
            had = before.get(other)
            joined = high if had in (None, high) else UNKNOWN
            if joined != had:
                before[other] = joined
                work.append(other)
    by_address: dict[int, set[int]] = {}
    for block, steps in enumerate(blocks.all_steps):
        high = before.get(block, 0)
        for step in steps:
            by_address.setdefault(step.pc, set()).add(high)
            high = _after(step, high)
    made: dict[tuple[int, int], LintStep] = {}
    resolved = {}
    for pc, found in by_address.items():
        (high,) = found if len(found) == 1 else (UNKNOWN,)
        step = graph.known[pc]
        key = id(step.effect), high
        if key not in made:
            made[key] = step if high == 0 else LintStep(pc, step.inst, effect_of(step.inst, None if high == UNKNOWN else high))
        resolved[pc] = made[key].at_address(pc)
    graph.known.update(resolved)
    graph.steps[:] = [resolved.get(step.pc, step) for step in graph.steps]
    blocks.all_steps[:] = [[resolved[step.pc] for step in steps] for steps in blocks.all_steps]
    unknown = [pc for pc, found in by_address.items() if found == {UNKNOWN} or len(found) > 1]
    return [resolved[pc] for pc in sorted(unknown) if _has_vectors(graph.known[pc])]


def _has_vectors(step: LintStep) -> bool:
    return any(getattr(operand, "file", "") == "v" for operand in step.inst.args.values())


def _after(step: LintStep, high: int) -> int:
    """Returns the byte after an instruction."""
    immediate = step.inst.args.get("simm16")
    value = immediate.value if isinstance(immediate, Imm) else 0
    if step.control is ControlKind.SET_VGPR_MSB:
        return value & BYTE
    if step.control is ControlKind.SETREG and value & 63 == MODE_REGISTER:
        first, width = value >> 6 & 31, (value >> 11 & 31) + 1
        if first < FIRST_BIT + BITS and first + width > FIRST_BIT:
            return UNKNOWN
    return high
