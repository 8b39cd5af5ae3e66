"""Emits a handler, `void handler(wave, record)`: its exits, and calls of the hooks of checks.

A handler ends by a tail call to the next record's handler, or returns to the scheduler with a status. Only control
transfers are counted: `entered[target]` and `exited[source]`. A prefix sum of these gives the executions of every
instruction, so straight-line code pays nothing for its counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import intrinsics, layout
from simgpu.machine.accesses import Access, LaneSums
from simgpu.machine.jit import compiler
from simgpu.machine.layout import RECORD, Status
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan
from simgpu.machine.values import I1, I8, I32, I64, IrValue
from simgpu.machine.wave_frame import HANDLER, PTR, WaveFrame

SAVES_REGISTERS = "preserve_mostcc"  # calling convention of LLVM: the callee saves all general registers but its result


class Frame(WaveFrame):
    """A handler under construction.

    hooks: in checked mode, the checks that concern the instruction. inst: the handler's instruction. body: emits that instruction,
    in this frame or another. dry: True if the body is emitted again on undefined bits only (`checks.uninitialized.instrument`);
    it may then omit counts and other side effects. lean: True if the handler leaves unusual cases to the complete handler.
    ring: True if floats are elements of a ring (`Mode.ring`).
    """

    dry = False
    lean = False
    ring = False

    def __init__(
        self, module: ir.Module, name: str, hooks: Sequence[Hooks] = (), inst: Instruction | None = None,
        body: Callable[[Frame], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(module, name)
        self.hooks = hooks
        self.inst, self.body = inst, body
        self.planned: dict[type, Any] = {}  # plan of each check, by its class

    # -- counting ------------------------------------------------------------------------------

    def count(self, table: int, index: Any, amount: Any) -> None:
        """Adds an i64 to entry `index` (i32) of one of the context's tables."""
        entry = self.context(table).pointer().at(self.value(index).zext(I64) * 8)
        entry.store(entry.load(I64, 8) + amount, 8)

    # -- ways out ------------------------------------------------------------------------------

    def next(self, dwords: int) -> None:
        """Continues with the instruction `dwords` further."""
        self.jump_record(self.at(self.record, dwords * RECORD))

    def jump_record(self, record: Any, computed: bool = False) -> None:
        """Continues with a record. computed: True if another thread may just have lowered it (`Program.lower`)."""
        handler = self.build.load(record, align=8, typ=ir.PointerType(HANDLER))
        if computed:
            self.build.fence("acquire")
        self.build.call(handler, [self.wave, record], tail="musttail")
        self.build.ret_void()

    def leave_run(self, index: Any) -> None:
        """Accounts for the straight-line run that ends with record `index`."""
        done = index - self.state(layout.ENTRY) + 1
        self.set_state(layout.BUDGET, self.state(layout.BUDGET, I64) - done.sext(I64))
        self.count(layout.CTX_EXITED, index, ir.Constant(I64, 1))

    def enter_run(self, index: Any) -> None:
        self.set_state(layout.ENTRY, index)
        self.count(layout.CTX_ENTERED, index, ir.Constant(I64, 1))

    def transfer(self, target: Any, index: Any, computed: bool = False) -> None:
        """Jumps from record `index` to record `target` (i32 values); yields when out of budget."""
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
        """Returns, to resume at record `index`, if it has no handler: no code near it was lowered yet (`Program.lower`)."""
        handler = self.build.load(record, align=8, typ=I64)
        with self.build.if_then(handler == 0, likely=False):
            self.exit(Status.LOWER, index)
            self.build.ret_void()

    def exit(self, status: int, resume: Any) -> None:
        """Sets the status and the record to resume at; the caller returns."""
        self.set_state(layout.STATUS, ir.Constant(I32, int(status)))
        self.set_state(layout.RESUME, resume)

    def pause(self, status: int, dwords: int) -> None:
        """Returns to the scheduler, to continue with the instruction `dwords` further."""
        index = self.slot(layout.SLOT_INDEX)
        following = index + dwords
        self.leave_run(index)
        self.enter_run(following)
        self.exit(status, following)
        self.build.ret_void()

    def let_others_on(self, dwords: int) -> None:
        """Pauses if the waves of a workgroup are kept in step, so that the other waves have their turns."""
        with self.build.if_then(self.context(layout.CTX_IN_STEP) != 0):
            self.pause(Status.WAITS, dwords)

    @property
    def begins_lean(self) -> bool:
        """True if a lean body must leave unusual cases itself. With checks, the handler did so before them (`vmem.begin_lean`)."""
        return self.lean and not (self.hooks or self.dry)

    def ask_for_whole(self) -> None:
        """Returns WHOLE before the instruction has any effect; it is then executed by its complete handler (`Program.complete`)."""
        self.exit(Status.WHOLE, self.slot(layout.SLOT_INDEX))
        self.leave()

    def stop(self, status: int, index: Any, resume: Any | None = None) -> None:
        """Ends the run at record `index` and returns to the scheduler."""
        self.leave_run(index)
        self.exit(status, index if resume is None else resume)
        self.leave()

    def leave(self) -> None:
        """Returns to the scheduler."""
        self.build.ret_void()

    def call(self, key: str, argument: Any) -> None:
        """Calls the `SharedPart` of a key with an i64. If the part ended the run, this handler returns, too."""
        self._leave_if_ended(intrinsics.call(self.build, compiler().name(key), I64, [self.wave, self.record, argument]))

    def call_aside(self, emit: Callable[[Frame], None]) -> None:
        """Emits code that is seldom run as a part of this handler's own, and calls it: inlined, it would take registers, which the
        handler would save on each run. So the part itself saves those that it takes."""
        part = SharedPart(self.module, f"{self.function.name}_aside")
        part.inst, part.lean = self.inst, self.lean
        part.function.linkage = "internal"
        part.function.attributes.add("noinline")
        part.function.calling_convention = SAVES_REGISTERS
        emit(part)
        if not part.build.block.is_terminated:
            part.finish()
        arguments = [self.wave, self.record, ir.Constant(I64, 0)]
        self._leave_if_ended(self.build.call(part.function, arguments, cconv=SAVES_REGISTERS))

    def _leave_if_ended(self, went_on: Any) -> None:
        with self.build.if_then(self.value(went_on) == 0, likely=False):
            self.leave()

    def fault(self, kind: int, address: Any, lane: Any) -> None:
        """Returns to the scheduler with a fault of this record. lane: i32, -1 if the fault is not a lane's."""
        self.set_state(layout.FAULT_KIND, ir.Constant(I32, int(kind)))
        self.set_state(layout.FAULT_ADDRESS, address)
        self.set_state(layout.FAULT_LANE, lane)
        self.stop(Status.FAULT, self.slot(layout.SLOT_INDEX))


