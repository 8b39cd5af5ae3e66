"""Loads and stores of IR: addresses by address space, layout of types, bytes that may have any value because they were poison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, every, fold, number
from simgpu.machine.operands import PRIVATE_APERTURE, SHARED_APERTURE
from simgpu.proof.access import flat_place, read_bytes
from simgpu.proof.entry import KernelInputs, choose_entry
from simgpu.proof.ir.syntax import Aggregate, IrModule, IrType, Number, Operand, Undefined
from simgpu.proof.ir.values import Scalar, SymbolicValue, flag, is_set
from simgpu.proof.memory_log import LaneStore, MemoryLog, bytes_of, compose
from simgpu.proof.roots import GLOBAL, LDS, PRIVATE, Address
from simgpu.proof.state import WaveState
from simgpu.proof.terms import NotModelled, is_number

Term = Any
VARIABLES = 1 << 45  # where addresses of global variables begin
VARIABLE_BYTES = 1 << 24  # at most, of a global variable
SPACES = {0: "flat", 1: GLOBAL, 3: LDS, 4: GLOBAL, 5: PRIVATE}
APERTURES = {3: SHARED_APERTURE, 5: PRIVATE_APERTURE}
UNDEFINED = "undef!"  # the names of symbols that may have any value begin so
FIXED = "fixed!"  # names of symbols with one value, wherever they are used
LARGEST_COPY = 4096  # bytes


@dataclass
class Unknowns:
    """Makes bits that may have any value: undefined or frozen ones, and results that a compiler chooses."""

    count: int = 0

    def bits(self, width: int) -> Term:
        """Returns a value of `undef`, another one at each use."""
        self.count += 1
        return z3.BitVec(f"{UNDEFINED}{self.count}", width)

    def fixed_value(self, width: int) -> Term:
        """Returns an unknown value that is the same at each use."""
        self.count += 1
        return z3.BitVec(f"{FIXED}{self.count}", width)


@dataclass
class IrMemory(MemoryLog):
    """A lane's memory in IR: private memory begins undefined."""

    unknowns: Unknowns = field(default_factory=Unknowns)

    def free(self, address: Address, count: int, known: set[int]) -> Term:
        """Returns which bits of a load may have any value because a lane stored poison there."""
        none = number(0, 8)
        events = self.private if address.space == PRIVATE else self.events
        if not any(getattr(event, "free", ()) for event in events):
            return number(0, 8 * count)
        pieces, _ = self.pieces(address, count, known, lambda event: event.free or [none] * len(event.data))
        return compose(pieces, [none] * count)

    def _initial(self, address: Address, byte: int) -> Term:
        return self.unknowns.bits(8) if address.space == PRIVATE else super()._initial(address, byte)


