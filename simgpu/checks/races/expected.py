"""Loads whose value is nothing but what a compare-and-swap expects: LLVM's expansion of atomics that the hardware lacks.

    old = *p; do { expected = old; old = compare_and_swap(p, expected, f(expected)); } while (old != expected)

Where the swap succeeds, memory held what was loaded, and where it fails, the value is dropped: the load races with nothing.
A scalar load needs less, as its value is the wave's: it races with nothing if along every path a swap expects it before it goes
elsewhere. Ways around the swap, for waves without a lane that swaps, are left out: what these compare it with came from a swap.
That is what Triton makes of a ticket that a compare-and-swap takes.

That holds for a vector load of which, along every path, the value goes into the swap's expected operand, into the new value of a
swap that expects it, and into the comparison of it with what the swap returned; not where it is stored, used for an address, for a
branch, or by another lane. The walk follows the lanes that are active, and those that are not, apart: a register is overwritten
in active lanes only. Whether load and swap have the same address is seen when they run (`pending`).
"""

from __future__ import annotations

from typing import NamedTuple

from simgpu.alu.control import ENDS
from simgpu.checks.races.lanes import ACROSS_LANES, is_vector, narrows, overwritten
from simgpu.engine.program import Program
from simgpu.hardware.isa.code.flow import INDIRECT
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect, registers_of
from simgpu.hardware.timing_rules.register_use import Register

LIMIT = 63  # loads, and swaps, of a kernel that are followed
STATES = 4096  # of a walk; a load with more counts as any other
DERIVED, RETURNED = -1, 2  # of a register, else: word 0 or 1 of the load's value; RETURNED + word: of what the swap returned
LOADS = (
    "global_load_dword", "flat_load_dword", "buffer_load_dword", "s_load_dword", "s_buffer_load_dword",
    "ds_read_b32", "ds_read_b64",
)  # fmt: skip
SWAPS = ("global_atomic_cmpswap", "flat_atomic_cmpswap", "buffer_atomic_cmpswap", "ds_cmpst_b", "ds_cmpst_rtn_b")
MOVES = ("v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64")

Marks = frozenset[tuple[Register, int]]  # what is known of registers
NOTHING: Marks = frozenset()


class ExpectedLoads(NamedTuple):
    """The numbers, by record, of loads that race with nothing, and, by a swap's record, of those that it expects, as bits."""

    loads: dict[int, int]
    swaps: dict[int, int]


class _UsedOtherwise(Exception):
    """The load's value goes elsewhere."""


def expected_loads(program: Program, entry: int) -> ExpectedLoads:
    """The loads of what a wave reaches from record `entry` whose value is nothing but what compare-and-swaps expect."""
    reached = program.reachable(entry)
    found = ExpectedLoads({}, {})
    if not 0 < sum(is_swap(program.instructions[at]) for at in reached) <= LIMIT:
        return found
    for at in sorted(reached):
        if len(found.loads) < LIMIT and _words(program.instructions[at]):
            swaps = _walk(program, at)
            for swap in swaps:
                found.swaps[swap] = found.swaps.get(swap, 0) | 1 << len(found.loads)
            if swaps:
                found.loads[at] = len(found.loads)
    return found


def is_swap(inst: Instruction) -> bool:
    """Whether the instruction is a compare-and-swap of bits."""
    return inst.mnemonic.startswith(SWAPS)


def _words(inst: Instruction) -> int:
    """The dwords of a load that may be followed, else 0."""
    marked = any(inst.mods.get(bit) for bit in ("glc", "sc0", "sc1", "lds"))
    if marked or not inst.mnemonic.startswith(LOADS):
        return 0
    result = _result(inst)
    return result.count if result is not None and result.count <= 2 else 0


def _result(inst: Instruction) -> Reg | None:
    found = next((inst.args[name] for name in ("vdst", "sdst", "sdata", "vdata") if name in inst.args), None)
    return found if isinstance(found, Reg) and found.file in "sv" else None


def _walk(program: Program, load: int) -> set[int]:
    """The swaps that expect the value of a load, empty where it is used otherwise or not at all."""
    result = _result(program.instructions[load])
    assert result is not None
    first: Marks = frozenset((register, word) for word in range(result.count) for register in registers_of(result[word]))
    value = _Value(result.count, result.file == "s")
    pending = [(at, first, NOTHING) for at in program.following(load)]
    seen = set(pending)
    try:
        while pending:
            at, active, other = pending.pop()
            if at not in program.instructions or len(seen) > STATES:
                return set()
            inst = program.instructions[at]
            if inst.spec.control in ENDS:
                continue
            active, other = value.after(at, inst, program.effect(at), active, other)
            if all(kind >= RETURNED for _, kind in active | other):
                continue
            skips = value.uniform and inst.spec.control is ControlKind.CBRANCH_EXECZ
            for following in [at + 1] if skips else program.following(at):
                state = following, active, other
                if state not in seen:
                    seen.add(state)
                    pending.append(state)
    except _UsedOtherwise:
        return set()
    return value.swaps


