"""A workgroup's instructions on numbers, elements and sums of products: all waves at once, all lanes active but for LDS writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from simgpu.checks.lint.registers import EXEC
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction, Operand, Reg
from simgpu.hardware.isa.types import u32, u64
from simgpu.machine.operands import constant_bits
from simgpu.proof.coverage.claims import CHUNK, Violation
from simgpu.proof.coverage.epilogue import GATED, merge
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.integers import compare, compute
from simgpu.proof.coverage.lds import words_of
from simgpu.proof.coverage.masks import Guarded, Mask, combine, known_in, leave_off
from simgpu.proof.coverage.multiply import Multiply
from simgpu.proof.coverage.pieces import first_lanes, from_lanes, move_pieces
from simgpu.proof.coverage.values import (
    BESIDE,
    LEFT,
    NONZERO,
    NOTHING,
    RESULT,
    UNKNOWN,
    A,
    B,
    Cells,
    State,
    Sums,
    Test,
    Value,
    zero,
)
from simgpu.proof.coverage.words import Pointed, load_word, operand, pieces, whole_elements
from simgpu.proof.terms import NotModelled

WORD = 4  # bytes
WORD_BITS = 32
OUTSIDE = 0x80000000  # an offset from here on is outside every buffer
SIGNLESS = 0x7FFFFFFF
MAGNITUDE = "magnitude's high word"  # of the factor
Names = tuple[tuple[tuple[str, ...], int], ...]


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
    factor_type: str  # f32, f64 or i32
    unit: int  # what K and its parts are multiples of
    looped: frozenset[int]  # addresses of instructions in loops
    gated: bool = False  # True if C has one column for two of the product
    places: dict[str, Names] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)  # addresses of stores of results

    def step(self, state: State, step: LintStep) -> None:
        """Runs an instruction that is no branch."""
        inst = step.inst
        spec = inst.spec
        if step.writes & EXEC:
            self._activate(state, inst)
        elif spec.memory is not None:
            self._memory(state, step)
        elif spec.kind == "matrix":
            self._multiply(state, inst)
        elif spec.mnemonic.startswith("s_cmp_") or spec.mnemonic.startswith("s_bitcmp"):
            self._compare(state, inst)
        elif spec.encoding in ("sop1", "sop2", "sopk", "sopc"):
            self._scalar(state, step)
        elif spec.encoding != "sopp":
            self._vector(state, step)
            if state.active is not None:
                leave_off(state, step, state.active)

    def end(self, state: State) -> None:
        """Checks a state at the kernel's end."""

    def move(self, form: Form, step: int) -> Form:
        """Returns a number as seen from a later origin: the rest of K is less, and addresses begin farther on."""
        left = form.coefficient(LEFT)
        found = form + Form.of(left // self.unit * step)
        for pointer, matrix in self.matrices.items():
            factor = form.coefficient(pointer) * (-step * max(1, matrix.panel) * matrix.bits // 8)
            if matrix.kind in (A, B) and np.any(factor):
                found = found + (Form.name(matrix.stride, factor) if matrix.axes[0] == "k" else Form.of(factor))
        return found.modulo(32)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Work-items, and pieces of a word: none has parts of two elements."""
        piece = math.gcd(WORD_BITS, *(matrix.bits for matrix in self.matrices.values()))
        return self.items, WORD_BITS // piece

    # -- operands ------------------------------------------------------------------------------

    def read(self, state: State, operand: Operand | None, word: int = 0, wide: bool = False) -> Value:
        """Returns a 32-bit word of an operand. wide: a constant has 64 bits."""
        if isinstance(operand, Reg):
            return state.registers.get((operand.file, operand.index + word))
        if operand is None or isinstance(operand, isa.Off):
            return Form()
        try:
            value = constant_bits(operand, u64, 64) >> 32 * word if wide else constant_bits(operand, u32, 32)
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
        below = register.file, register.index - 1
        if isinstance(state.registers.get(below), Mask):  # its other half is written
            state.registers[below] = None

    def _name_scalar(self, step: LintStep, register: Reg, multiple: int = 1) -> Form | None:
        """Returns a symbol for a scalar that is computed once."""
        if step.pc in self.looped:
            return None
        name = f"s{register.index} of {step.pc:#x}"
        return Form.name(name, multiple)

    # -- scalar ALU ----------------------------------------------------------------------------

    def _compare(self, state: State, inst: Instruction) -> None:
        values = [self.read(state, inst.args.get(name)) for name in ("src0", "src1")]
        a, b = (value if isinstance(value, Form) else None for value in values)
        state.scc = None
        if a is None or b is None:
            return
        if inst.spec.mnemonic.startswith("s_cmp_"):
            state.scc = compare(inst.spec.mnemonic, a, b)
        elif a.constant is not None and b.constant is not None:
            bit = np.asarray(a.constant) >> (np.asarray(b.constant) & 31) & 1
            state.scc = Test(Form.of(bit), equal=True, negated=inst.spec.mnemonic.startswith("s_bitcmp1"))

    def _scalar(self, state: State, step: LintStep) -> None:
        inst, mnemonic = step.inst, step.inst.spec.mnemonic
        register = inst.args.get("sdst")
        if not isinstance(register, Reg):
            return
        if register.count == 2 or mnemonic.endswith("b64"):
            self._pair(state, inst, register)
            return
        names = ("src0", "src1") if "src1" in inst.args else ("src0",)
        values = [self.read(state, inst.args.get(name)) for name in names]
        forms = [value for value in values if isinstance(value, Form)]
        found: Form | None = None
        if mnemonic == "s_cselect_b32":
            found = self._select(state.scc, values)
        elif len(forms) == len(values) and "simm16" not in inst.args:
            special = None if state.begun else self._special(mnemonic, forms)  # they are about the first origin
            found = special or compute(inst.spec, forms)
        if found is None and len(forms) == len(values) and mnemonic == "s_mul_i32":
            found = self._product(step, register, forms)
        if found is None:
            found = self._name_scalar(step, register)
        self.write(state, register, [found])
        if "scc" in {type_.state for type_ in inst.spec.results}:
            state.scc = Test(found, equal=True, negated=True) if mnemonic in NONZERO_RESULT and found is not None else None

    def _special(self, mnemonic: str, forms: Sequence[Form]) -> Form | None:
        """Returns the elements of K that a workgroup has, or a factor without its sign."""
        if mnemonic == "s_min_i32":
            for rest, part in (forms, forms[::-1]):
                start = self.arguments_form(self.size) - rest
                if part.key() == self.arguments_form(self.part).key() and start.constant is None and start.key() != part.key():
                    self._place("k", start)
                    return Form.name(LEFT, self.unit)
        last = f"{self.factor} high" if self.factor_type == "f64" else self.factor
        keys = {form.key() for form in forms}
        if mnemonic == "s_and_b32" and keys == {Form.of(SIGNLESS).key(), Form.name(last).key()}:
            return Form.name(NONZERO if last == self.factor else MAGNITUDE)
        if mnemonic == "s_or_b32" and keys == {Form.name(MAGNITUDE).key(), Form.name(self.factor).key()}:
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
        return self._name_scalar(step, register, math.gcd(1 << 32, math.prod(factors)))

    @staticmethod
    def _select(test: Test | None, values: Sequence[Value]) -> Form | None:
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
            found = [self.read(state, source, word, wide=True) for word in (0, 1)]
            scc = state.scc
        elif inst.spec.mnemonic in ("s_and_b64", "s_or_b64"):
            both = inst.spec.mnemonic == "s_and_b64"
            found[0] = combine(both, *(self.read(state, inst.args.get(name)) for name in ("src0", "src1")))
            scc = Test(Form(), equal=True, negated=True) if zero(found[0]) else None
        elif inst.spec.mnemonic == "s_lshl_b64":
            power, low = self.read(state, inst.args.get("src1")), self.read(state, source)
            if isinstance(low, Form) and isinstance(power, Form) and power.constant is not None and not np.ndim(power.constant):
                found[0] = low.times(1 << int(power.constant)).modulo(32)
        self.write(state, register, found)
        state.scc = scc

    def _activate(self, state: State, inst: Instruction) -> None:
        """Enables all lanes, or those of a mask that is the same in all launches."""
        words = [self.read(state, inst.args.get("src0"), word, wide=True) for word in (0, 1)]
        lanes: Any = words[0].lanes if isinstance(words[0], Mask) else None
        ones = all(isinstance(word, Form) and word.key() == Form.of(-1).key() for word in words)
        if inst.spec.mnemonic != "s_mov_b64" or (lanes is None and not ones):
            raise NotModelled("lanes that are off")
        state.active = None if ones else np.broadcast_to(lanes, self.items)

    # -- vector ALU ----------------------------------------------------------------------------

    def _vector(self, state: State, step: LintStep) -> None:
        inst, mnemonic = step.inst, step.inst.spec.mnemonic
        register = inst.args.get("vdst")
        if mnemonic.startswith("v_cmp_"):
            self.write(state, inst.args.get("sdst") or Reg("s", isa.VCC, 2), [self._mask(state, inst), None])
            return
        if mnemonic == "v_readfirstlane_b32":
            value = self.read(state, inst.args.get("src0"))
            target = inst.args.get("sdst") or register
            self.write(state, target, [first_lanes(value, self.items)])
            return
        if not isinstance(register, Reg) or register.file == "s":
            return
        names = [name for name in ("src0", "src1", "src2") if name in inst.args]
        plain = inst.form not in ("dpp", "sdwa")
        if mnemonic == "v_mov_b32" and inst.form == "dpp":
            self.write(state, register, [self._other_lanes(state, inst)])
            return
        if register.count == 1 and plain:
            values = [self.read(state, inst.args[name]) for name in names]
            self.write(state, register, [self._result(state, inst, mnemonic, values)])
            return
        found: list[Value] = []
        for word in range(register.count):
            at = 0 if mnemonic.startswith("v_cvt_f64_") else word
            halves = [self.read(state, inst.args[name], at) for name in names]
            found.append(self._float(state, halves, mnemonic) if plain and not inst.mods.get("op_sel") else None)
        self.write(state, register, found)

    def _other_lanes(self, state: State, inst: Instruction) -> Value:
        """Returns the result of a move from other lanes of a row."""
        value = self.read(state, inst.args.get("src0"))
        value = self._finish(state, value) if isinstance(value, Sums) else value
        masks = [int(inst.mods.get(name, 15)) for name in ("row_mask", "bank_mask")]
        if not isinstance(value, Cells) or masks != [15, 15]:
            return None
        return from_lanes(value, int(inst.mods.get("dpp_ctrl", 0)), self.shape)

    def _mask(self, state: State, inst: Instruction) -> Value:
        values = [self.read(state, inst.args.get(name)) for name in ("src0", "src1")]
        a, b = (value if isinstance(value, Form) else None for value in values)
        integers = inst.spec.mnemonic.endswith(("_i32", "_u32"))
        test = compare(inst.spec.mnemonic, a, b) if integers and a is not None and b is not None else None
        return None if test is None else Mask((test,))

    def _result(self, state: State, inst: Instruction, mnemonic: str, values: Sequence[Value]) -> Value:
        if mnemonic in MOVES and len(values) == 1 and not isinstance(values[0], Sums):
            return values[0]
        if mnemonic == "v_cndmask_b32":
            sums = any(isinstance(value, (Cells, Sums)) for value in values[:2])
            return self._float(state, values[:2], mnemonic) if sums else self._choose_address(values)
        inside = [value.inside for value in values if isinstance(value, Guarded)]
        forms = [form for value in values if isinstance(form := value.form if isinstance(value, Guarded) else value, Form)]
        if len(forms) == len(values) and (found := compute(inst.spec, forms)) is not None:
            return Guarded(found, np.logical_and.reduce(inside)) if inside else found
        cells = [self._finish(state, value) if isinstance(value, Sums) else value for value in values]
        if (whole := move_pieces(mnemonic, cells, self.shape)) is not None:
            return whole
        old = [self.read(state, inst.args.get("vdst"))] if any(param.name == "vdst" for param in inst.spec.params) else []
        return self._float(state, [*values, *old], mnemonic)

    def _choose_address(self, values: Sequence[Value]) -> Value:
        """Returns the other one of two addresses, if one is outside every buffer. `Coverage` is about the condition.

        A condition that is the same in all launches turns work-items off.
        """
        no, yes, mask = values
        for one, other in ((no, yes), (yes, no)):
            if isinstance(one, Form) and one.constant is not None and np.all(np.asarray(one.constant) & 0xFFFFFFFF >= OUTSIDE):
                lanes = mask.lanes if isinstance(mask, Mask) else None
                if lanes is None or not isinstance(other, Form):
                    return other
                return Guarded(other, lanes if one is no else ~lanes)
        return no if isinstance(no, Form) and isinstance(yes, Form) and no.key() == yes.key() else None

    def _float(self, state: State, values: Sequence[Value], mnemonic: str) -> Value:
        """Returns what an operation makes of whole sums and operands: a result of the same place in C. Numbers do not count."""
        cells = [self._finish(state, value) if isinstance(value, Sums) else value for value in values]
        whole = [each for each in cells if isinstance(each, Cells)]
        if any(map(zero, values)) and all(np.any(each.kind == BESIDE) for each in whole):
            return self._constant(NOTHING)  # no products, whatever is added
        return merge(mnemonic, whole, self.gated) if whole else None

    def _finish(self, state: State, value: Sums) -> Cells:
        """Returns a sum that is used: all its products must be there."""
        if value.done < state.most:
            raise Violation(f"C: products from k = {value.done} of a step on may be left out")
        cells = Cells.of(RESULT, value.part, value.outer, value.inner)
        return Cells(np.repeat(cells.code[:, None], self.shape[1], axis=1))

    def _constant(self, kind: int) -> Cells:
        return Cells(np.full(self.shape, kind))

    # -- memory --------------------------------------------------------------------------------

    def _memory(self, state: State, step: LintStep) -> None:
        inst, memory = step.inst, step.inst.spec.memory
        assert memory is not None
        masked = state.active is not None and memory.space != "smem" and (memory.space, memory.op) != ("ds", "store")
        if masked or memory.lds or inst.mods.get("lds") or memory.transpose or memory.format or memory.op == "atomic":
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
        start = int(inst.mods.get("offset", 0)) + int(more or 0)
        if isinstance(base, Form) and (matrix := self._matrix(base)) is not None and (start, register.count) == (0, 1):
            self.write(state, register, [self._number(matrix, base)])
            return
        known = isinstance(base, Form) and base.key() == Form.name(KERNARG).key() and more is not None and not np.ndim(more)
        found = [self.arguments.get(start + WORD * at) if known else None for at in range(register.count)]
        self.write(state, register, found)

    def _matrix(self, address: Form) -> Pointed | None:
        """Returns the matrix whose pointer is in an address."""
        return next((each for name, each in self.matrices.items() if (name,) in address.parts), None)

    def _number(self, matrix: Pointed, base: Form) -> Value:
        """Returns an operand that is one number for a whole product."""
        if matrix.axes != ("", ""):
            return None
        self._place("number", Form({names: each for names, each in base.parts.items() if names[0] not in self.matrices}))
        return Cells(np.full(self.shape, operand(matrix, 0).code))

    def _lds(self, state: State, inst: Instruction) -> None:
        memory = inst.spec.memory
        assert memory is not None
        address = known_in(self.read(state, inst.args.get("addr")), state.active)
        if address is None or (base := address.constant) is None:
            raise NotModelled("an address in LDS that is unknown or depends on the launch")
        lanes = slice(None) if state.active is None else state.active
        words = words_of(inst, np.broadcast_to(np.asarray(base), self.items)[lanes], self.shape[1], state.lds.code.size)
        if memory.op == "load":
            self.write(state, inst.args.get("vdst"), [Cells(state.lds.code[index]) for each in words for index in each])
            return
        made = state.lds.code.copy()
        for at, each in enumerate(words):
            for word, index in enumerate(each):
                made[index] = np.broadcast_to(self._codes(state, self.read(state, inst.args[f"data{at}"], word)), self.shape)[lanes]
        state.lds = Cells(made)

    def _codes(self, state: State, value: Value) -> Any:
        """Returns codes of a word that is stored in LDS."""
        value = self._finish(state, value) if isinstance(value, Sums) else value
        return value.code if isinstance(value, Cells) else UNKNOWN

    def _buffer(self, state: State, step: LintStep) -> None:
        inst, memory = step.inst, step.inst.spec.memory
        resource, data = inst.args.get("srsrc"), inst.args.get("vdata") or inst.args.get("vdst")
        assert memory is not None and isinstance(resource, Reg) and isinstance(data, Reg)
        total = self.read(state, resource)
        count = max(1, memory.bits * memory.count // WORD_BITS)
        matrix = self._matrix(total) if isinstance(total, Form) else None
        if memory.op == "load" and matrix is None:
            self.write(state, data, [None] * count)
            return
        if matrix is None or memory.d16 or memory.sign or inst.mods.get("idxen"):
            raise NotModelled("an access of this kind")
        assert isinstance(total, Form)
        total = total + self._form(state, inst.args.get("soffset"), "an offset") + Form.of(int(inst.mods.get("offset", 0)))
        inside: Any = True
        if inst.mods.get("offen"):
            address = self.read(state, inst.args.get("vaddr"))
            inside, address = (address.inside, address.form) if isinstance(address, Guarded) else (True, address)
            if not isinstance(address, Form):
                raise NotModelled("an address of unknown value")
            total = total + address
        bits = memory.bits * memory.count
        row, column = self._element(matrix, total.modulo(WORD_BITS), bits)
        if memory.op == "load":
            loaded = [load_word(matrix, row, column, word, bits, self.shape[1]).code for word in range(count)]
            there = np.broadcast_to(inside, self.items)[:, None]
            self.write(state, data, [Cells(np.where(there, codes, UNKNOWN)) for codes in loaded])
            return
        self.stored.add(step.pc)
        for word in range(count):
            place = row, pieces(matrix, column, word, self.shape[1])
            self._store_word(state, self.read(state, data, word), place, bits, inside)

    def _element(self, matrix: Pointed, total: Form, bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns row in the tile, and bits from the tile's first column on, of each work-item."""
        rows, rest = total.split(matrix.stride)
        pointer = next(name for name, each in self.matrices.items() if each is matrix)
        kept = {product: each for product, each in rest.parts.items() if product != (pointer,) and matrix.batch not in product}
        found = []
        for axis, number in zip(matrix.axes, whole_elements(matrix, rows, Form(kept)), strict=True):
            self._place(axis, Form({product: each for product, each in number.parts.items() if product}))
            found.append(np.broadcast_to(np.asarray(number.lanes, np.int64), self.items))
        if matrix.panel and np.any(found[1] * matrix.bits % (CHUNK * 8) + bits > CHUNK * 8):
            raise Violation("an access to several rows of a panel")
        return found[0], found[1] * matrix.bits

    def _place(self, axis: str, start: Form) -> None:
        """Takes where the tile begins along an axis: the same at each access."""
        key: Any = start.key()
        if self.places.setdefault(axis, key) != key:
            raise Violation(f"a tile begins at another {axis} than that of another access")

    def _store_word(self, state: State, value: Value, place: tuple[np.ndarray, Any], bits: int, inside: Any) -> None:
        """Checks a word of a store of `bits` bits. place: rows, and its pieces' columns and numbers. inside: work-items."""
        cells = self._finish(state, value) if isinstance(value, Sums) else self._constant(NOTHING) if zero(value) else value
        columns, parts = place[1]
        if not isinstance(cells, Cells):
            raise Violation("C: what is stored is not the sum for its row and column")
        stored = np.zeros(columns.shape, bool)
        stored[np.broadcast_to(inside, self.items), : bits * self.shape[1] // WORD_BITS] = True
        nothing = stored & (cells.kind == NOTHING)
        right = (cells.kind == RESULT) & (cells.outer == place[0][:, None]) & (cells.column == columns)
        right &= cells.part == parts * (WORD_BITS // self.shape[1]) // WORD_BITS
        if np.any(nothing) and (state.most > 0 or state.begun):
            raise Violation("C: no products may be added to what is stored")
        if np.any(stored & ~nothing & ~right):
            raise Violation("C: what is stored is not the sum for its row and column")
        for name, bit in self._needed.items():
            if np.any(stored & right & (cells.operands & bit == 0)):
                raise Violation(f"C: {name} is left out of a result")

    @cached_property
    def _needed(self) -> dict[str, int]:
        """Names of what each result must have, and their bits. C may be read, or not if beta is 0."""
        found = {name: 1 << each.number for name, each in self.matrices.items() if each.kind == BESIDE}
        return {**found, "one column of a pair": GATED} if self.gated else found

    # -- matrix instructions -------------------------------------------------------------------

    def _multiply(self, state: State, inst: Instruction) -> None:
        names = ("src0", "src1", "src2")
        registers = [each for name in names if isinstance(each := inst.args[name], Reg)]
        words = [[self.read(state, each, at) for at in range(each.count)] for each in registers[:2]]
        target, old = inst.args["vdst"], inst.args["src2"]
        assert isinstance(target, Reg) and len(words) == 2
        sums = [self.read(state, old, word) for word in range(target.count)]
        self.write(state, target, Multiply(self.target, self.shape, inst).add_products(words[0], words[1], sums, begun=state.begun))


KERNARG = "kernarg"
NONZERO_RESULT = ("s_and_b32", "s_or_b32", "s_xor_b32", "s_lshl_b32", "s_lshr_b32", "s_bfe_u32")
MOVES = ("v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
