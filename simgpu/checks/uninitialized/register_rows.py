"""What shadows call for a vector register's row and its flag: functions that all handlers share."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.checks.uninitialized import shadow_layout
from simgpu.checks.uninitialized.rules import anywhere
from simgpu.machine import layout
from simgpu.machine.frame import PTR, ROW32
from simgpu.machine.jit import Compiler
from simgpu.machine.lane_ops import I8, I64
from simgpu.machine.layout import LANES, ROW

ROW_FUNCTION = ir.FunctionType(ir.VoidType(), [PTR, PTR])


def _function(module: ir.Module, name: str) -> tuple[Any, ir.IRBuilder, Any]:
    """A function (wave, shadow row): itself, its builder, and the row's flag's address."""
    function = ir.Function(module, ROW_FUNCTION, name)
    function.attributes.add("nounwind")
    build = ir.IRBuilder(function.append_basic_block("entry"))
    wave, row = function.args
    distance = build.sub(build.ptrtoint(row, I64), build.ptrtoint(wave, I64))
    number = build.sub(distance, ir.Constant(I64, shadow_layout.DELTA + layout.VGPR))
    with build.if_then(build.icmp_signed("<", number, ir.Constant(I64, 0)), likely=False):
        build.ret_void()  # a scalar register
    index = build.add(build.lshr(number, ir.Constant(I64, ROW.bit_length() - 1)), ir.Constant(I64, shadow_layout.FLAGS))
    return function, build, build.gep(wave, [index], source_etype=I8)


def _fill(module: ir.Module, name: str) -> None:
    """Writes the row of a wholly undefined register out; its flag becomes MIXED."""
    function, build, flag = _function(module, name)
    state = build.load(flag, align=1, typ=I8)
    with build.if_then(build.icmp_unsigned("==", state, ir.Constant(I8, shadow_layout.UNDEFINED)), likely=False):
        build.store(ir.Constant(ROW32, [0xFFFFFFFF] * LANES), function.args[1], align=64)
        build.store(ir.Constant(I8, shadow_layout.MIXED), flag, align=1)
    build.ret_void()


def _settle(module: ir.Module, name: str) -> None:
    """Sets a row's flag by what the row holds."""
    function, build, flag = _function(module, name)
    mixed = anywhere(build, build.load(function.args[1], align=64, typ=ROW32))
    build.store(build.zext(mixed, I8), flag, align=1)
    build.ret_void()


def addresses(compiler: Compiler) -> dict[int, int]:
    """The functions' addresses, by the context field that handlers find them in."""
    return {
        layout.CTX_FILL_ROW: compiler.address("shadow fill", _fill),
        layout.CTX_SETTLE_ROW: compiler.address("shadow settle", _settle),
    }


def call(build: ir.IRBuilder, wave: Any, field: int, row: Any) -> None:
    """Emit the call for a shadow row."""
    context = build.load(build.gep(wave, [ir.Constant(I64, layout.CONTEXT)], source_etype=I8), align=8, typ=I64)
    place = build.gep(build.inttoptr(context, PTR), [ir.Constant(I64, field)], source_etype=I8)
    function = build.inttoptr(build.load(place, align=8, typ=I64), ROW_FUNCTION.as_pointer())
    build.call(function, [wave, row])