class SharedPart(Frame):
    """A part of handlers that is compiled once and called by name: i64 (wave, record, argument).

    It returns 1, or 0 if it ended the run, as after a fault; the handler then returns too. `CALLED` of `jit` makes its
    object file.
    """

    TYPE = ir.FunctionType(I64, [PTR, PTR, I64])

    def __init__(self, module: ir.Module, name: str) -> None:
        super().__init__(module, name)
        self.argument = self.value(self.function.args[2])

    def leave(self) -> None:
        self.build.ret(ir.Constant(I64, 0))

    def finish(self) -> None:
        """Returns to the handler, which continues."""
        self.build.ret(ir.Constant(I64, 1))


class Hooks:
    """Code that a check emits when a handler is compiled. An instance keeps no state: all launches share handlers.

    Each access that passed its bounds checks is reported after its bytes moved; a store to LDS is also reported before.
    Hooks may use the wave's ADDRESSES area. Staging holds the data of a load until that is in registers, or the data of
    a store, lane after lane. A row of LDS that all hooks have finished with in advance (`row`) is neither reported nor
    staged.
    """

    sums = False  # True to see matrix instructions by `on_sums`, including tiles of them (`matrix.tiles`)
    # True if matrix instructions may run as a tile, without a look at registers in between, wherever `passes_tile` holds.
    tiles = False
    moves = False  # True if `move` copies the bytes of accesses to device memory; fast paths are then left out
    values = True  # False if results that reach only stored data do not matter; matrix instructions that make these are left out

    @property
    def kind(self) -> type[Hooks]:
        """Class of the check; handlers' keys contain its name."""
        return type(self)

    @property
    def settings(self) -> Hashable:
        """Settings that `concerns`, `plan` and the emitted code depend on, apart from the class and the instruction."""
        return ()

    def concerns(self, inst: Instruction) -> bool:
        """True if the check emits anything for the instruction; otherwise the instruction shares plain handlers."""
        return True

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """Returns the data for `before` and `after`; may add slots and parts of the handler's key to the plan."""
        return None

    def leans(self, inst: Instruction, planned: Any) -> bool:
        """True if `before` leaves a lean frame (`Frame.ask_for_whole`) in unusual cases."""
        return False

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emits code before the instruction's body."""

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emits code after the body, where the wave continues with the next instruction."""

    def on_result(self, frame: Frame, mode: Mode, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Emits code for the results of vector instruction `frame.inst`, before omod, clamp and the write.

        Arguments and results are those of the body: `lane.Value`s, or tuples of them. For a packed instruction it is
        called for each half.
        """

    def on_flush(self, frame: Frame, value: Any, tiny: Any) -> None:
        """Emits code where MODE replaces denormals of a vector instruction's operand or result by 0.

        value: `lane.Value` before; tiny: <64 x i1>, the lanes whose magnitude is below the least normal number,
        including zeros.
        """

    def looks_at_rows(self) -> bool:
        """True if `on_result` or `on_flush` emits anything, for whole rows."""
        kind = type(self)
        return kind.on_result is not Hooks.on_result or kind.on_flush is not Hooks.on_flush

    def on_sums(self, frame: Frame, sums: LaneSums) -> None:
        """Emits code for a matrix instruction's sums in some lanes of D, before they are written; only if `sums`."""

    def passes_tile(self, frame: Frame, table: Any) -> Any:
        """Emits a test before the matrix instructions of a tile run as one, only if `tiles` and it concerns them.

        table: a `fma_tile.TileTable`. Returns i1: True if `before` and `after` of each instruction would do nothing; otherwise each
        runs alone.
        """
        return ir.Constant(I1, 1)

    def access(self, frame: Frame, access: Access) -> None:
        """Emits code after `frame.inst` accessed memory or LDS and passed its bounds checks."""

    def overwrite(self, frame: Frame, access: Access) -> None:
        """Emits code before `frame.inst` stores to LDS or device memory; `access` follows. Whole waves have stored already."""

    def move(self, frame: Frame, access: Access) -> None:
        """Emits the copy between staging and device memory, only if `moves`."""

    def approach(self, frame: Frame, access: Access) -> None:
        """Emits code before an atomic or a scalar access to device memory, which its handler always does itself."""

    def takes_rows(self) -> bool:
        """True if `row` may finish an access."""
        kind = type(self)
        return kind.access is Hooks.access and kind.overwrite is Hooks.overwrite

    def row(self, frame: Frame, first: IrValue) -> Any:
        """Emits code before the 64 lanes of `frame.inst` load or store 128 bits each of LDS, consecutively from byte
        `first` (i64).

        The access is in bounds. Only called if `takes_rows`. Returns i1: True if the check has finished with the
        access; the default is a check that looks at no access. `overwrite` and `access` may still follow, if another
        check has not finished with it.
        """
        return ir.Constant(I1, 1)

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        """Emits code where control goes from record `index` to record `target` (i32 values)."""

    def end(self, frame: Frame, index: Any) -> None:
        """Emits code where a wave ends at record `index`."""
