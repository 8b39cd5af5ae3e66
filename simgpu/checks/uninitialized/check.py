"""Finds uninitialised registers and memory, and reports them where they matter.

Each bit of registers, LDS and memory has a shadow bit: 1 if it is undefined (`shadow_layout`). An instruction with wholly defined
operands costs only a test of their flags. Any other runs its shadow first (`instrument`): the same computation on the shadow
bits. Undefined bits that reach an address, a branch, EXEC, device memory or a matrix product are findings. Copies, spills and
arithmetic are not.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from simgpu.alu.valu_sources import SourcePlaces
from simgpu.checks.uninitialized import (
    fast_path,
    findings,  # noqa: F401  (registers what its events mean)
    first_written,
    flags,
    initial_state,
    matrix,
    origins,
    runtime,
    shadow_layout,
    smearing,
    whole_wave,
)
from simgpu.checks.uninitialized.flags import SPECIAL, STATES, any_undefined, registers_of, undefined_state, wholly_undefined
from simgpu.checks.uninitialized.instrument import DryFrame, instrument
from simgpu.checks.uninitialized.origins import OperandStates
from simgpu.checks.uninitialized.runtime import UndefinedUse
from simgpu.engine.check import Check
from simgpu.engine.events import report
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import GPR_INDEXING, STATE_BRANCHES, ControlKind, Flag
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.values import I1, I32, I64
from simgpu.machine.wave_frame import ROW32

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

ALL_BITS = 0xFFFFFFFF
# Bits of M0 that count: distance and operands in VGPR indexing; bits that control instructions use.
INDEX_BITS = 0xF0FF
M0_BITS = {
    ControlKind.MOVRELS: ALL_BITS, ControlKind.MOVRELD: ALL_BITS, ControlKind.APPEND: 0xFFFF, ControlKind.CONSUME: 0xFFFF,
}  # fmt: skip
# A wholly undefined source makes the whole result of these undefined.
ABSORBING = re.compile("v_(add|sub|subrev|mul|mac|mad|fma|fmac|fmamk|fmaak|madmk|madak)_(f32|f64)|v_mov_b32")
# Operands of memory instructions that make up an address, and registers that a load writes.
ADDRESS_FIELDS = ("vaddr", "saddr", "srsrc", "soffset", "sbase", "addr")
LOADED_FIELDS = ("vdst", "sdst", "vdata")


# Control instructions that read or write registers.
CONTROL = frozenset((
    ControlKind.CBRANCH_SCC0, ControlKind.CBRANCH_SCC1, ControlKind.CBRANCH_VCCZ, ControlKind.CBRANCH_VCCNZ, ControlKind.SETPC,
    ControlKind.SWAPPC, ControlKind.GETPC, ControlKind.CALL, ControlKind.GETREG, ControlKind.SETREG, ControlKind.MOVRELS,
    ControlKind.MOVRELD, *GPR_INDEXING, ControlKind.APPEND, ControlKind.CONSUME,
))  # fmt: skip


@dataclass(frozen=True)
class PlannedHooks:
    """Facts that the hooks use about an instruction; see `Plan`."""

    places: tuple[OperandPlace, ...]  # all operands
    operands: Any  # the same, as the instruction's emitter has them
    indexed: bool  # True if M0 may choose other vector registers


class Uninitialized(Check):
    """Tracks the definedness of registers, LDS, private and device memory."""

    undefined = True
    tiles = True
    wave_bytes = shadow_layout.SHADOW_BYTES

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.kind != "control" or inst.spec.control in CONTROL

    def plan(self, inst: Instruction, plan: Plan) -> PlannedHooks:
        indexed = plan.indexed and inst.spec.encoding.startswith("vop")  # s_set_gpr_idx_on is for vector operands
        return PlannedHooks(tuple(plan.places), plan.operands, indexed)

    def leans(self, inst: Instruction, planned: PlannedHooks) -> bool:
        spec = inst.spec
        arithmetic = spec.kind not in ("matrix", "control") and spec.memory is None
        return arithmetic and not planned.indexed and flags.may_be_undefined(inst, planned.places)

    def before(self, frame: Frame, inst: Instruction, planned: PlannedHooks) -> None:
        spec = inst.spec
        if spec.kind == "matrix":
            matrix.emit(frame, inst, planned.operands)
        elif spec.kind == "control":
            _control(frame, inst, planned)
        elif spec.memory is not None:
            _memory(frame, inst, planned)
        else:
            _arithmetic(frame, inst, planned)

    def passes_tile(self, frame: Frame, table: Any) -> Any:
        return matrix.is_tile_defined(frame, table)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        initial_state.prepare(launch, worker)


def guard(frame: Frame, inst: Instruction, planned: PlannedHooks) -> Any | None:
    """Returns i1: true if any operand, source or result, may be undefined. Returns None if all are constants."""
    tests = [any_undefined(frame, place) for place in planned.places]
    tests += [undefined_state(frame, *STATES[name]) for name in flags.states_of(inst)]
    result = None
    for test in tests:
        if test is not None:
            result = test if result is None else frame.build.or_(result, test)
    return result


# -- the slow path --------------------------------------------------------------------------------


def propagate(frame: Frame, planned: PlannedHooks, moves: bool = False) -> None:
    """Emits a call of the instruction's shadow. moves: see `instrument`."""
    dry = DryFrame(frame.module, f"{frame.function.name}_shadow")
    dry.function.linkage = "internal"
    dry.function.attributes.add("noinline")
    dry.lean = frame.lean
    assert frame.body is not None
    frame.body(dry)
    if not dry.build.block.is_terminated:
        dry.build.ret_void()
    instrument(dry, moves)
    frame.build.call(dry.function, [frame.wave, frame.record])