@dataclass
class IrHeap:
    """Memory of a function of IR: its places, and what undefined accesses exclude."""

    module: IrModule
    inputs: KernelInputs
    unknowns: Unknowns
    aligned: list[Term] = field(default_factory=list)  # conditions that hold, as every access is as aligned as IR says
    padded: list[Term] = field(default_factory=list)  # conditions that hold, as memory has zeros beside the bits of an iN
    private_bytes: int = 0
    variables: bool = False  # True if a global variable was met whose content is unknown

    # -- addresses -----------------------------------------------------------------------------

    def allocate(self, type_: IrType, alignment: int) -> Term:
        """Returns the address of a new object in private memory."""
        start = self.private_bytes + -self.private_bytes % max(16, alignment)
        self.private_bytes = start + max(1, type_.size)
        return number(start, 32)

    def symbol(self, name: str) -> Term:
        """Returns the address of a global variable."""
        variables = list(self.module.variables)
        if name not in variables:
            raise NotModelled(f"the address of {name}")
        variable = self.module.variables[name]
        if variable.space == 3:
            return number(self._lds_places()[name], 32)
        if variable.known:
            return number(VARIABLES + VARIABLE_BYTES * variables.index(name), 64)
        found = self.inputs.code.symbols.get(variable.title)
        if variable.constant and variable.type.kind == "other":
            raise NotModelled("a constant of unknown content")
        if found is None:
            raise NotModelled("a global variable that the machine code does not have")
        self.variables = True
        return number(self.inputs.code_base + found.address, 64)

    def _lds_places(self) -> dict[str, int]:
        """Returns addresses of variables in LDS, which the compiler chooses: LLVM's choice, the most aligned and largest first.

        A proof with any addresses shows that the machine code is right.
        """
        found = [each for each in self.module.variables.values() if each.space == 3]
        if any(each.type.kind == "other" for each in found):
            raise NotModelled("a variable in LDS of unknown size")
        end, places = 0, {}
        for each in sorted(found, key=lambda one: (-one.lds_alignment, -one.type.size, one.name)):
            end += -end % each.lds_alignment
            places[each.name] = end
            end += each.type.size
        return places

    def place(self, state: WaveState, pointer: Scalar, offset: int = 0) -> Address:
        """Returns the place of a pointer. Raises NotModelled for other address spaces."""
        space, roots = SPACES.get(pointer.type.space), state.memory.roots
        if space is None:
            raise NotModelled(f"memory of address space {pointer.type.space}")
        if space == "flat":
            return flat_place(roots, pointer.bits, offset)
        return roots.place(space, pointer.bits + number(offset, pointer.bits.size()) if offset else pointer.bits)

    def align(self, state: WaveState, pointer: Scalar, alignment: int) -> None:
        """Notes that an access is aligned, as IR promises."""
        low = alignment.bit_length() - 1
        if not low or SPACES.get(pointer.type.space) == PRIVATE:
            return
        held = z3.simplify(z3.Extract(low - 1, 0, pointer.bits) == 0)
        if not z3.is_true(held):
            self.aligned.append(z3.Implies(every(*state.path), held))

    # -- bytes ---------------------------------------------------------------------------------

    def read(self, state: WaveState, place: Address, count: int) -> tuple[Term, Term]:
        """Returns bytes, and which of their bits may have any value."""
        if place.space == GLOBAL and VARIABLES <= place.offset < self.inputs.code_base:
            return self._constant(state, place, count)
        guard = every(*state.path)
        data = read_bytes(state, place, count, state.path_ids, guard, self.inputs)
        memory = state.memory
        assert isinstance(memory, IrMemory)
        ours = place.space == GLOBAL and (place.root.eq(self.inputs.kernarg) or place.root.eq(self.inputs.dispatch))
        return data, number(0, 8 * count) if ours else memory.free(place, count, state.path_ids)

    def _constant(self, state: WaveState, place: Address, count: int) -> tuple[Term, Term]:
        index, start = divmod(place.offset - VARIABLES, VARIABLE_BYTES)
        variable = list(self.module.variables.values())[index]
        content = bytearray(variable.type.size)
        assert variable.initial is not None
        _fill(content, 0, variable.initial)
        none = number(0, 8 * count)
        if not is_number(place.root, 0):
            distance = fold(place.root + number(start, 64))
            self.aligned.append(z3.Implies(every(*state.path), z3.ULE(distance, len(content) - count)))  # as accesses are in bounds
            return choose_entry(place, bytes(content), start, count), none
        if start + count > len(content):
            raise NotModelled("an access behind a global variable")
        return number(int.from_bytes(content[start : start + count], "little"), 8 * count), none

    def write(self, state: WaveState, place: Address, data: Term, free: Term, *conditions: Term) -> None:
        """Stores bytes, if the conditions hold."""
        if place.space == GLOBAL and place.offset >= VARIABLES and not self.inputs.has_variable(place.offset):
            raise NotModelled("a store to a global variable")
        if self.unknowns.count:
            free = fold(free | undef_bits(data))
        guard = every(*state.path, *conditions)
        if not z3.is_false(guard):
            state.memory.add(LaneStore(place, bytes_of(data), guard, 0, () if _is_zero(free) else bytes_of(free)))

    # -- values --------------------------------------------------------------------------------

    def load(self, state: WaveState, pointer: Scalar, type_: IrType, alignment: int) -> SymbolicValue:
        """Returns a value from memory."""
        self.align(state, pointer, alignment)
        bits, poison = [], []
        for offset, unit in units(type_):
            data, free = self.read(state, self.place(state, pointer, offset), unit.store_size)
            width, beyond = unit.width, 8 * unit.store_size - unit.width
            if beyond:
                used = fold(~bits_of(free, width, beyond))
                self._pad(state, fold(fold(bits_of(data, width, beyond) & used) == 0))
            bits.append(bits_of(data, 0, width))
            low = 0
            for scalar in unit.parts if unit.kind == "vector" else (unit,):
                here = bits_of(free, low, scalar.bits)
                poison.append(number(0, 1) if _is_zero(here) else flag(z3.simplify(here != 0)))
                low += scalar.bits
        return SymbolicValue(type_, concat(*bits), concat(*poison))

    def _pad(self, state: WaveState, zeros: Term) -> None:
        if not z3.is_true(zeros):
            held = z3.Implies(every(*state.path), zeros)
            self.padded.append(held)
            state.lanes.known.append(held)

    def store(self, state: WaveState, pointer: Scalar, value: SymbolicValue, alignment: int) -> None:
        """Stores a value. Bits beside those of an iN may have any value, also poison's."""
        self.align(state, pointer, alignment)
        low = leaf = 0
        for offset, unit in units(value.type):
            width, beyond = unit.width, 8 * unit.store_size - unit.width
            data = bits_of(value.bits, low, width)
            free = [_repeat(bits_of(value.poison, leaf + at, 1), each.bits)
                    for at, each in enumerate(unit.parts if unit.kind == "vector" else (unit,))]  # fmt: skip
            if beyond:
                data, free = concat(data, number(0, beyond)), [*free, number(-1, beyond)]
            self.write(state, self.place(state, pointer, offset), data, concat(*free))
            low, leaf = low + width, leaf + unit.leaves

    def copy(self, state: WaveState, target: Scalar, source: Scalar, count: int) -> None:
        """Copies bytes."""
        if count > LARGEST_COPY:
            raise NotModelled(f"a copy of {count} bytes")
        if count:
            data, free = self.read(state, self.place(state, source), count)
            self.write(state, self.place(state, target), data, free)

    def fill(self, state: WaveState, target: Scalar, byte: Scalar, count: int) -> None:
        """Sets bytes."""
        if count > LARGEST_COPY:
            raise NotModelled(f"a fill of {count} bytes")
        if count:
            free = _repeat(flag(byte.poison), 8 * count)
            self.write(state, self.place(state, target), concat(*[byte.bits] * count), free)


