"""An in-order model of a loop on one CU: how much of its time the matrix units work, and what they wait for otherwise.

What it assumes (facts: AMD Matrix Instruction Calculator 1.3.2, ROCm Compute Profiler documentation, LLVM's scheduling models):

* 4 SIMDs, w waves each, whole workgroups; a SIMD issues every 4 clocks (a slot), at most one instruction of a wave and one of
  each class: VALU with MFMA, VMEM, SALU with SMEM, LDS, branch. The oldest wave that can go does. s_waitcnt, s_nop,
  s_barrier and the like take their wave's slot and no unit.
* An MFMA holds its SIMD's matrix unit for its passes; VALU may start `coexec` clocks after it, or behind it where the
  calculator knows no co-execution (gfx950's own forms: as gfx942's). Dependence distances are the s_nop of the listing.
* VALU takes a slot; transcendentals and 32-bit multiplies four; f64 arithmetic on gfx908 two.
* The LDS serves the CU's accesses in order of issue, `lds_bytes_per_clock` and the conflicts that were counted, and answers
  LDS_LATENCY clocks later; loads pass the vector cache at 64 bytes a clock and arrive MEMORY_LATENCY clocks later, in order.
  Both latencies are stated, not measured (facts, section 6: LDS 60 to 130 clocks, L2 300 to 500, HBM 350 to 800 ns): loads that the
  tile order keeps in L2 for the most part. Bandwidth beyond the CU is not modelled: the resource table has it.
* A wave has at most 15 LDS and 63 memory operations in flight; a taken branch costs its wave 8 slots (llvm-mca).

Steady state: the waves loop without end; counted are PASSES_THROUGH passes of each on average, behind WARM_UP of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.waits import Item, Label
from simgpu.hardware import mfma
from simgpu.hardware.descriptor import CLOCKS_PER_PASS, WAVEFRONT, HardwareDescriptor
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect
from simgpu.hardware.timing_rules.waits import DS, VM

SLOT = 4  # clocks
LDS_LATENCY = 128
MEMORY_LATENCY = 500
CACHE_BYTES_PER_CLOCK = 64
BRANCH_SLOTS = 8
MOST_LDS, MOST_MEMORY = 15, 63
WARM_UP, PASSES_THROUGH = 2, 8  # of the loop, by a wave on average
LIMIT_SLOTS = 1 << 20  # a loop that does not end by then is stuck
INTERNAL = (ControlKind.WAITCNT, ControlKind.NOP, ControlKind.BARRIER, ControlKind.SLEEP, ControlKind.SETPRIO)
SLOW_VALU = ("v_mul_lo", "v_mul_hi", "v_rcp", "v_exp", "v_log", "v_sqrt", "v_rsq", "v_sin", "v_cos")
CLASSES = ("valu", "vmem", "salu", "lds", "branch")
Conflicts = Callable[[Instr], float | None]


@dataclass(frozen=True)
class Step:
    """An instruction as the model sees it."""

    kind: str  # its class, "" for internal ones
    slots: int = 1  # of its unit
    coexec: int = 0  # slots until VALU may follow an MFMA
    matrix: bool = False
    nbytes: int = 0  # that it moves
    lost: float | None = None  # clocks of bank conflicts, None where not counted
    vm: int | None = None  # wait counts of an s_waitcnt
    lgkm: int | None = None
    states: int = 0  # wait states of an s_nop
    barrier: bool = False
    taken: bool = False  # a branch


def loop_body(items: Sequence[Item]) -> list[Instr]:
    """The instructions of the loop with the most matrix instructions, or else the longest; only its last branch is taken."""
    instructions: list[Instr] = []
    starts: dict[str, int] = {}
    bodies: list[list[Instr]] = []
    for item in items:
        if isinstance(item, Label):
            starts[item.name] = len(instructions)
        elif isinstance(item, Instr):
            instructions.append(item)
            if item.effect and item.effect.control is ControlKind.ENDPGM:
                starts.clear()  # what jumps back from behind the end is a block out of line, no loop
            if item.target in starts:
                bodies.append(instructions[starts[item.target] :])
    if not bodies:
        raise LaunchError("the kernel has no loop: the model looks at loops only")
    return max(bodies, key=lambda body: (sum(_is_matrix(i) for i in body), len(body)))


def _is_matrix(instr: Instr) -> bool:
    return instr.mnemonic.startswith(("v_mfma", "v_smfmac"))


def steps_of(body: Sequence[Instr], target: str, conflicts: Conflicts = lambda instr: None) -> list[Step]:
    """The loop's steps; `conflicts`: clocks of bank conflicts of an LDS instruction, None where nothing counted them."""
    return [_step(instr, target, conflicts, instr is body[-1]) for instr in body]


