"""Finds loads whose value is only used as the expected value of a compare-and-swap.

LLVM expands atomics that the hardware lacks to such code:

    old = *p; do { expected = old; old = compare_and_swap(p, expected, f(expected)); } while (old != expected)

If the swap succeeds, memory held the loaded value; if it fails, the value is dropped. So a race of the load has no effect.

The hardware swaps dwords, so for a byte or 16 bits LLVM keeps the other bits of the loaded dword: it expects `kept | expected` and
writes `kept | new`, with `kept = old & mask`. If the swap succeeds, memory held the kept bits.

A vector load qualifies if on every path its value goes only to the swap's expected operand, to the new value of a swap that
expects it, and to the comparison with the swap's result. It does not if the value is stored, used for an address or a branch,
expected after a barrier, or read by another lane. The walk tracks active and inactive lanes separately: only active lanes of a
register are overwritten. `pending` checks at run time that load and swap have the same address.

The value of a scalar load belongs to the whole wave, so less is needed: on every path a swap must expect it before it goes
elsewhere. Paths around the swap, for waves without a lane that swaps, are ignored: these waves compare it with a swap's result.
Triton compiles a ticket that is taken by compare-and-swap to such code.
"""

from __future__ import annotations

from typing import NamedTuple

from simgpu.alu.control import ENDS
from simgpu.checks.races.inactive import NOTHING, Left, Marks, after_mask, without_masks
from simgpu.checks.races.lanes import ACROSS_LANES, is_vector, overwritten_registers
from simgpu.engine.program import Program
from simgpu.hardware.isa.code.flow import INDIRECT
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect, registers_of, word_sources
from simgpu.hardware.timing_rules.register_use import Register

LIMIT = 63  # most loads of a kernel that are followed, and most swaps
STATES = 4096  # most states of a walk; a load with more counts as an ordinary load
# Facts 0 and 1: a register holds this word of the value.
DERIVED, RETURNED = -1, 2  # facts: a register derives from the value; from 2 on, it holds word n - 2 of a swap's result
KEPT, KEPT_RETURNED = -2, 4  # facts: bits of the value, or of a swap's result, by `and`; also with other bits that an `or` adds
LOADS = (
    "global_load_dword", "flat_load_dword", "buffer_load_dword", "s_load_dword", "s_buffer_load_dword",
    "ds_read_b32", "ds_read_b64",
)  # fmt: skip
SWAPS = ("global_atomic_cmpswap", "flat_atomic_cmpswap", "buffer_atomic_cmpswap", "ds_cmpst_b", "ds_cmpst_rtn_b")
PARTS = {KEPT, KEPT_RETURNED}
KEEPS = {"v_and_b32": (0, 1), "s_and_b32": (0, 1), "s_andn2_b32": (0,)}  # sources that an `and` keeps bits of
ADDS = {"v_or_b32": (0, 1), "s_or_b32": (0, 1), "v_or3_b32": (0, 1, 2), "v_lshl_or_b32": (2,)}  # and an `or` all bits of
MOVES = ("v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64")


class ExpectedLoads(NamedTuple):
    """Loads whose values only swaps expect, and these swaps."""

    loads: dict[int, int]  # number of a load, from 0 on, by record
    swaps: dict[int, int]  # loads that a swap expects, as bits by number, by the swap's record


class _UsedOtherwise(Exception):
    """Raised when the load's value is used other than for a swap."""


def expected_loads(program: Program, entry: int) -> ExpectedLoads:
    """Returns the loads, reachable from record `entry`, whose value only serves as a compare-and-swap's expected value."""
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
    """True if the instruction is a compare-and-swap of bits."""
    return inst.mnemonic.startswith(SWAPS)


def _words(inst: Instruction) -> int:
    """Returns the dwords of a load that may be followed, else 0."""
    marked = any(inst.mods.get(bit) for bit in ("glc", "sc0", "sc1", "lds"))
    if marked or not inst.mnemonic.startswith(LOADS):
        return 0
    result = _result(inst)
    return result.count if result is not None and result.count <= 2 else 0


def _result(inst: Instruction) -> Reg | None:
    found = next((inst.args[name] for name in ("vdst", "sdst", "sdata", "vdata") if name in inst.args), None)
    return found if isinstance(found, Reg) and found.file in "sv" else None


