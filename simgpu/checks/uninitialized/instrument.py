"""Turns a handler into its shadow: the same computation on shadow bits, without its effects.

`instrument` rewrites a function that an emitter made. Every value gets a shadow by `rules`, and every store writes the shadow
bytes instead; only stores to the handler's own temporaries remain. Registers, memory and counters keep their contents. So one
table of rules for LLVM's operations covers every instruction with all its modifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.checks.uninitialized import runtime, shadow_layout
from simgpu.checks.uninitialized.pointers import Pointer, Pointers
from simgpu.checks.uninitialized.rules import (
    RULES,
    Shadow,
    any_bit,
    bytes_of,
    either,
    integer,
    intrinsic,
    shadow_value,
    spread,
    strict,
)
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.values import I1, I32, Builder, IrValue
from simgpu.machine.wave_frame import ROW32

_DROPPED = ("atomicrmw", "fence")


class DryFrame(Frame):
    """Frame of a handler that will only compute shadows: every exit just returns, and nothing is counted."""

    dry = True

    def by_groups(self, body: Callable[..., Sequence[Any] | None], state: Sequence[Any] = ()) -> list[Any]:
        """Emits the body once, for all 64 lanes: a flag is of a whole row."""
        return list(body(*state) or ())

    def count(self, table: int, index: Any, amount: Any) -> None:
        pass

    def jump_record(self, record: Any, computed: bool = False) -> None:
        self.build.ret_void()

    def leave_to_lower(self, record: Any, index: Any) -> None:
        pass

    def transfer(self, target: Any, index: Any, computed: bool = False) -> None:
        self.build.ret_void()

    def stop(self, status: int, index: Any, resume: Any | None = None) -> None:
        self.build.ret_void()


def instrument(frame: Frame, moves: bool = False) -> None:
    """Turns the frame's finished function into its shadow.

    moves: True if the instruction only moves the data in its staging area, so that the shadow need not store the data there.
    """
    Instrument(frame, moves).run()


class Instrument:
    """Rewrites one function, block by block, definitions before their uses."""

    def __init__(self, frame: Frame, moves: bool) -> None:
        self.frame = frame
        self.moves = moves
        self.build = Builder()
        self.pointers = Pointers(frame)
        self.shadows: dict[Any, Shadow] = {}
        self.replaced: dict[Any, Any] = {}
        self.phis: list[tuple[Any, Any]] = []

    def run(self) -> None:
        for block in reverse_postorder(self.frame.function):
            old, block.instructions = block.instructions, []
            terminator, block.terminator = block.terminator, None
            self.build.position_at_end(block)
            for inst in old:
                self._settle_operands(inst)
                if inst is not terminator:
                    self._visit(inst)
            block.instructions.append(terminator)
            block.terminator = terminator
        for real, shadow in self.phis:
            real.incomings = [(self._replacement(value), block) for value, block in real.incomings]
            for value, block in real.incomings:
                shadow.add_incoming(shadow_value(value, self._shadow_of(value)), block)

    def _settle_operands(self, inst: Any) -> None:
        if self.replaced and inst.opname != "phi":
            inst.operands = [self._replacement(operand) for operand in inst.operands]

    def _replacement(self, value: Any) -> Any:
        return value if isinstance(value, ir.Constant) else self.replaced.get(value, value)

    def _shadow_of(self, value: Any) -> Shadow:
        return None if isinstance(value, ir.Constant) else self.shadows.get(value)

    def _keep(self, inst: Any) -> None:
        block = self.build.block
        block.instructions.append(inst)
        self.build.position_at_end(block)

    def _visit(self, inst: Any) -> None:
        build = self.build
        name = inst.opname
        shadows = [self._shadow_of(operand) for operand in inst.operands]
        if name == "store":
            self._store(inst)
        elif name == "load":
            self._keep(inst)
            self.shadows[inst] = self._load(inst)
        elif name == "call":
            self._call(inst, shadows[1:])
        elif name == "phi":
            self._keep(inst)
            if not isinstance(inst.type, ir.PointerType) and inst not in self.frame.counters:
                shadow = build.phi(integer(inst.type))
                self.phis.append((inst, shadow))
                self.shadows[inst] = shadow
        elif name == "cmpxchg":
            # In the shadow it always succeeds: the result is the value to compare with, and the new value's shadow is stored.
            self._store_shadow(self.pointers.of(inst.operands[0]), inst.operands[2], 1)
        elif name == "extractvalue":
            exchange = inst.operands[0]
            self.replaced[inst] = ir.Constant(I1, 1) if inst.indices[0] else exchange.operands[1]
        elif name in _DROPPED:
            assert isinstance(inst.type, ir.VoidType) or name == "atomicrmw"
        else:
            self._keep(inst)
            self.pointers.define(build, inst, shadows)
            known = RULES.get(name)
            self.shadows[inst] = known(build, inst, shadows) if known else strict(inst.type, shadows)

    # -- memory --------------------------------------------------------------------------------

    def _load(self, inst: Any) -> Shadow:
        pointer = self.pointers.of(inst.operands[0])
        if pointer.shadow is None:
            return None
        if isinstance(inst.type, ir.PointerType):
            return None
        self._fill(pointer, inst.type)
        if pointer.region == "global":
            runtime.settle_memory.call(self.build, inst.operands[0], pointer.shadow, bytes_of(inst.type), pointer.entry)
        shadow = pointer.shadow.load(integer(inst.type), inst.align)
        if pointer.index is not None:
            shadow = either(shadow, spread(pointer.index, inst.type))
        return shadow

    def _store(self, inst: Any) -> None:
        value, target = inst.operands
        pointer = self.pointers.of(target)
        if pointer.private and not (self.moves and pointer.region == "staging"):
            self._keep(inst)
        self._store_shadow(pointer, value, inst.align)

    def _store_shadow(self, pointer: Pointer, value: Any, align: int) -> None:
        if pointer.shadow is None or isinstance(value.type, ir.PointerType):
            return
        shadow = IrValue(self.build, shadow_value(value, self._shadow_of(value)))
        if pointer.index is not None:
            shadow = either(shadow, spread(pointer.index, value.type))
        if pointer.region == "global":
            shadow = self._to_device(pointer, shadow)
        pointer.shadow.store(shadow, align)
        self._settle_flag(pointer, value.type)

    def _to_device(self, pointer: Pointer, shadow: Any) -> Any:
        """Returns the shadow to store in device memory: the same in private memory; elsewhere undefined bits are noted in STORED
        and stored as defined."""
        private = pointer.entry.at(layout.ALLOC_PRIVATE).load(I32) != 0
        bad = any_bit(shadow) & ~private
        noted = IrValue(self.build, self.frame.wave).at(shadow_layout.STORED)
        noted.store(noted.load(I32) | bad.zext(I32))
        return shadow & spread(private, shadow.type)

    def _call(self, inst: Any, shadows: list[Shadow]) -> None:
        name = inst.callee.name
        if name.startswith("llvm.masked.store."):
            value, target, align, mask = inst.args
            pointer = self.pointers.of(target)
            if pointer.shadow is None:
                return
            self._fill(pointer, value.type)
            shadow = shadow_value(value, self._shadow_of(value))
            self.build.call(inst.callee, [shadow, pointer.shadow, align, mask])
            self._settle_flag(pointer, value.type)
        elif not isinstance(inst.type, ir.VoidType):
            self._keep(inst)
            self.shadows[inst] = intrinsic(self.build, inst, shadows)

    # -- flags of vector registers -------------------------------------------------------------

    def _fill(self, pointer: Pointer, type_: ir.Type) -> None:
        """Fills in the shadow row of a never written register before it is read or partly written."""
        whole = type_ == ROW32
        if pointer.region == "register" and (whole or not pointer.derived):
            runtime.fill_row.call(self.build, self.frame.wave, pointer.shadow)

    def _settle_flag(self, pointer: Pointer, type_: ir.Type) -> None:
        if pointer.region == "register" and type_ == ROW32:
            runtime.settle_row.call(self.build, self.frame.wave, pointer.shadow)


def reverse_postorder(function: ir.Function) -> list[Any]:
    """Returns the blocks that the entry reaches, each after its dominators."""
    order: list[Any] = []
    seen = {function.entry_basic_block}
    stack = [(function.entry_basic_block, iter(_successors(function.entry_basic_block)))]
    while stack:
        block, left = stack[-1]
        following = next((b for b in left if b not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(_successors(following))))
    return order[::-1]


def _successors(block: Any) -> list[Any]:
    return [operand for operand in block.terminator.operands if isinstance(operand, ir.Block)]

