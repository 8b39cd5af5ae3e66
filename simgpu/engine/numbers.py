"""Finds, for a ring of elements, instructions that compute on ordinary numbers, and branches that depend on elements.

Compilers divide integers by f32 reciprocals, and fold constants. So a float that is computed from integers and constants only is a
number, and its instructions run as usual; what comes from memory, from matrix instructions or from elements is an element. The
analysis follows the code forward. It knows two things of a register: that it holds no element, and that its value may depend on a
comparison or a conversion of elements. A third fact, that it holds an element for certain, tells roundings from additions of
integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from simgpu.hardware.errors import SimError
from simgpu.hardware.isa.code.flow import successors
from simgpu.hardware.isa.instruction import Instruction, Literal
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind, Flag
from simgpu.hardware.isa.types import Type
from simgpu.hardware.timing_rules.effects import effect_of, registers_of
from simgpu.hardware.timing_rules.register_use import Register
from simgpu.machine.mode import computes_floats

STATES = {"vcc": 0, "exec": 1, "scc": 2, "m0": 3}
FILES = {"s": 4, "v": 256, "a": 512}
EXEC = 1 << STATES["exec"]
VECTORS = (1 << 1024) - (1 << FILES["v"])
INDEXED_RESULT = 8  # of the operands that s_set_gpr_idx_on selects
HALF = Literal(0x8000)
MOVES = ("v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
AT_ENTRY = VECTORS  # vector registers hold no elements; scalar ones may be preloaded arguments


class Held(NamedTuple):
    """Registers before an instruction, as bits."""

    numbers: int  # no elements
    judged: int  # may depend on a comparison of elements, or on one converted to an integer
    elements: int  # results of float instructions
    indexed: int = 0  # vector operands that are relative to M0: bits of s_set_gpr_idx_on

    def meet(self, other: Held) -> Held:
        """Returns what holds on both of two paths."""
        return Held(self.numbers & other.numbers, self.judged | other.judged, self.elements & other.elements,
                    self.indexed | other.indexed)  # fmt: skip


class NumberFlow:
    """Results of the analysis so far. decode: returns the instruction at a record; count: the number of records."""

    def __init__(self, decode: Callable[[int], Instruction], count: int) -> None:
        self.decode, self.count = decode, count
        self.before: dict[int, Held] = {}
        self.numbers: set[int] = set()  # records of float instructions that compute on numbers
        self.branches: set[int] = set()  # records where control or EXEC depends on elements
        self.roundings: set[int] = set()  # v_add_u32 that adds half a bf16's unit to an element

    def follow(self, index: int, first: bool) -> None:
        """Follows the code from a record. first: it is a kernel's entry, followed before its other code."""
        if index in self.before:
            return
        self.before[index] = Held(AT_ENTRY if first else 0, 0, 0)
        work = [index]
        while work:
            at = work.pop()
            try:
                inst = self.decode(at)
            except SimError:
                continue
            after = self._after(at, inst, self.before[at])
            for other in (target // 4 for target in successors(inst, 4 * at)):
                had = self.before.get(other)
                joined = after if had is None else had.meet(after)
                if joined != had and 0 <= other < self.count:
                    self.before[other] = joined
                    work.append(other)

    def is_plain(self, index: int, inst: Instruction) -> bool:
        """True if a lowered instruction computes as usual: on numbers, or on integers that are no roundings of elements."""
        return index in self.numbers or (inst.mnemonic == "v_add_u32" and index not in self.roundings)

    def _after(self, at: int, inst: Instruction, held: Held) -> Held:
        """Returns what registers hold after an instruction, and keeps its own results."""
        effect = effect_of(inst)
        spec = inst.spec
        read, written = bits_of(effect.access.read()), bits_of(effect.access.writes | effect.pending)
        judged = bool(read & held.judged)
        if judged and (spec.control in CONDITIONAL_BRANCHES or written & EXEC):
            self.branches.add(at)
        if spec.mnemonic == "v_add_u32":
            rounds = HALF in inst.args.values() and read & ~EXEC & held.elements
            (self.roundings.add if rounds else self.roundings.discard)(at)
        if held.indexed & INDEXED_RESULT and written & VECTORS:
            held = held._replace(numbers=held.numbers & ~VECTORS)  # any of them may be written
        if spec.memory is not None or spec.kind == "matrix":
            made = written if spec.kind == "matrix" else 0
            return held._replace(
                numbers=held.numbers & ~written, judged=held.judged & ~written, elements=held.elements & ~written | made
            )
        elsewhere = bool(held.indexed and read & VECTORS)  # other registers are read than those that the instruction names
        known = not read & ~EXEC & ~held.numbers and not elsewhere
        floats = computes_floats(spec) or Flag.MIX in spec.flags
        if floats:
            known = not bits_of(_float_sources(inst)) & ~held.numbers and not elsewhere
            (self.numbers.add if known else self.numbers.discard)(at)
            to_integers = not known and not any(map(_is_float, spec.results))
            judged = to_integers or (judged and not any(map(_is_float, spec.results)))
        # A constant that is moved may leave inactive lanes as they are.
        gains = written if known and (floats or spec.encoding.startswith("s")) else 0
        numbers = (held.numbers if known else held.numbers & ~written) | gains
        moved = spec.mnemonic in MOVES and not read & ~EXEC & ~held.elements
        made = written if moved or (floats and not known and any(map(_is_float, spec.results))) else 0
        judged_after = held.judged | written if judged else held.judged & ~written
        return Held(numbers, judged_after, held.elements & ~written | made, _indexed_operands(inst, held.indexed))


def _indexed_operands(inst: Instruction, before: int) -> int:
    """Returns the operands that are relative to M0 after an instruction."""
    if inst.spec.control is ControlKind.SET_GPR_IDX_OFF:
        return 0
    name = {ControlKind.SET_GPR_IDX_ON: "src1", ControlKind.SET_GPR_IDX_MODE: "simm16"}.get(inst.spec.control)
    return before if name is None else getattr(inst.args[name], "value", 15)


def _float_sources(inst: Instruction) -> frozenset[Register]:
    """Returns the registers of an instruction's float operands."""
    found: frozenset[Register] = frozenset()
    position = 0
    for param in inst.spec.params:
        named = param.name in inst.args
        operand = inst.args.get(param.name if named else f"src{position}")
        position += not named and param.type.state in ("", "sgpr")
        if _is_float(param.type):
            found |= registers_of(operand)
    return found


def _is_float(type_: Type) -> bool:
    return type_.is_float or (type_.element is not None and type_.element.is_float)


def bits_of(registers: Iterable[Register]) -> int:
    """Returns a set of registers as bits, by STATES and FILES."""
    bits = 0
    for register in registers:
        if isinstance(register, str):
            bits |= 1 << STATES[register] if register in STATES else 0
        elif register[0] in FILES:
            bits |= 1 << FILES[register[0]] + register[1]
    return bits