def _step(instr: Instr, target: str, conflicts: Conflicts, last: bool) -> Step:
    effect = instr.effect
    assert effect is not None
    if _is_matrix(instr):
        row = mfma.find(instr.mnemonic, target)
        words = dict(word.split(":") for word in instr.modifiers if word.startswith(("cbsz", "blgp")))
        passes = row.with_formats(int(words.get("cbsz", 0)), int(words.get("blgp", 0))).passes
        slots = passes * CLOCKS_PER_PASS // SLOT
        clocks = CLOCKS_PER_PASS if row.coexec_delay is None else row.coexec_delay
        return Step("valu", slots, slots if clocks < 0 else max(1, clocks // SLOT), matrix=True)
    if instr.mnemonic == "s_waitcnt":
        return _waitcnt(str(instr.operands[0]))
    if effect.control is ControlKind.BARRIER or instr.mnemonic == "s_barrier":
        return Step("", barrier=True)
    if instr.mnemonic == "s_nop":
        return Step("", states=int(str(instr.operands[0])) + 1)
    if effect.control in INTERNAL:
        return Step("")
    if instr.target:
        return Step("branch", taken=last)
    if effect.queue is VM:
        return Step("vmem", nbytes=WAVEFRONT * _bytes(instr, effect))
    if effect.queue is DS:
        return Step("lds", nbytes=WAVEFRONT * _bytes(instr, effect), lost=conflicts(instr))
    if instr.mnemonic.startswith("s_"):
        return Step("salu")
    if target == "gfx908" and "f64" in instr.mnemonic:
        return Step("valu", slots=2)
    return Step("valu", slots=4 if instr.mnemonic.startswith(SLOW_VALU) else 1)


def _waitcnt(text: str) -> Step:
    counts = {name: int(count) for name, count in (part.strip(" )").split("(") for part in text.split("&"))}
    return Step("", vm=counts.get("vmcnt"), lgkm=counts.get("lgkmcnt"))


def _bytes(instr: Instr, effect: Effect) -> int:
    """Bytes of a lane: what it loads, or the registers that it stores."""
    if effect.pending:
        return 4 * len(effect.pending)
    return 4 * len(dict(effect.access.reads).get("data", ())) or 4


@dataclass
class _Wave:
    group: int
    pc: int = 0
    ready: int = 0
    why: str = ""
    rounds: int = 0
    arrived: bool = False
    memory: deque[float] = field(default_factory=deque)
    lds: deque[float] = field(default_factory=deque)


@dataclass(frozen=True)
class Schedule:
    """What the model says of a loop in steady state.

    utilisation: matrix clocks over clocks; issue_bound: the same if nothing but units and issue slots limited it; limit: which
    of them does; clocks: of one pass by all waves of a SIMD; stalls: share of the clocks in which the matrix units idle, by cause;
    lds_accesses: LDS instructions of a pass, of which `lds_counted` had their bank conflicts counted, lds_lost clocks in all.
    """

    waves: int
    utilisation: float
    issue_bound: float
    limit: str
    clocks: float
    stalls: dict[str, float]
    lds_accesses: int
    lds_counted: int
    lds_lost: float


def issue_bound(steps: Sequence[Step], waves: int, simds: int, lds_bytes_per_clock: int) -> tuple[float, str, float]:
    """(share of the matrix units' time, what limits it, clocks) of a pass through the loop by every wave of the CU."""
    matrix = waves * sum(step.slots for step in steps if step.matrix) * SLOT
    free = sum(step.slots - step.coexec for step in steps if step.matrix)
    alone = sum(step.slots for step in steps if step.kind == "valu" and not step.matrix)
    clocks = {
        "matrix and VALU": matrix + waves * SLOT * max(0, alone - free),
        "LDS": simds * waves * sum(step.nbytes / lds_bytes_per_clock + (step.lost or 0) for step in steps if step.kind == "lds"),
        "vector cache": simds * waves * sum(step.nbytes for step in steps if step.kind == "vmem") / CACHE_BYTES_PER_CLOCK,
        "one wave's issue": SLOT * (sum(max(1, step.states) for step in steps) + BRANCH_SLOTS),
        **{f"{name} issue": SLOT * waves * sum(step.kind == name for step in steps) for name in ("vmem", "salu", "lds")},
    }
    limit = max(clocks, key=lambda name: clocks[name])
    return matrix / clocks[limit], limit, clocks[limit]


def model(
    steps: Sequence[Step], descriptor: HardwareDescriptor, waves: int, waves_a_group: int, memory_latency: int = MEMORY_LATENCY
) -> Schedule:
    """Runs the loop on `waves` waves a SIMD, in workgroups of `waves_a_group`, as often as the module says.

    LaunchError if the waves do not make whole workgroups, or if the loop never ends.
    """
    simds = descriptor.simds_per_cu
    if waves < 1 or waves * simds % waves_a_group:
        raise LaunchError(f"{waves} wave(s) on each of {simds} SIMDs are no whole workgroups of {waves_a_group} waves")
    cu = _Cu(steps, simds, waves, waves_a_group, descriptor.lds_bytes_per_clock, memory_latency)
    busy, window, stalls = cu.run()
    bound, limit, _ = issue_bound(steps, waves, simds, descriptor.lds_bytes_per_clock)
    utilisation = busy / window if window else 0.0
    matrix = waves * sum(step.slots for step in steps if step.matrix) * SLOT
    clocks = matrix / utilisation if utilisation else window * SLOT / PASSES_THROUGH
    shares = {cause: count / window for cause, count in sorted(stalls.items(), key=lambda item: -item[1])}
    lost = [step.lost for step in steps if step.kind == "lds"]
    counted = [clocks for clocks in lost if clocks is not None]
    return Schedule(waves, utilisation, bound, limit, clocks, shares, len(lost), len(counted), sum(counted))


class _Cu:
    """The CU's state. `run` returns matrix slots, slots, and idle slots by cause, of one SIMD on average, in steady state."""

    def __init__(
        self, steps: Sequence[Step], simds: int, waves: int, each: int, lds_bytes_per_clock: int, memory_latency: int
    ) -> None:
        self.steps, self.lds_rate, self.memory_latency = steps, lds_bytes_per_clock, memory_latency
        self.simds = [[_Wave((i * simds + s) // each) for i in range(waves)] for s in range(simds)]
        self.groups: dict[int, list[_Wave]] = {}
        for wave in self.waves:
            self.groups.setdefault(wave.group, []).append(wave)
        self.matrix_free = [0] * simds
        self.valu_free = [0] * simds
        self.lds_free = self.cache_free = 0.0

    @property
    def waves(self) -> Iterable[_Wave]:
        return (wave for simd in self.simds for wave in simd)

    def run(self) -> tuple[float, float, Counter[str]]:
        busy, window, stalls = 0, 0, Counter[str]()
        now, waves = 0, len(list(self.waves))
        while (passes := sum(wave.rounds for wave in self.waves)) < (WARM_UP + PASSES_THROUGH) * waves:
            steady = passes >= WARM_UP * waves
            window += steady
            for number, simd in enumerate(self.simds):
                self._slot(number, simd, now)
                if not steady:
                    continue
                if self.matrix_free[number] > now:
                    busy += 1
                else:
                    for wave in simd:
                        stalls[wave.why] += 1 / len(simd)  # type: ignore[assignment]
            now += 1
            if now > LIMIT_SLOTS:
                raise LaunchError("the loop does not end in the model: it waits for what never comes")
        count = len(self.simds)
        return busy / count, window, Counter({cause: slots / count for cause, slots in stalls.items()})

    def _slot(self, number: int, simd: list[_Wave], now: int) -> None:
        """Issues what one SIMD can in a slot, and sets each wave's `why`."""
        used: set[str] = set()
        for wave in simd:
            if wave.ready <= now:
                wave.why = self._try(number, wave, now, used)

    def _try(self, number: int, wave: _Wave, now: int, used: set[str]) -> str:
        """Issues the wave's next instruction if it can go; the cause otherwise."""
        step, clock = self.steps[wave.pc], now * SLOT
        for queue, most in ((wave.memory, step.vm), (wave.lds, step.lgkm)):
            while queue and queue[0] <= clock:
                queue.popleft()
            if most is not None and len(queue) > most:
                return "waits for memory" if queue is wave.memory else "waits for LDS"
        if step.barrier:
            return self._barrier(wave, now)
        if step.kind in used:
            return "issue"
        if step.kind == "valu":
            if self.valu_free[number] > now or (step.matrix and self.matrix_free[number] > now):
                return "issue"
            if step.matrix:
                self.matrix_free[number], self.valu_free[number] = now + step.slots, now + step.coexec
            else:
                self.valu_free[number] = now + step.slots
        elif step.kind == "lds":
            if len(wave.lds) >= MOST_LDS:
                return "LDS queue"
            self.lds_free = max(clock, self.lds_free) + step.nbytes / self.lds_rate + (step.lost or 0)
            wave.lds.append(self.lds_free + LDS_LATENCY)
        elif step.kind == "vmem":
            if len(wave.memory) >= MOST_MEMORY:
                return "memory queue"
            self.cache_free = max(clock, self.cache_free) + step.nbytes / CACHE_BYTES_PER_CLOCK
            wave.memory.append(self.cache_free + self.memory_latency)
        if step.kind:
            used.add(step.kind)
        self._advance(wave, now + (BRANCH_SLOTS if step.taken else max(1, step.states)))
        return "branch" if step.taken else "wait states" if step.states else "issue"

    def _barrier(self, wave: _Wave, now: int) -> str:
        wave.arrived = True
        group = self.groups[wave.group]
        if all(other.arrived for other in group):
            for other in group:
                other.arrived = False
                self._advance(other, now + 1)
            return "issue"
        return "barrier"

    def _advance(self, wave: _Wave, ready: int) -> None:
        wave.ready = ready
        wave.pc += 1
        if wave.pc == len(self.steps):
            wave.pc, wave.rounds = 0, wave.rounds + 1
