"""The frame of a handler: `void handler(wave, record)` with access to both, and its ways out.

A handler ends by a tail call to the next record's handler, or returns to the scheduler with a
status. Control transfers count: `entered[target]` and `exited[source]`, from which the executions
of every instruction follow by a prefix sum, so straight-line code pays nothing for its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import intrinsics, layout
from simgpu.machine.jit import compiler, host
from simgpu.machine.layout import LANES, RECORD, ROW, Status
from simgpu.machine.values import I1, I8, I32, I64, Builder, TooMuch, Value

if TYPE_CHECKING:
    from simgpu.machine.hooks import Hooks

PTR = ir.PointerType()
HANDLER = ir.FunctionType(ir.VoidType(), [PTR, PTR])
ROW32 = ir.VectorType(I32, LANES)
MASK = ir.VectorType(I1, LANES)
ALL_LANES = (1 << LANES) - 1
HERE = nullcontext()


def opaque(frame: Frame, pointer: Any) -> Value:
    """A stack slot as a plain pointer (llvmlite's alloca still types it)."""
    return frame.value(frame.build.ptrtoint(pointer, I64)).pointer()


class Frame:
    """One handler under construction.

    hooks: in checked mode, those that follow the wave's ways and accesses; inst: whose handler; dry:
    whether only the undefined bits move (`checks.uninitialized.instrument`), so that counts and whatever else a body
    does besides may be left out; lean: whether the handler leaves for the whole one where there is more to do than usual.
    """

    dry = False
    lean = False
    TYPE = HANDLER

    def __init__(
        self, module: ir.Module, name: str, hooks: Sequence[Hooks] = (), inst: Instruction | None = None
    ) -> None:
        self.hooks = hooks
        self.inst = inst
        self.planned: dict[type, Any] = {}  # what each check planned
        self.counters: set[Any] = set()  # numbers of loops that are known when they are emitted
        self.together = LANES  # of a row's lanes, those that code is emitted for: see `by_groups`
        self.first: Value | None = None  # i64: which of them is the first, where that is not lane 0
        self.ahead: Any = None  # the block ahead of the loop over groups of lanes
        self.module = module
        self.function = ir.Function(module, self.TYPE, name)
        self.function.attributes.add("nounwind")
        self.wave, self.record = self.function.args[:2]
        self.build = Builder(self.function.append_basic_block("entry"))

    # -- memory of the wave and the record -----------------------------------------------------

    def at(self, base: Any, offset: Any) -> Value:
        """Pointer `offset` bytes (int or i32/i64 value) after `base`."""
        return self.value(base).at(offset)

    def load(self, pointer: Any, type_: ir.Type, align: int = 4) -> Value:
        return self.value(pointer).load(type_, align)

    def store(self, value: Any, pointer: Any, align: int = 4) -> None:
        self.value(pointer).store(value, align)

    def slot(self, index: int, type_: ir.Type = I32) -> Value:
        """The record's 32-bit slot `index` (or 64 bits from there); 0 and 1 hold the handler."""
        if index < 2:
            raise UnsupportedInstruction("a constant where only a register can be")
        with self.once():
            return self.at(self.record, 4 * index).load(type_)

    def state(self, offset: int, type_: ir.Type = I32) -> Value:
        """A field of the wave's state."""
        return self.at(self.wave, offset).load(type_, align=min(8, type_.width // 8))

    def set_state(self, offset: int, value: Any) -> None:
        self.at(self.wave, offset).store(value, align=min(8, value.type.width // 8))

    def scalar(self, number: int) -> int:
        """State offset of scalar operand `number`."""
        return layout.SGPR + 4 * number

    def operand(self, slot: int) -> Value:
        """Pointer to the register whose byte offset slot `slot` holds."""
        with self.once():
            return self.at(self.wave, self.slot(slot))

    def context_at(self, offset: int) -> Value:
        """Pointer into the worker's context."""
        return self.state(layout.CONTEXT, I64).pointer().at(offset)

    def context(self, offset: int, type_: ir.Type = I64) -> Value:
        return self.context_at(offset).load(type_, align=8)

    # -- rows ----------------------------------------------------------------------------------

    def exec_bits(self) -> Value:
        with self.once():
            return self.state(self.scalar(126), I64)

    def by_groups(self, size: int, body: Callable[..., Sequence[Any]], state: Sequence[Any] = ()) -> list[Any]:
        """body(*state) in a loop over the 64 lanes, `size` (16 or 32) at a time: meanwhile rows and masks are so many lanes'."""

        def group(first: Value, *carried: Any) -> Sequence[Any]:
            self.together, self.first = size, first
            return body(*carried)

        self.ahead = self.build.append_basic_block("ahead")
        self.build.branch(self.ahead)
        self.build.position_at_end(self.ahead)
        result = self.loop(LANES, group, state, step=size)
        self.together, self.first, self.ahead = LANES, None, None
        return result

    def once(self) -> AbstractContextManager[None]:
        """What is emitted here goes ahead of the loop over groups of lanes, where there is one."""
        if self.ahead is None or self.ahead is self.build.block:
            return HERE
        there: AbstractContextManager[None] = self.build.goto_block(self.ahead)
        return there

    def emitted(self, emit: Callable[[], None], most: int) -> bool:
        """Emit, and keep it, unless it computes vectors of more than `most` bits in all; whether it was kept."""
        block, blocks = self.build.block, len(self.function.blocks)
        before = len(block.instructions)
        self.build.room = most
        try:
            emit()
            return True
        except TooMuch:
            del block.instructions[before:], self.function.blocks[blocks:]
            block.terminator = None
            self.build.position_at_end(block)
            return False
        finally:
            self.build.room = None

    def lanes(self, bits: Any) -> Value:
        """i64 mask to <64 x i1>."""
        if self.first is None:
            return self.build.bitcast(bits, MASK)
        return (self.value(bits) >> self.first).trunc(ir.IntType(self.together)).bitcast(ir.VectorType(I1, self.together))

    def mask(self, lanes: Value) -> Value:
        """<64 x i1> to i64 mask."""
        if self.first is None:
            return lanes.bitcast(I64)
        return lanes.bitcast(ir.IntType(self.together)).zext(I64) << self.first

    def row_at(self, pointer: Any, part: int = 0) -> Value:
        """Pointer to register `part` after the one at `pointer`."""
        row = self.at(pointer, part * ROW)
        return row if self.first is None else row.at(self.first * 4)

    def row(self, pointer: Any, part: int = 0) -> Value:
        """Register `part` after the one at `pointer`, <64 x i32>."""
        return self.row_at(pointer, part).load(ir.VectorType(I32, self.together), align=64)

    def write_row(self, pointer: Any, part: int, value: Any, mask: Any | None) -> None:
        """Store <64 x i32> where the <64 x i1> mask is set (None: everywhere)."""
        target = self.row_at(pointer, part)
        if mask is None:
            target.store(value, align=64)
        elif host().has_wide_masks:
            arguments = [value, target, ir.Constant(I32, 64), mask]
            intrinsics.call(self.build, f"llvm.masked.store.v{self.together}i32.p0", ir.VoidType(), arguments)
        else:
            old = target.load(value.type, align=64)
            target.store(self.build.select(mask, value, old), align=64)

    def read_wide(self, pointer: Any, bits: int) -> Value:
        """A vector operand of 32 or 64 bits a lane, as <64 x i32> or <64 x i64>."""
        low = self.row(pointer)
        if bits <= 32:
            return low
        order = [word for lane in range(self.together) for word in (lane, self.together + lane)]
        return low.shuffled(order, self.row(pointer, 1)).bitcast(ir.VectorType(I64, self.together))

    def write_wide(self, pointer: Any, value: Any, mask: Any | None) -> None:
        """Store <64 x i32> or <64 x i64> into one or two registers."""
        if value.type.element == I32:
            self.write_row(pointer, 0, value, mask)
            return
        value = self.value(value)
        words = value.bitcast(ir.VectorType(I32, 2 * self.together))
        for number in range(2):
            self.write_row(pointer, number, words.shuffled(range(number, words.lanes, 2)), mask)

    def value(self, value: Any) -> Value:
        """llvmlite's own value, such as a constant, with operators."""
        return Value(self.build, value)

    def splat(self, value: Any, lanes: int = LANES) -> Value:
        """A scalar in every lane."""
        return self.value(value).splat(lanes)

    def both(self, first: Any, second: Callable[[], Any]) -> Value:
        """i1: `first` holds, and what `second` emits, which is asked only then."""
        build = self.build
        before = build.block
        with build.if_then(first):
            value, asked = second(), build.block
        result = build.phi(I1)
        result.add_incoming(value, asked)
        result.add_incoming(ir.Constant(I1, 0), before)
        return result

    def chosen(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Value:
        """i1: what one of two emits, which alone is asked."""
        build = self.build
        results = []
        with build.if_else(condition) as (first, second):
            for branch, make in ((first, then), (second, otherwise)):
                with branch:
                    results.append((make(), build.block))
        merged = build.phi(I1)
        for value, block in results:
            merged.add_incoming(value, block)
        return merged

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
        if first is None and isinstance(count, int):
            self.counters.add(number.ir)
        number.add_incoming(ir.Constant(I64, 0) if first is None else first, before)
        carried = [build.phi(value.type) for value in state]
        for phi, value in zip(carried, state, strict=True):
            phi.add_incoming(value, before)
        result = list(body(number, *carried))
        following = number + step
        for phi, value in zip((number, *carried), (following, *result), strict=True):
            phi.add_incoming(value, build.block)
        build.cbranch(following.unsigned < limit, head, after)
        build.position_at_end(after)
        return result

    # -- counting ------------------------------------------------------------------------------

    def count(self, table: int, index: Any, amount: Any) -> None:
        """Add an i64 to entry `index` (i32) of one of the context's tables."""
        entry = self.context(table).pointer().at(self.value(index).zext(I64) * 8)
        entry.store(entry.load(I64, 8) + amount, 8)

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
        done = index - self.state(layout.ENTRY) + 1
        self.set_state(layout.BUDGET, self.state(layout.BUDGET, I64) - done.sext(I64))
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
        distance = (self.value(target) - index).sext(I64) * RECORD
        record = build.gep(self.record, [distance], source_etype=I8)
        if computed:
            self.leave_to_lower(record, target)
        with build.if_then(self.state(layout.BUDGET, I64).signed < 0, likely=False):
            self.exit(Status.YIELD, target)
            build.ret_void()
        self.jump_record(record, computed)

    def leave_to_lower(self, record: Any, index: Any) -> None:
        """Return, to resume at record `index`, where it has no handler: nothing near it was lowered yet (`Program.lower`)."""
        handler = self.build.load(record, align=8, typ=I64)
        with self.build.if_then(handler == 0, likely=False):
            self.exit(Status.LOWER, index)
            self.build.ret_void()

    def exit(self, status: int, resume: Any) -> None:
        """Set the status and where to go on; the caller returns."""
        self.set_state(layout.STATUS, ir.Constant(I32, int(status)))
        self.set_state(layout.RESUME, resume)

    def pause(self, status: int, dwords: int) -> None:
        """Return to the scheduler, to go on with the instruction `dwords` further."""
        index = self.slot(layout.SLOT_INDEX)
        following = index + dwords
        self.leave_run(index)
        self.enter_run(following)
        self.exit(status, following)
        self.build.ret_void()

    def let_others_on(self, dwords: int) -> None:
        """The same where the waves of a workgroup are to keep in step, so that these have their turns."""
        with self.build.if_then(self.context(layout.CTX_IN_STEP) != 0):
            self.pause(Status.WAITS, dwords)

    def ask_for_whole(self) -> None:
        """Return, before the instruction did anything, to resume at it with the handler that serves all cases (`Program`)."""
        self.exit(Status.WHOLE, self.slot(layout.SLOT_INDEX))
        self.leave()

    def stop(self, status: int, index: Any, resume: Any | None = None) -> None:
        """End the run at record `index` and return to the scheduler."""
        self.leave_run(index)
        self.exit(status, index if resume is None else resume)
        self.leave()

    def leave(self) -> None:
        """Return to the scheduler."""
        self.build.ret_void()

    def call(self, key: str, argument: Any) -> None:
        """Have the `Part` of that name do its work with an i64; where it ends the run, so does this."""
        went_on = intrinsics.call(self.build, compiler().name(key), I64, [self.wave, self.record, argument])
        with self.build.if_then(went_on == 0, likely=False):
            self.leave()

    def fault(self, kind: int, address: Any, lane: Any) -> None:
        """Return with a fault of this record."""
        self.set_state(layout.FAULT_KIND, ir.Constant(I32, int(kind)))
        self.set_state(layout.FAULT_ADDRESS, address)
        self.set_state(layout.FAULT_LANE, lane)
        self.stop(Status.FAULT, self.slot(layout.SLOT_INDEX))


class Part(Frame):
    """A part of handlers that is compiled once, for all that call it by name: i64 (wave, record, argument).

    It returns 1, or 0 where it ended the run, as after a fault: the handler then returns, too. `CALLED` of `jit` makes its
    object file.
    """

    TYPE = ir.FunctionType(I64, [PTR, PTR, I64])

    def __init__(self, module: ir.Module, name: str) -> None:
        super().__init__(module, name)
        self.argument = self.value(self.function.args[2])

    def leave(self) -> None:
        self.build.ret(ir.Constant(I64, 0))

    def finish(self) -> None:
        """Return to the handler, which goes on."""
        self.build.ret(ir.Constant(I64, 1))

