"""A function of IR run on terms: every path of one work-item, joined where paths meet, loops up to a number of rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import bits_of, choose, every, fold, negation, number, some
from simgpu.proof.entry import argument_symbol, group_id, item_id
from simgpu.proof.execute import SymbolicRun
from simgpu.proof.ir import buffers, floats, integers, intrinsics, lanes
from simgpu.proof.ir.atomics import run_atomic
from simgpu.proof.ir.elements import ELEMENTS, bitcast, select
from simgpu.proof.ir.flow import block_order
from simgpu.proof.ir.memory import APERTURES, IrHeap, IrMemory, Unknowns, cast_space
from simgpu.proof.ir.syntax import (
    Aggregate,
    Function,
    IrInstruction,
    IrLocal,
    IrModule,
    IrSymbol,
    IrType,
    Number,
    Operand,
    Undefined,
)
from simgpu.proof.ir.values import (
    Scalar,
    SymbolicValue,
    any_poison,
    compose,
    each_scalar,
    flag,
    is_set,
    known_value,
    of_scalars,
)  # fmt: skip
from simgpu.proof.state import WaveState, merge
from simgpu.proof.terms import NotModelled

Term = Any
DEEPEST = 64  # calls of functions in functions

@dataclass
class IrRun(SymbolicRun):
    """A kernel of IR, run on terms.

    undefined: conditions in which this lane's behaviour is undefined. loose: an instruction whose flags allow several results; the
    terms have one of them.
    """

    module: IrModule = field(default_factory=lambda: IrModule(""))
    function: str = ""
    undefined: list[Term] = field(default_factory=list)
    loose: str = ""
    unknowns: Unknowns = field(default_factory=Unknowns)
    products: floats.FusableProducts = field(default_factory=floats.FusableProducts)
    code: list[IrInstruction] = field(default_factory=list)
    blocks: dict[str, dict[str, int]] = field(default_factory=dict)  # of each function that was met: where its blocks begin
    within: list[str] = field(default_factory=list)  # block of each instruction
    private_start: int = 0  # address of the first object in private memory, which a compiler chooses

    def __post_init__(self) -> None:
        self.heap = IrHeap(self.module, self.inputs, self.unknowns, private_bytes=self.private_start)

    def begin(self) -> WaveState:
        inputs = self.inputs
        function = self.module.function(self.function)
        if "denormal" in function.attributes and "preserve-sign" in function.attributes:
            raise NotModelled("denormals that are flushed")
        first = function.blocks[0].instructions[0]
        if first.op == "unreadable":
            raise NotModelled(first.what)
        memory = IrMemory("ir", inputs.lanes, inputs.roots, inputs.read_only, unknowns=self.unknowns)
        state = WaveState("ir", inputs.lanes, 0, 0, memory)
        self._set_arguments(state, function)
        state.pc = self._entry(function)
        return state

    def instruction(self, pc: int) -> Any:
        return self.code[pc]

    def ends(self, state: WaveState, inst: IrInstruction) -> bool:
        return inst.op == "ret" and not state.calls

    def text_of(self, inst: IrInstruction, pc: int) -> str:
        return inst.text or inst.op

    def merge(self, a: WaveState, b: WaveState) -> WaveState:
        for side, other in ((a, b), (b, a)):  # a value that one path lacks is not used from here on
            side.registers = {place: value for place, value in side.registers.items() if place in other.registers}
        return merge(a, b)

    # -- functions and blocks ------------------------------------------------------------------

    def _entry(self, function: Function) -> int:
        if function.name not in self.blocks:
            found = self.blocks[function.name] = {}
            by_name = {block.name: block for block in function.blocks}
            for name in block_order(function):
                found[name] = len(self.code)
                self.code += by_name[name].instructions
                self.within += [name] * len(by_name[name].instructions)
        return self.blocks[function.name][function.blocks[0].name]

    def _function_of(self, pc: int) -> dict[str, int]:
        return next(found for found in reversed(self.blocks.values()) if min(found.values()) <= pc)

    def _set_arguments(self, state: WaveState, function: Function) -> None:
        explicit = self.inputs.info.explicit_arguments
        if len(explicit) != len(function.parameters):
            raise NotModelled("a parameter that the compiled kernel lacks")
        for index, (parameter, argument) in enumerate(zip(function.parameters, explicit, strict=True)):
            type_ = parameter.type
            if parameter.byref is not None:
                bits = self.inputs.kernarg + number(argument.offset, 64)
            else:
                symbol = argument_symbol(index, argument)
                if argument.is_pointer != (type_.kind == "ptr") or symbol.size() < type_.width:
                    raise NotModelled(f"a parameter of type {type_}")
                bits = bits_of(symbol, 0, type_.width)
            self._set(state, parameter.name, floats.without_classes(self.ops, parameter.attributes, known_value(type_, bits)))
            beyond = 8 * argument.size - type_.width
            if parameter.byref is None and beyond and type_.kind == "int":
                self.inputs.lanes.known.append(bits_of(argument_symbol(index, argument), type_.width, beyond) == 0)
            if type_.kind == "ptr" and parameter.align > 1:
                self.heap.align(state, Scalar(type_, bits, z3.BoolVal(False)), parameter.align)

    def _set(self, state: WaveState, name: str, value: SymbolicValue, depth: int | None = None) -> None:
        key = f"{len(state.calls) if depth is None else depth}{name}"
        state.registers[key, 0], state.registers[key, 1] = value.bits, value.poison

    def forbid(self, state: WaveState, condition: Term) -> None:
        """Notes that behaviour is undefined if a condition holds here."""
        if z3.is_false(condition):
            return
        found = every(*state.path, condition)
        self.undefined.append(found)
        self.inputs.lanes.known.append(negation(found))

    # -- operands ------------------------------------------------------------------------------

    def value(self, state: WaveState, operand: Operand) -> SymbolicValue:
        """Returns an operand's value; `undef` is a new unknown value at each use."""
        type_ = operand.type
        if isinstance(operand, IrLocal):
            key = f"{len(state.calls)}{operand.name}"
            found = state.registers.get((key, 0)), state.registers.get((key, 1))
            if found[0] is None or found[1] is None:
                raise NotModelled(f"a value of {type_}" if type_.kind != "other" else str(operand.name))
            return SymbolicValue(type_, *(state.lanes.assume(each, state.path_ids) for each in found))
        if isinstance(operand, Number):
            return known_value(type_, number(operand.value, self._width(type_)))
        if isinstance(operand, Undefined):
            width = self._width(type_)
            if operand.poison:
                return SymbolicValue(type_, number(0, width), number(-1, type_.leaves))
            return known_value(type_, self.unknowns.bits(width))
        if isinstance(operand, Aggregate):
            return compose(type_, [self.value(state, item) for item in operand.items])
        if isinstance(operand, IrSymbol):
            address = self.heap.symbol(operand.name)
            return known_value(type_, address)
        made = self._compute(state, operand)
        if made is None:
            raise NotModelled(f"a constant expression: {operand.op}")
        return made

    @staticmethod
    def _width(type_: IrType) -> int:
        if not type_.width:
            raise NotModelled(f"a value of {type_}")
        return type_.width

    # -- instructions --------------------------------------------------------------------------

    def step(self, state: WaveState, inst: IrInstruction) -> WaveState | None:  # type: ignore[override]
        """Runs an instruction; returns the state after it, or None if no path goes on here."""
        flow = FLOW.get(inst.op)
        if flow is not None:
            return flow(self, state, inst)
        if inst.op == "call":
            return self._call(state, inst)
        made = self._compute(state, inst)
        if made is not None and inst.name:
            self._set(state, inst.name, self._limit(made, inst))
        state.pc += 1
        return state

    def _limit(self, made: SymbolicValue, inst: IrInstruction) -> SymbolicValue:
        """Returns a value, poison outside the range that IR gives for it."""
        if inst.limits is None or made.type.kind != "int":
            return made
        low, high = (number(each, made.type.bits) for each in inst.limits)
        inside = fold(z3.ULT(fold(made.bits - low), fold(high - low)))
        return of_scalars(made.type, [Scalar(made.type, made.bits, some(made.one.poison, negation(inside)))])

    def _compute(self, state: WaveState, inst: IrInstruction) -> SymbolicValue | None:
        if inst.op not in COMPUTED and inst.op not in ELEMENTS:
            raise NotModelled(inst.what or inst.op)
        values = [self.value(state, each) for each in inst.operands]
        if inst.op in ELEMENTS:
            return ELEMENTS[inst.op](inst, values)
        return COMPUTED[inst.op](self, state, inst, values)

    def _loosen(self, inst: IrInstruction) -> None:
        if (inst.flags & floats.LOOSE or "fmuladd" in inst.what) and not self.loose:
            self.loose = inst.text

    # -- arithmetic ----------------------------------------------------------------------------

    def _binary(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        def make(a: Scalar, b: Scalar) -> Scalar:
            result, undefined = integers.binary(inst.op, inst.flags, a, b)
            self.forbid(state, undefined)
            return result

        return each_scalar(inst.type, make, *values)

    def _float_binary(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        self._loosen(inst)
        ops = self.ops

        def make(*given: Scalar) -> Scalar:
            op = "neg" if inst.op == "fneg" else floats.OPERATIONS.get(inst.op)
            if op is None:
                raise NotModelled(inst.op)
            made = floats.arithmetic(ops, op, *given)
            if inst.flags & floats.FUSING:
                made = self.products.sum(ops, op, made, *given)
            return floats.with_flags(ops, inst.flags, made, given[0].type, *given)

        return each_scalar(inst.type, make, *values)

    def _compare(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        type_ = inst.type.scalar
        if inst.op == "icmp":
            return each_scalar(inst.type, lambda a, b: integers.compare(inst.what, inst.flags, type_, a, b), *values)
        self._loosen(inst)  # a selection of zeros may become a minimum
        return each_scalar(inst.type, lambda a, b: floats.compare(self.ops, inst.what, inst.flags, type_, a, b), *values)

    def _cast(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        type_, (value,) = inst.type.scalar, values
        if inst.op == "bitcast":
            return bitcast(inst.type, value)
        if inst.op in ("trunc", "zext", "sext", "ptrtoint", "inttoptr", "ptrtoaddr"):
            return each_scalar(inst.type, lambda a: integers.cast(inst.op, inst.flags, type_, a), value)
        if inst.op == "addrspacecast":
            return each_scalar(inst.type, lambda a: cast_space(a, type_), value)
        return each_scalar(inst.type, lambda a: floats.cast(self.ops, inst.op, inst.flags, type_, a), value)

    def _freeze(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        def make(a: Scalar) -> Scalar:
            bits = a.bits if z3.is_false(a.poison) else choose(a.poison, self.unknowns.fixed_value(a.bits.size()), a.bits)
            return Scalar(a.type, bits, z3.BoolVal(False))

        return each_scalar(inst.type, make, *values)

    def _select(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        condition, yes, no = values
        if inst.flags & floats.LOOSE:
            self._loosen(inst)
        if condition.type.kind == "vector":
            parts = [select(condition.part(at), yes.part(at), no.part(at)) for at in range(condition.type.count)]
            return compose(inst.type, parts)
        return select(condition, yes, no)

    # -- memory --------------------------------------------------------------------------------

    def _pointer(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        """Returns getelementptr's sum. Of its flags only nuw makes poison here."""
        base, *indices = (value.one for value in values)
        size, type_ = base.bits.size(), inst.source
        total, poison = number(0, size), any_poison(base, *indices)
        for at, index in enumerate(indices):
            if at:
                if type_.kind == "struct":
                    step = z3.simplify(index.bits).as_long()
                    total = fold(total + number(type_.offset(step), size))
                    type_ = type_.fields[step]
                    continue
                type_ = type_.element
            have = index.bits.size()
            wide = fold(z3.SignExt(size - have, index.bits)) if have < size else bits_of(index.bits, 0, size)
            step = type_.size if not (at and inst.source.kind == "vector") else type_.store_size
            total = integers.INTEGER["add"](total, fold(wide * step) if step != 1 else wide)
        made = integers.INTEGER["add"](base.bits, total)
        if "nuw" in inst.flags:
            poison = some(poison, fold(z3.ULT(made, base.bits)))
        return of_scalars(inst.type, [Scalar(base.type, made, poison)])

    def _alloca(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        if inst.type.space != 5:
            raise NotModelled("alloca in another address space")
        return known_value(inst.type, self.heap.allocate(inst.source, inst.align))

    def _load(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        pointer = values[0].one
        self.forbid(state, pointer.poison)
        return self.heap.load(state, pointer, inst.type, inst.align)

    def _store(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> None:
        pointer = values[1].one
        self.forbid(state, pointer.poison)
        self.heap.store(state, pointer, values[0], inst.align)

    def _atomic(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        made, undefined = run_atomic(self.heap, state, inst, values)
        self.forbid(state, undefined)
        return made

    # -- control -------------------------------------------------------------------------------

    def _either(self, state: WaveState, inst: IrInstruction) -> WaveState | None:
        if not inst.operands:
            return self._ways(state, [(z3.BoolVal(True), inst.targets[0])])
        test = self.value(state, inst.operands[0]).one
        self.forbid(state, test.poison)
        holds = is_set(test.bits)
        return self._ways(state, [(holds, inst.targets[0]), (negation(holds), inst.targets[1])])

    def _switch(self, state: WaveState, inst: IrInstruction) -> WaveState | None:
        test = self.value(state, inst.operands[0]).one
        self.forbid(state, test.poison)
        same = [fold(test.bits == number(each, test.type.bits)) for each in inst.numbers]
        ways = []
        for target in dict.fromkeys(inst.targets[1:]):
            ways.append((some(z3.BoolVal(False), *(c for c, t in zip(same, inst.targets[1:], strict=True) if t == target)), target))
        rest = every(*map(negation, same))
        found = next((at for at, (_, target) in enumerate(ways) if target == inst.targets[0]), None)
        if found is None:
            ways.append((rest, inst.targets[0]))
        else:
            ways[found] = some(ways[found][0], rest), inst.targets[0]
        return self._ways(state, ways)

    def _ways(self, state: WaveState, ways: list[tuple[Term, str]]) -> WaveState | None:
        """Follows each way that a branch may take."""
        places = self._function_of(state.pc)
        entries = []
        for condition, target in ways:
            simple = z3.simplify(condition)
            condition = simple if z3.is_true(simple) or z3.is_false(simple) else condition
            one = state.fork()
            if one.follow(condition):
                entries.append((places[target] <= state.pc, one, condition, target))
        taken: list[WaveState] = []
        for backward, one, condition, target in sorted(entries, key=lambda entry: entry[0]):
            if backward and not self.goes_on(one, state, condition):
                state.lanes.known.append(z3.Implies(every(*state.path), negation(condition)))
            else:
                taken.append(self._enter(one, target))
        self.pending += taken[1:]
        return taken[0] if taken else None

    def _enter(self, state: WaveState, target: str) -> WaveState:
        """Goes to a block; its phis get their values."""
        origin, pc = self.within[state.pc], self._function_of(state.pc)[target]
        made = []
        while self.code[pc].op == "phi":
            inst = self.code[pc]
            made.append((inst.name, self.value(state, inst.operands[inst.targets.index(origin)])))
            pc += 1
        for name, value in made:
            self._set(state, name, value)
        state.pc = pc
        return state

    def _unreachable(self, state: WaveState, inst: IrInstruction) -> None:
        self.forbid(state, z3.BoolVal(True))

    def _return(self, state: WaveState, inst: IrInstruction) -> WaveState:
        value = self.value(state, inst.operands[0]) if inst.operands else None
        prefix = str(len(state.calls))
        *calls, back = state.calls
        state.registers = {place: each for place, each in state.registers.items() if place[0].partition("%")[0] != prefix}
        state.calls, state.pc = tuple(calls), back
        name = self.code[back - 1].name
        if value is not None and name:
            self._set(state, name, value)
        return state

    def _fence(self, state: WaveState, inst: IrInstruction) -> WaveState:
        state.pc += 1
        return state

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, state: WaveState, inst: IrInstruction) -> WaveState:
        function = self.module.functions.get(inst.what)
        if function is not None and function.blocks:
            return self._enter_function(state, inst, function)
        name = inst.what.removeprefix("@llvm.")
        if not name.startswith(intrinsics.NO_EFFECT):
            values = [self.value(state, each) for each in inst.operands]
            made = self._intrinsic(state, inst, name, values)
            if made is not None and inst.name:
                self._set(state, inst.name, self._limit(made, inst))
        state.pc += 1
        return state

    def _enter_function(self, state: WaveState, inst: IrInstruction, function: Function) -> WaveState:
        if len(state.calls) >= DEEPEST or any(each.byref is not None for each in function.parameters):
            raise NotModelled(f"a call of {function.name}")
        values = [self.value(state, each) for each in inst.operands]
        pc = self._entry(function)
        state.calls = (*state.calls, state.pc + 1)
        for parameter, value in zip(function.parameters, values, strict=True):
            self._set(state, parameter.name, floats.without_classes(self.ops, parameter.attributes, value))
        state.pc = pc
        return state

    def _intrinsic(self, state: WaveState, inst: IrInstruction, name: str, values: list[SymbolicValue]) -> SymbolicValue | None:
        found = next((made for prefix, made in SPECIAL.items() if name.startswith(prefix)), None)
        if found is not None:
            return found(self, state, inst, values)
        if buffers.is_buffer(name):
            made, undefined = buffers.access(self.heap, state, name, inst.type, values)
            self.forbid(state, undefined)
            return made
        read = lanes.cross(state, name, inst.type, values)
        if read is not None:
            return read
        self._loosen(inst)
        made = intrinsics.call(self.ops, name, self.inputs.info, inst, values, self.unknowns.fixed_value)
        if inst.flags & {"nnan", "ninf", "fast"} and inst.type.scalar.kind == "float":
            kinds = [value for value in values if value.type == inst.type]
            made = each_scalar(
                inst.type, lambda a, *given: floats.with_flags(self.ops, inst.flags, a.bits, a.type, *given, a), made, *kinds
            )
        return made

    def _id(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        axis = inst.what[-1]
        if inst.what.startswith("@llvm.amdgcn.workgroup"):
            return known_value(inst.type, group_id(axis))
        return known_value(inst.type, fold(z3.ZeroExt(22, item_id(axis, state.lanes))))

    def _base(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        """Returns the address of arguments, explicit or hidden, or of the dispatch packet."""
        if "dispatch.ptr" in inst.what:
            return known_value(inst.type, self.inputs.dispatch)
        offset = 0
        if "implicitarg" in inst.what:
            hidden = [each.offset for each in self.inputs.info.arguments if each.hidden]
            last = max((each.offset + each.size for each in self.inputs.info.explicit_arguments), default=0)
            offset = min(hidden, default=last + -last % 8)
        return known_value(inst.type, self.inputs.kernarg + number(offset, 64) if offset else self.inputs.kernarg)

    def _barrier(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> None:
        state.memory.barrier(every(*state.path))

    def _resource(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        self.forbid(state, some(*(value.one.poison for value in values)))
        return known_value(inst.type, buffers.resource(values))

    def _in_space(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
        """Returns if a flat pointer is one into LDS or private memory."""
        aperture = APERTURES[3 if inst.what.endswith("shared") else 5]
        inside = fold(bits_of(values[0].bits, 32, 32) == aperture)
        return of_scalars(inst.type, [Scalar(inst.type, flag(inside), values[0].one.poison)])

    def _assume(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> None:
        test = values[0].one
        self.forbid(state, some(test.poison, negation(is_set(test.bits))))

    def _copy(self, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> None:
        target, source, count = (value.one for value in values[:3])
        if not z3.is_bv_value(count.bits):
            raise NotModelled("a copy or fill of a variable size")
        if "memset" in inst.what:
            self.heap.fill(state, target, source, count.bits.as_long())
        else:
            self.heap.copy(state, target, source, count.bits.as_long())


FLOW: dict[str, Callable[..., Any]] = {
    "br": IrRun._either, "switch": IrRun._switch, "ret": IrRun._return, "unreachable": IrRun._unreachable, "fence": IrRun._fence,
    "comment": IrRun._fence,
}  # fmt: skip
COMPUTED: dict[str, Callable[..., SymbolicValue | None]] = {
    **dict.fromkeys(("add", "sub", "mul", "and", "or", "xor", *integers.SHIFTS, *integers.DIVISIONS), IrRun._binary),
    **dict.fromkeys((*floats.OPERATIONS, "frem", "fneg"), IrRun._float_binary), **dict.fromkeys(("icmp", "fcmp"), IrRun._compare),
    **dict.fromkeys(
        ("trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "ptrtoint", "ptrtoaddr", "inttoptr",
         "bitcast", "addrspacecast"), IrRun._cast,
    ),
    "freeze": IrRun._freeze, "select": IrRun._select, "getelementptr": IrRun._pointer, "alloca": IrRun._alloca,
    "load": IrRun._load, "store": IrRun._store, "atomicrmw": IrRun._atomic, "cmpxchg": IrRun._atomic,
}  # fmt: skip
SPECIAL: dict[str, Callable[..., SymbolicValue | None]] = {
    "amdgcn.workitem.id.": IrRun._id, "amdgcn.workgroup.id.": IrRun._id, "amdgcn.dispatch.ptr": IrRun._base,
    "amdgcn.implicitarg.ptr": IrRun._base, "amdgcn.kernarg.segment.ptr": IrRun._base, "amdgcn.s.barrier": IrRun._barrier,
    "assume": IrRun._assume, "memcpy": IrRun._copy, "memmove": IrRun._copy, "memset": IrRun._copy,
    "amdgcn.make.buffer.rsrc": IrRun._resource, "amdgcn.is.shared": IrRun._in_space, "amdgcn.is.private": IrRun._in_space,
}  # fmt: skip
