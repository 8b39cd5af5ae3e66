"""Emits a function of a wave and a record: access to both, rows of registers, loops over lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.machine import intrinsics, layout
from simgpu.machine.host import host
from simgpu.machine.layout import GROUP, LANES, ROW
from simgpu.machine.values import I1, I32, I64, Builder, IrValue, TooMuch

PTR = ir.PointerType()
HANDLER = ir.FunctionType(ir.VoidType(), [PTR, PTR])
ROW32 = ir.VectorType(I32, LANES)
MASK = ir.VectorType(I1, LANES)
WORD = 32  # bits of a mask that are converted together
ALL_LANES = (1 << LANES) - 1
# Lanes of 64-bit values in registers of 256 bits that UNPCKLPS and UNPCKHPS make of two rows. They take two dwords of each 128
# bits; the plain order costs two more instructions. The order is its own inverse.
HOST_ORDER = (0, 1, 4, 5, 2, 3, 6, 7)
HERE = nullcontext()


def opaque(frame: WaveFrame, pointer: Any) -> IrValue:
    """Returns a stack slot as a plain pointer (llvmlite's alloca has a typed one)."""
    return frame.value(frame.build.ptrtoint(pointer, I64)).pointer()


class WaveFrame:
    """A function under construction. wave, record: its two arguments, pointers; build: the builder at its current position."""

    TYPE = HANDLER

    def __init__(self, module: ir.Module, name: str) -> None:
        self.counters: set[Any] = set()  # numbers of loops whose count is known when they are emitted
        self.together = LANES  # lanes of a row that code is emitted for: see `by_groups`
        self.first: IrValue | None = None  # i64: the first of these lanes, if that is not lane 0
        self.ahead: Any = None  # the block before the loop over groups of lanes
        self.in_host_order = False  # True if the lanes of rows are in `HOST_ORDER` between their loads and their stores
        self.module = module
        self.function = ir.Function(module, self.TYPE, name)
        self.function.attributes.add("nounwind")
        self.wave, self.record = self.function.args[:2]
        self.build = Builder(self.function.append_basic_block("entry"))

    # -- memory of the wave and the record -----------------------------------------------------

    def at(self, base: Any, offset: Any) -> IrValue:
        """Returns the pointer `offset` bytes (int or i32/i64 value) after `base`."""
        return self.value(base).at(offset)

    def load(self, pointer: Any, type_: ir.Type, align: int = 4) -> IrValue:
        return self.value(pointer).load(type_, align)

    def store(self, value: Any, pointer: Any, align: int = 4) -> None:
        self.value(pointer).store(value, align)

    def slot(self, index: int, type_: ir.Type = I32) -> IrValue:
        """Loads the record's 32-bit slot `index` (or 64 bits from there); 0 and 1 hold the handler."""
        if index < 2:
            raise UnsupportedInstruction("a constant where only a register can be")
        with self.hoist():
            return self.at(self.record, 4 * index).load(type_)

    def state(self, offset: int, type_: ir.Type = I32) -> IrValue:
        """Loads a field of the wave's state."""
        return self.at(self.wave, offset).load(type_, align=min(8, type_.width // 8))

    def set_state(self, offset: int, value: Any) -> None:
        self.at(self.wave, offset).store(value, align=min(8, value.type.width // 8))

    def scalar(self, number: int) -> int:
        """Returns the offset in the wave's state of scalar operand `number`, in bytes."""
        return layout.SGPR + 4 * number

    def operand(self, slot: int) -> IrValue:
        """Returns a pointer to the register whose byte offset slot `slot` holds."""
        with self.hoist():
            return self.at(self.wave, self.slot(slot))

    def context_at(self, offset: int) -> IrValue:
        """Returns a pointer into the worker's context."""
        return self.state(layout.CONTEXT, I64).pointer().at(offset)

    def context(self, offset: int, type_: ir.Type = I64) -> IrValue:
        return self.context_at(offset).load(type_, align=8)

    # -- rows ----------------------------------------------------------------------------------

    def exec_bits(self) -> IrValue:
        with self.hoist():
            return self.state(self.scalar(126), I64)

    def by_groups(self, body: Callable[..., Sequence[Any] | None], state: Sequence[Any] = ()) -> list[Any]:
        """Emits a loop over the 64 lanes, 16 at a time: body(*state). Its rows have 16 lanes. Returns the last state."""

        def group(first: IrValue, *carried: Any) -> Sequence[Any]:
            self.together, self.first = GROUP, first
            return body(*carried) or ()

        self.ahead = self.build.append_basic_block("ahead")
        self.build.branch(self.ahead)
        self.build.position_at_end(self.ahead)
        result = self.loop(LANES, group, state, step=GROUP)
        self.together, self.first, self.ahead = LANES, None, None
        return result

    def mask_by_groups(self, condition: Callable[[], IrValue]) -> IrValue:
        """Returns the mask (i64) of the lanes for which `condition` emits true, an i1 a lane; see `by_groups`."""
        (mask,) = self.by_groups(lambda others: [others | self.mask(condition())], [self.value(ir.Constant(I64, 0))])
        return self.value(mask)

    def hoist(self) -> AbstractContextManager[None]:
        """Emits the block's code before the loop over groups of lanes, if there is one."""
        if self.ahead is None or self.ahead is self.build.block:
            return HERE
        there: AbstractContextManager[None] = self.build.goto_block(self.ahead)
        return there

    def try_emit(self, emit: Callable[[], None], most: int) -> bool:
        """Emits code; removes it and returns False if its vector results have more than `most` bits in all."""
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

    def lanes(self, bits: Any) -> IrValue:
        """Converts an i64 mask to <64 x i1>. Without AVX-512, LLVM would convert some masks bit by bit; it compares words well."""
        if self.first is not None:
            bits = (self.value(bits) >> self.first).trunc(ir.IntType(self.together))
        if host().has_wide_masks:
            return self.value(bits).bitcast(ir.VectorType(I1, self.together))
        value = self.value(bits)
        words = value.zext(I32).splat(self.together) if self.together < WORD else self._words(value)
        one = ir.Constant(words.type, [1 << lane % WORD for lane in range(self.together)])
        return (words & one) == one

    def _words(self, bits: IrValue) -> IrValue:
        """Returns in each lane the 32 bits of a mask that have the lane's bit."""
        words = bits.type.width // WORD
        return bits.bitcast(ir.VectorType(I32, words)).shuffle([lane // WORD for lane in range(bits.type.width)])

    def mask(self, lanes: IrValue) -> IrValue:
        """Converts <64 x i1> to an i64 mask."""
        if self.in_host_order:
            lanes = self.rows_of(lanes.sext(I64))[0].signed < 0
        if self.first is None:
            return lanes.bitcast(I64)
        return lanes.bitcast(ir.IntType(self.together)).zext(I64) << self.first

    def row_at(self, pointer: Any, part: int = 0) -> IrValue:
        """Returns a pointer to register `part` after the one at `pointer`."""
        return self.at_lanes(self.at(pointer, part * ROW), 4)

    def at_lanes(self, pointer: IrValue, lane_bytes: int) -> IrValue:
        """Returns the pointer to the first lane that code is emitted for, from that to lane 0."""
        return pointer if self.first is None else pointer.at(self.first * lane_bytes)

    def row(self, pointer: Any, part: int = 0) -> IrValue:
        """Loads register `part` after the one at `pointer`, <64 x i32>."""
        return self.row_at(pointer, part).load(ir.VectorType(I32, self.together), align=64)

    def write_row(self, pointer: Any, part: int, value: Any, mask: Any | None) -> None:
        """Stores <64 x i32> in lanes whose <64 x i1> mask is set (None: in all)."""
        target = self.row_at(pointer, part)
        if mask is None:
            target.store(value, align=64)
        elif host().has_wide_masks:
            arguments = [value, target, ir.Constant(I32, 64), mask]
            intrinsics.call(self.build, f"llvm.masked.store.v{self.together}i32.p0", ir.VoidType(), arguments)
        else:
            target.store(self._blend(target, value, mask), align=64)

    def _blend(self, target: IrValue, value: Any, mask: Any) -> Any:
        """Returns the value in lanes of a mask, and in the others what is at a pointer."""
        # Volatile, or LLVM makes masked stores, which take 12 clocks each on AMD's CPUs before Zen 4 [uops.info, VPMASKMOVD].
        return self.build.select(mask, value, target.load_volatile(value.type, align=64))

    def read_wide(self, pointer: Any, bits: int) -> IrValue:
        """Loads a vector operand of 32 or 64 bits a lane, as <64 x i32> or <64 x i64>."""
        low = self.row(pointer)
        if bits <= 32:
            return low.shuffle(self._lane_order()) if self.in_host_order else low
        words = [word for lane in self._lane_order() for word in (lane, self.together + lane)]
        return low.shuffle(words, self.row(pointer, 1)).bitcast(ir.VectorType(I64, self.together))

    def _lane_order(self) -> Sequence[int]:
        if not self.in_host_order:
            return range(self.together)
        return [first + lane for first in range(0, self.together, len(HOST_ORDER)) for lane in HOST_ORDER]

    def write_active(self, pointer: Any, part: int, value: Any, lanes: IrValue) -> None:
        """Stores <64 x i32> in the lanes of an i64 mask that usually has all of them."""
        if host().has_wide_masks:
            with self.hoist():
                all_are_on = lanes == ALL_LANES
            with self.build.if_else(all_are_on, likely=True) as (then, otherwise):
                with then:
                    self.write_row(pointer, part, value, None)
                with otherwise:
                    self.write_row(pointer, part, value, self.lanes(lanes))
            return
        # A blend of the old and the new value costs more than a branch around it.
        target, usual = self.row_at(pointer, part), self.build.block
        with self.hoist():
            some_are_off = lanes != ALL_LANES
        with self.build.if_then(some_are_off, likely=False):
            blended, unusual = self._blend(target, value, self.lanes(lanes)), self.build.block
        result = self.build.phi(value.type)
        result.add_incoming(value, usual)
        result.add_incoming(blended, unusual)
        target.store(result, align=64)

    def rows_of(self, value: Any) -> list[IrValue]:
        """Returns the rows of a result of 32 or 64 bits a lane, <64 x i32> each, the lowest first."""
        value = self.value(value)
        if value.type.element == I32:
            return [value.shuffle(self._lane_order()) if self.in_host_order else value]
        words = value.bitcast(ir.VectorType(I32, 2 * self.together))
        return [words.shuffle([2 * place + number for place in self._lane_order()]) for number in range(2)]

    def write_wide(self, pointer: Any, value: Any, mask: Any | None) -> None:
        """Stores <64 x i32> or <64 x i64> into one or two registers."""
        for number, row in enumerate(self.rows_of(value)):
            self.write_row(pointer, number, row, mask)

    def value(self, value: Any) -> IrValue:
        """Wraps a value of llvmlite, such as a constant, so that it has operators."""
        return IrValue(self.build, value)

    def splat(self, value: Any) -> IrValue:
        """Copies a scalar to all lanes that code is emitted for."""
        return self.value(value).splat(self.together)

    def emit_and(self, first: Any, second: Callable[[], Any]) -> IrValue:
        """Returns i1: `first`, and the value that `second` emits. That code runs only if `first` holds."""
        build = self.build
        before = build.block
        with build.if_then(first):
            value, asked = second(), build.block
        result = build.phi(I1)
        result.add_incoming(value, asked)
        result.add_incoming(ir.Constant(I1, 0), before)
        return result

    def emit_choice(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> IrValue:
        """Returns i1: the value that `then` or `otherwise` emits. Only the chosen one's code runs."""
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
        """Emits a loop: body(number, *state) for numbers (i64) from `first` (0), at least once, while below `count`.

        count: an int, or i64. Returns the last state.
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
