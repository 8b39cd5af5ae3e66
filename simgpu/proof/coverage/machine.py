"""A workgroup's instructions on numbers, elements and sums of products: all waves at once, all lanes active."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import TargetError
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction, Operand, Reg
from simgpu.hardware.isa.types import u32
from simgpu.hardware.mfma import find
from simgpu.hardware.mfma.instruction import BITS
from simgpu.machine.operands import constant_bits
from simgpu.proof.coverage.claims import Violation
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.integers import compared, computed
from simgpu.proof.coverage.masks import Mask, joined
from simgpu.proof.coverage.values import LEFT, NONZERO, NOTHING, RESULT, UNKNOWN, A, B, Cells, State, Sums, Test, Value, same, zero
from simgpu.proof.terms import NotModelled

WORD = 4  # bytes
OUTSIDE = 0x80000000  # an offset from here on is outside every buffer
SIGNLESS = 0x7FFFFFFF
Names = tuple[tuple[tuple[str, ...], int], ...]


@dataclass(frozen=True)
class Pointed:
    """A matrix by the kernel's arguments: its pointer, the stride from row to row, the distance to the next matrix of a batch."""

    kind: int  # A, B or RESULT
    axes: tuple[str, str]
    stride: str
    batch: str


@dataclass
class Machine:
    """Runs instructions. places: where the tile begins along m, n and k, found at the first access."""

    target: str
    items: int
    arguments: Mapping[int, Form]  # dwords of the kernel's arguments, by offset
    matrices: Mapping[str, Pointed]  # by the pointer's name
    size: str  # the symbol of K
    part: str  # of the elements of K that a workgroup has
    factor: str  # argument that is not 0
    unit: int  # what K and its parts are multiples of
    looped: frozenset[int]  # addresses of instructions in loops
    places: dict[str, Names] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)  # what symbols of scalars are multiples of
    stored: set[int] = field(default_factory=set)  # addresses of stores of results

    def step(self, state: State, step: LintStep) -> None:
        """Runs an instruction that is no branch."""
        inst = step.inst
        spec = inst.spec
        if spec.memory is not None:
            self._memory(state, step)
        elif spec.kind == "matrix":
            self._multiply(state, inst)
        elif spec.mnemonic.startswith("s_cmp_") or spec.mnemonic.startswith("s_bitcmp"):
            self._compare(state, inst)
        elif spec.encoding in ("sop1", "sop2", "sopk", "sopc"):
            self._scalar(state, step)
        elif spec.encoding != "sopp":
            self._vector(state, step)

    def moved(self, form: Form, step: int) -> Form:
        """Returns a number as seen from a later origin: what is left of K is less, and addresses begin farther on."""
        left = form.coefficient(LEFT)
        found = form + Form.of(left // self.unit * step)
        for pointer, matrix in self.matrices.items():
            factor = form.coefficient(pointer) * WORD * -step
            if matrix.kind != RESULT and np.any(factor):
                found = found + (Form.name(matrix.stride, factor) if matrix.axes[0] == "k" else Form.of(factor))
        return found.modulo(32)

    # -- operands ------------------------------------------------------------------------------

    def read(self, state: State, operand: Operand | None, word: int = 0) -> Value:
        """Returns a 32-bit word of an operand."""
        if isinstance(operand, Reg):
            return state.registers.get((operand.file, operand.index + word))
        if operand is None or isinstance(operand, isa.Off):
            return Form()
        try:
            value = constant_bits(operand, u32, 32)
        except (KeyError, ValueError, TypeError):
            return None
        return Form.of(value).modulo(32)

    def _form(self, state: State, operand: Operand | None, what: str) -> Form:
        value = self.read(state, operand)
        if not isinstance(value, Form):
            raise NotModelled(f"{what} of unknown value")
        return value

    @staticmethod
    def write(state: State, register: Operand | None, values: Sequence[Value]) -> None:
        """Writes words to registers."""
        if not isinstance(register, Reg):
            return
        for at, value in enumerate(values):
            state.registers[register.file, register.index + at] = value

    def _named(self, step: LintStep, register: Reg, multiple: int = 1) -> Form | None:
        """Returns a symbol for a scalar that is computed once."""
        if step.pc in self.looped:
            return None
        name = f"s{register.index} of {step.pc:#x}"
        self.names[name] = multiple
        return Form.name(name, multiple)

    # -- scalar ALU ----------------------------------------------------------------------------

    def _compare(self, state: State, inst: Instruction) -> None:
        values = [self.read(state, inst.args.get(name)) for name in ("src0", "src1")]
        a, b = (value if isinstance(value, Form) else None for value in values)
        state.scc = None
        if a is None or b is None:
            return
        if inst.spec.mnemonic.startswith("s_cmp_"):
            state.scc = compared(inst.spec.mnemonic, a, b)
        elif a.constant is not None and b.constant is not None:
            bit = np.asarray(a.constant) >> (np.asarray(b.constant) & 31) & 1
            state.scc = Test(Form.of(bit), equal=True, negated=inst.spec.mnemonic.startswith("s_bitcmp1"))

    def _scalar(self, state: State, step: LintStep) -> None:
        inst, mnemonic = step.inst, step.inst.spec.mnemonic
        register = inst.args.get("sdst")
        if not isinstance(register, Reg):
            return
        if register.index == isa.EXEC:
            self._activate(state, inst)
            return
        if register.count == 2 or mnemonic.endswith("b64"):
            self._pair(state, inst, register)
            return
        names = ("src0", "src1") if "src1" in inst.args else ("src0",)
        values = [self.read(state, inst.args.get(name)) for name in names]
        forms = [value for value in values if isinstance(value, Form)]
        found: Form | None = None
        if mnemonic == "s_cselect_b32":
            found = self._selected(state.scc, values)
        elif len(forms) == len(values) and "simm16" not in inst.args:
            special = None if state.begun else self._special(mnemonic, forms)  # they are about the first origin
            found = special or computed(inst.spec, forms)
        if found is None and len(forms) == len(values) and mnemonic == "s_mul_i32":
            found = self._product(step, register, forms)
        if found is None:
            found = self._named(step, register)
        self.write(state, register, [found])
        if "scc" in {type_.state for type_ in inst.spec.results}:
            state.scc = Test(found, equal=True, negated=True) if mnemonic in NONZERO_RESULT and found is not None else None

    def _special(self, mnemonic: str, forms: Sequence[Form]) -> Form | None:
        """Returns the elements of K that a workgroup has, or a factor without its sign."""
        if mnemonic == "s_min_i32":
            for rest, part in (forms, forms[::-1]):
                start = self.arguments_form(self.size) - rest
                if part.key() == self.arguments_form(self.part).key() and start.constant is None and start.key() != part.key():
                    self._placed("k", start)
                    return Form.name(LEFT, self.unit)
        if mnemonic == "s_and_b32" and any(form.constant == SIGNLESS for form in forms):
            if any(form.key() == Form.name(self.factor).key() for form in forms):
                return Form.name(NONZERO)
        return None

    def arguments_form(self, name: str) -> Form:
        """Returns the value of an argument."""
        return next(form for form in self.arguments.values() if set(form.parts) == {(name,)})

    def _product(self, step: LintStep, register: Reg, forms: Sequence[Form]) -> Form | None:
        """Returns a product with a stride; a product of other symbols gets a name."""
        kept = {name for each in self.matrices.values() for name in (each.stride, each.batch, f"{each.batch} high")}
        for one, other in (forms, forms[::-1]):
            if {name for product in one.parts for name in product} <= kept:
                return one.product(other).modulo(32)
        factors = [math.gcd(1 << 32, *(int(each) for array in form.parts.values() for each in np.ravel(array))) for form in forms]
        return self._named(step, register, math.gcd(1 << 32, math.prod(factors)))

    @staticmethod
    def _selected(test: Test | None, values: Sequence[Value]) -> Form | None:
        known = None if test is None else test.known
        chosen = [values[0 if known else 1]] if known is not None else list(values)
        forms = [value for value in chosen if isinstance(value, Form)]
        return forms[0] if len(forms) == len(chosen) and len({form.key() for form in forms}) == 1 else None

    def _pair(self, state: State, inst: Instruction, register: Reg) -> None:
        """Runs an instruction on 64 bits: moves, and the low word of a shift to the left."""
        source = inst.args.get("src0")
        found: list[Value] = [None, None]
        scc: Test | None = None
        if inst.spec.mnemonic == "s_mov_b64":
            high = self.read(state, source, 1) if isinstance(source, Reg) else None
            found = [self.read(state, source), high if isinstance(source, Reg) else self.read(state, source)]
            scc = state.scc
        elif inst.spec.mnemonic in ("s_and_b64", "s_or_b64"):
            both = inst.spec.mnemonic == "s_and_b64"
            found[0] = joined(both, *(self.read(state, inst.args.get(name)) for name in ("src0", "src1")))
            scc = Test(Form(), equal=True, negated=True) if zero(found[0]) else None
        elif inst.spec.mnemonic == "s_lshl_b64":
            power, low = self.read(state, inst.args.get("src1")), self.read(state, source)
            if isinstance(low, Form) and isinstance(power, Form) and power.constant is not None and not np.ndim(power.constant):
                found[0] = low.times(1 << int(power.constant)).modulo(32)
        self.write(state, register, found)
        state.scc = scc

    def _activate(self, state: State, inst: Instruction) -> None:
        source = inst.args.get("src0")
        constant = source is not None and not isinstance(source, Reg) and constant_bits(source, u32, 64)
        if inst.spec.mnemonic != "s_mov_b64" or constant != (1 << 64) - 1:
            raise NotModelled("lanes that are off")

    # -- vector ALU ----------------------------------------------------------------------------

    def _vector(self, state: State, step: LintStep) -> None:
        inst, mnemonic = step.inst, step.inst.spec.mnemonic
        register = inst.args.get("vdst")
        if mnemonic.startswith("v_cmp_"):
            self.write(state, inst.args.get("sdst") or Reg("s", isa.VCC, 2), [self._mask(state, inst), None])
            return
        if mnemonic == "v_readfirstlane_b32":
            value = self.read(state, inst.args.get("src0"))
            constant = value.constant if isinstance(value, Form) else None
            first = None if constant is None else np.broadcast_to(constant, self.items)[:: WAVEFRONT].repeat(WAVEFRONT)
            target = inst.args.get("sdst") or register
            self.write(state, target, [None if first is None else Form.of(first)])
            return
        if not isinstance(register, Reg) or register.file == "s":
            return
        names = [name for name in ("src0", "src1", "src2") if name in inst.args]
        plain = inst.form not in ("dpp", "sdwa")
        if register.count == 1 and plain:
            values = [self.read(state, inst.args[name]) for name in names]
            self.write(state, register, [self._result(state, inst, mnemonic, values)])
            return
        found: list[Value] = []
        for word in range(register.count):
            halves = [self.read(state, inst.args[name], word) for name in names]
            found.append(self._float(state, halves) if plain and not inst.mods.get("op_sel") else None)
        self.write(state, register, found)

    def _mask(self, state: State, inst: Instruction) -> Value:
        values = [self.read(state, inst.args.get(name)) for name in ("src0", "src1")]
        a, b = (value if isinstance(value, Form) else None for value in values)
        integers = inst.spec.mnemonic.endswith(("_i32", "_u32"))
        test = compared(inst.spec.mnemonic, a, b) if integers and a is not None and b is not None else None
        return None if test is None else Mask((test,))

    def _result(self, state: State, inst: Instruction, mnemonic: str, values: Sequence[Value]) -> Value:
        if mnemonic in MOVES and len(values) == 1 and not isinstance(values[0], Sums):
            return values[0]
        if mnemonic == "v_cndmask_b32":
            sums = any(isinstance(value, (Cells, Sums)) for value in values[:2])
            return self._float(state, values[:2]) if sums else self._chosen(values)
        forms = [value for value in values if isinstance(value, Form)]
        if len(forms) == len(values) and (found := computed(inst.spec, forms)) is not None:
            return found
        old = [self.read(state, inst.args.get("vdst"))] if any(param.name == "vdst" for param in inst.spec.params) else []
        return self._float(state, [*values, *old])

    @staticmethod
    def _chosen(values: Sequence[Value]) -> Value:
        """Returns a choice of addresses, of which one is outside every buffer: the other one. `Coverage` is about the condition."""
        no, yes = values[:2]
        for one, other in ((no, yes), (yes, no)):
            if isinstance(one, Form) and one.constant is not None and np.all(np.asarray(one.constant) & 0xFFFFFFFF >= OUTSIDE):
                return other
        return no if isinstance(no, Form) and isinstance(yes, Form) and no.key() == yes.key() else None

    def _float(self, state: State, values: Sequence[Value]) -> Value:
        """Returns what an operation makes of whole sums: a result of the same place in C, whatever is added or multiplied."""
        cells = [self._finished(state, value) if isinstance(value, Sums) else value for value in values]
        whole = [each for each in cells if isinstance(each, Cells)]
        if any(np.any((each.kind != RESULT) & (each.kind != NOTHING)) for each in whole):
            return None
        if not whole:
            return self._constant(NOTHING) if any(map(zero, values)) else None
        results = [each for each in whole if np.all(each.kind == RESULT)] or whole[:1]
        alike = same(each.outer for each in results) and same(each.k for each in results)
        return results[0] if alike else None

    def _finished(self, state: State, value: Sums) -> Cells:
        """Returns a sum that is used: all its products must be there."""
        if value.done < state.most:
            raise Violation(f"C: products from k = {value.done} of a step on may be left out")
        return Cells(np.full(self.items, RESULT), value.outer, value.inner)

    def _constant(self, kind: int) -> Cells:
        none = np.zeros(self.items, np.int64)
        return Cells(np.full(self.items, kind), none, none)

    # -- memory --------------------------------------------------------------------------------

    def _memory(self, state: State, step: LintStep) -> None:
        inst, memory = step.inst, step.inst.spec.memory
        assert memory is not None
        if memory.lds or inst.mods.get("lds") or memory.transpose or memory.format or memory.op == "atomic":
            raise NotModelled("an access of this kind")
        if memory.space == "smem":
            self._arguments(state, inst)
        elif memory.space == "ds":
            self._lds(state, inst)
        elif memory.space == "buffer":
            self._buffer(state, step)
        else:
            raise NotModelled("an access of this kind")

    def _arguments(self, state: State, inst: Instruction) -> None:
        base, register = self.read(state, inst.args.get("sbase")), inst.args.get("sdst")
        assert isinstance(register, Reg)
        extra = self.read(state, inst.args.get("soffset"))
        more = extra.constant if isinstance(extra, Form) else None
        known = isinstance(base, Form) and base.key() == Form.name(KERNARG).key() and more is not None and not np.ndim(more)
        start = int(inst.mods.get("offset", 0)) + int(more or 0)
        found = [self.arguments.get(start + WORD * at) if known else None for at in range(register.count)]
        self.write(state, register, found)

    def _lds(self, state: State, inst: Instruction) -> None:
        memory = inst.spec.memory
        assert memory is not None
        if memory.bits % 32:
            raise NotModelled("an access of this kind")
        base = self._form(state, inst.args.get("addr"), "an address in LDS").constant
        if base is None:
            raise NotModelled("an address in LDS that depends on the launch")
        two = memory.stride > 0
        scale = memory.stride * memory.bits // 8
        offsets = [scale * int(inst.mods.get(f"offset{at}", 0)) for at in (0, 1)] if two else [int(inst.mods.get("offset", 0))]
        words = memory.bits // 32 * (1 if two else memory.count)
        register = inst.args.get("vdst")
        found: list[Value] = []
        for at, offset in enumerate(offsets):
            for word in range(words):
                address = np.broadcast_to(np.asarray(base) + offset + WORD * word, self.items)
                if np.any(address % WORD) or np.any(address < 0) or np.any(address >= WORD * state.lds.kind.size):
                    raise Violation("an address outside LDS")
                if memory.op == "load":
                    found.append(state.lds.at(address // WORD))
                else:
                    self._put(state, address // WORD, self.read(state, inst.args[f"data{at}"], word))
        if memory.op == "load":
            self.write(state, register, found)

    def _put(self, state: State, index: Any, value: Value) -> None:
        value = self._finished(state, value) if isinstance(value, Sums) else value
        cells = value if isinstance(value, Cells) else self._constant(UNKNOWN)
        made = [array.copy() for array in (state.lds.kind, state.lds.outer, state.lds.k)]
        for array, new in zip(made, (cells.kind, cells.outer, cells.k), strict=True):
            array[index] = new
        state.lds = Cells(*made)

    def _buffer(self, state: State, step: LintStep) -> None:
        inst, memory = step.inst, step.inst.spec.memory
        resource, data = inst.args.get("srsrc"), inst.args.get("vdata") or inst.args.get("vdst")
        assert memory is not None and isinstance(resource, Reg) and isinstance(data, Reg)
        total = self.read(state, resource)
        count = max(1, memory.bits * memory.count // 32)
        matrix = None
        if isinstance(total, Form):
            matrix = next((each for name, each in self.matrices.items() if (name,) in total.parts), None)
        if memory.op == "load" and (matrix is None or matrix.kind == RESULT):
            self.write(state, data, [None] * count)
            return
        if matrix is None or memory.bits % 32 or inst.mods.get("idxen"):
            raise NotModelled("an access of this kind")
        assert isinstance(total, Form)
        total = total + self._form(state, inst.args.get("soffset"), "an offset") + Form.of(int(inst.mods.get("offset", 0)))
        if inst.mods.get("offen"):
            total = total + self._form(state, inst.args.get("vaddr"), "an address")
        row, column = self._element(matrix, total.modulo(32), step.pc)
        if memory.op == "load":
            self.write(state, data, [self._loaded(matrix, row, column + word) for word in range(count)])
        elif memory.op == "store":
            for word in range(count):
                self._stored(state, self.read(state, data, word), row, column + word, step.pc)

    def _element(self, matrix: Pointed, total: Form, pc: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns row and column in the tile, of each work-item."""
        rows, rest = total.split(matrix.stride)
        pointer = next(name for name, each in self.matrices.items() if each is matrix)
        kept = {product: each for product, each in rest.parts.items() if product != (pointer,) and matrix.batch not in product}
        found = []
        for axis, form in zip(matrix.axes, (rows, Form(kept)), strict=True):
            number = form.divided(WORD)
            if number is None:
                raise Violation("an address that is not that of an element")
            self._placed(axis, Form({product: each for product, each in number.parts.items() if product}))
            found.append(np.broadcast_to(np.asarray(number.lanes, np.int64), self.items))
        return found[0], found[1]

    def _placed(self, axis: str, start: Form) -> None:
        """Takes where the tile begins along an axis: the same at each access."""
        key: Any = start.key()
        if self.places.setdefault(axis, key) != key:
            raise Violation(f"a tile begins at another {axis} than that of another access")

    def _loaded(self, matrix: Pointed, row: np.ndarray, column: np.ndarray) -> Cells:
        k, outer = (row, column) if matrix.axes[0] == "k" else (column, row)
        return Cells(np.full(self.items, matrix.kind), outer, k)

    def _stored(self, state: State, value: Value, row: np.ndarray, column: np.ndarray, pc: int) -> None:
        self.stored.add(pc)
        cells = self._finished(state, value) if isinstance(value, Sums) else self._constant(NOTHING) if zero(value) else value
        right = isinstance(cells, Cells)
        if isinstance(cells, Cells):
            nothing = cells.kind == NOTHING
            right = bool(np.all(nothing | ((cells.kind == RESULT) & (cells.outer == row) & (cells.k == column))))
            if np.any(nothing) and (state.most > 0 or state.begun):
                raise Violation("C: no products may be added to what is stored")
        if not right:
            raise Violation("C: what is stored is not the sum for its row and column")

    # -- matrix instructions -------------------------------------------------------------------

    def _multiply(self, state: State, inst: Instruction) -> None:
        try:
            modifiers = [int(inst.mods.get(name, 0)) for name in ("cbsz", "abid", "blgp")]
            a_map, b_map, c_map = _maps(inst.spec.mnemonic, self.target, *modifiers)
        except TargetError as error:
            raise NotModelled(str(error)) from None
        a, b = (self._operand(state, inst, name, each) for name, each in (("src0", a_map), ("src1", b_map)))
        turned = bool(np.all(a.kind == B))  # the product of the transposed matrices
        if np.any(a.kind != (B if turned else A)) or np.any(b.kind != (A if turned else B)):
            raise Violation("something else than elements of A and B is multiplied")
        outer, ks, inner = a.outer[..., :1], a.k[:, :, :1, :], b.outer[..., :1, :]
        if np.any(a.outer != outer) or np.any(b.outer != inner):
            raise Violation("a matrix instruction adds products of different rows or columns")
        if np.any(a.k != ks) or np.any(b.k != np.swapaxes(ks, 2, 3)):
            raise Violation("a matrix instruction multiplies elements of different k")
        if np.any(ks != ks[:1, :1]):
            raise NotModelled("waves or blocks that multiply different k")
        rows, columns = np.broadcast_arrays(*((inner, outer) if turned else (outer, inner)))
        target, old = inst.args["vdst"], inst.args["src2"]
        assert isinstance(target, Reg)
        added = [int(k) for k in ks[0, 0, 0]]
        made: list[Value] = []
        for word in range(target.count):
            block, i, j = np.nonzero(c_map[..., 0] == word)
            places = np.empty((2, self.items // WAVEFRONT, WAVEFRONT), np.int64)
            for array, values in zip(places, (rows, columns), strict=True):
                array[:, c_map[block, i, j, 1]] = values[:, block, i, j]
            made.append(self._summed(state, self.read(state, old, word), places.reshape(2, -1), added))
        self.write(state, target, made)

    def _operand(self, state: State, inst: Instruction, name: str, where: np.ndarray) -> Cells:
        """Returns elements [wave, block, row, column] of A or B."""
        register = inst.args[name]
        assert isinstance(register, Reg)
        words = [self.read(state, register, at) for at in range(register.count)]
        if not all(isinstance(word, Cells) for word in words):
            raise Violation("something else than elements of A and B is multiplied")
        stacked = [np.stack([getattr(word, part).reshape(-1, WAVEFRONT) for word in words]) for part in ("kind", "outer", "k")]
        return Cells(*(np.moveaxis(each[where[..., 0], :, where[..., 1]], -1, 0) for each in stacked))

    def _summed(self, state: State, old: Value, places: np.ndarray, added: Sequence[int]) -> Sums:
        """Returns a sum with more products."""
        if zero(old):
            if state.begun:
                raise Violation("C: a sum begins again")
            old = Sums(places[0], places[1], 0)
        if not isinstance(old, Sums) or not same((old.outer, places[0])) or not same((old.inner, places[1])):
            raise Violation("C: products are added to something else than the sum for their row and column")
        more, done = set(old.more), old.done
        for k in added:
            if k < done or k in more:
                raise Violation(f"C: the product at k = {k} of a step is added twice")
            more.add(k)
        while done in more:
            more.remove(done)
            done += 1
        return Sums(old.outer, old.inner, done, frozenset(more))


@cache
def _maps(mnemonic: str, target: str, cbsz: int, abid: int, blgp: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns register and lane of each element of A, B and C. Raises TargetError, NotModelled."""
    row = find(mnemonic, target)
    if row.sparse or any(BITS[kind] != 32 for kind in (row.a_type, row.b_type, row.cd_type)):
        raise NotModelled(f"{mnemonic}: elements of other than 32 bits")
    return row.map("A", cbsz, abid, blgp), row.map("B", cbsz, abid, blgp), row.map("C")


KERNARG = "kernarg"
NONZERO_RESULT = ("s_and_b32", "s_or_b32", "s_xor_b32", "s_lshl_b32", "s_lshr_b32", "s_bfe_u32")
MOVES = ("v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
