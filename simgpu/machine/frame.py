"""The frame of a handler: `void handler(wave, record)` with access to both, its ways out, and the hooks that look on.

A handler ends by a tail call to the next record's handler, or returns to the scheduler with a
status. Control transfers count: `entered[target]` and `exited[source]`, from which the executions
of every instruction follow by a prefix sum, so straight-line code pays nothing for its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import intrinsics, layout
from simgpu.machine.accesses import Access, Sums
from simgpu.machine.jit import compiler
from simgpu.machine.layout import RECORD, Status
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan
from simgpu.machine.values import I1, I8, I32, I64, IrValue
from simgpu.machine.wave_frame import HANDLER, PTR, WaveFrame


class Frame(WaveFrame):
    """One handler under construction.

    hooks: in checked mode, those that follow the wave's ways and accesses; inst: whose handler; body: what emits that instruction,
    in this frame or another; dry: whether only the undefined bits move (`checks.uninitialized.instrument`), so that counts and
    whatever else a body does besides may be left out; lean: whether the handler leaves for the whole one where there is more to do
    than usual.
    """

    dry = False
    lean = False

    def __init__(
        self, module: ir.Module, name: str, hooks: Sequence[Hooks] = (), inst: Instruction | None = None,
        body: Callable[[Frame], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(module, name)
        self.hooks = hooks
        self.inst, self.body = inst, body
        self.planned: dict[type, Any] = {}  # what each check planned

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
        """Have the `SharedPart` of that name do its work with an i64; where it ends the run, so does this."""
        went_on = intrinsics.call(self.build, compiler().name(key), I64, [self.wave, self.record, argument])
        with self.build.if_then(went_on == 0, likely=False):
            self.leave()

    def fault(self, kind: int, address: Any, lane: Any) -> None:
        """Return with a fault of this record."""
        self.set_state(layout.FAULT_KIND, ir.Constant(I32, int(kind)))
        self.set_state(layout.FAULT_ADDRESS, address)
        self.set_state(layout.FAULT_LANE, lane)
        self.stop(Status.FAULT, self.slot(layout.SLOT_INDEX))


class SharedPart(Frame):
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


class Hooks:
    """What one check emits when a handler is compiled. An instance keeps nothing: handlers are shared by all launches.

    Each access that passed its bounds checks is described after its bytes moved; a store to LDS is so before, too. Hooks may use
    the wave's ADDRESSES area; staging holds what a load read, until that is in registers, or what a store writes, lane after lane.
    A row of LDS that all are done with beforehand (`row`) is neither described nor staged.
    """

    sums = False  # whether it looks at matrix instructions by `summed`, which follows tiles of them too (`matrix.tiles`)

    @property
    def kind(self) -> type[Hooks]:
        """The class, by whose name handlers' keys know it."""
        return type(self)

    def concerns(self, inst: Instruction) -> bool:
        """Whether anything is emitted for the instruction; without any it shares plain handlers."""
        return True

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """What `before` and `after` need; may add slots and parts of the handler's key to the plan."""
        return None

    def leans(self, inst: Instruction, planned: Any) -> bool:
        """Whether `before` leaves a lean frame (`Frame.ask_for_whole`) where there is more to do than usual."""
        return False

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emit ahead of the instruction's body."""

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emit behind the body, where the wave goes on with the next instruction."""

    def evaluated(self, frame: Frame, mode: Mode, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Emit where the body of vector instruction `frame.inst` gave its results, before omod, clamp and the write.

        Both are what the body takes and returns: `lane.Value`s, or tuples of them. Of a packed instruction, once for each half.
        """

    def flushed(self, frame: Frame, value: Any, tiny: Any) -> None:
        """Emit where MODE replaces denormals of a vector instruction's operand or result by 0.

        value: `lane.Value` before; tiny: <64 x i1>, its lanes whose magnitude is below the least normal number, zeros among them.
        """

    def looks_at_rows(self) -> bool:
        """Whether `evaluated` or `flushed` emits anything, for whole rows."""
        kind = type(self)
        return kind.evaluated is not Hooks.evaluated or kind.flushed is not Hooks.flushed

    def summed(self, frame: Frame, sums: Sums) -> None:
        """Emit where some lanes of a matrix instruction's D have their sums, before they are written; only where `sums`."""

    def access(self, frame: Frame, access: Access) -> None:
        """Emit where `frame.inst` made an access to memory or LDS that passed its bounds checks."""

    def overwrite(self, frame: Frame, access: Access) -> None:
        """Emit where `frame.inst` is about to store to LDS or device memory; `access` follows. Whole waves have stored already."""

    def takes_rows(self) -> bool:
        """Whether `row` may be done with an access."""
        kind = type(self)
        return kind.access is Hooks.access and kind.overwrite is Hooks.overwrite

    def row(self, frame: Frame, first: IrValue) -> Any:
        """Emit where the 64 lanes of `frame.inst` are about to load or store 128 bits each of LDS, in a row from byte `first` (i64)
        on, in bounds; only where `takes_rows`. Returns whether it is done with the access (i1): by itself where it looks at none.

        It may be told of the access all the same, by `overwrite` and `access`, where others are not done with it.
        """
        return ir.Constant(I1, 1)

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        """Emit where control goes from record `index` to record `target` (i32 values)."""

    def end(self, frame: Frame, index: Any) -> None:
        """Emit where a wave ends at record `index`."""
