"""Intrinsics that read other lanes, on paths that all lanes of a wave take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.lane_smt import bits_of, choose, every, fold, negation, number
from simgpu.proof.ir.syntax import IrType
from simgpu.proof.ir.values import SymbolicValue, is_set, known_value
from simgpu.proof.state import WaveState
from simgpu.proof.terms import NotModelled
from simgpu.proof.vector import source_lane

Term = Any


def cross(state: WaveState, name: str, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue | None:
    """Returns the result of an intrinsic that reads other lanes; None if it is another one. Raises NotModelled."""
    made = next((function for prefix, function in CROSSING.items() if name.startswith(prefix)), None)
    if made is None:
        return None
    if any(state.lanes.varies(condition) for condition in state.path):
        raise NotModelled(f"llvm.{name} on a path that some lanes do not take")
    state.lanes.crossed = True
    return made(state, type_, values)


def _there(state: WaveState, value: SymbolicValue, lane: Term) -> SymbolicValue:
    """Returns a value as another lane has it."""
    return SymbolicValue(value.type, state.lanes.at(value.bits, lane), state.lanes.at(value.poison, lane))


def _first(state: WaveState, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue:
    return _there(state, values[0], number(0, 32)) if state.lanes.varies(values[0].bits) else values[0]


def _read(state: WaveState, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue:
    return _there(state, values[0], _uniform(state, values[1]))


def _uniform(state: WaveState, index: SymbolicValue) -> Term:
    if state.lanes.varies(index.bits):
        raise NotModelled("the number of a lane that differs between lanes")
    return fold(index.bits & (WAVEFRONT - 1))


def _write(state: WaveState, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue:
    here = fold(state.lanes.lane == _uniform(state, values[1]))
    return _select_value(here, _first(state, type_, values[:1]), values[2])


def _select_value(condition: Term, yes: SymbolicValue, no: SymbolicValue) -> SymbolicValue:
    return SymbolicValue(no.type, choose(condition, yes.bits, no.bits), choose(condition, yes.poison, no.poison))


def _permute(state: WaveState, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue:
    """Returns ds.bpermute's value: that of the lane whose number times 4 is the first operand."""
    return _there(state, values[1], bits_of(fold(z3.LShR(values[0].bits, 2) & (WAVEFRONT - 1)), 0, 32))


def _ballot(state: WaveState, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue:
    if type_.width != WAVEFRONT or not z3.is_false(is_set(values[0].poison)):
        raise NotModelled("a ballot of other than 64 lanes")
    mask = state.lanes.mask(is_set(values[0].bits))
    return known_value(type_, z3.simplify(state.lanes.started & mask))


def _update(state: WaveState, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue:
    """Returns update.dpp's value, as `VectorInstruction` permutes rows."""
    old, source, *rest = values
    control, rows, banks, bound = (z3.simplify(each.bits).as_long() for each in rest)
    lane = state.lanes.lane
    there, valid = source_lane(control, lane)
    write: list[Term] = [] if bound else [valid]
    for mask, shift in ((rows, 4), (banks, 2)):
        if mask != 15:
            write.append(fold(z3.LShR(number(mask, 32), fold(z3.LShR(lane, shift) & 3)) & 1) == 1)
    zero = known_value(type_, number(0, type_.width))
    made = _select_value(negation(valid), zero, _there(state, source, there))
    return _select_value(every(*write), made, old)


def _move(state: WaveState, type_: IrType, values: list[SymbolicValue]) -> SymbolicValue:
    return _update(state, type_, [known_value(type_, number(0, type_.width)), *values])


CROSSING: dict[str, Callable[[WaveState, IrType, list[SymbolicValue]], SymbolicValue]] = {
    "amdgcn.readfirstlane": _first, "amdgcn.readlane": _read, "amdgcn.writelane": _write, "amdgcn.ds.bpermute": _permute,
    "amdgcn.ballot": _ballot, "amdgcn.update.dpp": _update, "amdgcn.mov.dpp.": _move,
}  # fmt: skip