def _walk(program: Program, load: int) -> set[int]:
    """Returns the swaps that expect the value of a load, none if it is used otherwise or not at all."""
    result = _result(program.instructions[load])
    assert result is not None
    first: Marks = frozenset((register, word) for word in range(result.count) for register in registers_of(result[word]))
    value = _Value(result.count, result.file == "s")
    pending: list[tuple[int, Marks, Left]] = [(at, first, frozenset()) for at in program.following(load)]
    seen = set(pending)
    try:
        while pending:
            at, active, left = pending.pop()
            if at not in program.instructions or len(seen) > STATES:
                return set()
            inst = program.instructions[at]
            if inst.spec.control in ENDS:
                continue
            active, left = value.after(at, inst, program.effect(at), active, left)
            if all(kind >= RETURNED for _, kind in active | without_masks(left)):
                continue
            skips = value.uniform and inst.spec.control is ControlKind.CBRANCH_EXECZ
            for following in [at + 1] if skips else program.following(at):
                state = following, active, left
                if state not in seen:
                    seen.add(state)
                    pending.append(state)
    except _UsedOtherwise:
        return set()
    return value.swaps


class _Value:
    """Follows the value of one load through registers.

    words: its dwords. uniform: True for a scalar load. swaps: records of the swaps that expect it, found so far. Arguments
    `active` and `left` of methods: facts about registers in active lanes, and in inactive lanes.
    """

    def __init__(self, words: int, uniform: bool) -> None:
        self.words = words
        self.uniform = uniform
        self.swaps: set[int] = set()
        self.mask = -1  # record of the `and` that keeps bits of the value; another one is an ordinary use

    def after(self, at: int, inst: Instruction, effect: Effect, active: Marks, left: Left) -> tuple[Marks, Left]:
        """Returns the facts after an instruction. Raises `_UsedOtherwise`."""
        if inst.spec.control in INDIRECT:
            raise _UsedOtherwise
        if inst.spec.control is ControlKind.BARRIER and not self.uniform:
            return (
                frozenset((register, _past_barrier(kind)) for register, kind in active),
                frozenset((register, _past_barrier(kind), mask) for register, kind, mask in left),
            )
        # Scalar registers have no lanes.
        known = active | frozenset(mark for mark in without_masks(left) if not is_vector(mark[0]))
        reads, writes = effect.access.read(), effect.access.writes
        taken = {register for register, kind in known if kind < RETURNED} & reads
        made: Marks = NOTHING
        if is_swap(inst):
            made = self._after_swap(at, inst, effect, known, taken)
            if self.uniform and at in self.swaps:
                return NOTHING, frozenset()
        elif taken:
            made = self._after_computation(at, inst, effect, known)
        elif any(register in reads for register, _ in known):
            made = _after_move(inst, known) or self._after_mask(at, inst, known)  # of a swap's result
        gone = overwritten_registers(inst, effect)
        active = frozenset(mark for mark in active if mark[0] not in gone) | made
        left = frozenset(mark for mark in left if is_vector(mark[0]) or mark[0] not in gone)
        return after_mask(inst, writes, active, left)

    def _after_swap(self, at: int, inst: Instruction, effect: Effect, known: Marks, taken: set[Register]) -> Marks:
        """Handles a compare-and-swap. Returns facts about its result: words that the swap returned."""
        if effect.access.read(("address", "soffset")) & taken:
            raise _UsedOtherwise
        expected, new = _operands(inst)
        if not taken & (registers_of(expected) | registers_of(new)):
            return NOTHING
        kept = KEPT in _facts(expected, known) and _facts(expected, known) | _facts(new, known) <= PARTS
        if expected.count != self.words or not (kept or self._is_word_by_word(expected, known, 0)):
            raise _UsedOtherwise
        self.swaps.add(at)
        result = inst.args.get("vdst") or inst.args.get("vdata")
        if not isinstance(result, Reg) or not effect.access.writes:
            return NOTHING
        returned = result[: self.words]
        return frozenset((register, RETURNED + word) for word in range(self.words) for register in registers_of(returned[word]))

    def _after_computation(self, at: int, inst: Instruction, effect: Effect, known: Marks) -> Marks:
        """Handles another instruction that reads the value. Returns facts about its result: a copy, or derived from the value."""
        across = effect.access.classes & ACROSS_LANES
        if inst.spec.memory is not None or inst.spec.kind in ("control", "matrix") or across or "exec" in effect.access.writes:
            raise _UsedOtherwise
        if inst.mnemonic.startswith(("v_cmp_eq_", "v_cmp_ne_")) and self._is_of_the_loop(inst, known):
            return NOTHING
        copied = _after_move(inst, known) or self._after_mask(at, inst, known)
        return copied or frozenset((register, DERIVED) for register in effect.access.writes)

    def _after_mask(self, at: int, inst: Instruction, known: Marks) -> Marks:
        """Returns the facts about the result of an `and` or `or` that keeps bits of the value or of a swap's result, if any."""
        result, kept = inst.args.get("vdst") or inst.args.get("sdst"), KEEPS.get(inst.mnemonic)
        facts = [_facts(inst.args.get(name), known) for name in ("src0", "src1", "src2")]
        sides = [side for side in range(3) if facts[side]]
        if self.words != 1 or inst.form in ("sdwa", "dpp") or not isinstance(result, Reg) or len(sides) != 1:
            return NOTHING
        found = facts[sides[0]]
        if kept is None:
            found = found if sides[0] in ADDS.get(inst.mnemonic, ()) and found <= PARTS else set()
        elif sides[0] in kept and found == {0} and self.mask in (-1, at):
            self.mask, found = at, {KEPT}
        else:
            found = {KEPT_RETURNED} if sides[0] in kept and found == {RETURNED} else set()
        return frozenset((register, kind) for kind in found for register in registers_of(result))

    def _is_of_the_loop(self, inst: Instruction, known: Marks) -> bool:
        """True if the comparison is between the value and the swap's result."""
        sides = inst.args.get("src0"), inst.args.get("src1")
        return any(
            isinstance(one, Reg) and isinstance(two, Reg) and one.count == two.count == self.words
            and (
                (self._is_word_by_word(one, known, 0) and self._is_word_by_word(two, known, RETURNED))
                or _are_kept_bits(_facts(one, known), _facts(two, known))
            )
            for one, two in (sides, sides[::-1])
        )  # fmt: skip

    def _is_word_by_word(self, register: Reg, known: Marks, first: int) -> bool:
        """True if each word of a register is certainly that word of the value, or of the swap's result."""
        return all(
            {kind for held, kind in known if held in registers_of(register[word])} == {first + word}
            for word in range(register.count)
        )