def cast_space(pointer: Scalar, type_: IrType) -> Scalar:
    """Returns a pointer in another address space: a flat one has an aperture above LDS and private memory.

    Null is 0, but -1 in LDS and private memory (LLVM AMDGPUUsage, "Address Spaces").
    """
    have, want = pointer.type.space, type_.space
    if pointer.bits.size() == type_.bits:
        return replace(pointer, type=type_)
    if want == 0 and have in APERTURES:
        made = concat(pointer.bits, number(APERTURES[have], 32))
        return Scalar(type_, choose(fold(pointer.bits == number(-1, 32)), number(0, 64), made), pointer.poison)
    if have == 0 and want in APERTURES:
        made = bits_of(pointer.bits, 0, 32)
        return Scalar(type_, choose(fold(pointer.bits == 0), number(-1, 32), made), pointer.poison)
    raise NotModelled(f"a cast from address space {have} to {want}")


def units(type_: IrType, offset: int = 0) -> Iterator[tuple[int, IrType]]:
    """Yields the scalars and vectors of a type, with their offsets in bytes."""
    if type_.kind in ("array", "struct"):
        for at, part in enumerate(type_.parts):
            yield from units(part, offset + type_.offset(at))
    else:
        yield offset, type_


def _repeat(bit: Term, count: int) -> Term:
    if z3.is_bv_value(bit):
        return number(-bit.as_long(), count)
    return z3.If(is_set(bit), number(-1, count), number(0, count))


def undef_bits(term: Term) -> Term:
    """Returns the bits of a term that are `undef` unchanged.

    >>> undef_bits(concat(number(1, 4), Unknowns().bits(4)))
    240
    """
    kind, none = term.decl().kind(), number(0, term.size())
    if z3.is_const(term):
        return number(-1, term.size()) if str(term).startswith(UNDEFINED) else none
    if kind == z3.Z3_OP_CONCAT:
        return fold(z3.Concat(*map(undef_bits, term.children())))
    if kind == z3.Z3_OP_EXTRACT:
        return bits_of(undef_bits(term.arg(0)), term.params()[1], term.size())
    if kind == z3.Z3_OP_ZERO_EXT:
        return concat(undef_bits(term.arg(0)), number(0, term.params()[0]))
    if kind == z3.Z3_OP_ITE:
        return choose(term.arg(0), undef_bits(term.arg(1)), undef_bits(term.arg(2)))
    return none


def _is_zero(term: Term) -> bool:
    return bool(z3.is_bv_value(term)) and not term.as_long()


def _fill(content: bytearray, start: int, value: Operand) -> None:
    """Writes a constant's bytes."""
    type_ = value.type
    if isinstance(value, Aggregate) and type_.kind != "vector":
        for at, item in enumerate(value.items):
            _fill(content, start + type_.offset(at), item)
    elif isinstance(value, Aggregate):
        bits = 0
        for at, item in enumerate(value.items):
            if not isinstance(item, Number):
                raise NotModelled("a constant expression in a global variable")
            bits |= item.value << at * type_.element.bits
        content[start : start + type_.store_size] = bits.to_bytes(type_.store_size, "little")
    elif isinstance(value, Number):
        content[start : start + type_.store_size] = value.value.to_bytes(type_.store_size, "little")
    elif not isinstance(value, Undefined):
        raise NotModelled("a constant expression in a global variable")
