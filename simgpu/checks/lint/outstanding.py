"""Operations that may be outstanding, and registers that are touched before they are complete.

At each place, on all paths to it: of each operation of an in-order queue, the fewest operations that its queue was given since;
of each scalar load, that it is out; of each flat operation, the counters that were not waited for. Whether an s_waitcnt completes
an operation for certain grows with what was issued since, so the fewest decides for all paths, and nothing is lost where they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simgpu.checks.lint.flow import PathAnalysis, fewest
from simgpu.checks.lint.steps import LintStep, lds_use
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.waits import DS, FLAT, SMEM, VM, held_up

IN_ORDER = {VM.name: 0, DS.name: 1}  # the queues whose operations complete in the order of issue
COUNTERS = ("vmcnt", "lgkmcnt")  # those of the in-order queues, and those of a flat operation, a bit each
BOTH = 3
# Uses of LDS behind a barrier that go with one that is under way there.
BESIDE = {"read": frozenset({"read"}), "write": frozenset(), "atomic": frozenset({"atomic"})}


@dataclass(frozen=True)
class Unwaited:
    """An instruction that touches what an operation is yet to write. waits: the counts that complete it."""

    step: LintStep
    operation: LintStep
    what: str  # read or overwritten; ended or shared, of LDS
    registers: int
    waits: tuple[tuple[str, int], ...]
    sure: bool = True  # no: the addresses decide, and these are not known


class Outstanding:
    """What may be out at one place, operations by the address of their instruction.

    queues: of each in-order queue, how many operations it was given since; scalar; flat: counters not waited for, as bits;
    lds: of each operation on LDS, whether or not it writes registers, how many its queue was given since.
    """

    __slots__ = ("flat", "lds", "queues", "registers", "scalar")

    def __init__(self) -> None:
        self.queues: tuple[dict[int, int], dict[int, int]] = {}, {}
        self.scalar: frozenset[int] = frozenset()
        self.flat: dict[int, int] = {}
        self.lds: dict[int, int] = {}
        self.registers = 0  # all that they may write, or more

    def copy(self) -> Outstanding:
        other = Outstanding()
        other.queues = self.queues[0].copy(), self.queues[1].copy()
        other.scalar, other.flat, other.lds = self.scalar, self.flat.copy(), self.lds.copy()
        other.registers = self.registers
        return other

    def joined(self, other: Outstanding) -> Outstanding | None:
        """What may be out by either way; None if that is this."""
        result = self.copy()
        for mine, theirs in (*zip(result.queues, other.queues, strict=True), (result.lds, other.lds)):
            fewest(mine, theirs)
        for pc, counters in other.flat.items():
            result.flat[pc] = result.flat.get(pc, 0) | counters
        result.scalar |= other.scalar
        result.registers |= other.registers
        return None if result._all() == self._all() else result

    def _all(self) -> tuple[object, ...]:
        return self.queues, self.scalar, self.flat, self.lds

    def wait(self, counts: Mapping[str, int]) -> None:
        """An s_waitcnt passes."""
        if not counts:
            return
        for at, counter in enumerate(COUNTERS):
            left = counts.get(counter)
            if left is None:
                continue
            if self.queues[at]:
                kept = {pc: since for pc, since in self.queues[at].items() if since < left}
                self.queues = (kept, self.queues[1]) if at == 0 else (self.queues[0], kept)
            if counter == "lgkmcnt":
                self.lds = {pc: since for pc, since in self.lds.items() if since < left}
            if left == 0:
                self.flat = {pc: rest for pc, bits in self.flat.items() if (rest := bits & ~(1 << at))}
                if counter == "lgkmcnt":
                    self.scalar = frozenset()
        if not (self.queues[0] or self.queues[1] or self.scalar or self.flat):
            self.registers = 0


class Waits(PathAnalysis[Outstanding, Unwaited]):
    """The data flow over the steps of a kernel, by address.

    behind: what LDS may be used for (read, write) between each barrier, by address, and the next ones; none where a workgroup has
    one wave.
    """

    def __init__(self, steps: Mapping[int, LintStep], behind: Mapping[int, frozenset[str]]) -> None:
        self.steps = steps
        self.behind = behind

    def begin(self, step: LintStep) -> Outstanding:
        return Outstanding()

    def forget(self, state: Outstanding) -> Outstanding:
        return Outstanding()

    def copy(self, state: Outstanding) -> Outstanding:
        return state.copy()

    def size(self, state: Outstanding) -> int:
        return sum(map(len, (*state.queues, state.scalar, state.flat, state.lds)))

    def join(self, state: Outstanding, other: Outstanding) -> Outstanding | None:
        return state.joined(other)

    def pass_by(self, state: Outstanding, step: LintStep, tell: Callable[[Unwaited], None] | None) -> Outstanding:
        """Changes the state by one instruction; what it lacks is told, and taken for mended."""
        effect = step.effect
        if effect.waits is not None:
            state.wait(effect.waits)
            return state
        if effect.queue is VM or effect.queue is DS:
            held = (*state.queues[IN_ORDER[effect.queue.name]].values(), *(state.lds.values() if effect.queue is DS else ()))
            state.wait(held_up(effect.queue, held))
        if state.registers & (step.reads | step.writes):
            self._touch(state, step, tell)
        if effect.control is ControlKind.BARRIER and self.behind:
            self._barrier(state, step, tell)
        elif effect.control is ControlKind.ENDPGM:
            self._end(state, step, tell)
        if effect.queue is not None:
            self._issue(state, step)
        return state

    def _touch(self, state: Outstanding, step: LintStep, tell: Callable[[Unwaited], None] | None) -> None:
        touched = step.reads | step.writes
        for at, counter in enumerate(COUNTERS):
            # A later operation of the same queue is complete later: it may write what an earlier one writes.
            queue = step.effect.queue
            own = queue is not None and IN_ORDER.get(queue.name) == at
            hit = step.reads | (step.writes & ~step.pending) if own else touched
            hits = [(since, pc) for pc, since in state.queues[at].items() if self.steps[pc].pending & hit]
            if hits:
                since, pc = min(hits)
                self._tell(state, step, self.steps[pc], hit, {counter: since}, tell)
        for pc in sorted(state.scalar):
            if pc in state.scalar and self.steps[pc].pending & touched:
                self._tell(state, step, self.steps[pc], touched, {"lgkmcnt": 0}, tell)
        for pc in sorted(state.flat):
            if pc in state.flat and self.steps[pc].pending & touched:
                counts = {counter: 0 for at, counter in enumerate(COUNTERS) if state.flat[pc] >> at & 1}
                self._tell(state, step, self.steps[pc], touched, counts, tell)

    def _tell(
        self, state: Outstanding, step: LintStep, operation: LintStep, touched: int, counts: dict[str, int],
        tell: Callable[[Unwaited], None] | None, what: str = "",
    ) -> None:  # fmt: skip
        """Tells of an operation that these counts complete, and takes them for waited for."""
        shared = operation.pending & touched
        read = shared & step.reads
        if tell is not None:
            tell(Unwaited(step, operation, what or ("read" if read else "overwritten"), read or shared, tuple(counts.items())))
        state.wait(counts)

    def _barrier(self, state: Outstanding, step: LintStep, tell: Callable[[Unwaited], None] | None) -> None:
        """LDS operations that are out when the other waves go on, where these may touch what they touch.

        A write that is not complete is not there for those who read behind the barrier. Whether a read clashes with what is
        written there is a matter of addresses: where two buffers take turns it does not.
        """
        used = self.behind[step.pc]
        hits = [(since, pc) for pc, since in state.lds.items() if used - BESIDE[lds_use(self.steps[pc])]]
        writes = [(since, pc) for since, pc in hits if lds_use(self.steps[pc]) != "read"]
        if writes:
            since, pc = min(writes)
            self._tell(state, step, self.steps[pc], 0, {"lgkmcnt": since}, tell, "shared")
        reads = [(since, pc) for since, pc in hits if pc in state.lds and lds_use(self.steps[pc]) == "read"]
        if reads and tell is not None:
            since, pc = min(reads)
            tell(Unwaited(step, self.steps[pc], "shared", 0, (("lgkmcnt", since),), sure=False))
        state.lds = {pc: since for pc, since in state.lds.items() if lds_use(self.steps[pc]) != "read"}

    def _end(self, state: Outstanding, step: LintStep, tell: Callable[[Unwaited], None] | None) -> None:
        """A load to LDS that the wave leaves behind: the LDS may be another workgroup's by then."""
        hits = [(since, pc) for pc, since in state.queues[0].items() if self.steps[pc].effect.dma]
        if hits:
            since, pc = min(hits)
            self._tell(state, step, self.steps[pc], 0, {"vmcnt": since}, tell, "ended")

    def _issue(self, state: Outstanding, step: LintStep) -> None:
        effect, queue = step.effect, step.effect.queue
        assert queue is not None
        at = IN_ORDER.get(queue.name)
        if at is not None:
            kept = {
                pc: since + 1
                for pc, since in state.queues[at].items()
                if self.steps[pc].effect.dma or self.steps[pc].pending & ~step.pending
            }
            if step.pending or effect.dma:
                kept[step.pc] = 0
            state.queues = (kept, state.queues[1]) if at == 0 else (state.queues[0], kept)
            if queue is DS:
                state.lds = {pc: since + 1 for pc, since in state.lds.items()}
                if effect.lds:
                    state.lds[step.pc] = 0
        elif queue is SMEM and step.pending:
            state.scalar |= {step.pc}
        elif queue is FLAT and step.pending:
            state.flat[step.pc] = BOTH
        state.registers |= step.pending