def _past_barrier(kind: int) -> int:
    """Returns a fact after a barrier: a swap that expects the value later would not tell what memory held before the barrier."""
    return kind if kind >= RETURNED else DERIVED


def _are_kept_bits(one: set[int], two: set[int]) -> bool:
    """True for facts about kept bits of the value, and facts about a swap's result or about kept bits of it."""
    returned = {RETURNED, KEPT_RETURNED}
    return KEPT in one and one <= PARTS and bool(two & returned) and two <= PARTS | returned


def _facts(operand: object, known: Marks) -> set[int]:
    """Returns the facts about the registers of an operand."""
    return {kind for held, kind in known if held in registers_of(operand)} if isinstance(operand, Reg) else set()


def _after_move(inst: Instruction, known: Marks) -> Marks:
    """Returns the facts about a move's result, copied from its source; none for other instructions."""
    target, source = inst.args.get("vdst") or inst.args.get("sdst"), inst.args.get("src0")
    if not isinstance(target, Reg):
        return NOTHING
    plain = inst.form not in ("sdwa", "dpp") and not inst.mods and not (inst.src_mods.neg or inst.src_mods.abs)
    moved = inst.mnemonic in MOVES and plain and isinstance(source, Reg) and source.count == target.count
    words = word_sources(inst) if moved or inst.mnemonic == "v_pk_mov_b32" else ()
    return frozenset(
        (register, kind)
        for word, sources in enumerate(words) for register in registers_of(target[word])
        for place, kind in known if any(place in registers_of(held) for held in sources)
    )  # fmt: skip


def _operands(inst: Instruction) -> tuple[Reg, Reg]:
    """Returns the expected and the new value of a compare-and-swap."""
    if inst.mnemonic.startswith("ds_"):
        expected, new = inst.args["data0"], inst.args["data1"]
    else:
        data = inst.args["vdata"]
        assert isinstance(data, Reg)
        half = data.count // 2
        new, expected = data[:half], data[half:]
    assert isinstance(expected, Reg) and isinstance(new, Reg)
    return expected, new