class _Value:
    """The value of one load on its way through registers. active, other: what is known of those of active lanes, and of others.

    uniform: whether it is a scalar load's.
    """

    def __init__(self, words: int, uniform: bool) -> None:
        self.words = words
        self.uniform = uniform
        self.swaps: set[int] = set()

    def after(self, at: int, inst: Instruction, effect: Effect, active: Marks, other: Marks) -> tuple[Marks, Marks]:
        """What is known behind an instruction. Raises `_UsedOtherwise`."""
        if inst.spec.control in INDIRECT or (inst.spec.control is ControlKind.BARRIER and not self.uniform):
            raise _UsedOtherwise
        # Scalar registers have no lanes.
        known = active | frozenset(mark for mark in other if not is_vector(mark[0]))
        reads, writes = effect.access.read(), effect.access.writes
        taken = {register for register, kind in known if kind < RETURNED} & reads
        made: Marks = NOTHING
        if is_swap(inst):
            made = self._swapped(at, inst, effect, known, taken)
            if self.uniform and at in self.swaps:
                return NOTHING, NOTHING
        elif taken:
            made = self._computed(inst, effect, known)
        elif any(register in reads for register, _ in known):
            made = _moved(inst, known)  # of what a swap returned
        gone = overwritten(inst, effect)
        active = frozenset(mark for mark in active if mark[0] not in gone) | made
        other = frozenset(mark for mark in other if is_vector(mark[0]) or mark[0] not in gone)
        if "exec" in writes:
            active, other = (active, other | active) if narrows(inst) else (active | other, active | other)
        return active, other

    def _swapped(self, at: int, inst: Instruction, effect: Effect, known: Marks, taken: set[Register]) -> Marks:
        """A compare-and-swap: what it returns is no longer the load's."""
        if effect.access.read(("address", "soffset")) & taken:
            raise _UsedOtherwise
        expected, new = _operands(inst)
        if not taken & (registers_of(expected) | registers_of(new)):
            return NOTHING
        if not self._is_word_by_word(expected, known, 0) or expected.count != self.words:
            raise _UsedOtherwise
        self.swaps.add(at)
        result = inst.args.get("vdst") or inst.args.get("vdata")
        if not isinstance(result, Reg) or not effect.access.writes:
            return NOTHING
        returned = result[: self.words]
        return frozenset((register, RETURNED + word) for word in range(self.words) for register in registers_of(returned[word]))

    def _computed(self, inst: Instruction, effect: Effect, known: Marks) -> Marks:
        """An instruction that reads the value: what it writes is derived from it, or a copy."""
        across = effect.access.classes & ACROSS_LANES
        if inst.spec.memory is not None or inst.spec.kind in ("control", "matrix") or across or "exec" in effect.access.writes:
            raise _UsedOtherwise
        if inst.mnemonic.startswith(("v_cmp_eq_", "v_cmp_ne_")) and self._is_of_the_loop(inst, known):
            return NOTHING
        copied = _moved(inst, known)
        return copied or frozenset((register, DERIVED) for register in effect.access.writes)

    def _is_of_the_loop(self, inst: Instruction, known: Marks) -> bool:
        """Whether the comparison is that of the value with what the swap returned."""
        sides = inst.args.get("src0"), inst.args.get("src1")
        return any(
            isinstance(one, Reg) and isinstance(two, Reg) and one.count == two.count == self.words
            and self._is_word_by_word(one, known, 0) and self._is_word_by_word(two, known, RETURNED)
            for one, two in (sides, sides[::-1])
        )  # fmt: skip

    def _is_word_by_word(self, register: Reg, known: Marks, first: int) -> bool:
        """Whether each word of a register is that of the value, or of what was returned, and can be nothing else."""
        return all(
            {kind for held, kind in known if held in registers_of(register[word])} == {first + word}
            for word in range(register.count)
        )


def _moved(inst: Instruction, known: Marks) -> Marks:
    """What is known of a move's result, as of its source; nothing of another instruction's."""
    target, source = inst.args.get("vdst") or inst.args.get("sdst"), inst.args.get("src0")
    if not isinstance(target, Reg):
        return NOTHING
    words: list[Reg | None] = []
    plain = inst.form not in ("sdwa", "dpp") and not inst.mods and not (inst.src_mods.neg or inst.src_mods.abs)
    if inst.mnemonic in MOVES and plain and isinstance(source, Reg) and source.count == target.count:
        words = [source[word] for word in range(source.count)]
    elif inst.mnemonic == "v_pk_mov_b32":  # a word of either source, by op_sel
        select = inst.mods.get("op_sel", 0)
        sources = [inst.args.get(name) for name in ("src0", "src1")]
        words = [side[select >> word & 1] if isinstance(side, Reg) else None for word, side in enumerate(sources)]
    return frozenset(
        (register, kind)
        for word, held in enumerate(words) for register in registers_of(target[word])
        for place, kind in known if place in registers_of(held)
    )  # fmt: skip


def _operands(inst: Instruction) -> tuple[Reg, Reg]:
    """The expected and the new value of a compare-and-swap."""
    if inst.mnemonic.startswith("ds_"):
        expected, new = inst.args["data0"], inst.args["data1"]
    else:
        data = inst.args["vdata"]
        assert isinstance(data, Reg)
        half = data.count // 2
        new, expected = data[:half], data[half:]
    assert isinstance(expected, Reg) and isinstance(new, Reg)
    return expected, new
