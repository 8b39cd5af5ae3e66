"""What checked handlers call where something is undefined: demands on registers, and definitions.

The addresses lie in the worker's context. A demand is the place where undefined bits matter: it
reports the first register with any and counts the bits as defined from there, so that one mistake
is one finding.
"""

from __future__ import annotations

import functools
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from simgpu.checks.uninitialized.shadow_layout import DEFINED, DELTA, FLAGS, MIXED, ORIGINS, REGISTERS, UNDEFINED
from simgpu.engine.scheduler_loop import CALLED, PART, fill, load32, load64, store32
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.jit import stamp
from simgpu.machine.lane_ops import I64

# Bits of a report's `extra` beside the register's byte offset in the wave.
ROLE_SHIFT = 20  # of `shadow_matrix.ROLES`
NEVER = 1 << 24  # nothing wrote the register
PARTIAL = 1 << 25  # others of the operand's bits are defined
ORIGIN_SHIFT = 32  # see shadow_origin
_OFFSET = (1 << ROLE_SHIFT) - 1


@intrinsic
def _report(typing: Any, function: Any, wave: Any, record: Any, code: Any, lanes: Any, bits: Any, extra: Any) -> Any:
    """Call `events.report` by its address."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kinds = [ir.IntType(64)] * 6
        target = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
        builder.call(target, args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


def _byte(store: bool) -> Any:
    """A byte's load or store by address."""

    @intrinsic
    def load8(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
            return builder.zext(builder.load(pointer), ir.IntType(64))

        return types.int64(types.int64), generate

    @intrinsic
    def store8(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
            builder.store(builder.trunc(args[1], ir.IntType(8)), pointer)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return store8 if store else load8


_load8, _store8 = _byte(False), _byte(True)


@numba.njit(**PART)
def _scalar(wave: int, offset: int, bits: int) -> int:
    """The undefined bits of a scalar dword, which are defined from here."""
    place = wave + DELTA + offset
    found = load32(place) & bits & 0xFFFFFFFF
    if found:
        store32(place, 0)
    return found


@numba.njit(**PART)
def _row(wave: int, offset: int, lanes: int, bits: int, masks: int) -> tuple[int, int, int]:
    """Lanes of a vector register with undefined bits that count, the first such lane's, the old flag."""
    flag = wave + FLAGS + (offset - layout.VGPR) // layout.ROW
    state = _load8(flag)
    if state == DEFINED:
        return 0, 0, state
    row = wave + DELTA + offset
    if state == UNDEFINED:
        fill(row, layout.ROW, 0xFF)
        _store8(flag, MIXED)
    found, first, left = 0, 0, 0
    for lane in range(layout.LANES):
        place = row + 4 * lane
        undefined = load32(place) & 0xFFFFFFFF
        wanted = load32(masks + 4 * lane) if masks else bits
        if undefined & wanted and lanes >> lane & 1:
            first = first if found else undefined & wanted
            found |= 1 << lane
            store32(place, 0)
        else:
            left |= undefined
    if left == 0:
        _store8(flag, DEFINED)
    return found, first, state


@numba.njit(**PART)
def _origin(wave: int, offset: int) -> int:
    """The origin of a register's undefined bits."""
    if offset < layout.VGPR:
        return load32(wave + ORIGINS + 4 * REGISTERS + offset)
    return load32(wave + ORIGINS + 4 * ((offset - layout.VGPR) // layout.ROW))


@numba.njit(**PART)
def _demand(wave: int, record: int, code: int, offset: int, registers: int, lanes: int, bits: int, masks: int) -> int:
    """Report undefined bits of `registers` from byte `offset` of the wave (its role above).

    lanes: those that count (vector registers); bits: which bits of each; masks: instead, if not 0,
    address of u32[registers][64]. Returns whether there were any.
    """
    role, partial = offset >> ROLE_SHIFT, 0
    offset &= _OFFSET
    size = 4 if offset < layout.VGPR else layout.ROW
    worst, where, extra, first = 0, 0, 0, 0
    for number in range(registers):
        at = offset + number * size
        if size == 4:
            found, lost, state = 0, _scalar(wave, at, bits), MIXED
        else:
            found, lost, state = _row(wave, at, lanes, bits, masks + 256 * number if masks else 0)
        if lost and not first:
            worst, where, first = found, at, lost
            extra = NEVER if state == UNDEFINED else 0
        if not lost or lost != bits:
            partial = PARTIAL
    if first:
        report = load64(load64(wave + layout.CONTEXT) + layout.CTX_REPORT)
        origin = 0 if extra else _origin(wave, where)
        extra |= where | partial | role << ROLE_SHIFT | origin << ORIGIN_SHIFT
        _report(report, wave, record, code, worst, first, extra)
    return first


@numba.njit(**PART)
def _define(wave: int, offset: int, registers: int) -> None:
    """Count vector registers from byte `offset` of the wave as wholly defined."""
    fill(wave + FLAGS + (offset - layout.VGPR) // layout.ROW, registers, DEFINED)
    fill(wave + DELTA + offset, layout.ROW * registers, 0)


@functools.cache
def entries() -> tuple[Any, Any]:
    """What handlers call: `_demand`, `_define`."""
    current = stamp()

    @numba.cfunc(types.int64(*[types.int64] * 8), **CALLED)
    def at_use(wave: int, record: int, code: int, offset: int, registers: int, lanes: int, bits: int, masks: int) -> int:
        return _demand(wave, record, code, offset, registers, lanes, bits, masks) if current else 0

    @numba.cfunc(types.void(*[types.int64] * 3), **CALLED)
    def at_definition(wave: int, offset: int, registers: int) -> None:
        if current:
            _define(wave, offset, registers)

    return at_use, at_definition


_DEMAND = ir.FunctionType(I64, [I64] * 8)
_DEFINE = ir.FunctionType(ir.VoidType(), [I64] * 3)


def _call(frame: Frame, field: int, kind: ir.FunctionType, arguments: list[Any]) -> Any:
    function = frame.build.inttoptr(frame.context(field), kind.as_pointer())
    values = [value if isinstance(value, ir.Value) else ir.Constant(I64, value) for value in arguments]
    return frame.build.call(function, values)


def address(frame: Frame, pointer: Any) -> Any:
    return frame.build.ptrtoint(pointer, I64)


def demand(
    frame: Frame, record: Any, code: int, offset: Any, registers: int, lanes: Any, bits: int = 0xFFFFFFFF, masks: Any = 0
) -> Any:
    """Emit a demand; offset: i64, the registers' place in the wave, and a role."""
    arguments = [address(frame, frame.wave), record, int(code), offset, registers, lanes, bits, masks]
    return _call(frame, layout.CTX_DEMAND, _DEMAND, arguments)


def define(frame: Frame, offset: Any, registers: int) -> None:
    """Emit the definition of whole vector registers at i64 `offset` of the wave."""
    _call(frame, layout.CTX_DEFINE, _DEFINE, [address(frame, frame.wave), offset, registers])
