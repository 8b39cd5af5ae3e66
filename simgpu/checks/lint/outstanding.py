"""Finds operations that may be outstanding, and instructions that touch their registers too early.

The state of a place covers all paths to it. For each operation of an in-order queue it holds the fewest operations that the
queue issued since, on any path. It also holds the scalar loads that are outstanding, and the counters of each flat operation that
were not waited for. An s_waitcnt completes an operation if enough others were issued since, so the fewest decide for all paths,
and joins lose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from simgpu.checks.lint.flow import PathAnalysis
from simgpu.checks.lint.gaps import OperationGap
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.memory_model import Scope, cache_bits, cache_operation, scope_of
from simgpu.hardware.timing_rules.waits import DS, FLAT, SMEM, VM, held_up

IN_ORDER = {VM.name: 0, DS.name: 1}  # queues whose operations complete in the order of issue
COUNTERS = ("vmcnt", "lgkmcnt")  # counters of the in-order queues and of a flat operation, a bit each
BOTH = 3
# Uses of LDS after a barrier that do not conflict with a use that is outstanding there.
BESIDE = {"read": frozenset({"read"}), "write": frozenset(), "atomic": frozenset({"atomic"})}


@dataclass(frozen=True)
class UnwaitedAccess:
    """An instruction that touches registers or LDS of an operation that is not complete."""

    step: LintStep
    earlier: LintStep  # instruction that issued the operation
    # "read" or "overwritten"; for LDS "ended" (the wave ends) or "shared" (other waves use it after a barrier); "released" for a
    # write-back of the L2 that a store may overtake
    what: str
    registers: int  # registers touched, as bits
    waits: tuple[tuple[str, int], ...]  # counts that complete the operation
    sure: bool = True  # False if unknown addresses decide

    @property
    def gap(self) -> OperationGap:
        """Gap between the two while the operation is out."""
        return OperationGap(self.earlier, whole=bool(self.registers))


class OutstandingQueues:
    """Operations that may be outstanding at one place, by the address of their instruction.

    queues: issue times in the in-order queues; a queue's clock counts its operations, and is 0 at this place
    scalar: scalar loads
    flat: counters not waited for, as bits
    lds: issue time of each LDS operation, with or without result registers
    registers: all registers that these may write, or more
    """

    __slots__ = ("flat", "lds", "queues", "registers", "scalar")

    def __init__(
        self, queues: tuple[dict[int, int], dict[int, int]], scalar: frozenset[int], flat: dict[int, int], lds: dict[int, int],
        registers: int,
    ) -> None:  # fmt: skip
        self.queues, self.scalar, self.flat, self.lds, self.registers = queues, scalar, flat, lds, registers

    def join(self, other: OutstandingQueues) -> OutstandingQueues | None:
        """Returns the operations out by either path, None if that is this state."""
        one, two = (_latest(mine, theirs) for mine, theirs in zip(self.queues, other.queues, strict=True))
        flat = self.flat | {pc: counters | self.flat.get(pc, 0) for pc, counters in other.flat.items()}
        lds, scalar = _latest(self.lds, other.lds), self.scalar | other.scalar
        if ((one, two), scalar, flat, lds) == (self.queues, self.scalar, self.flat, self.lds):
            return None
        return OutstandingQueues((one, two), scalar, flat, lds, self.registers | other.registers)


def _latest(mine: dict[int, int], theirs: dict[int, int]) -> dict[int, int]:
    return mine | {pc: at for pc, at in theirs.items() if at > mine.get(pc, at - 1)}


class WaitWalk:
    """Outstanding operations during a walk over a block. given: number of operations issued to each in-order queue so far."""

    __slots__ = ("flat", "given", "lds", "queues", "registers", "scalar")

    def __init__(self, state: OutstandingQueues) -> None:
        self.queues, self.given = [dict(queue) for queue in state.queues], [0, 0]
        self.scalar, self.flat, self.lds, self.registers = set(state.scalar), dict(state.flat), dict(state.lds), state.registers

    def state(self) -> OutstandingQueues:
        """Returns the operations that may be out at the walk's place."""
        one, two = ({pc: at - given for pc, at in queue.items()} for queue, given in zip(self.queues, self.given, strict=True))
        lds = {pc: at - self.given[1] for pc, at in self.lds.items()}
        return OutstandingQueues((one, two), frozenset(self.scalar), dict(self.flat), lds, self.registers)

    def wait(self, counts: Mapping[str, int]) -> None:
        """Passes an s_waitcnt."""
        for at, counter in enumerate(COUNTERS):
            left = counts.get(counter)
            if left is None:
                continue
            least = self.given[at] - left
            self.queues[at] = {pc: given for pc, given in self.queues[at].items() if given > least}
            if at:
                self.lds = {pc: given for pc, given in self.lds.items() if given > least}
            if left == 0:
                self.flat = {pc: rest for pc, bits in self.flat.items() if (rest := bits & ~(1 << at))}
                if at:
                    self.scalar.clear()
        if not (self.queues[0] or self.queues[1] or self.scalar or self.flat):
            self.registers = 0

    def drop(self, pc: int) -> None:
        """Removes the operation of an instruction, because no possible path leads here while it is outstanding."""
        for held in (*self.queues, self.flat, self.lds):
            held.pop(pc, None)
        self.scalar.discard(pc)