def operands_of(inst: Instruction, planned: PlannedHooks) -> OperandStates:
    """Returns the operands and state that an arithmetic instruction reads and writes."""
    if isinstance(planned.operands, SourcePlaces):
        sources, results = planned.operands.sources, [*planned.operands.result]
        if planned.operands.sdst is not None:
            results.append(planned.operands.sdst)
    elif isinstance(planned.operands, tuple):
        sources, results = planned.operands
    else:
        sources, results = {}, []
    return OperandStates(
        list(sources.values()), results, sorted(flags.states_read(inst)), sorted(flags.states_written(inst))
    )


def _arithmetic(frame: Frame, inst: Instruction, planned: PlannedHooks) -> None:
    test = guard(frame, inst, planned)
    if test is None:
        return
    if planned.indexed:  # M0 chooses the registers: the named operands' flags are not theirs
        _demand_state(frame, UndefinedUse.ADDRESS, "m0", INDEX_BITS)
        propagate(frame, planned)
        _settle_exec(frame, ir.Constant(I32, 0))
        return
    with frame.build.if_then(test, likely=False):
        if frame.lean:
            frame.call_aside(lambda part: _handle_undefined(part, inst, planned))
        else:
            _handle_undefined(frame, inst, planned)


def _handle_undefined(frame: Frame, inst: Instruction, planned: PlannedHooks) -> None:
    """Emits what happens if an operand of arithmetic may be undefined."""
    build = frame.build
    with contextlib.ExitStack() as stack:
        if absorbs(inst):
            stack.enter_context(build.if_then(build.not_(is_absorbed(frame, planned.operands))))
        if lanewise(inst):
            stack.enter_context(build.if_then(build.not_(quiet(frame, inst, planned))))
        if frame.lean:
            first_written.emit(frame, inst, operands_of(inst, planned))
        else:
            _settle_exec(frame, _slowly(frame, inst, planned))


def _slowly(frame: Frame, inst: Instruction, planned: PlannedHooks) -> Any:
    """Runs the shadow. Returns the origin of the results' undefined bits."""
    operands = operands_of(inst, planned)
    origin = origins.pick_origin(frame, operands)
    if smearing.smears(inst):
        smearing.emit(frame, planned.operands)
    else:
        propagate(frame, planned)
    origins.store(frame, operands, origin)
    return origin


def absorbs(inst: Instruction) -> bool:
    return bool(ABSORBING.fullmatch(inst.mnemonic)) and inst.form in ("e32", "e64")


def is_absorbed(frame: Frame, places: SourcePlaces) -> Any:
    """Returns i1: true if a source is wholly undefined and the result is already, so that the result's shadow stays the same."""
    build = frame.build
    source = ir.Constant(I1, 0)
    for place in places.sources.values():
        if place.kind == "row":
            source = build.or_(source, wholly_undefined(frame, place))
    return build.and_(source, wholly_undefined(frame, places.result[0]))


def lanewise(inst: Instruction) -> bool:
    """True if each active lane's results depend only on that lane."""
    spec = inst.spec
    vector = spec.encoding.startswith("vop") and spec.kind == "lane"
    return vector and inst.form != "dpp" and Flag.IGNORE_EXEC not in spec.flags


