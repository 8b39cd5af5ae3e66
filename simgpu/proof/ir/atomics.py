"""Atomic operations of IR by the names of the machine's instructions."""

from __future__ import annotations

from typing import Any

from simgpu.hardware.isa.lane_smt import bits_of, concat, every, fold, some
from simgpu.proof.ir.memory import IrHeap
from simgpu.proof.ir.syntax import BOOL, IrInstruction, IrType
from simgpu.proof.ir.values import SymbolicValue, compose, flag, known_value
from simgpu.proof.state import WaveState
from simgpu.proof.terms import NotModelled

Term = Any
# Names of global and flat instructions, after `atomic_`, and of LDS instructions without their width.
WHOLE = {
    "add": ("add", "add_u"), "sub": ("sub", "sub_u"), "and": ("and", "and_b"), "or": ("or", "or_b"), "xor": ("xor", "xor_b"),
    "max": ("smax", "max_i"), "min": ("smin", "min_i"), "umax": ("umax", "max_u"), "umin": ("umin", "min_u"),
    "xchg": ("swap", "wrxchg_b"), "uinc_wrap": ("inc", "inc_u"), "udec_wrap": ("dec", "dec_u"), "cmpxchg": ("cmpswap", "cmpst_b"),
}  # fmt: skip
FLOATS = {"fadd": "add", "fmax": "max", "fmin": "min"}
KINDS = {"float": "f32", "double": "f64", "<2 x half>": "pk_f16", "<2 x bfloat>": "pk_bf16"}


def operation(what: str, type_: IrType, space: int) -> str:
    """Returns an operation's name. Raises NotModelled.

    >>> operation("umax", IrType("int", 64), 1), operation("fadd", IrType("float", 32, "float"), 3)
    ('umax_x2', 'ds_add_f32')
    """
    if space in (0, 1) and what in WHOLE and type_.width in (32, 64):
        return WHOLE[what][0] + ("_x2" if type_.width == 64 else "")
    if space == 3 and what in WHOLE and type_.width in (32, 64):
        return f"ds_{WHOLE[what][1]}{type_.width}"
    if space in (0, 1, 3) and what in FLOATS and str(type_) in KINDS:
        packed, _, kind = KINDS[str(type_)].rpartition("_")
        return f"{'ds_' if space == 3 else ''}{packed and 'pk_'}{FLOATS[what]}_{kind}"
    raise NotModelled(f"atomicrmw {what} of {type_} in address space {space}")


def run_atomic(heap: IrHeap, state: WaveState, inst: IrInstruction, values: list[SymbolicValue]) -> tuple[SymbolicValue, Term]:
    """Does atomicrmw or cmpxchg; returns its result, and the condition that its behaviour is undefined."""
    pointer, operand = values[0].one, values[1]
    space, type_ = pointer.type.space, operand.type
    name = operation(inst.what, type_, space)
    data: tuple[Term, ...] = tuple(value.bits for value in values[1:])
    if inst.what == "cmpxchg" and space != 3:
        data = (concat(*reversed(data)),)  # the new value in the low half
    old = bits_of(state.memory.atomic(name, heap.place(state, pointer), data, every(*state.path), 0), 0, type_.width)
    undefined = some(pointer.poison, *(each.poison for value in values[1:] for each in value.scalars))
    if inst.what != "cmpxchg":
        return known_value(type_, old), undefined
    return compose(inst.type, [known_value(type_, old), known_value(BOOL, flag(fold(old == operand.bits)))]), undefined
