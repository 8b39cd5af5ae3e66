"""Finds accesses that come too early on gfx1250: missing s_wait_*, missing s_wait_alu, unpaired barrier halves.

The rules are LLVM's (SIInsertWaitcnts), which inserts these waits:

* an instruction that reads or writes a register of an incomplete load waits for the load's counter. Loads write their VGPRs out
  of order on GFX12 (LLVM, pull request 105549), so a later load waits, too; LDS operations write in order.
* in expert scheduling mode, a memory instruction that reads or writes a VGPR that a vector instruction writes waits for va_vdst.
  Between vector instructions, the hardware keeps the order.
* in that mode, an instruction that writes a VGPR that a memory instruction reads waits for vm_vsrc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simgpu.checks.lint.flow import PathAnalysis
from simgpu.checks.lint.gfx12.pending import TRANSFERS, VA_VDST, VM_VSRC, Pending, PendingOperation
from simgpu.checks.lint.registers import FILES
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.gfx12.immediates import SCHED_MODE_REGISTER
from simgpu.hardware.isa.instruction import Const, Imm, Literal
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.gfx12 import ASYNC, DS, TENSOR

VGPRS = (1 << FILES["a"]) - 1
EXPERT_MODE = 2  # of SCHED_MODE's low two bits
MODE_BITS = 2
WORKGROUP = -1  # the barrier that each wave of a workgroup signals
READ, OVERWRITTEN = "read", "overwritten"
RESULT, OPERAND = "vector result", "memory operand"
SHARED, ENDED, TRANSFER = "shared", "ended", "transfer"
WAITS_TWICE, SIGNALS_TWICE = "wait without signal", "second signal"
MOST_SIGNALS = 2


@dataclass(frozen=True)
class Early:
    """An instruction that comes too early after another one."""

    step: LintStep
    earlier: LintStep
    what: str  # READ, OVERWRITTEN; RESULT, OPERAND (expert mode); SHARED, ENDED, TRANSFER (LDS)
    registers: int  # registers that both touch, as bits
    waits: tuple[tuple[str, int], ...]  # counts that are enough
    between: int  # fewest instructions between the two, on any path
    sure: bool = True  # False if unknown LDS addresses decide
    younger: int = 0  # operations that the counter counted since, at least


@dataclass(frozen=True)
class BarrierHalf:
    """A half of a barrier without the other half, on every path to it."""

    step: LintStep
    what: str  # WAITS_TWICE, SIGNALS_TWICE


def positions(registers: int) -> list[int]:
    """Returns the bits of a set of registers."""
    found = []
    while registers:
        low = registers & -registers
        found.append(low.bit_length() - 1)
        registers ^= low
    return found


class Waits12(PathAnalysis[Pending, "Early | BarrierHalf"]):
    """Data flow over the steps of a kernel, by address. behind: uses of LDS from each barrier to the next ones, by address."""

    def __init__(self, steps: Mapping[int, LintStep], behind: Mapping[int, frozenset[str]]) -> None:
        self.steps, self.behind = steps, behind
        self._bits: dict[tuple[int, bool], list[int]] = {}
        writers = {step.effect.queue for step in steps.values() if step.effect.lds == "write"}
        self.only_transfers = writers <= {ASYNC, TENSOR}  # True if nothing else writes LDS

    def begin(self, step: LintStep) -> Pending:
        return Pending()

    def forget(self, state: Pending) -> Pending:
        return Pending(expert=state.expert)

    def size(self, state: Pending) -> int:
        return state.size

    def join(self, state: Pending, other: Pending) -> Pending | None:
        return state.join(other)

    def transfer(
        self, state: Pending, steps: Sequence[LintStep], tell: Callable[[Early | BarrierHalf], None]
    ) -> Pending:
        here = state.copy()
        for step in steps:
            here.passed += 1
            self._pass(here, step, tell)
        return here.settle()

    def _pass(self, here: Pending, step: LintStep, tell: Callable[[Early | BarrierHalf], None]) -> None:
        effect = step.effect
        if effect.waits is not None:
            here.wait(effect.waits)
            return
        valu = "valu" in effect.access.classes
        if here.writes or here.results or here.sources:
            self._check_registers(here, step, valu, tell)
        if valu:
            if here.expert:
                time = here.issue(VA_VDST, effect.access.states)
                for bit in self._positions(step, writes=True):
                    if VGPRS >> bit & 1:
                        here.results[bit] = PendingOperation(time, here.passed, step.pc)
            return
        if effect.queue is not None:
            if effect.lds == "read" and effect.queue is DS and self.only_transfers:
                self._read_lds(here, step, tell)
            self._issue(here, step)
        if effect.control is not ControlKind.NONE:
            self._control(here, step, tell)

    def _positions(self, step: LintStep, writes: bool) -> list[int]:
        key = id(step.effect), writes
        if key not in self._bits:
            self._bits[key] = positions(step.writes if writes else step.reads)
        return self._bits[key]

    # -- registers ---------------------------------------------------------------------------------

    def _check_registers(self, here: Pending, step: LintStep, valu: bool, tell: Callable[[Early | BarrierHalf], None]) -> None:
        found: dict[tuple[str, str], list[tuple[PendingOperation, int]]] = {}
        own = step.effect.queue.counters if step.effect.queue is not None else ()
        for writes in (False, True):
            for bit in self._positions(step, writes):
                for counter in COUNTED:
                    entry = here.writes.get((counter, bit))
                    if entry is not None and not (writes and counter in own and counter != "loadcnt" and step.pending >> bit & 1):
                        found.setdefault((counter, OVERWRITTEN if writes else READ), []).append((entry, bit))
                if not VGPRS >> bit & 1:
                    continue
                if not valu and bit in here.results and here.is_out(VA_VDST, here.results[bit]):
                    found.setdefault((VA_VDST, RESULT), []).append((here.results[bit], bit))
                if writes:
                    for counter in READERS:
                        entry = here.sources.get((counter, bit))
                        if entry is not None and (valu or counter not in own) and here.is_out(VM_VSRC, entry):
                            found.setdefault((VM_VSRC, OPERAND), []).append((entry, bit))
        for (counter, what), entries in found.items():
            last = max(entry for entry, _ in entries)
            count = here.given.get(counter, 0) - last.time if counter in COUNTS_DOWN else 0
            registers = sum(1 << bit for bit in {bit for entry, bit in entries if entry.pc == last.pc})
            younger = here.given.get(counter, 0) - last.time
            tell(Early(
                step, self.steps[last.pc], what, registers, ((counter, count),), here.passed - last.at - 1, younger=younger,
            ))  # fmt: skip
            here.wait({counter: count})

    def _issue(self, here: Pending, step: LintStep) -> None:
        effect, queue = step.effect, step.effect.queue
        assert queue is not None
        times = {counter: here.issue(counter) for counter in queue.counters}
        for counter, time in times.items():
            for bit in self._positions(step, writes=True):
                if step.pending >> bit & 1:
                    here.writes[counter, bit] = PendingOperation(time, here.passed, step.pc)
            if effect.lds:
                here.lds[counter, step.pc] = PendingOperation(time, here.passed, step.pc)
        if here.expert and step.reads & VGPRS:
            read = here.issue(VM_VSRC)
            for counter, time in times.items():
                for bit in self._positions(step, writes=False):
                    if VGPRS >> bit & 1:
                        here.sources[counter, bit] = PendingOperation(read, here.passed, step.pc, time)

    def _read_lds(self, here: Pending, step: LintStep, tell: Callable[[Early | BarrierHalf], None]) -> None:
        """Reports a read of LDS that only transfers write, if no path to it has waited for any of them.

        After a wait, the transfers that are still incomplete may be those of the next round.
        """
        for counter in TRANSFERS - here.waited:
            entries = [entry for (other, _), entry in here.lds.items() if other == counter]
            if entries:
                last = max(entries)
                count = here.given.get(counter, 0) - last.time
                tell(Early(step, self.steps[last.pc], TRANSFER, 0, ((counter, count),), here.passed - last.at - 1))
                here.wait({counter: 0})

    # -- control -----------------------------------------------------------------------------------

    def _control(self, here: Pending, step: LintStep, tell: Callable[[Early | BarrierHalf], None]) -> None:
        control = step.control
        if control is ControlKind.SETREG:
            here.expert = _expert_after(step, here.expert)
            if not here.expert:
                here.results, here.sources = {}, {}
        elif control is ControlKind.BARRIER_SIGNAL:
            self._signal(here, step, tell)
        elif control is ControlKind.BARRIER:
            self._wait_barrier(here, step, tell)
        elif control is ControlKind.ENDPGM:
            self._end(here, step, tell)

    def _signal(self, here: Pending, step: LintStep, tell: Callable[[Early | BarrierHalf], None]) -> None:
        """Reports LDS operations that may be incomplete when this wave signals, if waves use LDS after the barrier.

        Code that waits for older operations only, or that reads, may use other bytes after the barrier.
        """
        barrier = _barrier_of(step)
        if barrier == WORKGROUP:
            known = here.signals.get(barrier, frozenset({0}))
            if min(known) > 0:
                tell(BarrierHalf(step, SIGNALS_TWICE))
            here.signals[barrier] = frozenset(min(count + 1, MOST_SIGNALS) for count in known)
        used = self.behind.get(step.pc, frozenset()) if barrier in (None, WORKGROUP) or barrier > 0 else frozenset()
        for kind, others in (("write", used), ("read", used - {"read"})):
            entries = [
                entry for (counter, pc), entry in here.lds.items()
                if counter == "dscnt" and others and (self.steps[pc].lds == "read") == (kind == "read")
            ]  # fmt: skip
            if entries:
                last = max(entries)
                count = here.given.get("dscnt", 0) - last.time
                sure = kind == "write" and not last.other
                tell(Early(step, self.steps[last.pc], SHARED, 0, (("dscnt", count),), here.passed - last.at - 1, sure))
        here.lds = {key: entry for key, entry in here.lds.items() if key[0] != "dscnt"}

    def _wait_barrier(self, here: Pending, step: LintStep, tell: Callable[[Early | BarrierHalf], None]) -> None:
        barrier = _barrier_of(step)
        if barrier != WORKGROUP:  # one wave may signal others, such as the cluster's, for all
            return
        known = here.signals.get(barrier, frozenset({0}))
        if max(known) == 0:
            tell(BarrierHalf(step, WAITS_TWICE))
        here.signals[barrier] = frozenset(max(count - 1, 0) for count in known)
        signalled = ControlKind.BARRIER_SIGNAL  # its SCC is there
        here.writes = {key: entry for key, entry in here.writes.items() if self.steps[entry.pc].control is not signalled}

    def _end(self, here: Pending, step: LintStep, tell: Callable[[Early | BarrierHalf], None]) -> None:
        """Reports a transfer to LDS that may be incomplete when the wave ends: the LDS may belong to another workgroup by then."""
        for counter in ("asynccnt", "tensorcnt"):
            entries = [
                entry for (other, pc), entry in here.lds.items() if other == counter and self.steps[pc].effect.lds == "write"
            ]  # fmt: skip
            if entries:
                last = max(entries)
                count = here.given.get(counter, 0) - last.time
                tell(Early(step, self.steps[last.pc], ENDED, 0, ((counter, count),), here.passed - last.at - 1))


COUNTED = ("loadcnt", "dscnt", "kmcnt")  # counters of operations that write registers
READERS = ("loadcnt", "storecnt", "dscnt", "asynccnt")  # counters of operations that read VGPRs
COUNTS_DOWN = ("loadcnt", "dscnt", VA_VDST, VM_VSRC)  # counters that complete in the order of issue


def _barrier_of(step: LintStep) -> int | None:
    """Returns the number of a barrier, as a signed number; None if a register has it."""
    immediate, source = step.inst.args.get("simm16"), step.inst.args.get("src0")
    if isinstance(immediate, Imm):
        return (immediate.value & 0xFFFF ^ 0x8000) - 0x8000
    return 192 - source.code if isinstance(source, Const) and source.code > 192 else None


def _expert_after(step: LintStep, expert: bool) -> bool:
    """Returns whether expert mode may be on after an s_setreg."""
    immediate, literal = step.inst.args.get("simm16"), step.inst.args.get("k")
    value = immediate.value if isinstance(immediate, Imm) else 0
    first, width = value >> 6 & 31, (value >> 11 & 31) + 1
    if value & 63 != SCHED_MODE_REGISTER or first >= MODE_BITS:
        return expert
    if not isinstance(literal, Literal) or first:
        return True
    return literal.value & (1 << min(width, MODE_BITS)) - 1 == EXPERT_MODE