class Waits(PathAnalysis[OutstandingQueues, UnwaitedAccess]):
    """Data flow over the steps of a kernel, by address.

    behind: uses of LDS (read, write) from each barrier to the next ones, by address; empty if a workgroup has one wave
    disjoint: True if an operation and the accesses of other waves after a barrier never overlap in LDS
    apart: pairs of addresses, an operation's and a later instruction's, that no path joins while the operation is out
    """

    def __init__(
        self, steps: Mapping[int, LintStep], behind: Mapping[int, frozenset[str]], disjoint: Callable[[int, int], bool],
        apart: Collection[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self.steps, self.behind, self.disjoint = steps, behind, disjoint
        self.apart: dict[int, list[int]] = {}  # operations by the later instruction
        for operation, later in apart:
            self.apart.setdefault(later, []).append(operation)

    def begin(self, step: LintStep) -> OutstandingQueues:
        return OutstandingQueues(({}, {}), frozenset(), {}, {}, 0)

    def forget(self, state: OutstandingQueues) -> OutstandingQueues:
        return OutstandingQueues(({}, {}), frozenset(), {}, {}, 0)

    def size(self, state: OutstandingQueues) -> int:
        return sum(map(len, (*state.queues, state.scalar, state.flat, state.lds)))

    def join(self, state: OutstandingQueues, other: OutstandingQueues) -> OutstandingQueues | None:
        return state.join(other)

    def transfer(
        self, state: OutstandingQueues, steps: Sequence[LintStep], tell: Callable[[UnwaitedAccess], None]
    ) -> OutstandingQueues:
        walk = WaitWalk(state)
        for step in steps:
            if not step.plain or walk.registers & step.touched:
                self._pass_by(walk, step, tell)
        return walk.state()

    def _pass_by(self, walk: WaitWalk, step: LintStep, tell: Callable[[UnwaitedAccess], None]) -> None:
        """Passes one instruction. Lacking waits are reported, then counted as inserted."""
        effect, queue = step.effect, step.effect.queue
        if effect.waits is not None:
            walk.wait(effect.waits)
            return
        for pc in self.apart.get(step.pc, ()):
            walk.drop(pc)
        if queue is not None and queue.in_order:
            at = IN_ORDER[queue.name]
            held = (*walk.queues[at].values(), *(walk.lds.values() if at else ()))
            if held:
                walk.wait(held_up(queue, (walk.given[at] - min(held),)))
        if walk.registers & step.touched:
            self._touch(walk, step, tell)
        memory = step.inst.spec.memory
        if memory is not None and memory.op in ("store", "atomic"):
            self._release(walk, step, tell)
        if effect.control is ControlKind.BARRIER and self.behind:
            self._barrier(walk, step, tell)
        elif effect.control is ControlKind.ENDPGM:
            self._end(walk, step, tell)
        if queue is not None:
            self._issue(walk, step)

    def _touch(self, walk: WaitWalk, step: LintStep, tell: Callable[[UnwaitedAccess], None]) -> None:
        registers = 0
        for at, counter in enumerate(COUNTERS):
            # Operations of the same queue complete in order, so a later one may write the registers of an earlier one.
            queue = step.effect.queue
            own = queue is not None and IN_ORDER.get(queue.name) == at
            hit = step.reads | (step.writes & ~step.pending) if own else step.touched
            last, of_last = -1 << 60, None
            for pc, given in walk.queues[at].items():
                pending = self.steps[pc].pending
                registers |= pending
                if pending & hit and (given, -pc) > (last, -(of_last or 0)):
                    last, of_last = given, pc
            if of_last is not None:
                self._tell(walk, step, self.steps[of_last], hit, {counter: walk.given[at] - last}, tell)
        for pc in sorted(walk.scalar):
            registers |= self.steps[pc].pending
            if pc in walk.scalar and self.steps[pc].pending & step.touched:
                self._tell(walk, step, self.steps[pc], step.touched, {"lgkmcnt": 0}, tell)
        for pc in sorted(walk.flat):
            registers |= self.steps[pc].pending
            if pc in walk.flat and self.steps[pc].pending & step.touched:
                counts = {counter: 0 for at, counter in enumerate(COUNTERS) if walk.flat[pc] >> at & 1}
                self._tell(walk, step, self.steps[pc], step.touched, counts, tell)
        walk.registers &= registers

    def _tell(
        self, walk: WaitWalk, step: LintStep, operation: LintStep, touched: int, counts: dict[str, int],
        tell: Callable[[UnwaitedAccess], None], what: str = "",
    ) -> None:  # fmt: skip
        """Reports an operation that these counts complete, and counts it as waited for."""
        shared = operation.pending & touched
        read = shared & step.reads
        tell(UnwaitedAccess(step, operation, what or ("read" if read else "overwritten"), read or shared, tuple(counts.items())))
        walk.wait(counts)

    def _barrier(self, walk: WaitWalk, step: LintStep, tell: Callable[[UnwaitedAccess], None]) -> None:
        """Reports LDS operations that are outstanding at a barrier, if other waves may use the same bytes after it.

        Other waves may miss an incomplete write. Whether an incomplete read conflicts with their writes depends on addresses: with
        two alternating buffers it does not.
        """
        used = self.behind[step.pc]
        hits = [
            (walk.given[1] - given, pc) for pc, given in walk.lds.items()
            if used - BESIDE[self.steps[pc].lds] and not self.disjoint(pc, step.pc)
        ]  # fmt: skip
        writes = [(since, pc) for since, pc in hits if self.steps[pc].lds != "read"]
        if writes:
            since, pc = min(writes)
            self._tell(walk, step, self.steps[pc], 0, {"lgkmcnt": since}, tell, "shared")
        reads = [(since, pc) for since, pc in hits if pc in walk.lds and self.steps[pc].lds == "read"]
        if reads:
            since, pc = min(reads)
            tell(UnwaitedAccess(step, self.steps[pc], "shared", 0, (("lgkmcnt", since),), sure=False))
        walk.lds = {pc: given for pc, given in walk.lds.items() if self.steps[pc].lds != "read"}

    def _release(self, walk: WaitWalk, step: LintStep, tell: Callable[[UnwaitedAccess], None]) -> None:
        """Reports a write-back of the L2 that is out when others may see a store: they may act on it too early."""
        hits = [(walk.given[0] - given, pc) for pc, given in walk.queues[0].items() if _writes_back(self.steps[pc])]
        if hits and _may_release(step):
            since, pc = min(hits)
            self._tell(walk, step, self.steps[pc], 0, {"vmcnt": since}, tell, "released")

    def _end(self, walk: WaitWalk, step: LintStep, tell: Callable[[UnwaitedAccess], None]) -> None:
        """Reports a load to LDS that is out when the wave ends: the LDS may belong to another workgroup by then."""
        hits = [(walk.given[0] - given, pc) for pc, given in walk.queues[0].items() if self.steps[pc].effect.dma]
        if hits:
            since, pc = min(hits)
            self._tell(walk, step, self.steps[pc], 0, {"vmcnt": since}, tell, "ended")

    def _issue(self, walk: WaitWalk, step: LintStep) -> None:
        effect, queue = step.effect, step.effect.queue
        assert queue is not None
        at = IN_ORDER.get(queue.name)
        if at is not None:
            walk.given[at] += 1
            anew = [pc for pc in walk.queues[at] if not self.steps[pc].pending & ~step.pending and not _is_kept(self.steps[pc])]
            for pc in anew:
                del walk.queues[at][pc]
            if step.pending or _is_kept(step):
                walk.queues[at][step.pc] = walk.given[at]
            if effect.lds and queue is DS:
                walk.lds[step.pc] = walk.given[at]
        elif queue is SMEM and step.pending:
            walk.scalar.add(step.pc)
        elif queue is FLAT and step.pending:
            walk.flat[step.pc] = BOTH
        walk.registers |= step.pending


def _is_kept(step: LintStep) -> bool:
    """True for an operation whose completion matters although it writes no register."""
    return step.effect.dma or _writes_back(step)


def _writes_back(step: LintStep) -> bool:
    """True for an instruction that writes the L2 back, so that other XCDs or devices see earlier stores."""
    if step.control is not ControlKind.CACHE:
        return False
    operation = cache_operation(step.inst.target, step.inst.mnemonic, cache_bits(step.inst.mods))
    return operation is not None and operation.kind == "write back"


def _may_release(step: LintStep) -> bool:
    """True for a store or an atomic that other XCDs or devices may see at once, such as that of a flag."""
    memory = step.inst.spec.memory
    if memory is None or memory.space not in ("global", "flat", "buffer", "tbuffer"):
        return False
    return scope_of(step.inst.target, "atomic" if memory.op == "atomic" else "store", cache_bits(step.inst.mods)) >= Scope.AGENT