def quiet(frame: Frame, inst: Instruction, planned: PlannedHooks) -> Any:
    """Returns i1: true if undefined bits are only in inactive lanes, of registers that were written. The shadow changes nothing
    then."""
    build = frame.build
    unknown, rows = ir.Constant(I1, 0), ir.Constant(ROW32, None)
    for name in flags.states_of(inst):
        unknown = build.or_(unknown, undefined_state(frame, *STATES[name]))
    for place in planned.places:
        if place.kind == "row":
            unknown = build.or_(unknown, flags.never_written(frame, place))
            shadow = frame.at(frame.at(frame.wave, shadow_layout.DELTA), frame.slot(place.slot))
            for number in range(registers_of(place)):
                rows = build.or_(rows, frame.row(shadow, number))
        else:
            test = any_undefined(frame, place)
            unknown = unknown if test is None else build.or_(unknown, test)
    lanes = build.bitcast(build.icmp_unsigned("!=", rows, ir.Constant(ROW32, None)), I64)
    idle = build.icmp_unsigned("==", build.and_(lanes, frame.exec_bits()), ir.Constant(I64, 0))
    return build.and_(idle, build.not_(unknown))


def _settle_exec(frame: Frame, origin: Any) -> None:
    """Reports undefined bits of EXEC at once, because EXEC affects every later instruction."""
    build = frame.build
    place = frame.at(frame.wave, shadow_layout.DELTA + 4 * isa.EXEC)
    lanes = frame.load(place, I64)
    with build.if_then(build.icmp_unsigned("!=", lanes, ir.Constant(I64, 0)), likely=False):
        shifted = build.shl(build.zext(origin, I64), ir.Constant(I64, runtime.ORIGIN_SHIFT))
        report(frame, UndefinedUse.EXEC, lanes, 0, build.or_(shifted, ir.Constant(I64, 4 * isa.EXEC)))
        frame.store(ir.Constant(I64, 0), place)


# -- demands --------------------------------------------------------------------------------------


def _demand(frame: Frame, event: int, offset: Any, registers: int, lanes: Any = 0, bits: int = ALL_BITS) -> Any:
    index = frame.build.zext(frame.slot(layout.SLOT_INDEX), I64)
    return runtime.demand(frame, index, event, offset, registers, lanes, bits)


def _demand_place(frame: Frame, event: int, place: OperandPlace) -> None:
    """Reports undefined bits of an operand in active lanes."""
    if place.kind in SPECIAL:
        _demand_state(frame, event, SPECIAL[place.kind])
        return
    test = any_undefined(frame, place)
    if test is None:
        return
    with frame.build.if_then(test, likely=False):
        offset = frame.build.zext(frame.slot(place.slot), I64)
        _demand(frame, event, offset, registers_of(place), frame.exec_bits())


