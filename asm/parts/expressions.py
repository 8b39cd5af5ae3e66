"""Expressions of leaves (`operators.expressions`) as f32 instructions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.asm.parts.epilogue import LOG2E
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.expressions import NUMPY, Value, operations

MAGNITUDE = 0x7FFFFFFF  # bits of an f32 other than its sign
EXPONENT = 0x7F800000
LN2 = math.log(2)
COMPARING = ("maximum", "minimum", "select")  # operations that overwrite VCC


class Computation:
    """Emits expressions of the same arguments. What several of them have in common is computed once.

    roots: every value that `value` will be asked for, as often as `done` will be called. given: VGPRs of the arguments, by name.
    """

    def __init__(self, k: KernelBuilder, roots: Sequence[Value], given: Mapping[str, Reg]) -> None:
        self.k, self.given = k, given
        self.uses = Counter(operand for one in operations(*roots) for operand in one.operands) + Counter(roots)
        self.known: dict[Value, Reg] = {}
        self.owned: set[Value] = set()

    def value(self, value: Value, into: Reg | None = None) -> Operand:
        """Emits what is not known yet of a value. Returns its register, or a constant.

        into: register of the result if it is an operation that nothing else uses; may be an argument's, if that is not used again.
        """
        if value.op == "constant":
            return value.constant
        if value.op == "argument":
            return self.given[value.name]
        if value not in self.known:
            operands = [self.value(one) for one in value.operands]
            scratch = self.k.v.alloc("value") if value.op in ("divide", "maximum", "minimum", "exp") else None
            target = into
            if target is None:
                target = self.k.v.alloc("value")
                self.owned.add(value)
            self._emit(value.op, target, operands, scratch)
            if scratch is not None:
                self.k.v.free(scratch)
            self.known[value] = target
            for one in value.operands:
                self.done(one)
        return self.known[value]

    def register(self, value: Value, into: Reg) -> None:
        """Emits into = a root, and is done with it."""
        found = self.value(value, into)
        if found != into:
            self.k.v_mov_b32(into, found)
        self.done(value)

    def done(self, value: Value) -> None:
        """Frees a value's register after its last use."""
        self.uses[value] -= 1
        if not self.uses[value] and value in self.owned:
            self.owned.remove(value)
            self.k.v.free(self.known[value])

    def _emit(self, op: str, target: Reg, operands: list[Operand], scratch: Reg | None) -> None:
        """Emits one operation. `target` is written by its last instruction only. Only src0 may be a constant."""
        if len(operands) == 1:
            self._emit_one(op, target, operands[0], scratch)
            return
        if op == "select":
            self._select(target, *operands)
            return
        k, (x, y) = self.k, operands
        if op == "divide":
            self._divide(target, x, y, scratch)
        elif not isinstance(y, Reg) and not isinstance(x, Reg):
            k.v_mov_b32(target, y)
            self._emit(op, target, [x, target], scratch)
        elif op == "subtract" and not isinstance(y, Reg):
            k.v_subrev_f32(target, y, x)
        elif op in ("add", "subtract", "multiply"):
            first, second = (x, y) if isinstance(y, Reg) else (y, x)
            k.emit({"add": "v_add_f32", "subtract": "v_sub_f32", "multiply": "v_mul_f32"}[op], target, first, second)
        else:
            self._choose(op, target, x, y, scratch)

    def _emit_one(self, op: str, target: Reg, x: Operand, scratch: Reg | None) -> None:
        k = self.k
        if op == "absolute":
            k.v_and_b32(target, MAGNITUDE, x) if isinstance(x, Reg) else k.v_mov_b32(target, abs(float(x)))
        elif op == "binade":
            k.v_and_b32(target, EXPONENT, x) if isinstance(x, Reg) else k.v_mov_b32(target, NUMPY[op](float(x)))
        elif op == "exp":
            if not isinstance(x, Reg):
                k.v_mov_b32(target, x)
                x = target
            k.v_exp_f32(target, k.v_mul_f32(scratch, LOG2E, x))
        else:
            k.emit({"sqrt": "v_sqrt_f32", "rsqrt": "v_rsq_f32", "log": "v_log_f32"}[op], target, x)
            if op == "log":
                k.v_mul_f32(target, LN2, target)

    def _divide(self, target: Reg, x: Operand, y: Operand, scratch: Reg | None) -> None:
        k = self.k
        if isinstance(y, Reg):
            k.v_rcp_f32(scratch, y)
        else:
            k.v_mov_b32(scratch, 1 / float(y) if float(y) else float("inf"))
        k.v_mul_f32(target, x, scratch)

    def _select(self, target: Reg, condition: Operand, yes: Operand, no: Operand) -> None:
        """Emits the second value if the condition is larger than 0, else the third. Only the third may be a constant."""
        k, own = self.k, []
        registers = []
        for operand in (condition, yes):
            if not isinstance(operand, Reg):
                own.append(k.v.alloc("constant"))
                k.v_mov_b32(own[-1], operand)
            registers.append(operand if isinstance(operand, Reg) else own[-1])
        k.v_cmp_lt_f32("vcc", 0, registers[0])
        k.v_cndmask_b32(target, no, registers[1], "vcc")
        k.v.free(*own)

    def _choose(self, op: str, target: Reg, x: Operand, y: Operand, scratch: Reg | None) -> None:
        """Emits the maximum or minimum; a NaN stays, which v_max_f32 and v_min_f32 drop."""
        k, name = self.k, {"maximum": "v_max_f32", "minimum": "v_min_f32"}[op]
        assert scratch is not None
        if isinstance(x, Reg) and isinstance(y, Reg):
            other = k.v.alloc("sum with a NaN")
            k.emit(name, scratch, x, y)
            k.v_add_f32(other, x, y)
            k.v_cndmask_b32(target, scratch, other, k.v_cmp_u_f32("vcc", x, y), note="NaN stays")
            k.v.free(other)
            return
        constant, number = (x, y) if isinstance(y, Reg) else (y, x)
        k.emit(name, scratch, constant, number)
        k.v_cndmask_b32(target, scratch, number, k.v_cmp_u_f32("vcc", number, number), note="NaN stays")
