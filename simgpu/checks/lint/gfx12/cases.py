"""Collects the findings of a kernel for gfx1250, with messages and certainty."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.checks.lint.barriers import lds_behind
from simgpu.checks.lint.certainty import PathProof
from simgpu.checks.lint.conditions import Conditions
from simgpu.checks.lint.flow import StraightBlocks, examine
from simgpu.checks.lint.gfx12.gaps import CountGap
from simgpu.checks.lint.gfx12.high_bits import resolve
from simgpu.checks.lint.gfx12.waits import (
    ENDED,
    OPERAND,
    OVERWRITTEN,
    RESULT,
    SHARED,
    SIGNALS_TWICE,
    TRANSFER,
    BarrierHalf,
    Early,
    Waits12,
)
from simgpu.checks.lint.registers import first
from simgpu.checks.lint.search import PathSearch
from simgpu.checks.lint.steps import LintStep
from simgpu.engine.finding import Certainty, wait_message
from simgpu.hardware.code_object.code_object import KernelInfo
from simgpu.hardware.isa import text
from simgpu.hardware.isa.kinds import ControlKind

WAVE = 32  # work-items
# s_delay_alu names no vector instruction further back than the fourth (LLVM, AMDGPUInsertDelayAlu): later ones get its result
# without delay. After twice as many, a result that no slow pipeline makes is written unless the wave was held up by chance.
REACH = 8
CLOCKS = 32  # after which AMD's own inserter of waits takes a result for written (rocm-libraries, stinkytofu, InsertWaitAluPass)
SLOW = frozenset(("trans", "xdl"))
PREFETCHES = ("global_prefetch", "flat_prefetch")


@dataclass(frozen=True)
class FindingWords:
    """A finding's words: kind, place, message and the rest."""

    kind: str
    step: LintStep
    message: str
    earlier: LintStep | None = None
    place: str = ""
    needed: int = -1
    rule: str = ""
    error: bool = True
    certainty: Certainty = "every path"


def verdicts(blocks: StraightBlocks, kernel: KernelInfo) -> list[FindingWords] | None:
    """Returns the findings on waits, barriers and VGPR numbers of a kernel; None if there are too many paths."""
    unknown = resolve(blocks)
    several = kernel.max_flat_workgroup_size > WAVE
    flow = Waits12(blocks.graph.known, _after_signals(blocks) if several else {})
    flowed = examine(blocks, flow)
    if flowed is None:
        return None
    search = PathSearch(blocks, lambda: Conditions(blocks.graph.known.values(), kernel.max_flat_workgroup_size, every=True), None)
    early = [one for one in flowed.found if isinstance(one, Early) and _possible(one, search)]
    proof = PathProof(blocks)
    laters: dict[tuple[str, int], set[int]] = {}
    for one in early:
        laters.setdefault((one.what, one.earlier.pc), set()).add(one.step.pc)
    found = [_early(one, proof.certainty(one.earlier, one.step, _gap(one), laters[one.what, one.earlier.pc])) for one in early]
    found += [_half(one) for one in flowed.found if isinstance(one, BarrierHalf)]
    if unknown:
        message = f"paths with different s_set_vgpr_msb lead here: the VGPRs of {len(unknown)} instructions are not known"
        found.append(FindingWords("not-followed", unknown[0], message, error=False, certainty=""))
    return found


def _gap(one: Early) -> CountGap:
    return CountGap(one.waits[0][0], one.earlier, whole=bool(one.registers))


def _possible(one: Early, search: PathSearch) -> bool:
    """False if no path that can run joins the two instructions while the operation is out."""
    return search.way(one.earlier, one.step, _gap(one)) is not None


def _after_signals(blocks: StraightBlocks) -> dict[int, frozenset[str]]:
    """Returns the uses of LDS after the barrier that each signal belongs to: the next wait in its block, or any."""
    behind = lds_behind(blocks)
    anywhere = frozenset[str]().union(*behind.values())
    found: dict[int, frozenset[str]] = {}
    for steps in blocks.all_steps:
        after = anywhere
        for step in reversed(steps):
            if step.control is ControlKind.BARRIER:
                after = behind[step.pc]
            elif step.control is ControlKind.BARRIER_SIGNAL:
                found[step.pc] = found.get(step.pc, frozenset()) | after
    return found


def _early(one: Early, certainty: Certainty) -> FindingWords:
    """Returns the words of an instruction that comes too early."""
    ((counter, count),) = one.waits
    earlier, place, rule = text(one.earlier.inst), first(one.registers), one.what
    error = one.sure
    apart = f"{one.between} instruction{'s' * (one.between != 1)} between"
    if one.what == RESULT:
        wait = f"s_wait_alu depctr_va_vdst({count})"
        message = f"{place} is {_use(one)} while `{earlier}` may not have written it, {apart}: {wait} is needed (scheduling mode 2)"
        error = _matters(one)
    elif one.what == OPERAND:
        wait = f"s_wait_alu depctr_vm_vsrc({count})"
        message = f"{place} is overwritten while `{earlier}` may not have read it, {apart}: {wait} is needed (scheduling mode 2)"
        error = "valu" in one.step.effect.access.classes
    elif one.what == SHARED:
        message = f"`{earlier}` may be in flight when other waves use LDS after the barrier: s_wait_{counter} {count} is needed "
        message += "before this signal" + ("" if one.sure else ", unless their addresses differ")
    elif one.what == TRANSFER:
        message = f"LDS is read while `{earlier}` may not have written it, and only such transfers write LDS here: "
        message += f"s_wait_{counter} {count} is needed before it"
    elif one.what == ENDED:
        message = f"`{earlier}` may still write LDS when the wave ends: s_wait_{counter} {count} is needed before"
        error = False  # no public source says whether the hardware waits
    else:
        message = wait_message(place, one.what, earlier, f"{counter}({count})").replace("s_waitcnt", "s_wait")
        message = message.replace(f"s_wait {counter}({count})", f"s_wait_{counter} {count}")
        error = one.what != OVERWRITTEN or counter != "loadcnt" or not one.step.pending
    return FindingWords("missing-wait", one.step, message, one.earlier, place, count, rule, error, certainty)


def _matters(one: Early) -> bool:
    """True if a wait for a vector result is needed in practice, too.

    A prefetch of a wrong address does no harm, and a load that overwrites a result takes longer than its write.
    """
    slow = not SLOW.isdisjoint(one.earlier.effect.access.classes)
    used = bool(one.registers & one.step.reads) and not one.step.inst.mnemonic.startswith(PREFETCHES)
    return used and (slow or (one.younger < REACH and one.between < CLOCKS))  # an instruction takes a clock at least


def _use(one: Early) -> str:
    return "read" if one.registers & one.step.reads else "overwritten"


def _half(one: BarrierHalf) -> FindingWords:
    if one.what == SIGNALS_TWICE:
        message = "this wave has signalled the barrier already and has not waited for it: waves get out of step"
    else:
        message = "this wave has not signalled the barrier that it waits for: the wait does not end, or ends a barrier early"
    return FindingWords("barrier", one.step, message, rule=one.what)