def _demand_state(frame: Frame, event: int, name: str, bits: int = ALL_BITS) -> None:
    offset, type_ = STATES[name]
    with frame.build.if_then(undefined_state(frame, offset, type_), likely=False):
        _demand(frame, event, ir.Constant(I64, offset), type_.width // 32, bits=bits)


def _memory(frame: Frame, inst: Instruction, planned: PlannedHooks) -> None:
    memory = inst.spec.memory
    assert memory is not None
    places: dict[str, OperandPlace] = planned.operands
    for name in ADDRESS_FIELDS:
        if name in places:
            _demand_place(frame, UndefinedUse.ADDRESS, places[name])
    for name in sorted(flags.states_read(inst)):
        _demand_state(frame, UndefinedUse.ADDRESS, name, 0xFFFF if memory.space == "ds" else ALL_BITS)
    if memory.space == "scratch" and inst.spec.encoding != "smem":
        offset = 4 * isa.FLAT_SCRATCH
        with frame.build.if_then(undefined_state(frame, offset, I64), likely=False):
            _demand(frame, UndefinedUse.ADDRESS, ir.Constant(I64, offset), 2)
    if whole_wave.LDSMove.serves(inst, places):
        straight = whole_wave.LDSMove(frame, inst, places)
        with frame.build.if_else(straight.is_whole()) as (whole, apart):
            with whole:
                straight.run(lambda place: _check_loaded(frame, place))
            with apart:
                _move(frame, inst, planned)
        return
    idle = fast_path.needless(frame, inst, places)
    if idle is None:
        _move(frame, inst, planned)
        return
    with frame.build.if_then(frame.build.not_(idle), likely=False):
        _move(frame, inst, planned)


def _move(frame: Frame, inst: Instruction, planned: PlannedHooks) -> None:
    """Runs the shadow of a load, store or atomic, and reports undefined bits that it stored to device memory."""
    memory = inst.spec.memory
    assert memory is not None
    places: dict[str, OperandPlace] = planned.operands
    stores = memory.op != "load" and memory.space != "ds"
    noted = frame.at(frame.wave, shadow_layout.STORED)
    if stores:
        frame.store(ir.Constant(I32, 0), noted)
    propagate(frame, planned, moves=memory.op != "atomic" and not memory.format)
    if stores:
        with frame.build.if_then(flags.nonzero(frame, noted, I32, 4), likely=False):
            _check_stored(frame, inst, places)
    for name in LOADED_FIELDS if memory.op != "store" else ():
        if name in places:
            _check_loaded(frame, places[name])


def _check_loaded(frame: Frame, place: OperandPlace) -> None:
    """Makes this load the origin of a loaded register if the register has undefined bits in active lanes."""
    build = frame.build
    with build.if_then(any_undefined(frame, place), likely=False):
        fresh: Any = ir.Constant(I1, 1)
        if place.kind == "row":
            shadow = frame.at(frame.at(frame.wave, shadow_layout.DELTA), frame.slot(place.slot))
            rows = frame.row(shadow)
            for number in range(1, registers_of(place)):
                rows = build.or_(rows, frame.row(shadow, number))
            lanes = build.bitcast(build.icmp_unsigned("!=", rows, ir.Constant(rows.type, None)), I64)
            fresh = build.icmp_unsigned("!=", build.and_(lanes, frame.exec_bits()), ir.Constant(I64, 0))
        with build.if_then(fresh):
            origins.store(frame, OperandStates((), (place,), (), ()), origins.own_origin(frame))


def _check_stored(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
    """Reports undefined bits that reached device memory: from the data registers, or an atomic's old value."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    field = "vdata" if "vdata" in places else "sdst"
    bits = ALL_BITS
    if field == "vdata" and memory.op == "store" and memory.bits < 32 and not memory.format:
        bits = ((1 << memory.bits) - 1) << (16 if memory.d16 == "hi" else 0)
    found = ir.Constant(I64, 0)
    if field in places:
        place = places[field]
        offset = build.zext(frame.slot(place.slot), I64)
        found = _demand(frame, UndefinedUse.STORE, offset, registers_of(place), frame.exec_bits(), bits)
    with build.if_then(build.icmp_unsigned("==", found, ir.Constant(I64, 0))):
        report(frame, UndefinedUse.MEMORY, frame.exec_bits(), 0, 0)


def _control(frame: Frame, inst: Instruction, planned: PlannedHooks) -> None:
    control = inst.spec.control
    tested, _ = STATE_BRANCHES.get(control, ("", False))
    if tested == "scc":
        _demand_state(frame, UndefinedUse.BRANCH, "scc")
    elif tested == "vcc":
        _vcc_branch(frame)
    elif planned.places or control in (ControlKind.APPEND, ControlKind.CONSUME):
        if control in M0_BITS:
            _demand_state(frame, UndefinedUse.ADDRESS, "m0", M0_BITS[control])
        if control in (ControlKind.SETPC, ControlKind.SWAPPC):
            source = planned.places[0]
            with frame.build.if_then(any_undefined(frame, source), likely=False):
                _demand(frame, UndefinedUse.BRANCH, frame.build.zext(frame.slot(source.slot), I64), 2)
        test = guard(frame, inst, planned)
        if control in (ControlKind.APPEND, ControlKind.CONSUME):
            propagate(frame, planned)
        elif test is not None:
            with frame.build.if_then(test, likely=False):
                propagate(frame, planned)
                _settle_exec(frame, ir.Constant(I32, 0))


def _vcc_branch(frame: Frame) -> None:
    """Reports a branch that depends on undefined bits of VCC. If a defined bit is 1, VCC is not zero whatever they are."""
    build = frame.build
    place = frame.at(frame.wave, shadow_layout.DELTA + 4 * isa.VCC)
    bits = frame.load(place, I64)
    known = build.and_(frame.state(4 * isa.VCC, I64), build.not_(bits))
    some, none = (build.icmp_unsigned(op, value, ir.Constant(I64, 0)) for op, value in (("!=", bits), ("==", known)))
    with build.if_then(build.and_(some, none), likely=False):
        _demand(frame, UndefinedUse.BRANCH, ir.Constant(I64, 4 * isa.VCC), 2)
