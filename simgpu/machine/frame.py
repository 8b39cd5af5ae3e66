"""The frame of a handler: `void handler(wave, record)` with access to both, and its ways out.

A handler ends by a tail call to the next record's handler, or returns to the scheduler with a
status. Control transfers count: `entered[target]` and `exited[source]`, from which the executions
of every instruction follow by a prefix sum, so straight-line code pays nothing for its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import intrinsics, layout
from simgpu.machine.jit import host
from simgpu.machine.lane_ops import I1, I8, I32, I64
from simgpu.machine.layout import LANES, RECORD, ROW, Status
from simgpu.machine.values import Builder, Value

if TYPE_CHECKING:
    from simgpu.machine.hooks import Hooks

PTR = ir.PointerType()
HANDLER = ir.FunctionType(ir.VoidType(), [PTR, PTR])
ROW32 = ir.VectorType(I32, LANES)
MASK = ir.VectorType(I1, LANES)
ALL_LANES = (1 << LANES) - 1


def opaque(frame: Frame, pointer: Any) -> Any:
    """A stack slot as a plain pointer (llvmlite's alloca still types it)."""
    build = frame.build
    return build.inttoptr(build.ptrtoint(pointer, I64), PTR)


class Frame:
    """One handler under construction.

    hooks: in checked mode, those that follow the wave's ways and accesses; inst: whose handler; dry:
    whether only the undefined bits move (`checks.uninitialized.instrument`), so that counts and whatever else a body
    does besides may be left out.
    """

    dry = False

    def __init__(
        self, module: ir.Module, name: str, hooks: Sequence[Hooks] = (), inst: Instruction | None = None
    ) -> None:
        self.hooks = hooks
        self.inst = inst
        self.planned: dict[type, Any] = {}  # what each check planned
        self.module = module
        self.function = ir.Function(module, HANDLER, name)
        self.function.attributes.add("nounwind")
        self.wave, self.record = self.function.args
        self.build = Builder(self.function.append_basic_block("entry"))

    # -- memory of the wave and the record -----------------------------------------------------

    def at(self, base: Any, offset: Any) -> Any:
        """Pointer `offset` bytes (int or i32/i64 value) after `base`."""
        if isinstance(offset, int):
            offset = ir.Constant(I64, offset)
        elif offset.type == I32:
            offset = self.build.zext(offset, I64)
        return self.build.gep(base, [offset], inbounds=True, source_etype=I8)

    def load(self, pointer: Any, type_: ir.Type, align: int = 4) -> Any:
        return self.build.load(pointer, align=align, typ=type_)

    def store(self, value: Any, pointer: Any, align: int = 4) -> None:
        self.build.store(value, pointer, align=align)

    def slot(self, index: int, type_: ir.Type = I32) -> Any:
        """The record's 32-bit slot `index` (or 64 bits from there); 0 and 1 hold the handler."""
        if index < 2:
            raise UnsupportedInstruction("a constant where only a register can be")
        return self.load(self.at(self.record, 4 * index), type_)

    def state(self, offset: int, type_: ir.Type = I32) -> Any:
        """A field of the wave's state."""
        return self.load(self.at(self.wave, offset), type_, align=min(8, type_.width // 8))

    def set_state(self, offset: int, value: Any) -> None:
        self.store(value, self.at(self.wave, offset), align=min(8, value.type.width // 8))

    def scalar(self, number: int) -> int:
        """State offset of scalar operand `number`."""
        return layout.SGPR + 4 * number

    def operand(self, slot: int) -> Any:
        """Pointer to the register whose byte offset slot `slot` holds."""
        return self.at(self.wave, self.slot(slot))

    def context_at(self, offset: int) -> Any:
        """Pointer into the worker's context."""
        return self.at(self.build.inttoptr(self.state(layout.CONTEXT, I64), PTR), offset)

    def context(self, offset: int, type_: ir.Type = I64) -> Any:
        return self.load(self.context_at(offset), type_, align=8)

    # -- rows ----------------------------------------------------------------------------------

    def exec_bits(self) -> Any:
        return self.state(self.scalar(126), I64)

    def lanes(self, bits: Any) -> Any:
        """i64 mask to <64 x i1>."""
        return self.build.bitcast(bits, MASK)

    def row(self, pointer: Any, part: int = 0) -> Any:
        """Register `part` after the one at `pointer`, <64 x i32>."""
        return self.load(self.at(pointer, part * ROW), ROW32, align=64)

    def write_row(self, pointer: Any, part: int, value: Any, mask: Any | None) -> None:
        """Store <64 x i32> where the <64 x i1> mask is set (None: everywhere)."""
        target = self.at(pointer, part * ROW)
        if mask is None:
            self.store(value, target, align=64)
        elif host().has_wide_masks:
            arguments = [value, target, ir.Constant(I32, 64), mask]
            intrinsics.call(self.build, "llvm.masked.store.v64i32.p0", ir.VoidType(), arguments)
        else:
            old = self.load(target, ROW32, align=64)
            self.store(self.build.select(mask, value, old), target, align=64)

    def read_wide(self, pointer: Any, bits: int) -> Any:
        """A vector operand of 32 or 64 bits a lane, as <64 x i32> or <64 x i64>."""
        low = self.row(pointer)
        if bits <= 32:
            return low
        wide = ir.VectorType(I64, LANES)
        high = self.build.zext(self.row(pointer, 1), wide)
        shift = ir.Constant(wide, [32] * LANES)
        return self.build.or_(self.build.zext(low, wide), self.build.shl(high, shift))

    def write_wide(self, pointer: Any, value: Any, mask: Any | None) -> None:
        """Store <64 x i32> or <64 x i64> into one or two registers."""
        if value.type.element == I32:
            self.write_row(pointer, 0, value, mask)
            return
        shift = ir.Constant(value.type, [32] * LANES)
        self.write_row(pointer, 0, self.build.trunc(value, ROW32), mask)
        self.write_row(pointer, 1, self.build.trunc(self.build.lshr(value, shift), ROW32), mask)

    def value(self, value: Any) -> Value:
        """llvmlite's own value, such as a constant, with operators."""
        return Value(self.build, value)

    def splat(self, value: Any, lanes: int = LANES) -> Value:
        """A scalar in every lane."""
        return self.value(value).splat(lanes)

    def both(self, first: Any, second: Callable[[], Any]) -> Any:
        """i1: `first` holds, and what `second` emits, which is asked only then."""
        build = self.build
        before = build.block
        with build.if_then(first):
            value, asked = second(), build.block
        result = build.phi(I1)
        result.add_incoming(value, asked)
        result.add_incoming(ir.Constant(I1, 0), before)
        return result

    def loop(
        self, count: Any, body: Callable[..., Sequence[Any]], state: Sequence[Any] = (), first: Any = None, step: int = 1
    ) -> list[Any]:
        """body(number, *state) for numbers (i64) from `first` (0) on while below `count`, once at least; the last state.

        count: an int, or i64.
        """
        build = self.build
        limit = ir.Constant(I64, count) if isinstance(count, int) else count
        before = build.block
        head, after = build.append_basic_block("each"), build.append_basic_block("all")
        build.branch(head)
        build.position_at_end(head)
        number = build.phi(I64)
        number.add_incoming(ir.Constant(I64, 0) if first is None else first, before)
        carried = [build.phi(value.type) for value in state]
        for phi, value in zip(carried, state, strict=True):
            phi.add_incoming(value, before)
        result = list(body(number, *carried))
        following = build.add(number, ir.Constant(I64, step))
        for phi, value in zip((number, *carried), (following, *result), strict=True):
            phi.add_incoming(value, build.block)
        build.cbranch(build.icmp_unsigned("<", following, limit), head, after)
        build.position_at_end(after)
        return result

    # -- counting ------------------------------------------------------------------------------

    def count(self, table: int, index: Any, amount: Any) -> None:
        """Add an i64 to entry `index` (i32) of one of the context's tables."""
        base = self.build.inttoptr(self.context(table), PTR)
        entry = self.at(base, self.build.mul(self.build.zext(index, I64), ir.Constant(I64, 8)))
        self.store(self.build.add(self.load(entry, I64, 8), amount), entry, 8)

    # -- ways out ------------------------------------------------------------------------------

    def next(self, dwords: int) -> None:
        """Go on with the instruction `dwords` further."""
        self.jump_record(self.at(self.record, dwords * RECORD))

    def jump_record(self, record: Any, computed: bool = False) -> None:
        """Go on with a record; `computed`: one that another thread may just have lowered (`Program.lower`)."""
        handler = self.build.load(record, align=8, typ=ir.PointerType(HANDLER))
        if computed:
            self.build.fence("acquire")
        self.build.call(handler, [self.wave, record], tail="musttail")
        self.build.ret_void()

    def leave_run(self, index: Any) -> None:
        """Account for the straight-line run that ends with record `index`."""
        entry = self.state(layout.ENTRY)
        done = self.build.add(self.build.sub(index, entry), ir.Constant(I32, 1))
        budget = self.state(layout.BUDGET, I64)
        self.set_state(layout.BUDGET, self.build.sub(budget, self.build.sext(done, I64)))
        self.count(layout.CTX_EXITED, index, ir.Constant(I64, 1))

    def enter_run(self, index: Any) -> None:
        self.set_state(layout.ENTRY, index)
        self.count(layout.CTX_ENTERED, index, ir.Constant(I64, 1))

    def transfer(self, target: Any, index: Any, computed: bool = False) -> None:
        """Jump from record `index` to record `target` (i32 values), yielding when out of budget."""
        build = self.build
        self.leave_run(index)
        self.enter_run(target)
        for check in self.hooks:
            check.transfer(self, target, index)
        over = build.icmp_signed("<", self.state(layout.BUDGET, I64), ir.Constant(I64, 0))
        with build.if_then(over, likely=False):
            self.exit(Status.YIELD, target)
            build.ret_void()
        distance = build.mul(build.sext(build.sub(target, index), I64), ir.Constant(I64, RECORD))
        self.jump_record(build.gep(self.record, [distance], source_etype=I8), computed)

    def exit(self, status: int, resume: Any) -> None:
        """Set the status and where to go on; the caller returns."""
        self.set_state(layout.STATUS, ir.Constant(I32, int(status)))
        self.set_state(layout.RESUME, resume)

    def stop(self, status: int, index: Any, resume: Any | None = None) -> None:
        """End the run at record `index` and return to the scheduler."""
        self.leave_run(index)
        self.exit(status, index if resume is None else resume)
        self.build.ret_void()

    def fault(self, kind: int, address: Any, lane: Any) -> None:
        """Return with a fault of this record."""
        self.set_state(layout.FAULT_KIND, ir.Constant(I32, int(kind)))
        self.set_state(layout.FAULT_ADDRESS, address)
        self.set_state(layout.FAULT_LANE, lane)
        self.stop(Status.FAULT, self.slot(layout.SLOT_INDEX))

